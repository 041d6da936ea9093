from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import checkpoint as module
from streamgroup.cli.checkpoint import after_sunk, of_document, of_replay, spark_value
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError
from streamgroup.group.commits import CommitMetadata
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    Document,
    GroupDescription,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
SPARKS = '{"payments":{"0":9}}'


def document(sequence: int, zero: tuple[int, int], one: tuple[int, int], group: str = "g") -> str:
    ranges = tuple(OffsetRange(tp, *r) for tp, r in ((ZERO, zero), (ONE, one)) if r[0] != r[1])
    positions = {ZERO: Position(zero[1], "id", 1), ONE: Position(one[1], "id", 1)}
    return json.dumps(to_value(Document(group, "line", "run", sequence, ranges, positions)))


FIRST, SECOND, THIRD = (
    document(1, (5, 10), (0, 20)),
    document(2, (10, 15), (20, 20)),
    document(3, (15, 30), (22, 25)),  # another member had partition 1 in between
)
INITIAL = json.dumps(to_value(INITIAL_DOCUMENT))


class FakeStore:
    """A group without members and without commits, unless a test says otherwise."""

    def __init__(self) -> None:
        self.state = "Empty"
        self.commits: dict[TopicPartition, CommittedOffset] = {}
        self.log_format = KAFKA_LOG
        self.asked: list[str] = []

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        self.asked += names
        return {name: GroupDescription(name, self.state) for name in names}

    def committed(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        return self.commits


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    fake = FakeStore()

    @contextmanager
    def opened(options: ClientOptions) -> Iterator[FakeStore]:
        yield fake

    monkeypatch.setattr(module, "opened_store", opened)
    monkeypatch.setattr(channel, "drivers", list)
    return fake


def write(home: Path, batches: dict[int, list[str]], sunk: int) -> Path:
    """A checkpoint with these lines of sources by batch, sunk up to a batch."""
    (home / "offsets").mkdir()
    (home / "commits").mkdir()
    for batch, lines in batches.items():
        (home / "offsets" / str(batch)).write_text("\n".join([HEAD, *lines]))
        (home / "offsets" / f".{batch}.crc").write_bytes(b"of the former content")
        if batch <= sunk:
            (home / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return home


def run(home: object, *arguments: str, where: tuple[str, ...] = ("-b", "broker:9092")) -> Result:
    return CliRunner().invoke(module.checkpoint, [*where, str(home), *arguments])


def sources(home: Path, batch: int) -> list[Any]:
    lines = (home / "offsets" / str(batch)).read_text().split("\n")
    assert "\n".join(lines[:2]) == HEAD
    return [json.loads(line) if line != "-" else None for line in lines[2:]]


def initial(home: Path, source: int = 0) -> Any:
    data = (home / "sources" / str(source) / "0").read_bytes()
    assert data.startswith(b"\0v1\n"), "as KafkaSourceInitialOffsetWriter"
    return json.loads(data[4:])


def offsets(zero: int, one: int) -> Any:
    return {"orders": {"0": zero, "1": one}}


def test_a_sunk_checkpoint_ends_at_the_positions_of_its_last_batch(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST], 1: [SECOND]}, sunk=1)
    result = run(home, "--to-spark")
    assert result.exit_code == 0, result.output
    assert [sources(home, batch) for batch in (0, 1)] == [[offsets(10, 20)], [offsets(15, 20)]]
    assert initial(home) == offsets(5, 0)
    assert not list((home / "offsets").glob(".*")), "neither checksums of the former content nor temporary files"
    assert 'start the query with format("kafka")' in result.stderr


def test_the_former_files_are_kept(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    backup = Path(json.loads(run(home, "--to-spark", "--json").stdout)["backup"])
    assert backup.parent == home
    assert json.loads((backup / "offsets" / "0").read_text().splitlines()[2]) == json.loads(FIRST)


def test_a_batch_that_has_not_sunk_is_replayed_with_its_ranges(store: FakeStore, tmp_path: Path) -> None:
    """Spark reads in batch 2 what lies between the offsets of 1 and of 2, so those of 1 change."""
    home = write(tmp_path, {0: [FIRST], 1: [SECOND], 2: [THIRD]}, sunk=1)
    result = run(home, "--to-spark")
    assert result.stdout.startswith("Batch 2 has not sunk: it is replayed.")
    assert sources(home, 1) == [offsets(15, 22)]
    assert sources(home, 2) == [offsets(30, 25)]
    assert sources(home, 0) == [offsets(10, 20)]


def test_batch_0_that_has_not_sunk_begins_at_the_initial_offset(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST]}, sunk=-1)
    (home / "sources" / "0").mkdir(parents=True)
    (home / "sources" / "0" / "0").write_bytes(b'\0v1\n{"orders":{"0":0}}')  # of Spark's source, which never planned
    run(home, "--to-spark")
    assert (initial(home), sources(home, 0)) == (offsets(5, 0), [offsets(10, 20)])


def test_sources_of_others_stay_as_they_are(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: ["-", FIRST, INITIAL], 1: [SPARKS, SECOND, INITIAL]}, sunk=1)
    assert run(home, "--to-spark").exit_code == 0
    assert sources(home, 0) == [None, offsets(10, 20), None]
    assert sources(home, 1) == [json.loads(SPARKS), offsets(15, 20), None]
    assert initial(home, 1) == offsets(5, 0)
    assert not (home / "sources" / "0").exists()


def test_offsets_of_version_2_name_their_sources(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [f"first:{FIRST}", f"second:{SPARKS}"]}, sunk=0)
    file = home / "offsets" / "0"
    file.write_text(file.read_text().replace("v1", "v2", 1))
    assert run(home, "--to-spark").exit_code == 0
    assert file.read_text().splitlines()[2:] == ['first:{"orders":{"0":10,"1":20}}', f"second:{SPARKS}"]
    assert (home / "sources" / "first" / "0").exists()


def test_offsets_of_other_members_are_taken_from_the_group(store: FakeStore, tmp_path: Path) -> None:
    store.commits = {TopicPartition("orders", 2): CommittedOffset(44)}
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    result = run(home, "--to-spark")
    assert sources(home, 0) == [{"orders": {"0": 10, "1": 20, "2": 44}}]
    assert "Warning: of other members of the group, from its commits: orders-2" in result.stderr


def unchanged(home: Path, line: str = FIRST) -> bool:
    return (home / "offsets" / "0").read_text().splitlines()[2:] == [line] and not list(home.glob("before*"))


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "Unknown"])
def test_a_group_with_members_is_left_alone(store: FakeStore, tmp_path: Path, state: str) -> None:
    store.state = state
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    result = run(home, "--to-spark")
    assert f"group 'g' is {state}" in str(result.exception)
    assert "streamgroup drain --group g" in str(result.exception)
    assert unchanged(home)


def test_a_query_that_runs_here_is_left_alone_also_without_a_group(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "drivers", lambda: [4711])
    monkeypatch.setattr(
        channel, "survey", lambda pid: channel.Survey({"run": {"lineage": "line"}, "r": {"lineage": "o"}}, [])
    )
    line = document(1, (5, 10), (0, 20), group="")
    home = write(tmp_path, {0: [line]}, sunk=0)
    assert "streamgroup drain --pid 4711" in str(run(home, "--to-spark").exception)
    assert unchanged(home, line)
    monkeypatch.setattr(channel, "survey", lambda pid: channel.Survey({"r": {"lineage": "o"}}, []))
    assert run(home, "--to-spark", where=()).exit_code == 0
    assert store.asked == [], "a query without a group needs no cluster"


def test_a_query_of_a_group_needs_its_cluster(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    result = run(home, "--to-spark", where=())
    assert result.exit_code == 2
    assert "the query is of group g: name its cluster with --bootstrap-server" in result.output
    assert unchanged(home)


def test_kafka_07_has_no_way_to_spark(store: FakeStore, tmp_path: Path) -> None:
    store.log_format = KAFKA07_LOG
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    assert "does not read Kafka 0.7" in str(run(home, "--to-spark").exception)
    assert unchanged(home)


@pytest.mark.parametrize(
    ("batches", "sunk", "error"),
    [
        ({}, -1, "has no offsets"),
        ({0: [SPARKS]}, 0, "its newest batch has no source of streamgroup"),
        ({2: [THIRD]}, 1, "Restore offsets/1"),
    ],
)
def test_a_checkpoint_that_cannot_be_rewritten_is_explained(
    store: FakeStore, tmp_path: Path, batches: dict[int, list[str]], sunk: int, error: str
) -> None:
    home = write(tmp_path, batches, sunk)
    assert error in str(run(home, "--to-spark").exception)
    assert not list(home.glob("before*"))


def test_a_second_rewriting_has_nothing_to_do(store: FakeStore, tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST]}, sunk=0)
    run(home, "--to-spark")
    assert "Spark can continue from it" in str(run(home, "--to-spark").exception)


def test_a_rewriting_that_was_interrupted_is_completed_by_the_next(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write(tmp_path, {0: [FIRST], 1: [SECOND], 2: [THIRD]}, sunk=1)
    write_offsets = module.CheckpointFiles.write_offsets

    def fails(files: Any, batch: int, lines: Any) -> None:
        if batch == 2:
            raise OSError("no space left")
        write_offsets(files, batch, lines)

    monkeypatch.setattr(module.CheckpointFiles, "write_offsets", fails)
    assert "no space left. Run the command again" in str(run(home, "--to-spark").exception)
    monkeypatch.setattr(module.CheckpointFiles, "write_offsets", write_offsets)
    assert run(home, "--to-spark").exit_code == 0
    assert [sources(home, batch) for batch in (1, 2)] == [[offsets(15, 22)], [offsets(30, 25)]]


def test_without_to_spark_the_newest_batch_is_shown_and_nothing_is_asked(tmp_path: Path) -> None:
    home = write(tmp_path, {0: [FIRST], 1: [SECOND]}, sunk=0)
    shown = run(home, where=()).stdout.splitlines()
    assert shown[0] == "Batch 1 has not sunk: it is replayed."
    assert [" ".join(line.split()) for line in shown[1:]] == [
        "SOURCE GROUP TOPIC PARTITION START END",
        "0 g orders 0 10 15",
        "0 g orders 1 20 20",
    ]
    assert json.loads(run(home, "--json", where=()).stdout)["offsets"][0]["end"] == 15
    assert unchanged(home)


TOPICS = ["orders"]
DOCUMENT = Document(
    "g",
    "line",
    "run",
    7,
    ranges=(OffsetRange(ZERO, 50, 90),),
    positions={ZERO: Position(90, "id", 3), ONE: Position(20, "id", 3)},
)


def ours(offset: int, lineage: str = "line") -> CommittedOffset:
    return CommittedOffset(offset, CommitMetadata(lineage, "run", 6, 7, 1).text())


def test_spark_goes_on_at_the_positions_of_a_batch_that_has_sunk() -> None:
    found = after_sunk(DOCUMENT, {ZERO: ours(90), ONE: ours(20)}, TOPICS)
    assert (found.ends, found.notes) == ({ZERO: 90, ONE: 20}, ())
    assert spark_value(found.ends) == {"orders": {"0": 90, "1": 20}}
    assert of_document(DOCUMENT) == found.ends


def test_what_has_sunk_and_is_not_committed_is_not_read_again() -> None:
    assert after_sunk(DOCUMENT, {ZERO: ours(50)}, TOPICS).ends[ZERO] == 90


@pytest.mark.parametrize("commit", [CommittedOffset(30), CommittedOffset(95), ours(30, "another"), ours(95, "another")])
def test_a_commit_of_somebody_else_is_followed(commit: CommittedOffset) -> None:
    found = after_sunk(DOCUMENT, {ZERO: commit}, TOPICS)
    assert found.ends == {ZERO: commit.offset, ONE: 20}
    assert found.notes == (f"orders-0: the group has committed {commit.offset}, the checkpoint says 90",)


def test_partitions_of_other_members_come_from_the_commits_of_the_group() -> None:
    commits = {TWO: CommittedOffset(33), TopicPartition("payments", 0): CommittedOffset(1)}
    found = after_sunk(DOCUMENT, commits, TOPICS)
    assert found.ends == {ZERO: 90, ONE: 20, TWO: 33}, "and no topic that the query has not read"
    assert found.notes == ("of other members of the group, from its commits: orders-2",)


def test_a_batch_that_has_not_sunk_keeps_its_ranges() -> None:
    found = of_replay(DOCUMENT, {ZERO: ours(50), ONE: ours(20), TWO: CommittedOffset(33)}, TOPICS)
    assert found.starts == {ZERO: 50, ONE: 20, TWO: 33}
    assert found.ends == {ZERO: 90, ONE: 20, TWO: 33}


@pytest.mark.parametrize(("commit", "start", "end"), [(60, 60, 90), (90, 90, 90), (120, 120, 120)])
def test_a_replay_leaves_out_what_the_group_has_committed(commit: int, start: int, end: int) -> None:
    found = of_replay(DOCUMENT, {ZERO: CommittedOffset(commit)}, TOPICS)
    assert (found.starts[ZERO], found.ends[ZERO]) == (start, end)
    assert len(found.notes) == 1


def test_a_replay_of_a_batch_before_which_nothing_was_committed_begins_where_it_was_planned() -> None:
    """The batch before it has sunk, and a crash came before its commit."""
    assert of_replay(DOCUMENT, {ZERO: ours(10)}, TOPICS).starts[ZERO] == 50
    assert of_replay(DOCUMENT, {}, TOPICS).starts == {ZERO: 50, ONE: 20}


def test_a_reset_behind_a_planned_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="starts orders-0 at 50, and the group was reset to 10"):
        of_replay(DOCUMENT, {ZERO: CommittedOffset(10)}, TOPICS)
