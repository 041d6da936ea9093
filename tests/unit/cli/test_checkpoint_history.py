"""The history of a checkpoint has the documents of streamgroup's sources, batch by batch, and knows a running query."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from streamgroup.cli._checkpoint_files import CheckpointFiles, OffsetLines
from streamgroup.cli._checkpoint_history import (
    CheckpointHistory,
    StillRunningError,
    batch_of,
    documents_in,
    refuse_running,
)
from streamgroup.driver.application import control
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, Document, OffsetRange, Position, TopicPartition
from streamgroup.planning.document import to_value
from tests.unit.cli.test_checkpoint import FIRST, INITIAL, ONE, SECOND, SPARKS, THIRD, ZERO, write
from tests.unit.driver.channels import JVM, FakeCoordinator, home, serve

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
    home: Path, serve: Serve
) -> None:
    serve("r1", "another")
    serve("r2", "line")
    with pytest.raises(StillRunningError) as refused:
        refuse_running("rewrite the checkpoint", {"line", "older"})
    assert str(refused.value).startswith("cannot rewrite the checkpoint: the query, or one with a copy of it, runs")
    assert str(refused.value).endswith(f"streamgroup drain --pid {JVM}")


def test_a_query_that_does_not_answer_may_be_the_one(home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve("r1", "another").may_answer.clear()
    monkeypatch.setattr(control, "survey", partial(control.survey, timeout=0.05))
    with pytest.raises(StillRunningError, match=rf"process of run r1 \(driver {JVM}\) does not answer"):
        refuse_running("rewrite the checkpoint", {"line"})


def test_queries_of_other_lineages_and_no_queries_are_no_obstacle(home: Path, serve: Serve) -> None:
    refuse_running("rewrite the checkpoint", {"line"})
    serve("r1", "another")
    refuse_running("rewrite the checkpoint", {"line"})
    refuse_running("rewrite the checkpoint", ())
