"""`streamgroup demo` shows two jobs that share a group, and fails if a record is missing or repeated."""

from __future__ import annotations

import os
import signal
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import demo as module
from streamgroup.cli.main import main
from streamgroup.errors import StreamGroupError

ALL, HALF = module.PARTITIONS, module.PARTITIONS // 2


class World:
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
        self.failure: StreamGroupError | None = None

    def owners(self) -> dict[str, int]:
        self.on_look()
        return {"a": ALL} if self.running == ["a"] else dict.fromkeys(self.running, HALF)


class Part:
    """A part of the world that is begun and ended."""

    world: World

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> Self:
        self.world.events.append(f"{self.what} begins")
        return self

    def __exit__(self, *_: object) -> None:
        self.world.events.append(f"{self.what} ends")


class Kafka(Part):
    bootstrap_servers = "127.0.0.1:9"

    def __init__(self, version: str, data_dir: Path) -> None:
        super().__init__(f"Kafka {version}")
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
    def __init__(self, servers: str, topic: str, partitions: int, rate: int) -> None:
        super().__init__(f"load of {rate}")

    def finish(self) -> int:
        self.world.events.append("load finishes")
        return self.world.produced


class Job(Part):
    batches = 2

    def __init__(self, member: str, conf: Path, home: Path, console: object) -> None:
        super().__init__(f"job {member}")
        self.member = member
        numbers = self.world.rows[member]
        rows = pa.table({"number": numbers, "partition": [number % ALL for number in numbers]})
        (home / "rows" / member).mkdir(parents=True)
        pq.write_table(rows, home / "rows" / member / "part.parquet")
        self.world.running.append(member)

    def check(self) -> None:
        if self.world.failure is not None:
            raise self.world.failure

    def stop(self) -> None:
        self.world.running.remove(self.member)
        self.world.events.append(f"SIGTERM to {self.member}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
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
    world: World, tmp_path: Path
) -> None:
    home = tmp_path / "new" / "demo"
    result = run("--output", home, "--rate", 50)
    assert result.exit_code == 0, result.output
    assert "every record arrived exactly once" in result.output
    assert f"Files and logs are in {home}" in result.output
    assert world.events == [
        "Kafka 4.1.1 begins",
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
        "Kafka 4.1.1 ends",
    ]


def test_the_jobs_get_the_address_of_the_broker_and_write_below_the_output(world: World, tmp_path: Path) -> None:
    run("--output", tmp_path)
    settings = tomllib.loads((tmp_path / "ingest.toml").read_text())
    kafka = settings["source"]["kafka"]
    assert (kafka["bootstrap"]["servers"], kafka["group"]["id"]) == ("127.0.0.1:9", "orders-ingest")
    assert settings["sink"]["path"] == f"{tmp_path}/rows/{{member}}"


@pytest.mark.parametrize(
    ("rows", "missing", "repeated"),
    [({"a": [0, 1, 2], "b": [3, 4]}, 1, 0), ({"a": [0, 1, 2, 5], "b": [2, 3, 4]}, 0, 1), ({"a": [], "b": []}, 6, 0)],
    ids=["one missing", "one repeated", "none arrived"],
)
def test_a_missing_or_repeated_record_fails_the_demo(
    rows: dict[str, list[int]], missing: int, repeated: int, world: World, tmp_path: Path
) -> None:
    world.rows = rows
    result = run("--output", tmp_path)
    assert result.exit_code == 1
    assert "records are missing or repeated" in result.output
    (line,) = [line for line in result.output.splitlines() if "produced" in line and "│" in line]
    assert [cell.strip() for cell in line.strip("│ ").split("│")] == ["produced", "6", "", str(missing), str(repeated)]


def test_a_directory_with_files_is_refused_before_anything_starts(world: World, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    result = run("--output", tmp_path)
    assert result.exit_code == 1
    assert f"cannot run the demo in {tmp_path}: the directory is not empty. Choose another --output" in result.output
    assert world.events == []


def test_an_output_that_is_a_file_or_cannot_be_made_is_refused(world: World, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = run("--output", file)
    assert (result.exit_code, world.events) == (2, [])
    assert "is a file" in result.output
    result = run("--output", file / "below")
    assert "Choose another --output" in result.output
    assert f"cannot make the directory {file / 'below'}: Not a directory" in result.output.replace("\n", " ")


@pytest.mark.parametrize("rate", ["0", "100001", "many"])
def test_an_impossible_rate_is_a_usage_error(rate: str, world: World, tmp_path: Path) -> None:
    result = run("--output", tmp_path, "--rate", rate)
    assert (result.exit_code, world.events) == (2, [])
    assert "--rate" in result.output


def test_without_an_output_the_files_are_in_a_new_directory(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run().exit_code == 0
    assert world.home.parent == tmp_path
    assert world.home.name.startswith("streamgroup-demo-")


def test_a_step_that_takes_too_long_names_itself_and_the_logs_and_everything_is_stopped(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_TIMEOUT_S", 0.0)
    result = run("--output", tmp_path)
    assert result.exit_code == 1
    assert (
        f"failed at step 2: not within 0 s: a holds all partitions. Read the jobs' logs in {tmp_path}" in result.output
    )
    assert world.events[-4:] == [
        "job a ends",
        "load of 2000 ends",
        "watch of orders-ingest ends",
        "Kafka 4.1.1 ends",
    ]


def test_a_job_that_ends_by_itself_ends_the_demo_with_its_error(world: World, tmp_path: Path) -> None:
    world.failure = StreamGroupError("job a ended with 1; its log ends: no memory")
    result = run("--output", tmp_path)
    assert (result.exit_code, world.events[-1]) == (1, "Kafka 4.1.1 ends")
    assert "job a ended with 1; its log ends: no memory" in result.output


def test_a_sigterm_stops_the_jobs_and_the_broker(world: World, tmp_path: Path) -> None:
    """The jobs have sessions of their own, and would outlive the command."""
    world.on_look = lambda: os.kill(os.getpid(), signal.SIGTERM)
    result = run("--output", tmp_path)
    assert (result.exit_code, world.events[-1]) == (128 + signal.SIGTERM, "Kafka 4.1.1 ends")
