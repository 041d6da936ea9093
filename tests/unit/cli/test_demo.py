"""`streamgroup demo` shows two jobs that share a group, and fails if a record is missing or repeated."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from rich.table import Table

from streamgroup.cli import demo as module
from streamgroup.cli._group_tables import OffsetRow
from streamgroup.cli.demo import COLUMNS, group_table, read_rows, result_table
from streamgroup.cli.demo import Job as JobPart
from streamgroup.cli.demo import Load as LoadPart
from streamgroup.cli.demo import Watch as WatchPart
from streamgroup.cli.main import main
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.jobs.config import load
from streamgroup.model import (
    CommittedOffset,
    Document,
    GroupDescription,
    MemberDescription,
    OffsetRange,
    Position,
    TopicPartition,
)
from tests.fakes.cluster import FakeCluster, Logs
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.cli.shown import orders
from tests.waiting import wait_until

ALL, HALF = module.PARTITIONS, module.PARTITIONS // 2


class DemoScript:
    """Kafka, the producer, the two jobs and the group, as one script: the group moves at once when a job comes or goes.

    `rows` has the numbers that each job writes; `produced` are the records that the producer delivers.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.running: list[str] = []
        self.produced = 6
        self.rows = {"a": [0, 1, 2, 5], "b": [3, 4]}
        self.home = Path()
        self.left = 0
        """The group's lag at the end."""
        self.on_look: Any = lambda: None
        self.on_check: Any = lambda: None
        self.on_stopped: Any = lambda: None
        self.failure: StreamGroupError | None = None

    def owners(self) -> dict[str, int]:
        self.on_look()
        return {"a": ALL} if self.running == ["a"] else dict.fromkeys(self.running, HALF)

    def write(self, home: Path, member: str) -> None:
        """Write the rows of a job where the job would."""
        numbers = self.rows[member]
        if "streamgroup-sql" in (home / "ingest.toml").read_text():
            Shop(home).add(member, numbers)
            return
        rows = pa.table({"number": numbers, "partition": [number % ALL for number in numbers]})
        (home / "rows" / member).mkdir(parents=True)
        pq.write_table(rows, home / "rows" / member / "part.parquet")


class Shop:
    """The database of the jobs, and the checkpoint of job b, which plans its batches in partition 0."""

    def __init__(self, home: Path) -> None:
        self._checkpoint = home / "checkpoints" / "b"
        self._database = sqlite3.connect(home / "shop.db", isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS orders (member, number, partition)")
        self._database.execute("CREATE TABLE IF NOT EXISTS streamgroup_offsets (topic, partition, next_offset)")

    def add(self, member: str, numbers: list[int]) -> None:
        """Store what a job writes at its first start; its second start stores nothing new."""
        if not self._database.execute("SELECT 1 FROM orders WHERE member = ?", [member]).fetchall():
            rows = [(member, number, number % ALL) for number in numbers]
            self._database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)

    def plan(self, batch: int, start: int, until: int) -> None:
        ranges = (OffsetRange(orders(0), start, until),) if until > start else ()
        positions = {orders(0): Position(until)}
        text = json.dumps(to_value(Document("orders-ingest", "line", "run", batch, ranges, positions)))
        for name in ("offsets", "commits"):
            (self._checkpoint / name).mkdir(parents=True, exist_ok=True)
        (self._checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{text}")

    def store(self, until: int) -> None:
        self._database.execute("DELETE FROM streamgroup_offsets")
        self._database.execute("INSERT INTO streamgroup_offsets VALUES ('orders', 0, ?)", [until])

    def complete(self, batch: int) -> None:
        (self._checkpoint / "commits" / str(batch)).write_text("v1\n{}")


class Part:
    """A part of the world that is begun and ended."""

    world: DemoScript

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> Self:
        self.world.events.append(f"{self.what} begins")
        return self

    def __exit__(self, *_: object) -> None:
        self.world.events.append(f"{self.what} ends")


class Kafka(Part):
    bootstrap_servers = "127.0.0.1:9"

    def __init__(self, data_dir: Path) -> None:
        super().__init__("Kafka")
        self.world.home = data_dir.parent


class Watch(Part):
    def __init__(self, servers: str, group: str) -> None:
        super().__init__(f"watch of {group}")

    def create_topic(self, topic: str, partitions: int) -> None:
        self.world.events.append(f"topic {topic} with {partitions}")

    def owners(self) -> dict[str, int]:
        return self.world.owners()

    def lag(self) -> int:
        return self.world.left

    def describe(self) -> list[Any]:
        return []


class Load(Part):
    count = 0

    def __init__(self, servers: str, topic: str, partitions: int, rate: int) -> None:
        super().__init__(f"load of {rate}")

    def finish(self) -> None:
        self.world.events.append("load finishes")
        self.count = self.world.produced


class Job(Part):
    def __init__(self, member: str, conf: Path, home: Path, console: object) -> None:
        super().__init__(f"job {member}")
        self.member = member
        self._batches = 1
        self.world.write(home, member)
        self.world.running.append(member)

    @property
    def batches(self) -> int:
        """How many batches it has written: one more at each look."""
        self._batches += 1
        return self._batches

    def check(self) -> None:
        if self.member == "b":
            self.world.on_check()
        if self.world.failure is not None:
            raise self.world.failure

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.world.events.append(f"SIGSTOP to {self.member}")
        self.world.on_stopped()
        yield
        self.world.events.append(f"SIGCONT to {self.member}")

    def kill(self) -> None:
        self.world.running.remove(self.member)
        self.world.events.append(f"SIGKILL to {self.member}")

    def stop(self) -> None:
        self.world.running.remove(self.member)
        self.world.events.append(f"SIGTERM to {self.member}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoScript]:
    made = DemoScript()
    monkeypatch.setattr(Part, "world", made, raising=False)
    for name, part in (("KafkaServer", Kafka), ("Watch", Watch), ("Load", Load), ("Job", Job)):
        monkeypatch.setattr(module, name, part)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)
    yield made
    signal.signal(signal.SIGTERM, before)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["demo", *map(str, arguments)])


def test_the_second_job_joins_and_is_drained_while_records_arrive_and_every_record_arrives_once(
    world: DemoScript, tmp_path: Path
) -> None:
    home = tmp_path / "new" / "demo"
    result = run("--output", home, "--rate", 50)
    assert result.exit_code == 0, result.output
    assert "every record arrived exactly once" in result.output
    assert f"Files and logs are in {home}" in result.output
    assert world.events == [
        "Kafka begins",
        "watch of orders-ingest begins",
        "topic orders with 6",
        "load of 50 begins",
        "job a begins",
        "job b begins",
        "SIGTERM to b",
        "load finishes",
        "SIGTERM to a",
        "job b ends",
        "job a ends",
        "load of 50 ends",
        "watch of orders-ingest ends",
        "Kafka ends",
    ]
    a, b = (load(home / "ingest.toml", member) for member in ("a", "b"))
    assert (a.source["kafka.bootstrap.servers"], a.source["kafka.group.id"]) == ("127.0.0.1:9", "orders-ingest")
    assert (a.source["kafka.client.id"], b.source["kafka.client.id"]) == ("a", "b")
    assert (a.sink.path, a.sink.checkpoint) == (f"{home}/rows/a", f"{home}/checkpoints/a")
    assert (b.sink.path, b.sink.checkpoint) == (f"{home}/rows/b", f"{home}/checkpoints/b")


@pytest.mark.parametrize(
    ("rows", "missing", "repeated"),
    [({"a": [0, 1, 2], "b": [3, 4]}, 1, 0), ({"a": [0, 1, 2, 5], "b": [2, 3, 4]}, 0, 1), ({"a": [], "b": []}, 6, 0)],
    ids=["one missing", "one repeated", "none arrived"],
)
def test_a_missing_or_repeated_record_fails_the_demo(
    rows: dict[str, list[int]], missing: int, repeated: int, world: DemoScript, tmp_path: Path
) -> None:
    world.rows = rows
    result = run("--output", tmp_path)
    assert result.exit_code == 1
    assert "records are missing or repeated" in result.output
    assert cells_of(result.output, "produced") == ["produced", "6", "", str(missing), str(repeated)]


@pytest.mark.parametrize(
    ("rows", "missing", "repeated"),
    [([3, 4], 0, 0), ([3], 1, 0), ([2, 3, 4], 0, 1)],
    ids=["exact", "one missing", "one repeated"],
)
def test_a_job_is_killed_after_its_rows_are_stored_and_before_its_batch_is_completed(
    rows: list[int], missing: int, repeated: int, world: DemoScript, tmp_path: Path
) -> None:
    home = tmp_path / "demo"

    def script() -> Iterator[None]:
        """The world at each look at b."""
        shop = Shop(home)
        shop.plan(3, 10, 20)
        shop.store(20)
        shop.complete(3)
        yield from [None] * 3  # two of them are before the step
        shop.plan(4, 20, 20)
        yield
        shop.plan(5, 20, 30)
        yield
        shop.store(30)
        world.on_stopped = lambda: shop.complete(5)
        yield
        world.on_stopped = lambda: None
        shop.plan(6, 30, 40)
        shop.store(40)
        yield

    looks = script()
    world.rows["b"], world.on_check = rows, lambda: next(looks, None)
    result = run("--sql", "--output", home)
    assert result.exit_code == (missing + repeated > 0), result.output
    assert world.events[5:-6] == [
        "job b begins",
        "SIGSTOP to b",
        "SIGCONT to b",
        "SIGSTOP to b",
        "SIGKILL to b",
        "SIGCONT to b",
        "job b begins",
        "load finishes",
        "SIGTERM to a",
        "SIGTERM to b",
    ]
    assert "b is dead: the table has the rows of its batch 6, its checkpoint lacks the completion" in result.output
    assert cells_of(result.output, "30") == ["orders", "0", "30", "40", "-"]
    assert cells_of(result.output, "produced") == ["produced", "6", "", str(missing), str(repeated)]
    assert module.SELECT in result.output
    job = load(home / "ingest.toml", "b")
    assert (job.sink.writes_database, job.sink.checkpoint) == (True, f"{home}/checkpoints/b")
    assert job.source["offsets.store"] == f"sqlite:///{home}/shop.db"


def cells_of(output: str, word: str) -> list[str]:
    """Return the cells of the only line of a table that has `word`."""
    (line,) = [line for line in output.splitlines() if word in line.split() and "│" in line]
    return [cell.strip() for cell in line.strip("│ ").split("│")]


def test_a_batch_that_is_never_stored_fails_the_demo(
    world: DemoScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_TIMEOUT_S", 0.5)
    world.on_check = lambda: Shop(tmp_path).plan(1, 10, 20)
    result = run("--sql", "--output", tmp_path)
    assert (result.exit_code, "SIGSTOP to b" in world.events) == (1, False)
    assert "failed at step 4: not within 0 s: b has stored a batch that is not completed" in result.output


def test_the_database_needs_its_extra(world: DemoScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "sqlalchemy" else "found")
    result = run("--sql", "--output", tmp_path)
    assert (result.exit_code, world.events) == (1, [])
    assert "sqlalchemy is not installed. Install streamgroup[sql]" in result.output.replace("\n", " ")
    assert run("--output", tmp_path).exit_code == 0


def test_an_output_that_cannot_be_used_is_refused_before_anything_starts(world: DemoScript, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = run("--output", tmp_path)
    assert result.exit_code == 1
    assert f"cannot run the demo in {tmp_path}: the directory is not empty. Choose another --output" in result.output
    result = run("--output", file)
    assert (result.exit_code, "is a file" in result.output) == (2, True)
    result = run("--output", file / "below")
    assert "Choose another --output" in result.output
    assert f"cannot make the directory {file / 'below'}: Not a directory" in result.output.replace("\n", " ")
    assert world.events == []


@pytest.mark.parametrize("rate", ["0", "100001", "many"])
def test_an_impossible_rate_is_a_usage_error(rate: str, world: DemoScript, tmp_path: Path) -> None:
    result = run("--output", tmp_path, "--rate", rate)
    assert (result.exit_code, world.events) == (2, [])
    assert "--rate" in result.output


def test_without_an_output_the_files_are_in_a_new_directory(
    world: DemoScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run().exit_code == 0
    assert world.home.parent == tmp_path
    assert world.home.name.startswith("streamgroup-demo-")


def test_a_step_that_takes_too_long_names_itself_and_the_logs_and_everything_is_stopped(
    world: DemoScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_TIMEOUT_S", 0.0)
    result = run("--output", tmp_path)
    assert result.exit_code == 1
    assert (
        f"failed at step 2: not within 0 s: a holds all partitions. Read the jobs' logs in {tmp_path}" in result.output
    )
    assert world.events[-4:] == ["job a ends", "load of 2000 ends", "watch of orders-ingest ends", "Kafka ends"]


def test_a_job_that_ends_by_itself_or_a_sigterm_ends_the_demo(world: DemoScript, tmp_path: Path) -> None:
    """The jobs have sessions of their own, and would outlive the command."""
    world.failure = StreamGroupError("job a ended with 1; its log ends: no memory")
    result = run("--output", tmp_path / "one")
    assert (result.exit_code, world.events[-1]) == (1, "Kafka ends")
    assert "job a ended with 1; its log ends: no memory" in result.output
    world.failure, world.on_look = None, lambda: os.kill(os.getpid(), signal.SIGTERM)
    world.running, world.events = [], []
    result = run("--output", tmp_path / "other")
    assert (result.exit_code, world.events[-1]) == (128 + signal.SIGTERM, "Kafka ends")


def cells(table: Table) -> list[list[str]]:
    """The rows of a table, without its titles."""
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


# -- the load ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    found = ScriptedCluster(1, {"orders": 3})
    yield found
    found.stop()


def servers(cluster: ScriptedCluster) -> str:
    return ",".join(f"{host}:{port}" for host, port in cluster.addresses)


def test_the_load_produces_each_number_once_in_turn_to_each_partition(cluster: ScriptedCluster) -> None:
    with LoadPart(servers(cluster), "orders", 3, 2_000) as running:
        wait_until(lambda: running.count > 10, "some records are delivered")
        count = running.finish()
    for partition in range(3):
        assert cluster.values("orders", partition) == [b"%d" % number for number in range(partition, count, 3)]


def test_records_that_the_broker_refuses_are_an_error_at_the_end(cluster: ScriptedCluster) -> None:
    cluster.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders", 0)
    with LoadPart(servers(cluster), "orders", 3, 2_000) as running:
        wait_until(lambda: cluster.requests, "the records were sent")
        with pytest.raises(StreamGroupError, match=r"the producer could not deliver all records: .*orders-0"):
            running.finish()
    assert running.count == 0


# -- the jobs ----------------------------------------------------------------------------------------------------------

WAITS = "sleep 20 >/dev/null 2>&1 & wait\n"
"""The end of a script that runs until a signal."""


class Jobs:
    """Runs a script of the shell in place of spark-submit. `shown` is what the console has."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.program = home / "spark-submit"
        monkeypatch.setattr(module, "spark_submit", lambda: str(self.program))
        self._stream = io.StringIO()
        self._console = Console(file=self._stream, width=200)

    def job(self, script: str) -> JobPart:
        self.program.write_text(f"#!/bin/sh\n{script}")
        self.program.chmod(0o755)
        return JobPart("a", self.home / "ingest.toml", self.home, self._console)

    @property
    def shown(self) -> list[str]:
        return [line.removeprefix("   a | ") for line in self._stream.getvalue().splitlines()]

    @property
    def log(self) -> list[str]:
        """The lines of the job's log so far."""
        return (self.home / "job-a.log").read_text().splitlines()


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(tmp_path, monkeypatch)


def ended(job: JobPart) -> StreamGroupError:
    """The error of a job that ends by itself."""

    def error() -> StreamGroupError | None:
        try:
            job.check()
        except StreamGroupError as error:
            return error
        return None

    found = wait_until(error, "the job has ended")
    assert found is not None
    return found


def test_a_job_shows_its_important_lines_and_logs_all(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 20.0)
    lines = [
        "26/11/26 10:00:00 INFO SparkContext: Running Spark version 4.2.0",
        "26/11/26 10:00:01 INFO streamgroup: group orders: joined [generation 1] | event=rebalance group=orders",
        "26/11/26 10:00:02 WARN streamgroup: group orders: lost 26/11/26 10:00:02 INFO Other: of another process",
        "26/11/26 10:00:03 INFO streamgroup: committed",
        "ingest: started",
        "ingest: batch 0: 5 rows",
        "ingest: batch 1: 5 rows",
    ]
    job = jobs.job("\n".join(f"echo '{line}'" for line in lines) + f"\ntrap 'kill $!; exit 0' TERM\n{WAITS}")
    with job:
        wait_until(lambda: job.batches == 2, "both batches are counted")
        job.check()
        job.stop()
    assert jobs.shown == [
        "group orders: joined [generation 1]",
        "group orders: lost ",
        "started",
        "batch 0: 5 rows",
    ], "of batches that follow at once only the first is shown"
    assert jobs.log == lines


def test_a_job_is_started_for_its_member_with_its_settings(jobs: Jobs) -> None:
    with jobs.job('echo "$@"\necho "$PYSPARK_PYTHON"\n'):
        wait_until(lambda: len(jobs.log) == 2, "the log is written")
    arguments, python = jobs.log
    assert arguments.endswith(f"{jobs.home}/ingest.py --config {jobs.home}/ingest.toml --member a")
    assert "streamgroup.jobs.ingest" in (jobs.home / "ingest.py").read_text()
    assert os.access(python, os.X_OK)


def test_a_job_that_ends_by_itself_is_an_error_with_its_code_and_the_end_of_its_log(jobs: Jobs) -> None:
    with jobs.job('for n in $(seq 1 20); do echo "line $n."; done\nexit 3\n') as job:
        wait_until(lambda: len(jobs.log) == 20, "the log is written")
        text = str(ended(job))
    assert "job a ended with 3; its log ends:\n" in text
    assert re.findall(r"line (\d+)\.", text) == [str(number) for number in range(6, 21)]
    assert str(ended(jobs.job("exit 3\n"))).startswith("job a ended with 3; its log ends:"), "also if none follows it"


def test_a_job_that_fails_while_it_drains_is_an_error(jobs: Jobs) -> None:
    with jobs.job(f"trap 'kill $!; exit 4' TERM\necho 'ingest: started'\n{WAITS}") as job:
        wait_until(lambda: jobs.shown, "the job has started")
        with pytest.raises(StreamGroupError, match="job a ended with 4"):
            job.stop()


def test_a_job_is_stopped_for_a_while_and_killed(jobs: Jobs) -> None:
    with jobs.job('echo "ingest: $$"\nwhile :; do sleep 0.01; done\n') as job:
        pid = int(wait_until(lambda: jobs.shown, "the job has started")[0])

        def state() -> str:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]

        with job.stopped():
            assert state() == "T"
        wait_until(lambda: state() != "T", "the job continues")
        with job.stopped():
            job.kill()
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(StreamGroupError, match="job a ended with -9"):
            job.check()


def test_a_job_that_does_not_drain_in_time_is_an_error_with_its_log_and_is_killed_at_the_end(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.05)
    with jobs.job("trap '' TERM\necho \"ingest: $$\"\nwhile :; do sleep 20; done\n") as job:
        pid = int(wait_until(lambda: jobs.shown, "the job has started")[0])
        with pytest.raises(StreamGroupError, match=r"job a has not ended within 0 s after SIGTERM.*job-a\.log"):
            job.stop()
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- the view of the group ---------------------------------------------------------------------------------------------


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WatchPart]:
    """A view of a group `(members, commits)` on two logs that end at 100; the group holds no more than they say."""

    def make(members: Mapping[str, tuple[TopicPartition, ...]], commits: Mapping[TopicPartition, int]) -> WatchPart:
        fake = FakeCluster(Logs(ends={orders(0): 100, orders(1): 100}))
        held = tuple(MemberDescription(f"{name}-1", name, assigned=found) for name, found in members.items())
        described = {"g": GroupDescription("g", "Stable", members=held)}
        committed = {tp: CommittedOffset(offset) for tp, offset in commits.items()}
        monkeypatch.setattr(module, "cluster_of", lambda *_: fake)
        monkeypatch.setattr(module.admin, "describe_groups", lambda *_: described)
        monkeypatch.setattr(module.admin, "committed", lambda *_: committed)
        return WatchPart("b:1", "g")

    return make


@pytest.mark.parametrize(
    ("members", "commits", "owners", "lag"),
    [
        ({"a": (orders(0), orders(1))}, {orders(0): 90, orders(1): 100}, {"a": 2}, 10),
        ({"a": (orders(0),), "b": (orders(1),)}, {orders(0): 100, orders(1): 100}, {"a": 1, "b": 1}, 0),
        ({"a": (orders(0),), "idle": ()}, {orders(0): 40}, {"a": 1}, -1),
        ({"a": (orders(0), orders(1))}, {orders(0): 100}, {"a": 2}, -1),
        ({}, {orders(0): 99}, {}, 1),
        ({}, {}, {}, -1),
    ],
    ids=["one member", "two members", "an idle member", "no commit yet", "no members", "nothing"],
)
def test_the_group_has_its_owners_and_its_lag_which_is_negative_while_it_is_unknown(
    watch: Callable[..., WatchPart], members: Any, commits: Any, owners: dict[str, int], lag: int
) -> None:
    with watch(members, commits) as view:
        assert (view.owners(), view.lag()) == (owners, lag)


def test_the_table_of_the_group_has_a_row_for_each_partition_and_dashes_for_what_is_unknown() -> None:
    member = MemberDescription("a-1", "a")
    rows = [
        OffsetRow("g", orders(0), CommittedOffset(1_234_567), 1_234_600, member),
        OffsetRow("g", orders(1), None, 5, None),
        OffsetRow("g", None, None, None, member),
    ]
    assert cells(group_table(rows)) == [
        ["orders", "0", "1,234,567", "1,234,600", "33", "a"],
        ["orders", "1", "-", "5", "-", "-"],
    ]


# -- the result --------------------------------------------------------------------------------------------------------


def test_the_rows_of_a_member_are_those_of_all_its_files_and_none_where_it_wrote_nothing(tmp_path: Path) -> None:
    assert read_rows(tmp_path, "a", COLUMNS) == []
    home = tmp_path / "rows" / "a"
    home.mkdir(parents=True)
    for number in (7, 8):
        row = pa.table({"number": [number], "partition": [number % 2], "offset": [0]})
        pq.write_table(row, home / f"part-{number}.parquet")
    assert sorted(read_rows(tmp_path, "a", COLUMNS)) == [(7, 1), (8, 0)]


@pytest.mark.parametrize(
    ("numbers", "missing", "repeated", "is_exact"),
    [
        ({"a": [0, 2], "b": [1, 3]}, "0", "0", True),
        ({"a": [0, 2], "b": [1]}, "1", "0", False),
        ({"a": [0, 1, 2, 3], "b": [3]}, "0", "1", False),
        ({"a": [0, 0, 0]}, "3", "2", False),
        ({"a": [0, 1, 2, 4]}, "1", "0", False),
        ({"a": [0, 1, 2, 3, 4]}, "0", "0", False),
        ({}, "4", "0", False),
    ],
    ids=["exact", "missing", "repeated", "both", "one for another", "one too many", "nothing"],
)
def test_of_four_records_each_must_be_there_once(
    numbers: dict[str, list[int]], missing: str, repeated: str, is_exact: bool
) -> None:
    rows: dict[str, list[tuple[int, ...]]] = {
        member: [(number, number % 3) for number in found] for member, found in numbers.items()
    }
    table, exact = result_table(4, rows)
    assert exact is is_exact
    *members, last = cells(table)
    assert last == ["produced", "4", "", missing, repeated]
    partitions = {name: sorted({number % 3 for number in found}) for name, found in numbers.items()}
    assert [row[:3] for row in members] == [
        [name, str(len(found)), ", ".join(map(str, partitions[name]))] for name, found in numbers.items()
    ]
