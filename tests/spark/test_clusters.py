"""The ingest job on a standalone cluster of Spark: two workers, each with an executor of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.read_back import read_back
from tests.spark.standalone import SPARK_HOME, EventLog, StandaloneCluster, standalone_cluster
from tests.spark.submitting import ROOT, Job, submitted, until, values
from tests.spark.support import Load, committed, log_ends
from tests.wheels import built_wheel

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

PARTITIONS = 2
A_BATCH = 100
END_S = 150.0
SLOWLY = "CAST(java_method('java.lang.Thread', 'sleep', {milliseconds}) AS STRING) AS slept"
"""A column that makes each row take so many milliseconds."""
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def load(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    return Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)


def job_file(
    home: Path, load: Load, columns: list[str], sink: Mapping[str, str], sink_options: Mapping[str, str]
) -> Path:
    """Write the file of a job that reads the backlog in batches of A_BATCH records, and ends."""
    options = {
        "kafka.bootstrap.servers": load.server.bootstrap_servers,
        "kafka.group.id": load.topic,
        "kafka.session.timeout.ms": 10_000,
        "subscribe": load.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": A_BATCH,
    }
    sections = {
        "source": options,
        "trigger": {"available_now": True},
        "sink": {"checkpoint": "checkpoints/{member}", "columns": columns, **sink},
        "sink.options": sink_options,
        "spark.conf": {"spark.ui.enabled": "false"},
    }
    lines = []
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items())]
    file = home / "job.toml"
    file.write_text("\n".join(lines))
    return file


def to_parquet(home: Path, load: Load, milliseconds: str = "1L") -> Path:
    """Write the file of a job that writes into Parquet; each row takes so many milliseconds, an expression."""
    columns = ["CAST(value AS STRING) AS value", SLOWLY.format(milliseconds=milliseconds)]
    return job_file(home, load, columns, {"format": "parquet", "path": "rows/{member}"}, {})


def confs(*settings: Mapping[str, str]) -> list[str]:
    """Return the settings as arguments of spark-submit."""
    merged = {name: value for some in settings for name, value in some.items()}
    return [argument for name, value in merged.items() for argument in ("--conf", f"{name}={value}")]


def assert_all_is_sunk_once(job: Job, home: Path, load: Load) -> None:
    """The job has read the whole backlog, its reader sees each record once, and the group is at the ends."""
    assert job.exit_code(END_S) == 0, job.log()[-6000:]
    assert "the query has ended: it has read the whole backlog" in job.said()
    assert sorted(values(home, "a")) == sorted(load.sent)
    assert committed(load.server, load.topic, load.topic) == log_ends(load.server, load.topic, PARTITIONS)


@pytest.mark.long
def test_executors_of_two_workers_read_for_one_member(cluster: StandaloneCluster, tmp_path: Path, load: Load) -> None:
    """The package is in the environment of the workers' Python."""
    events = EventLog(tmp_path / "events")
    load.send(3 * A_BATCH)
    submit = confs(EXECUTORS, events.settings)
    with submitted(tmp_path, to_parquet(tmp_path, load), "--member", "a", master=cluster.url, submit=submit) as job:
        assert_all_is_sunk_once(job, tmp_path, load)
    executors = {event["Task Info"]["Executor ID"] for event in events.events("TaskStart")}
    assert executors == {"0", "1"}


@pytest.mark.long
def test_a_batch_whose_executor_is_killed_is_read_by_another(
    cluster: StandaloneCluster, tmp_path: Path, load: Load
) -> None:
    events = EventLog(tmp_path / "events")
    load.send(4 * A_BATCH)
    submit = confs(EXECUTORS, events.settings)
    file = to_parquet(tmp_path, load, "60L")
    with submitted(tmp_path, file, "--member", "a", master=cluster.url, submit=submit) as job:
        until(job, lambda: bool(values(tmp_path, "a")), "the first batch has sunk")
        cluster.wait_for_a_task(cluster.workers[0])
        cluster.kill_executors(cluster.workers[0])
        assert_all_is_sunk_once(job, tmp_path, load)
    assert events.lost_tasks() > 0, "the executor had a task"


@pytest.mark.long
def test_a_batch_whose_worker_is_lost_is_read_by_the_other_worker(
    cluster: StandaloneCluster, tmp_path: Path, load: Load
) -> None:
    events = EventLog(tmp_path / "events")
    load.send(4 * A_BATCH)
    submit = confs(EXECUTORS, events.settings)
    file = to_parquet(tmp_path, load, "60L")
    lost = cluster.workers[0]
    try:
        with submitted(tmp_path, file, "--member", "a", master=cluster.url, submit=submit) as job:
            until(job, lambda: bool(values(tmp_path, "a")), "the first batch has sunk")
            cluster.wait_for_a_task(lost)
            lost.kill()
            assert_all_is_sunk_once(job, tmp_path, load)
        assert events.lost_tasks() > 0, "its executor had a task"
    finally:
        lost.restart()


@pytest.mark.long
def test_dynamic_allocation_adds_and_removes_executors_of_a_stream(
    cluster: StandaloneCluster, tmp_path: Path, load: Load
) -> None:
    """The log ends with a burst after an idle time, which has cost the application its executors."""
    events = EventLog(tmp_path / "events")
    allocation = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    }
    load.send(A_BATCH)
    file = to_parquet(tmp_path, load, "20L")
    file.write_text(file.read_text().replace('"available_now" = true', '"processing_time" = "1 second"'))
    submit = confs(EXECUTORS, events.settings, allocation)
    with submitted(tmp_path, file, "--member", "a", master=cluster.url, submit=submit) as job:
        for _ in range(2):
            until(job, lambda: len(values(tmp_path, "a")) == len(load.sent), "all is sunk")
            until(job, lambda: not running_executors(cluster), "the idle executors are removed")
            load.send(2 * A_BATCH)
        until(job, lambda: len(values(tmp_path, "a")) == len(load.sent), "all is sunk")
        job.process.terminate()
        assert job.exit_code(END_S) == 0, job.log()[-6000:]
    assert sorted(values(tmp_path, "a")) == sorted(load.sent)
    assert committed(load.server, load.topic, load.topic) == log_ends(load.server, load.topic, PARTITIONS)
    assert len(events.events("ExecutorAdded")) > len(cluster.workers), "executors have come back"


def running_executors(cluster: StandaloneCluster) -> list[int]:
    return [pid for worker in cluster.workers for pid in cluster.executors(worker)]


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",  # a task hands its rows on while it runs
}
ONE_IS_SLOW = "IF(partition = 1, 60L, 0L)"


@pytest.mark.long
def test_a_speculative_read_repeats_nothing(cluster: StandaloneCluster, tmp_path: Path, load: Load) -> None:
    events = EventLog(tmp_path / "events")
    load.send(2 * A_BATCH)
    submit = confs(EXECUTORS, events.settings, SPECULATION)
    file = to_parquet(tmp_path, load, ONE_IS_SLOW)
    with submitted(tmp_path, file, "--member", "a", master=cluster.url, submit=submit) as job:
        assert_all_is_sunk_once(job, tmp_path, load)
    assert events.speculative_tasks() > 0


@pytest.mark.long
def test_a_speculative_write_repeats_at_most_what_its_task_writes(
    cluster: StandaloneCluster, tmp_path: Path, load: Load, make_topic: MakeTopic
) -> None:
    """The copy of a task writes until the task has ended: at least once, as with Spark's own sink."""
    events = EventLog(tmp_path / "events")
    target = make_topic(load.server)
    load.send(2 * A_BATCH)
    options = {"kafka.bootstrap.servers": load.server.bootstrap_servers, "topic": target}
    columns = ["value", SLOWLY.format(milliseconds=ONE_IS_SLOW).replace("slept", "key")]
    submit = confs(EXECUTORS, events.settings, SPECULATION)
    file = job_file(tmp_path, load, columns, {"format": "streamgroup"}, options)
    with submitted(tmp_path, file, "--member", "a", master=cluster.url, submit=submit) as job:
        assert job.exit_code(END_S) == 0, job.log()[-6000:]
    assert events.speculative_tasks() > 0
    (records,) = read_back(load.server, target)
    written = Counter((record.value() or b"").decode() for record in records)
    assert set(written) == set(load.sent), "nothing is lost"
    assert max(written.values()) <= 2, "one copy of a task runs at a time"


# -- the package on the executors -------------------------------------------------------------------------------------


def packed_environment(home: Path) -> Path:
    """Make an environment with the package and pack it, as docs/clusters.md says; return the archive."""
    environment = home / "environment"
    (home / "needed.txt").write_text(locked_without_spark())
    venv.create(environment, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(environment / "bin" / "python"), "install"]
    subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", home / "needed.txt"], check=True)
    subprocess.run([*pip, "--no-deps", built_wheel(home)], check=True)
    archive = home / "environment.tar.gz"
    pack = [Path(sys.executable).with_name("venv-pack"), "--quiet", "-p", environment, "-o", archive]
    subprocess.run([*pack, "--compress-level", "1"], check=True)
    return archive


def locked_without_spark() -> str:
    """Return the lines of requirements.lock for the package's own requirements. The cluster has PySpark."""
    needed, left = set(), ["streamgroup"]
    while left:
        for line in metadata.requires(left.pop()) or ():
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in needed and (requirement.marker is None or requirement.marker.evaluate()):
                needed.add(name)
                left.append(name)
    blocks = re.split(r"^(?=[a-z])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    return "".join(block for block in blocks if block.split("==")[0] in needed)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_packed_environment_brings_the_package_to_executors_that_lack_it(
    cluster: StandaloneCluster, tmp_path: Path, load: Load, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = packed_environment(tmp_path_factory.mktemp("packed"))
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "environment", filter="tar")
    load.send(A_BATCH)
    python = {
        "SPARK_HOME": str(SPARK_HOME),  # the environment lacks PySpark
        "PYSPARK_PYTHON": "./environment/bin/python",
        "PYSPARK_DRIVER_PYTHON": "./environment/bin/python",
    }
    file = to_parquet(tmp_path, load)
    submit = [*confs(EXECUTORS), "--archives", f"{archive}#environment"]
    with submitted(tmp_path, file, "--member", "a", master=cluster.url, submit=submit, environment=python) as job:
        assert_all_is_sunk_once(job, tmp_path, load)
    with submitted(
        tmp_path, file, "--member", "b", master=cluster.url, submit=confs(EXECUTORS), environment=python
    ) as job:
        assert job.exit_code(END_S) == 2, job.log()[-6000:]
    assert "the executors cannot start the Python ./environment/bin/python" in "\n".join(job.said())
    assert "spark.archives" in "\n".join(job.said())


def archived(archive: Path) -> Path:
    """Put the package's modules into an archive; return it."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in [*ROOT.glob("streamgroup/**/*.py"), *ROOT.glob("pyspark_streamgroup*/*.py")]:
            file.write(path, path.relative_to(ROOT))
    return archive


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["zip", "whl"])
def test_py_files_are_refused_with_what_to_do(tmp_path: Path, load: Load, suffix: str) -> None:
    archive = archived(tmp_path / f"streamgroup.{suffix}")
    submit = ["--py-files", str(archive)]
    with submitted(tmp_path, to_parquet(tmp_path, load), "--member", "a", submit=submit) as job:
        assert job.exit_code(END_S) == 1, job.log()[-6000:]
    assert f"cannot import streamgroup from {archive}" in job.log()
    assert "spark.archives" in job.log()


@pytest.mark.long
def test_py_files_do_not_bring_a_source_that_spark_finds_by_its_name(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    program = tmp_path / "program.py"
    program.write_text(
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.getOrCreate().readStream.format('streamgroup').option('subscribe', 't').load()\n"
    )
    archive = archived(tmp_path / "streamgroup.zip")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(tmp_path / "bare" / "bin" / "python"),
    }
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[1]", "--py-files", archive, program]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=END_S, check=False
    )
    assert ended.returncode == 1
    assert "DATA_SOURCE_NOT_FOUND" in ended.stderr + ended.stdout, ended.stderr[-6000:]
