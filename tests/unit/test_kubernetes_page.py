"""Checks of docs/kubernetes-yarn.md that need neither Kubernetes nor YARN: manifests, names, flags, the job's file."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

import streamgroup
from streamgroup.jobs.config import load
from streamgroup.testing.java import pyspark_jar_files

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kubernetes-yarn.md").read_text()
SPARK_HOME = Path(pyspark.__file__).parent
SPARK_JARS = ("spark-core_*.jar", "spark-kubernetes_*.jar", "spark-yarn_*.jar")
KINDS = {
    "ServiceAccount": ("v1", set()),
    "ConfigMap": ("v1", {"data"}),
    "Service": ("v1", {"spec"}),
    "Role": ("rbac.authorization.k8s.io/v1", {"rules"}),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", {"roleRef", "subjects"}),
    "StatefulSet": ("apps/v1", {"spec"}),
}
"""The API version of each kind, and the fields that it needs besides apiVersion, kind and metadata."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """The manifests by kind; the page has one of each."""
    found = [manifest for block in blocks("yaml") for manifest in yaml.safe_load_all(block)]
    assert len({manifest["kind"] for manifest in found}) == len(found)
    return {manifest["kind"]: manifest for manifest in found}


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["StatefulSet"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def driver(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["containers"]
    found: dict[str, Any] = container
    return found


def confs(argv: list[str]) -> dict[str, str]:
    pairs = [argv[at + 1].split("=", 1) for at, argument in enumerate(argv) if argument == "--conf"]
    return dict(pairs)


def yarn_command() -> list[str]:
    (block,) = blocks("sh")
    return shlex.split(block.replace("\\\n", " "))


def test_each_manifest_has_the_fields_of_its_kind(manifests: dict[str, Any]) -> None:
    assert set(manifests) == set(KINDS)
    for kind, (version, fields) in KINDS.items():
        manifest = manifests[kind]
        assert manifest["apiVersion"] == version
        assert set(manifest["metadata"]) == {"name", "namespace"}
        assert set(manifest) - {"apiVersion", "kind", "metadata"} == fields
    assert {manifest["metadata"]["namespace"] for manifest in manifests.values()} == {"ingest"}


def test_the_manifests_name_each_other(manifests: dict[str, Any], pod: dict[str, Any]) -> None:
    account = manifests["ServiceAccount"]["metadata"]["name"]
    binding = manifests["RoleBinding"]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [account] == [pod["serviceAccountName"]]
    stateful = manifests["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels == manifests["Service"]["spec"]["selector"]
    assert stateful["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]


def test_the_driver_is_reached_by_the_name_and_the_ports_of_the_service(
    manifests: dict[str, Any], driver: dict[str, Any]
) -> None:
    settings = confs(driver["args"])
    service, namespace = (manifests["Service"]["metadata"][key] for key in ("name", "namespace"))
    assert settings["spark.driver.host"] == f"$(POD_NAME).{service}.{namespace}.svc"
    ports = {settings["spark.driver.port"], settings["spark.blockManager.port"]}
    assert ports == {str(port["port"]) for port in manifests["Service"]["spec"]["ports"]}


def test_driver_and_executors_run_one_image_of_this_version(driver: dict[str, Any]) -> None:
    assert confs(driver["args"])["spark.kubernetes.container.image"] == driver["image"]
    assert driver["image"].endswith(f":{streamgroup.__version__}")
    (image,) = blocks("dockerfile")
    assert f"FROM streamgroup:{streamgroup.__version__}\n" in image
    assert f"COPY --from=apache/spark:{pyspark.__version__}-scala2.13-" in image


def test_the_variables_that_the_pod_uses_are_set(driver: dict[str, Any], manifests: dict[str, Any]) -> None:
    variables = {variable["name"]: variable["valueFrom"] for variable in driver["env"]}
    used = set(re.findall(r"\$\((\w+)\)", " ".join(driver["args"])))
    used |= set(re.findall(r'"env:(\w+)"', manifests["ConfigMap"]["data"]["ingest.toml"]))
    assert used | {"STREAMGROUP_MEMBER"} == set(variables)
    secret = variables["KAFKA_PASSWORD"]["secretKeyRef"]
    of_executors = confs(driver["args"])["spark.kubernetes.executor.secretKeyRef.KAFKA_PASSWORD"]
    assert of_executors == f"{secret['name']}:{secret['key']}"


def test_the_job_file_is_valid_and_a_drain_fits_into_the_grace_period(
    manifests: dict[str, Any], pod: dict[str, Any], driver: dict[str, Any], tmp_path: Path
) -> None:
    (mount,) = driver["volumeMounts"]
    ((name, text),) = manifests["ConfigMap"]["data"].items()
    assert driver["args"][-1] == f"{mount['mountPath']}/{name}"
    assert mount["name"] == pod["volumes"][0]["name"]
    (tmp_path / name).write_text(text)
    job = load(tmp_path / name, member="ingest-0", environment={})
    assert job.stop.timeout_seconds < pod["terminationGracePeriodSeconds"]


@pytest.mark.slow
def test_spark_submit_knows_every_flag(driver: dict[str, Any]) -> None:
    command = [SPARK_HOME / "bin" / "spark-submit", "--help"]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME)}
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    known = set(re.findall(r"--[a-z-]+", shown.stderr + shown.stdout))
    for argv in (driver["args"], yarn_command()):
        script = next(at for at, argument in enumerate(argv) if argument.endswith("ingest.py"))
        flags = {argument for argument in argv[:script] if argument.startswith("--")}
        assert {"--master"} <= flags <= known


@pytest.mark.slow
def test_spark_knows_every_setting(driver: dict[str, Any]) -> None:
    """The names are constants in Spark's classes; a family of settings has a prefix there."""
    classes = b"".join(classes_with_settings(jar) for jar in pyspark_jar_files(*SPARK_JARS))
    for name in {**confs(driver["args"]), **confs(yarn_command())}:
        prefix = name[: name.rindex(".") + 1]
        family = name.startswith(
            ("spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.executor.secretKey")
        )
        assert (prefix if family else name).encode() in classes, name


def classes_with_settings(jar: Path) -> bytes:
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.search(r"[cC]onfig|Conf|Client", name)]
        return b"".join(archive.read(name) for name in names if name.endswith(".class"))
