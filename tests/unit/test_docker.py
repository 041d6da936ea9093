"""The files of docker/ and .ci/, checked without a docker engine."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import click
import pyspark
import pytest
import yaml

import streamgroup
from streamgroup.cli.groups import groups
from streamgroup.cli.produce import produce
from streamgroup.jobs import ingest
from streamgroup.jobs.config import load
from streamgroup.testing.releases import NEWEST

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
IN_IMAGE = "/opt/streamgroup"
WATCHING = {"prometheus", "grafana"}
"""The services whose images are of others, beside Kafka."""


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> Any:
    return compose["services"]


def instructions(word: str) -> list[str]:
    """The arguments of an instruction of the Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())
    return [line.removeprefix(word).strip() for line in text.splitlines() if line.startswith(word + " ")]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for line in instructions("ENV") for pair in line.split())


def test_the_cluster_has_a_broker_a_master_two_workers_and_the_job(services: dict[str, Any]) -> None:
    assert set(services) == {"kafka", "topic", "spark-master", "spark-worker-1", "spark-worker-2", "job"} | WATCHING
    assert services["spark-worker-1"] == services["spark-worker-2"]


def test_the_broker_is_the_one_that_the_tests_run_in_kraft_mode(services: dict[str, Any]) -> None:
    kafka = services["kafka"]
    assert kafka["image"] == f"apache/kafka:{NEWEST}"
    settings = kafka["environment"]
    assert settings["KAFKA_PROCESS_ROLES"] == "broker,controller"
    listeners = dict(entry.split("://") for entry in settings["KAFKA_LISTENERS"].split(","))
    advertised = dict(entry.split("://") for entry in settings["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(entry.split(":") for entry in settings["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert set(listeners) == set(protocols)
    assert advertised == {settings["KAFKA_INTER_BROKER_LISTENER_NAME"]: f"kafka{listeners['PLAINTEXT']}"}
    voter = f"{settings['KAFKA_NODE_ID']}@kafka{listeners[settings['KAFKA_CONTROLLER_LISTENER_NAMES']]}"
    assert settings["KAFKA_CONTROLLER_QUORUM_VOTERS"] == voter


def test_ours_is_one_image_of_this_version(services: dict[str, Any]) -> None:
    ours = [service for name, service in services.items() if name not in {"kafka", *WATCHING}]
    assert {service["image"] for service in ours} == {f"streamgroup:{streamgroup.__version__}"}
    assert all(service["build"] == {"context": "..", "dockerfile": "docker/Dockerfile"} for service in ours)


def test_every_service_waits_for_what_it_needs(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services, name
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[needed], needed
    assert set(services["job"]["depends_on"]) == {"topic", "spark-worker-1", "spark-worker-2"}


def test_ports_are_published_on_the_loopback_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_what_is_mounted_exists(compose: dict[str, Any], services: dict[str, Any]) -> None:
    for service in services.values():
        for source, *_ in (volume.split(":") for volume in service.get("volumes", ())):
            assert (DOCKER / source).exists() if source.startswith(".") else source in compose["volumes"]


def test_the_job_parses_and_reads_the_broker_of_the_cluster(services: dict[str, Any]) -> None:
    job = load(DOCKER / "ingest.toml", None, services["job"]["environment"])
    assert job.member == "a"
    assert job.source["kafka.bootstrap.servers"] == "kafka:9092"
    assert job.source["subscribe"] in services["topic"]["command"]
    assert job.sink.path is not None
    assert job.sink.path.startswith("/data/")
    assert job.stop.timeout_seconds < int(services["job"]["stop_grace_period"].removesuffix("s"))


def test_two_members_fit_into_the_cluster_and_share_the_directory_of_the_rows(services: dict[str, Any]) -> None:
    assert all("data:/data" in services[name]["volumes"] for name in ("job", "spark-worker-1", "spark-worker-2"))
    worker = services["spark-worker-1"]["command"]
    cores = 2 * int(worker[worker.index("--cores") + 1])
    job = load(DOCKER / "ingest.toml", "a", {})
    assert 2 * int(job.spark.conf["spark.cores.max"]) <= cores


def test_prometheus_scrapes_the_job_and_has_the_alert_rules(services: dict[str, Any]) -> None:
    config = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    job = load(DOCKER / "ingest.toml", "a", {})
    (scraped,) = config["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"job:{job.metrics.port}"]}]
    rules = yaml.safe_load((ROOT / "conf/prometheus/alerts.yml").read_text())
    assert f'job="{scraped["job_name"]}"' in str(rules), "the rules name the job of the scrapes"
    assert all(file in mounted(services["prometheus"]) for file in config["rule_files"])


def test_grafana_has_the_prometheus_and_the_board(services: dict[str, Any]) -> None:
    (source,) = yaml.safe_load((DOCKER / "grafana/datasources.yaml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((DOCKER / "grafana/dashboards.yaml").read_text())["providers"]
    boards = mounted(services["grafana"])[provider["options"]["path"]]
    assert [file.name for file in boards.iterdir()] == ["streamgroup.json"]


def mounted(service: dict[str, Any]) -> dict[str, Path]:
    """The files of the repository that a service has, by their paths in the container."""
    volumes = [volume.split(":") for volume in service["volumes"]]
    return {inside: (DOCKER / outside).resolve() for outside, inside, *_ in volumes}


def parsed(command: click.Command, arguments: list[str]) -> dict[str, Any]:
    return command.make_context(command.name, list(arguments)).params


def test_the_commands_of_ours_are_real(services: dict[str, Any]) -> None:
    program, name, *arguments = services["topic"]["command"]
    assert (program, name) == ("streamgroup", "produce")
    assert parsed(produce, arguments)["create"] == 6
    submit, master, url, script, *arguments = services["job"]["command"]
    assert (submit, master, url) == ("spark-submit", "--master", "spark://spark-master:7077")
    assert script.removeprefix(f"{IN_IMAGE}/") == "jobs/ingest.py"
    assert (ROOT / "jobs" / "ingest.py").exists()
    assert str(parsed(ingest.command, arguments)["file"]) == "/conf/ingest.toml"


def test_the_commands_of_the_docs_are_real() -> None:
    text = (DOCKER / "README.md").read_text().replace("\\\n", " ")
    arguments = re.findall(r"streamgroup produce (.*)", text)
    assert parsed(produce, arguments[0].split())["topic"] == "orders"
    arguments = re.findall(r"streamgroup groups (.*)", text)
    assert parsed(groups, arguments[0].split())["names"] == ("orders-ingest",)
    assert len(re.findall(r"compose -f docker/compose.yaml", text)) >= 5


@pytest.mark.parametrize("service", ["spark-master", "spark-worker-1"])
def test_the_flags_of_sparks_servers_are_real(services: dict[str, Any], service: str) -> None:
    program, main_class, *arguments = services[service]["command"]
    assert program == "spark-class"
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as classes:
        parser = classes.read(main_class.replace(".", "/") + "Arguments.class")
    for flag in (argument for argument in arguments if argument.startswith("--")):
        assert b"\x01\x00" + bytes([len(flag)]) + flag.encode() in parser, flag  # a constant of the class


# -- the image ---------------------------------------------------------------------------------------------------------


def test_the_image_has_what_is_copied_into_it() -> None:
    allowed = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    for line in instructions("COPY"):
        if line.startswith("--from"):
            continue
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in allowed, source


def test_the_paths_of_the_image_are_those_of_its_python() -> None:
    (version,) = {image.split(":")[1].split("-")[0] for image in (line.split()[0] for line in instructions("FROM"))}
    assert environment()["SPARK_HOME"] == f"{IN_IMAGE}/lib/python{version}/site-packages/pyspark"
    assert environment()["PYSPARK_PYTHON"] == f"{IN_IMAGE}/bin/python"
    assert tuple(map(int, version.split("."))) >= (3, 11)


def test_the_image_installs_the_lock_with_its_hashes_and_does_not_run_as_root() -> None:
    assert any("--require-hashes -r requirements.lock" in line for line in instructions("RUN"))
    lock = (ROOT / "requirements.lock").read_text()
    assert f"\npyspark=={pyspark.__version__} " in lock
    pins = re.findall(r"^[A-Za-z0-9._-]+==\S+ \\$", lock, re.MULTILINE)
    assert len(pins) > 20
    assert len(re.findall(r"^[A-Za-z0-9]", lock, re.MULTILINE)) == len(pins)
    assert "://" not in lock
    assert "--index-url" not in lock
    assert instructions("USER") == ["streamgroup"]


# -- CI ----------------------------------------------------------------------------------------------------------------


def test_ci_is_a_script_of_which_every_user_can_run_the_end() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True, timeout=10)
    lines = script.read_text().splitlines()
    assert "set -euo pipefail" in lines
    assert [line.split()[1] for line in lines if line.startswith("make ")] == ["lint", "test", "soak"]
    assert any(line.startswith("make lint types imports ") for line in lines)
    assert lines[-1].startswith("make soak")


def test_ci_says_what_to_install_where_it_may_not(tmp_path: Path) -> None:
    for name, text in {"python3": "exit 1", "id": "echo 1000"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    path.pop("PYTHON", None)
    ran = subprocess.run([ROOT / ".ci" / "run"], env=path, capture_output=True, text=True, timeout=20, check=False)
    assert ran.returncode == 1
    assert ".ci/run: install python3 python3-venv" in ran.stderr
