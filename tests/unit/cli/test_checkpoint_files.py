"""The offsets in a checkpoint's directory are read as Spark writes them, and replaced whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from streamgroup.cli import _checkpoint_files
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
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, Document, OffsetRange, Position, TopicPartition
from tests.unit.cli.test_checkpoint import FIRST, HEAD, INITIAL, ONE, SECOND, SPARKS, THIRD, ZERO, write
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

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
    ("text", "ids", "sources", "directories"),
    [
        (f"{HEAD}\n-\n{FIRST}", ("", ""), ("-", FIRST), ["0", "1"]),
        (f"{V2}\nin:{FIRST}\nout:-", ("in:", "out:"), (FIRST, "-"), ["in", "out"]),
        (f"{HEAD}\n{SPARKS}\n", ("",), (SPARKS,), ["0"]),
    ],
    ids=["version 1", "version 2", "a line end at the end"],
)
def test_each_source_has_its_text_its_id_and_its_directory(
    tmp_path: Path, text: str, ids: tuple[str, ...], sources: tuple[str, ...], directories: list[str]
) -> None:
    files = checkpoint(tmp_path)
    (tmp_path / "offsets" / "0").write_text(text)
    lines = files.offsets(0)
    assert (lines.ids, lines.sources) == (ids, sources)
    assert [lines.source_id(index) for index in range(len(ids))] == directories
    assert lines.text() == text.rstrip("\n")


def test_a_source_gets_another_text_and_the_rest_of_the_file_stays() -> None:
    lines = OffsetLines(("v2", "{}"), ("a:", "b:"), ("1", "2"))
    assert lines.with_sources({1: "3"}).text() == "v2\n{}\na:1\nb:3"
    assert lines.with_sources({}) == lines


@pytest.mark.parametrize(
    "data", [b"", b"v1\n{}", b"v3\n{}\n-", b"v1\n{}\n\xff"], ids=["empty", "no sources", "version", "not UTF-8"]
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
    files.write_offsets(10, files.offsets(10).with_sources({1: SECOND}))
    assert files.offsets(10).sources == ("-", SECOND)
    assert files.offsets(9).sources == ("-", FIRST)
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
    files.write_offsets(0, files.offsets(0).with_sources({1: SECOND}))
    files.back_up("after")
    assert CheckpointFiles(str(tmp_path / "before")).offsets(0).sources == ("-", FIRST)
    assert CheckpointFiles(str(tmp_path / "after")).offsets(0).sources == ("-", SECOND)
    assert (tmp_path / "after" / "sources" / "1" / "0").exists()
    with pytest.raises(FileExistsError):
        files.back_up("before")


__all__ = ["home", "serve"]

Serve = Callable[..., FakeCoordinator]


def history(directory: Path, batches: dict[int, list[str]], sunk: int) -> CheckpointHistory:
    return CheckpointHistory(CheckpointFiles(str(write(directory, batches, sunk))))


def lines(*sources: str) -> OffsetLines:
    return OffsetLines(("v1", "{}"), ("",) * len(sources), sources)


def test_the_newest_batch_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    found = history(tmp_path, {10: [THIRD], 9: [SECOND]}, sunk=9)
    assert (found.last, found.is_sunk) == (10, False)
    assert [document.sequence for document in found.newest.values()] == [3]
    assert {batch: list(documents) for batch, documents in found.documents.items()} == {9: [0], 10: [0]}


def test_sources_of_others_are_not_documents_and_keep_their_indexes(tmp_path: Path) -> None:
    found = history(tmp_path, {0: ["-", SPARKS, INITIAL], 1: [SPARKS, SPARKS, FIRST]}, sunk=1)
    assert found.is_sunk
    assert found.documents[0] == {2: INITIAL_DOCUMENT}
    assert list(found.newest) == [2]
    assert (found.topics_of(2), found.topics_of(0)) == ({"orders"}, frozenset())
    assert found.name_of(2) == "2"


def test_the_lineages_are_those_of_the_newest_documents(tmp_path: Path) -> None:
    other = json.dumps(to_value(Document("h", "other", "run", 1)))
    assert history(tmp_path, {0: [other, FIRST], 1: [INITIAL, SECOND]}, sunk=1).lineages() == {"line"}


@pytest.mark.parametrize(
    "text",
    ["-", "{", "[" * 100_000, "7", '"streamgroup"', '{"streamgroup":{"0":5}}', '{"streamgroup":"1"}', '{"a":1}'],
    ids=["void", "not JSON", "too deep", "number", "text", "topic of that name", "text for a number", "another object"],
)
def test_an_offset_of_another_source_is_passed_over(text: str) -> None:
    assert list(documents_in(lines(text, FIRST))) == [1]


def test_a_document_of_a_later_release_is_an_error_and_not_taken_for_another_source() -> None:
    with pytest.raises(ConfigError, match="offset documents of format 99"):
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
    serve("r1", "another")
    serve("r2", "line")
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


def test_queries_of_other_lineages_and_no_queries_are_no_obstacle(home: Path, serve: Serve) -> None:
    refuse_running("rewrite the checkpoint", {"line"})
    serve("r1", "another")
    refuse_running("rewrite the checkpoint", {"line"})
    refuse_running("rewrite the checkpoint", ())
