"""The backfill as users run it: killed in the middle and started again, it reads each record once into files."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.spark.submitting import START_S, Job, submitted
from tests.spark.support import Load
from tests.terminals import terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

JOB = """\
[source]
kafka.bootstrap.servers = "{servers}"
subscribe = "{topic}"

[backfill]
progress = "progress"
offsets_per_step = {per_step}

[sink]
format = "parquet"
path = "rows"
columns = ["CAST(value AS STRING) AS value"]

[spark.conf]
spark.ui.enabled = "false"
"""


def file_of(home: Path, load: Load, per_step: int) -> Path:
    file = home / "backfill.toml"
    servers = load.server.bootstrap_servers
    file.write_text(JOB.format(servers=servers, topic=load.topic, per_step=per_step))
    return file


def done(home: Path) -> int:
    return len(list((home / "progress" / "done").glob("*.json")))


def values(home: Path) -> list[str]:
    files = sorted((home / "rows").glob("step=*/*.parquet"))
    return [value for file in files for value in parquet.read_table(file, columns=["value"])["value"].to_pylist()]


def complete(home: Path, file: Path) -> tuple[Job, str]:
    """Run the job on a terminal until it is complete. Return it with what it has drawn."""
    with terminal() as user, submitted(home, file, script="backfill", environment={"TERM": "xterm"}, user=user) as job:
        assert job.exit_code(180) == 0, job.log()
    return job, user.text()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_backfill_that_is_killed_goes_on_and_repeats_no_row(tmp_path: Path, load: Load) -> None:
    load.send(120)
    file = file_of(tmp_path, load, 10)
    with submitted(tmp_path, file, script="backfill") as job:
        wait_until(lambda: done(tmp_path) >= 3 or job.process.poll() is not None, "three steps", START_S, every=0.02)
        assert job.process.poll() is None, job.log()
        os.killpg(job.process.pid, signal.SIGKILL)
    before = done(tmp_path)
    assert before < 12
    planned = list(load.sent)
    load.send(10)
    job, drawn = complete(tmp_path, file)
    said = job.said()
    assert f"120 offsets in 12 steps, {before} done" in said
    assert said[-1] == "the backfill is complete"
    assert sorted(values(tmp_path)) == sorted(planned), "all that was there at the first run, and nothing twice"
    assert re.search(r"\b[1-9][0-9]+/120\b", drawn), f"spark-submit's job shows its bar to its user: {drawn!r}"
    assert "steps" not in drawn, "its lines are on its standard output alone"
