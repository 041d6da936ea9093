"""The batch in flight and the partitions held. Scenarios of both are in `test_ledger.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import SkippedBatchError
from streamgroup.group.holdings import Held, InFlightBatch, InFlightBatches
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, Position
from tests.unit.group.ledgers import A, B, C, document, ours

FIRST = document(1, a=(0, 5))
BEFORE = document(7, run="before", a=(90, 100))
"""A document that an earlier run planned."""


def started(start: Document = INITIAL_DOCUMENT, group: str = "g") -> InFlightBatches:
    batches = InFlightBatches(group, "new")
    batches.mark_sunk(start)
    return batches


@pytest.mark.parametrize("group", ["g", ""])
def test_a_batch_that_sinks_without_its_data_being_asked_for_was_skipped(group: str) -> None:
    batches = started(group=group)
    planned = document(4, a=(0, 5), b=(0, 3), c=(1, 2))
    extra = replace(planned, ranges=(*planned.ranges, OffsetRange(C, 2, 3)))
    batches.emitted(extra)
    with pytest.raises(SkippedBatchError) as raised:
        batches.mark_sunk(extra)
    text = str(raised.value)
    assert text.startswith("group g: " if group else "the sink skipped")
    assert "reports document 4 (t-0[0, 5), t-1[0, 3), t-2[1, 2), ...) as done" in text
    assert "start again with a new checkpoint" in text
    assert text.endswith("goes on from the group's committed offsets" if group else "it starts at startingOffsets")
    assert batches.checkpoint == INITIAL_DOCUMENT


def test_the_newest_document_asked_for_is_remembered() -> None:
    batches = started()
    assert batches.asked == 0
    batches.emitted(FIRST)
    assert batches.asked == 0, "planned, and not asked for"
    assert batches.handed_out(FIRST) == FIRST.ranges
    batches.replayed(INITIAL_DOCUMENT, BEFORE, BEFORE.ranges, {})
    assert batches.asked == 7


def test_a_replay_reads_the_ranges_that_its_filter_left_and_knows_where_the_document_begins() -> None:
    batches = started()
    left = (OffsetRange(A, 95, 100),)
    batches.replayed(INITIAL_DOCUMENT, BEFORE, left, {A: CommittedOffset(95)})
    batch = batches.in_flight
    assert batch is not None
    assert (batch.ranges, batch.seen, batch.planned_here) == (left, {A: CommittedOffset(95)}, False)
    assert not batches.is_planned_here(BEFORE)
    assert batches.begun(A) == Position(90, "id", 5), "the document's own range begins there"
    assert batches.begun(B) is None
    assert batches.last_sequence == 7
    batches.mark_sunk(BEFORE)
    assert batches.begun(A) is None


def test_a_replay_begins_at_the_position_of_a_partition_without_a_range() -> None:
    batches = started()
    batches.replayed(INITIAL_DOCUMENT, document(7, a=(90, 100), b=(4, 4)), (), {})
    assert batches.begun(B) == Position(4, "id", 5)


def test_a_document_planned_after_a_replay_has_a_higher_number() -> None:
    batches = started(FIRST)
    batches.replayed(FIRST, BEFORE, (), {})
    batches.mark_sunk(FIRST)
    assert batches.last_sequence == 7


@pytest.mark.parametrize(
    ("newer", "replaces"),
    [
        (document(2, a=(5, 9)), True),
        (Document("g", "lineage", "now", 2, (), {A: Position(5, "id", 5), B: Position(1)}), True),
        (Document("g", "lineage", "now", 2, (), {A: Position(5, "id", 5)}), False),
        (Document("g", "lineage", "now", 2, (), {B: Position(1)}), False),
        (Document("g", "lineage", "now", 2), False),
        (Document("g", "lineage", "now", 2, is_founded=True), False),
    ],
    ids=["ranges", "more positions", "the same positions", "other positions", "none", "founded"],
)
def test_a_start_replaces_the_checkpoint_where_it_has_ranges_or_more_positions(newer: Document, replaces: bool) -> None:
    batches = started(FIRST)
    batches.mark_sunk(newer)
    assert batches.is_proven(newer)
    assert batches.checkpoint == (newer if replaces else FIRST)


@pytest.mark.parametrize(("lineage", "is_it"), [("", True), ("lineage", False)])
def test_spark_may_hand_the_end_of_a_migrated_batch_back_without_its_ranges(lineage: str, is_it: bool) -> None:
    """The offset log of Spark's own connector has positions only."""
    whole = replace(BEFORE, lineage=lineage)
    batch = InFlightBatch(whole, planned_here=False)
    assert batch.is_of(whole)
    assert batch.is_of(replace(whole, ranges=())) is is_it
    assert not batch.is_of(replace(whole, ranges=(), sequence=8))


def held(**facts: Any) -> Held:
    return Held(0, **facts)


@pytest.mark.parametrize(
    ("position", "committed", "dirty", "ahead"),
    [
        (None, None, False, 0),
        (None, 5, False, 0),
        (5, None, True, 0),
        (5, 5, False, 0),
        (9, 5, True, 4),
        (5, 9, True, 0),
    ],
)
def test_a_position_is_dirty_unless_it_is_the_committed_one_and_ahead_by_what_sank_since(
    position: int | None, committed: int | None, dirty: bool, ahead: int
) -> None:
    one = held(position=position, committed=committed)
    assert (one.dirty, one.ahead) == (dirty, ahead)


@pytest.mark.parametrize(
    ("found", "seen", "may_move"),
    [
        (None, None, True),
        (CommittedOffset(5), CommittedOffset(5), True),
        (CommittedOffset(5), CommittedOffset(5, leader_epoch=2), False),
        (CommittedOffset(9), CommittedOffset(5), False),  # an operator's reset since then
        (CommittedOffset(9), None, False),
        (None, CommittedOffset(5), False),
        (ours(9), CommittedOffset(5), True),  # another member has gone on
        (ours(9), None, True),
    ],
)
def test_a_replay_moves_a_position_only_past_the_commits_of_queries(
    found: CommittedOffset | None, seen: CommittedOffset | None, may_move: bool
) -> None:
    assert held(found=found).found_as_seen(seen) is may_move
