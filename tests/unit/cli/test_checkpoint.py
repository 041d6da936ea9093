"""`streamgroup checkpoint` shows and rewrites offsets, as Spark writes them, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _checkpoint_files
from streamgroup.cli import checkpoint as module
from streamgroup.cli._checkpoint_files import (
    CheckpointFiles,
    CheckpointHistory,
    OffsetLines,
    StillRunningError,
    batch_of,
    documents_in,
    local_path,
    refuse_running,
)
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
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

Serve = Callable[..., FakeCoordinator]

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

    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(fake))
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


def test_a_sunk_checkpoint_ends_at_the_positions_of_its_last_batch_and_its_former_files_are_kept(
    store: FakeStore, tmp_path: Path
) -> None:
    home = write(tmp_path, {0: [FIRST], 1: [SECOND]}, sunk=1)
    result = run(home, "--to-spark", "--json")
    assert result.exit_code == 0, result.output
    assert [sources(home, batch) for batch in (0, 1)] == [[offsets(10, 20)], [offsets(15, 20)]]
    assert initial(home) == offsets(5, 0)
    assert not list((home / "offsets").glob(".*")), "neither checksums of the former content nor temporary files"
    assert 'start the query with format("kafka")' in result.stderr
    backup = Path(json.loads(result.stdout)["backup"])
    assert backup.parent == home
    assert json.loads((backup / "offsets" / "0").read_text().splitlines()[2]) == json.loads(FIRST)
    assert "Spark can continue from it" in str(run(home, "--to-spark").exception), "a second rewriting changes nothing"


def test_a_batch_that_has_not_sunk_is_replayed_with_its_ranges(store: FakeStore, tmp_path: Path) -> None:
    """Spark reads in batch 2 what lies between the offsets of 1 and of 2, so those of 1 change."""
    home = write(tmp_path, {0: [FIRST], 1: [SECOND], 2: [THIRD]}, sunk=1)
    result = run(home, "--to-spark")
    assert result.stdout.startswith("Batch 2 is not complete: it is replayed.")
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
    assert shown[0] == "Batch 1 is not complete: it is replayed."
    assert [" ".join(line.split()) for line in shown[1:]] == [
        "SOURCE GROUP TOPIC PARTITION START END",
        "0 g orders 0 10 15",
        "0 g orders 1 20 20",
    ]
    assert json.loads(run(home, "--json", where=()).stdout)["offsets"][0]["end"] == 15
    assert unchanged(home)


# -- what Spark 4.3 wrote ----------------------------------------------------------------------------------------------

CAPTURED = Path(__file__).parents[2] / "vectors" / "checkpoints" / "spark-4.3"
"""Checkpoints of real queries. `named` had the sources orders_in and a_payments in batch 0, also refunds in 1, also
audit and extra in 2, and orders_in alone in 3. `unnamed` has two sources in version 2, the second one first."""


@pytest.mark.parametrize(
    ("name", "batch", "sources"),
    [
        ("version-1", 1, {"0": "orders"}),
        ("unnamed", 5, {"1": "payments", "0": "orders"}),
        ("named", 0, {"a_payments": "payments", "orders_in": "orders"}),
        ("named", 1, {"a_payments": "payments", "refunds": "refunds", "orders_in": "orders"}),
        ("named", 3, {"orders_in": "orders"}),
    ],
)
def test_the_offsets_that_spark_wrote_are_those_of_its_sources(name: str, batch: int, sources: dict[str, str]) -> None:
    files = CheckpointFiles(str(CAPTURED / name))
    found = files.offsets(batch)
    assert {source: {tp.topic for tp in one.positions} for source, one in documents_in(found).items()} == {
        source: {topic} for source, topic in sources.items()
    }
    assert list(found.sources) == list(sources), "in the order of the file"
    assert found.text() == (CAPTURED / name / "offsets" / str(batch)).read_text()
    assert CheckpointHistory(files).is_sunk


def test_sources_that_come_and_go_are_not_mistaken_for_each_other() -> None:
    found = CheckpointHistory(CheckpointFiles(str(CAPTURED / "named")))
    assert list(found.newest) == ["orders_in"]
    assert [found.topics_of(name) for name in ("orders_in", "a_payments")] == [{"orders"}, {"payments"}]
    assert [found.first_batch(name) for name in ("orders_in", "refunds", "audit")] == [0, 1, 2]


def captured(tmp_path: Path, name: str, last: int) -> Path:
    """A copy of a captured checkpoint without the batches after `last`."""
    home = tmp_path / name
    shutil.copytree(CAPTURED / name, home)
    for path in (*home.glob("offsets/*"), *home.glob("commits/*")):
        if int(path.name) > last:
            path.unlink()
    return home


def of_both(topic: str, offset: int) -> dict[str, dict[str, int]]:
    return {topic: {"0": offset, "1": offset}}


def test_named_sources_go_back_to_spark_under_their_names(store: FakeStore, tmp_path: Path) -> None:
    home = captured(tmp_path, "named", last=1)
    assert run(home, "--to-spark").exit_code == 0
    after = CheckpointFiles(str(home)).offsets(1)
    assert {name: json.loads(text) for name, text in after.sources.items()} == {
        "a_payments": of_both("payments", 8),
        "refunds": of_both("refunds", 8),
        "orders_in": of_both("orders", 8),
    }
    assert {path.parent.name: json.loads(path.read_bytes()[4:]) for path in home.glob("sources/*/0")} == {
        "a_payments": of_both("payments", 0),
        "refunds": of_both("refunds", 0),
        "orders_in": of_both("orders", 0),
    }


def test_a_source_that_the_unfinished_batch_has_added_begins_at_its_initial_offset(
    store: FakeStore, tmp_path: Path
) -> None:
    """No batch before has its offsets, so Spark reads them from the source's directory, as in batch 0."""
    home = captured(tmp_path, "named", last=2)
    (home / "commits" / "2").unlink()
    initial = home / "sources" / "extra" / "0"
    initial.parent.mkdir(parents=True)
    initial.write_bytes(b'\0v1\n{"extra":{"0":7}}')  # of Spark's source, which never planned
    assert run(home, "--to-spark").exit_code == 0
    assert json.loads(initial.read_bytes()[4:]) == of_both("extra", 0)
    before, after = (CheckpointFiles(str(home)).offsets(batch).sources for batch in (1, 2))
    assert "extra" not in before
    assert json.loads(before["refunds"]) == of_both("refunds", 8)
    assert json.loads(after["extra"]) == of_both("extra", 10)


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


def test_spark_goes_on_at_the_positions_of_a_batch_that_has_sunk_also_before_its_commit() -> None:
    found = after_sunk(DOCUMENT, {ZERO: ours(90), ONE: ours(20)}, TOPICS)
    assert (found.ends, found.notes) == ({ZERO: 90, ONE: 20}, ())
    assert spark_value(found.ends) == {"orders": {"0": 90, "1": 20}}
    assert of_document(DOCUMENT) == found.ends
    assert after_sunk(DOCUMENT, {ZERO: ours(50)}, TOPICS).ends[ZERO] == 90


@pytest.mark.parametrize("commit", [CommittedOffset(30), CommittedOffset(95), ours(30, "another"), ours(95, "another")])
def test_a_commit_of_somebody_else_is_followed(commit: CommittedOffset) -> None:
    found = after_sunk(DOCUMENT, {ZERO: commit}, TOPICS)
    assert found.ends == {ZERO: commit.offset, ONE: 20}
    assert found.notes == (f"orders-0: the group has committed {commit.offset}, the checkpoint has 90",)


def test_partitions_of_other_members_come_from_the_commits_of_the_group() -> None:
    commits = {TWO: CommittedOffset(33), TopicPartition("payments", 0): CommittedOffset(1)}
    found = after_sunk(DOCUMENT, commits, TOPICS)
    assert found.ends == {ZERO: 90, ONE: 20, TWO: 33}, "and no topic that the query has not read"
    assert found.notes == ("of other members of the group, from its commits: orders-2",)


def test_a_batch_that_has_not_sunk_keeps_its_ranges_also_if_the_commit_of_the_one_before_is_missing() -> None:
    found = of_replay(DOCUMENT, {ZERO: ours(50), ONE: ours(20), TWO: CommittedOffset(33)}, TOPICS)
    assert found.starts == {ZERO: 50, ONE: 20, TWO: 33}
    assert found.ends == {ZERO: 90, ONE: 20, TWO: 33}
    assert of_replay(DOCUMENT, {ZERO: ours(10)}, TOPICS).starts[ZERO] == 50
    assert of_replay(DOCUMENT, {}, TOPICS).starts == {ZERO: 50, ONE: 20}


@pytest.mark.parametrize(("commit", "start", "end"), [(60, 60, 90), (90, 90, 90), (120, 120, 120)])
def test_a_replay_leaves_out_what_the_group_has_committed(commit: int, start: int, end: int) -> None:
    found = of_replay(DOCUMENT, {ZERO: CommittedOffset(commit)}, TOPICS)
    assert (found.starts[ZERO], found.ends[ZERO]) == (start, end)
    assert len(found.notes) == 1


def test_a_reset_behind_a_planned_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="starts orders-0 at 50, and the group was reset to 10"):
        of_replay(DOCUMENT, {ZERO: CommittedOffset(10)}, TOPICS)


# -- the files of a checkpoint -----------------------------------------------------------------------------------------

V2 = HEAD.replace("v1", "v2", 1)


def checkpoint(home: Path) -> CheckpointFiles:
    """Two sources, batches 0 to 10, of which the last has not sunk."""
    return CheckpointFiles(str(write(home, {batch: ["-", FIRST] for batch in (10, 9, 0)}, sunk=9)))


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("/data/q", "/data/q"),
        ("data/q", "data/q"),
        ("/data/a b%20c", "/data/a b%20c"),
        ("file:/data/q", "/data/q"),
        ("file:///data/a%20b", "/data/a b"),
        ("file://localhost/data/q", "/data/q"),
        ("FILE:data/q", "data/q"),
        ("file:/data/a#b?c", "/data/a#b?c"),
    ],
)
def test_a_path_and_a_url_of_a_file_name_a_local_directory(where: str, path: str) -> None:
    assert local_path(where) == Path(path)


@pytest.mark.parametrize(
    "where", ["hdfs://namenode/q", "s3a://bucket/q", "file://host/q", "dbfs:/q", "//host/q", "s3a://[b/q", "//[x"]
)
def test_another_file_system_is_refused_with_the_way_to_copy_the_checkpoint(where: str) -> None:
    with pytest.raises(ConfigError, match=r"local directories only\. Copy the checkpoint to this machine") as refused:
        local_path(where)
    assert f"cannot rewrite the checkpoint {where}:" in str(refused.value)


def test_a_directory_that_is_not_a_checkpoint_is_refused_with_the_option_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="checkpointLocation") as refused:
        CheckpointFiles(str(tmp_path))
    assert f"no checkpoint of a streaming query in {tmp_path}" in str(refused.value)


def test_batches_are_in_the_order_of_their_numbers_and_other_files_are_passed_over(tmp_path: Path) -> None:
    files = checkpoint(tmp_path)
    (tmp_path / "offsets" / ".11.tmp").touch()
    (tmp_path / "offsets" / "12.compact").touch()
    assert files.batches() == [0, 9, 10]
    assert [files.is_sunk(batch) for batch in (0, 9, 10)] == [True, True, False]


def test_a_checkpoint_whose_query_has_not_planned_a_batch_is_explained(tmp_path: Path) -> None:
    files = CheckpointFiles(str(write(tmp_path, {}, sunk=-1)))
    with pytest.raises(ConfigError, match="has no offsets: the query has not planned a batch yet"):
        files.batches()
    (tmp_path / "commits").rmdir()
    assert not files.is_sunk(0), "Spark makes the directory with its first commit"


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (f"{HEAD}\n-\n{FIRST}", {"0": "-", "1": FIRST}),
        (f"{V2}\nin:{FIRST}\nout:-", {"in": FIRST, "out": "-"}),
        (f"{HEAD}\n{SPARKS}\n", {"0": SPARKS}),
    ],
    ids=["version 1", "version 2", "a line end at the end"],
)
def test_each_source_has_its_text_by_its_id(tmp_path: Path, text: str, sources: dict[str, str]) -> None:
    files = checkpoint(tmp_path)
    (tmp_path / "offsets" / "0").write_text(text)
    lines = files.offsets(0)
    assert lines.sources == sources
    assert lines.text() == text.rstrip("\n")
    assert lines.with_sources({}) == lines


@pytest.mark.parametrize(
    "data",
    [b"", b"v1\n{}", b"v3\n{}\n-", b"v1\n{}\n\xff", b"v2\n{}\n-"],
    ids=["empty", "no sources", "version", "not UTF-8", "no id"],
)
def test_a_damaged_file_of_offsets_is_named(tmp_path: Path, data: bytes) -> None:
    files = checkpoint(tmp_path)
    (tmp_path / "offsets" / "9").write_bytes(data)
    with pytest.raises(ConfigError, match=f"cannot read {tmp_path}/offsets/9"):
        files.offsets(9)
    with pytest.raises(ConfigError, match=f"cannot read {tmp_path}/offsets/7"):
        files.offsets(7)


def test_offsets_that_are_replaced_leave_no_checksum_and_no_other_file(tmp_path: Path) -> None:
    files = checkpoint(tmp_path)
    files.write_offsets(10, files.offsets(10).with_sources({"1": SECOND}))
    assert files.offsets(10).sources == {"0": "-", "1": SECOND}
    assert files.offsets(9).sources == {"0": "-", "1": FIRST}
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == [".0.crc", ".9.crc", "0", "10", "9"]


def test_an_initial_offset_is_written_as_sparks_kafka_source_reads_it(tmp_path: Path) -> None:
    files = checkpoint(tmp_path)
    assert not files.has_initial("1")
    files.write_initial("1", {"orders": {"0": 5}})
    assert files.has_initial("1")
    assert (tmp_path / "sources" / "1" / "0").read_bytes() == b'\0v1\n{"orders":{"0":5}}'


def test_a_backup_has_the_offsets_and_sources_of_before_and_is_never_overwritten(tmp_path: Path) -> None:
    files = checkpoint(tmp_path)
    files.back_up("before")
    assert not (tmp_path / "before" / "sources").exists(), "this checkpoint has none"
    files.write_initial("1", {})
    files.write_offsets(0, files.offsets(0).with_sources({"1": SECOND}))
    files.back_up("after")
    assert CheckpointFiles(str(tmp_path / "before")).offsets(0).sources["1"] == FIRST
    assert CheckpointFiles(str(tmp_path / "after")).offsets(0).sources["1"] == SECOND
    assert (tmp_path / "after" / "sources" / "1" / "0").exists()
    with pytest.raises(FileExistsError):
        files.back_up("before")


def history(directory: Path, batches: dict[int, list[str]], sunk: int) -> CheckpointHistory:
    return CheckpointHistory(CheckpointFiles(str(write(directory, batches, sunk))))


def lines(*sources: str) -> OffsetLines:
    return OffsetLines("v1", "{}", {str(index): text for index, text in enumerate(sources)})


def test_the_newest_batch_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    found = history(tmp_path, {10: [THIRD], 9: [SECOND]}, sunk=9)
    assert (found.last, found.is_sunk) == (10, False)
    assert [document.sequence for document in found.newest.values()] == [3]
    assert {batch: list(documents) for batch, documents in found.documents.items()} == {9: ["0"], 10: ["0"]}


def test_sources_of_others_are_not_documents_and_keep_their_ids(tmp_path: Path) -> None:
    found = history(tmp_path, {0: ["-", SPARKS, INITIAL], 1: [SPARKS, SPARKS, FIRST]}, sunk=1)
    assert found.is_sunk
    assert found.documents[0] == {"2": INITIAL_DOCUMENT}
    assert list(found.newest) == ["2"]
    assert (found.topics_of("2"), found.topics_of("0")) == ({"orders"}, frozenset())


def test_the_lineages_are_those_of_the_newest_documents(tmp_path: Path) -> None:
    other = json.dumps(to_value(Document("h", "other", "run", 1)))
    assert history(tmp_path, {0: [other, FIRST], 1: [INITIAL, SECOND]}, sunk=1).lineages() == {"line"}


@pytest.mark.parametrize(
    "text",
    ["-", "{", "[" * 100_000, "7", '"streamgroup"', '{"streamgroup":{"0":5}}', '{"streamgroup":"1"}', '{"a":1}'],
    ids=["void", "not JSON", "too deep", "number", "text", "topic of that name", "text for a number", "another object"],
)
def test_an_offset_of_another_source_is_passed_over(text: str) -> None:
    assert list(documents_in(lines(text, FIRST))) == ["1"]


def test_a_document_of_a_later_release_is_an_error_and_not_taken_for_another_source() -> None:
    with pytest.raises(ConfigError, match="offset documents: they have format 99"):
        documents_in(lines(FIRST, '{"streamgroup":99}'))


def test_the_batch_of_a_partition_is_its_range_or_nothing_at_its_position() -> None:
    document = Document("g", "l", "r", 1, (OffsetRange(ZERO, 5, 10),), {ZERO: Position(10), ONE: Position(20)})
    assert (batch_of(document, ZERO), batch_of(document, ONE)) == ((5, 10), (20, 20))
    with pytest.raises(KeyError):
        batch_of(document, TopicPartition("orders", 7))


def test_a_query_of_the_lineage_that_runs_on_this_machine_is_refused_with_the_way_to_drain_it(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_checkpoint_files, "_ENDING_S", 0.0)
    refuse_running("rewrite the checkpoint", {"line"})
    serve("r1", "another")
    refuse_running("rewrite the checkpoint", {"line"})
    serve("r2", "line")
    refuse_running("rewrite the checkpoint", ())
    with pytest.raises(StillRunningError) as refused:
        refuse_running("rewrite the checkpoint", {"line", "older"})
    assert str(refused.value).startswith("cannot rewrite the checkpoint: the query, or one with a copy of it, runs")
    assert str(refused.value).endswith(f"streamgroup drain --pid {JVM}")


def test_a_query_that_is_just_ending_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    surveys = iter([channel.Survey({"r": {"lineage": "line"}}, [])] * 2 + [channel.Survey({}, [])])
    monkeypatch.setattr(channel, "drivers", lambda: [JVM])
    monkeypatch.setattr(channel, "survey", lambda pid: next(surveys))
    refuse_running("rewrite the checkpoint", {"line"})
    assert not list(surveys), "it was looked for again until it had ended"


def test_a_query_that_does_not_answer_may_be_the_one(home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve("r1", "another").may_answer.clear()
    monkeypatch.setattr(channel, "survey", partial(channel.survey, timeout=0.05))
    with pytest.raises(StillRunningError, match=rf"process of run r1 \(driver {JVM}\) does not answer"):
        refuse_running("rewrite the checkpoint", {"line"})
