"""`streamgroup doctor --master`, as a user runs it: it starts a Spark of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import streamgroup
from tests.spark.standalone import StandaloneCluster, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(200)]

SMALL = ("--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def executors(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[Mapping[str, Any]]]:
    """Return the exit code of the doctor and its findings about executors."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [str(Path(sys.executable).with_name("streamgroup")), "doctor", "--json", *SMALL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout, done.stderr
    rows = json.loads(done.stdout)["findings"]
    return done.returncode, [row for row in rows if row["check"] == "executors"]


@pytest.mark.long
def test_in_local_mode_the_driver_is_the_only_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    code, (found,) = executors(monkeypatch, "--master", "local[2]")
    assert (code, found["verdict"]) == (0, "ok"), found
    assert found["found"].startswith("1 executor on ")
    assert f"({sys.executable}), streamgroup {streamgroup.__version__}, pyarrow " in found["found"]


@pytest.mark.long
def test_each_executor_of_a_cluster_runs_a_task(monkeypatch: pytest.MonkeyPatch, cluster: StandaloneCluster) -> None:
    code, (found,) = executors(monkeypatch, "--master", cluster.url)
    assert (code, found["verdict"]) == (0, "ok"), found
    assert found["found"].startswith("2 executors on ")


@pytest.mark.long
def test_executors_that_lack_the_package_fail_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, cluster: StandaloneCluster
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(Path(sys.base_prefix, "bin", "python3").resolve()))
    code, (shown, problem) = executors(monkeypatch, "--master", cluster.url)
    assert (code, shown["verdict"], problem["verdict"]) == (1, "ok", "FAIL")
    assert "lacks the package streamgroup" in problem["found"]
    assert "Install streamgroup, with pyarrow, for the Python that the executors run" in problem["found"]


@pytest.mark.long
def test_a_master_without_free_cores_fails_within_the_timeout(
    monkeypatch: pytest.MonkeyPatch, cluster: StandaloneCluster
) -> None:
    arguments = ("--master", cluster.url, "--conf", "spark.executor.memory=64g", "--executors-timeout", "15")
    code, (problem,) = executors(monkeypatch, *arguments)
    assert (code, problem["verdict"]) == (1, "FAIL")
    assert "no executor has run a task within" in problem["found"]
