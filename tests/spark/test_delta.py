"""Tables of Delta Lake: the ingest job of docs/jobs.md, and the ways to write of docs/delta.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from streamgroup.testing.jars import resolve
from tests.bring_jars import DELTA
from tests.spark.submitting import ROOT, START_S, submitted
from tests.spark.support import Load, committed, log_ends

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(600)]

JOB = """\
[source]
kafka.bootstrap.servers = "{servers}"
{group}
subscribe = "{topic}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 40

[trigger]
available_now = true

[sink]
format = "delta"
{target}
checkpoint = "checkpoints/{{member}}"
columns = [{columns}]

{parser}
[spark.conf]
spark.ui.enabled = "false"
spark.sql.extensions = "io.delta.sql.DeltaSparkSessionExtension"
"spark.sql.catalog.spark_catalog" = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
"""
PARSER = """\
[parser]
format = "csv"
schema = "text STRING"
[dead_letters]
path = "dead/{member}"
"""


def job_file(home: Path, load: Load, target: str, *, group: bool = True, parsed: bool = False) -> Path:
    file = home / "delta.toml"
    file.write_text(
        JOB.format(
            servers=load.server.bootstrap_servers,
            group=f'kafka.group.id = "{load.topic}"' if group else "",
            topic=load.topic,
            target=target,
            columns='"parsed.text AS value"' if parsed else '"CAST(value AS STRING) AS value"',
            parser=PARSER if parsed else "",
        )
    )
    return file


def run(home: Path, file: Path, member: str) -> None:
    """Run the job until it has read the backlog. Its tables are in a metastore below `home`."""
    jars = ",".join(str(jar) for module in DELTA for jar in resolve(*module, transitive=False))
    hive = ["--conf", "spark.sql.catalogImplementation=hive"]
    with submitted(home, file, "--member", member, submit=["--jars", jars, *hive]) as job:
        assert job.exit_code(START_S * 2) == 0, job.log()


def commits(table: Path) -> list[list[dict[str, Any]]]:
    """Return the actions of each commit of a Delta table, whose log is short enough to have no checkpoint."""
    logs = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def values(table: Path) -> list[str]:
    """Return what a reader of the table finds."""
    added = [unquote(action["add"]["path"]) for commit in commits(table) for action in commit if "add" in action]
    return sorted(str(value) for path in added for value in pq.read_table(table / path).column("value").to_pylist())


def test_two_members_write_one_table_by_name_and_each_row_is_there_once(tmp_path: Path, load: Load) -> None:
    file = job_file(tmp_path, load, 'table = "events"')
    table = tmp_path / "spark-warehouse" / "events"
    for member in ("a", "b", "a"):
        load.send(60)
        run(tmp_path, file, member)
        assert values(table) == sorted(load.sent)
    assert committed(load.server, load.topic, load.topic) == log_ends(load.server, load.topic, 2)
    queries = {action["txn"]["appId"] for commit in commits(table) for action in commit if "txn" in action}
    assert len(queries) == 2, "each member's query has an id of its own"


@pytest.mark.parametrize("parsed", [False, True], ids=["plain", "parsed"])
def test_a_batch_that_spark_runs_again_is_skipped(tmp_path: Path, load: Load, *, parsed: bool) -> None:
    load.send(60)
    file = job_file(tmp_path, load, 'path = "rows/{member}"', group=False, parsed=parsed)
    run(tmp_path, file, "a")
    logged = tmp_path / "checkpoints" / "a" / "commits"
    last = max(int(path.name) for path in logged.iterdir() if path.name.isdigit())
    assert last == 1
    for name in (str(last), f".{last}.crc"):
        (logged / name).unlink()
    load.send(60)
    run(tmp_path, file, "a")
    table = tmp_path / "rows" / "a"
    assert (logged / str(last)).exists(), "Spark has run it again"
    assert values(table) == sorted(load.sent)
    versions = [action["txn"]["version"] for commit in commits(table) for action in commit if "txn" in action]
    assert versions == [0, 1, 2, 3]


def kinds(table: str) -> list[list[str]]:
    """Return the cells of a table. Numbers depend on the time at which a process continues, so each becomes 0 or +."""
    return [[re.sub(r"[1-9]\d*", "+", cell) for cell in line.split("|")] for line in table.splitlines()]


@pytest.mark.timeout(3600)
def test_only_merge_stores_each_record_once_whoever_takes_over() -> None:
    command = [sys.executable, "-m", "tests.spark.delta_cases"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, timeout=3500).stdout
    page = (ROOT / "docs" / "delta.md").read_text()
    table = page[page.index("| lost / repeated |") :].partition("\n\n")[0]
    assert kinds(found) == kinds(table)
    assert {line[-2].strip() for line in kinds(found)[2:]} == {"0 / 0", "0 / 0, conflict"}
