"""Jobs as users run them: by spark-submit, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.spark.class_archive import LAUNCHER, jvm_flags
from tests.spark.support import Load, rows_of
from tests.terminals import Terminal
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SUBMIT = Path(sys.executable).with_name("spark-submit")
HOOKS = Path(__file__).parents[1] / "hooks"
START_S = 90.0
"""How long a job may take to start and to sink its first batches."""
SHARED_S = 120.0
"""How long to wait for a job that runs, on a machine that runs much else beside."""
SMALL = {
    "spark.ui.enabled": "false",
    # How often an idle query asks for news; Spark's default is every 10 ms.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Spark would generate and compile code for each of a job's few and small batches.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of Spark for a job that reads little."""
INGEST = """\
[source]
{source}

[sink]
format = "parquet"
path = "rows/{{member}}"
checkpoint = "{checkpoints}/{{member}}"
columns = ["CAST(value AS STRING) AS value"]

[spark.conf]
{conf}
"""


def ingest_file(home: Path, load: Load, options: Mapping[str, str], checkpoints: str = "checkpoints") -> Path:
    """Write the file of an ingest job in the group of the topic's name, with these options of the source besides.

    Its directories are relative to where it runs.
    """
    source = {
        "kafka.group.id": load.topic,
        "kafka.session.timeout.ms": 6000,
        "kafka.heartbeat.interval.ms": 300,
        "subscribe": load.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 40,
        **options,
    }
    file = home / f"{checkpoints}.toml"
    file.write_text(INGEST.format(source=toml_lines(source), checkpoints=checkpoints, conf=toml_lines(SMALL)))
    return file


def toml_lines(values: Mapping[str, object]) -> str:
    """Return the lines of a section of a job's file."""
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())


def values(home: Path, member: str) -> list[str]:
    """Return what a reader of the member's directory finds."""
    return [str(value) for (value,) in rows_of(home / "rows" / member, "value")]


class Job:
    """spark-submit of a job, and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, name: str) -> None:
        self.process = process
        self._log = log
        self._mark = f"{name}: "

    def log(self) -> str:
        return self._log.read_text()

    def said(self) -> list[str]:
        """The job's own lines."""
        return [line.removeprefix(self._mark) for line in self.log().splitlines() if line.startswith(self._mark)]

    def exit_code(self, timeout: float = 60.0) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job still runs; the end of its log:\n{self.log()[-4000:]}") from None


def until(
    job: Job, condition: Callable[[], bool], what: str, timeout: float = SHARED_S, more: Callable[[], str] = str
) -> None:
    """Wait until the condition holds; fail at once if the job has ended."""

    def is_over() -> bool:
        return condition() or job.process.poll() is not None

    wait_until(is_over, f"{what}; {more()}", timeout, every=0.1)
    assert condition(), f"the job has ended: {job.log()[-4000:]}"


@contextmanager
def submitted(
    home: Path,
    file: Path,
    *arguments: str,
    script: str = "ingest",
    environment: Mapping[str, str] | None = None,
    hooks: bool = False,
    master: str = "local[1]",
    submit: Sequence[str] = (),
    user: Terminal | None = None,
) -> Iterator[Job]:
    """Run the job `jobs/<script>.py` in `home`, away from the sources; nothing of it outlives the block.

    With `hooks` its Python processes start faster (`tests/hooks/sitecustomize.py`): for tests of what a job does, not
    of how it is started. `submit` are further arguments of spark-submit. `user` is the job's controlling terminal; its
    output is in its log.
    """
    jvm = ["--driver-memory", "512m", "--driver-java-options", jvm_flags()]
    job = [SUBMIT, "--master", master, *jvm, *submit, ROOT / "jobs" / f"{script}.py", "--config", file, *arguments]
    log = home / "job.log"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **LAUNCHER,
        **({"PYTHONPATH": str(HOOKS)} if hooks else {}),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(word) for word in (job if user is None else user.argv(job))],
            cwd=home,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**inherited, **settings, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield Job(process, log, script)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
