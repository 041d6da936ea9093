"""The wheel in a clean environment with each minor version of PySpark that is supported: it reads, writes, commits."""

from __future__ import annotations

import json
import os
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from streamgroup.cli.doctor import TRIED
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import committed, rows_of
from tests.wheels import ROOT, built_wheel

APPLICATION = Path(__file__).with_name("clean_environment_application.py")
JOB = """\
[source]
"kafka.bootstrap.servers" = "{servers}"
subscribe = "{topic}"
startingOffsets = "earliest"

[trigger]
available_now = true

[parser]
format = "csv"
schema = "number INT"

[dead_letters]
path = "dead"

[sink]
format = "parquet"
path = "job-rows"
checkpoint = "job-checkpoint"
columns = ["parsed.number AS number"]
"""
"""With a parser the job calls Spark's sink of files, which is not a public interface of Spark."""
INSTALLATION_TIMEOUT_S = 900
APPLICATION_TIMEOUT_S = 300


@pytest.mark.long
@pytest.mark.timeout(INSTALLATION_TIMEOUT_S + 2 * APPLICATION_TIMEOUT_S)
@pytest.mark.parametrize("version", TRIED)
def test_the_wheel_reads_writes_commits_and_starts_a_query_again_after_its_context_has_stopped(
    kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path, version: str
) -> None:
    environment, topic, group = tmp_path / "environment", make_topic(kafka4, 2), f"clean-{version}"
    venv.create(environment, with_pip=True)
    binaries = environment / "bin"
    wheel = built_wheel(tmp_path)
    files = (ROOT / "streamgroup" / "monitoring" / "page" / "static").rglob("*")
    page = {str(path.relative_to(ROOT)) for path in files if path.is_file()}
    assert page <= set(zipfile.ZipFile(wheel).namelist()), "the wheel lacks files of the live page"
    install = [binaries / "python", "-m", "pip", "install", "--quiet", wheel, f"pyspark=={version}.*"]
    subprocess.run(install, check=True, timeout=INSTALLATION_TIMEOUT_S)
    outside = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
    clean = {**outside, "PYSPARK_PYTHON": str(binaries / "python"), "PATH": f"{binaries}:{os.environ['PATH']}"}

    def run(*command: str | Path) -> str:
        found = subprocess.run(
            command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=APPLICATION_TIMEOUT_S, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    said = json.loads(run(binaries / "python", APPLICATION, kafka4.bootstrap_servers, topic, group, tmp_path))
    assert said.pop("pyspark").startswith(f"{version}.")
    assert said == {"batch": [100, 4950], "stream": [100, 4950], "named": [200, 9900], "again": True}
    assert sum(committed(kafka4, group, topic).values()) == 100
    shown = json.loads(run(binaries / "streamgroup", "checkpoint", tmp_path / "named-checkpoint", "--json"))
    ends = [(row["source"], row["end"]) for row in shown["offsets"]]
    assert {name: sum(end for source, end in ends if source == name) for name, _ in ends} == {
        "first": 100,
        "second": 100,
    }
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(servers=kafka4.bootstrap_servers, topic=topic))
    run(binaries / "spark-submit", ROOT / "jobs" / "ingest.py", "--config", job)
    assert sorted(rows_of(tmp_path / "job-rows", "number")) == [(number,) for number in range(100)]
    run(binaries / "streamgroup", "doctor", "-b", kafka4.bootstrap_servers, "--group", group)
