"""The ledger of a query that is not a member: what it commits, and where it goes on. The parts of a ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.coordinator.planning.batch import empty_document
from streamgroup.errors import ConfigError, SkippedBatchError
from streamgroup.group.commits import NOT_FOUNDED, CommitVerdict, Offsets
from streamgroup.group.holdings import Held, InFlightBatch, InFlightBatches
from streamgroup.group.ledger import Ledger
from streamgroup.group.start_positions import Origin
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, Position, TopicPartition
from tests.unit.group.ledgers import NOW, A, B, C, accept, document, due, last_commit, offsets, ours, told, topics


def alone(start: Document = INITIAL_DOCUMENT, run: str = "now") -> Ledger:
    ledger = Ledger("g", run, "lineage", alone=True)
    ledger.complete_batch(start)
    return ledger


def hold(ledger: Ledger, commits: Offsets, *partitions: TopicPartition, generation: int = 1) -> None:
    kept = frozenset(ledger.held)
    ledger.assigned("", generation, partitions, kept)
    ledger.offsets_found("", generation, commits, topics())


def test_it_commits_as_no_member_of_no_generation() -> None:
    ledger = alone()
    hold(ledger, {}, A)
    ledger.resolved(1, {A: 10})
    commit = accept(ledger)
    assert (commit.member_id, commit.generation) == ("", -1)
    assert told(commit, A).founding == NOT_FOUNDED


def test_what_comes_later_starts_at_earliest_in_this_run_and_in_the_next() -> None:
    ledger = alone()
    hold(ledger, {}, A)
    assert ledger.unresolved == {A: Origin.STARTING}
    ledger.resolved(1, {A: 10})
    stored = accept(ledger).offsets
    hold(ledger, stored, A, B, generation=2)
    assert ledger.unresolved == {B: Origin.EARLIEST}
    again = alone(run="next")
    hold(again, stored, A, B)
    assert again.unresolved == {B: Origin.EARLIEST}, "generations are counted anew, and mean nothing to the founders"


def test_a_crash_before_the_commit_repeats_nothing() -> None:
    ledger = alone(document(4, "before", a=(90, 100)))
    hold(ledger, {A: CommittedOffset(90, told_by("before"))}, A)
    assert offsets(ledger) == {A: 100}
    assert offsets(due(ledger)) == {A: 100}


def told_by(run: str) -> str:
    ledger = alone(document(3, run, a=(80, 90)), run)
    hold(ledger, {}, A)
    return due(ledger).offsets[A].metadata


def test_a_refused_commit_is_made_again_with_the_next_assignment() -> None:
    ledger = alone(document(4, a=(90, 100)))
    hold(ledger, {}, A)
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    ledger.assigned("", 2, (A,), frozenset({A}))
    assert offsets(due(ledger)) == {A: 100}


def test_after_a_batch_that_the_sink_skipped_the_last_commit_is_nobodys() -> None:
    """Spark has the batch as done: the next start must not trust its checkpoint."""
    ledger = alone(document(4, a=(90, 100)))
    hold(ledger, {}, A)
    accept(ledger)
    skipped = document(5, a=(100, 110))
    ledger.emitted(skipped)
    with pytest.raises(ConfigError, match="skipped"):
        ledger.complete_batch(skipped)
    farewell = last_commit(ledger)
    assert told(farewell, A).lineage == ""
    again = alone(skipped, "next")
    hold(again, farewell.offsets, A)
    assert offsets(again) == {A: 100}


def a_reset(offset: int) -> dict[TopicPartition, CommittedOffset]:
    return {A: CommittedOffset(offset)}


@pytest.mark.parametrize("offset", [50, 150])
def test_a_stop_before_the_first_batch_leaves_a_reset_in_force(offset: int) -> None:
    """Without a batch from there the checkpoint does not tell of the reset, and it goes before a query's commit."""
    ledger = alone(document(4, "before", a=(90, 100)))
    hold(ledger, a_reset(offset), A)
    again = alone(document(4, "before", a=(90, 100)), "next")
    hold(again, last_commit(ledger).offsets, A)
    assert offsets(again) == {A: offset}
    third = alone(document(4, "before", a=(90, 100)), "third")
    hold(third, last_commit(again).offsets, A)
    assert offsets(third) == {A: offset}


def test_a_replay_that_a_reset_leaves_behind_does_not_undo_it() -> None:
    before, replayed = document(4, "before", a=(80, 90)), document(5, "before", a=(90, 100))
    ledger = alone(before)
    ledger.replayed(before, replayed, replayed.ranges, a_reset(50))
    hold(ledger, a_reset(50), A)
    ledger.complete_batch(replayed)
    again = alone(replayed, "next")
    hold(again, last_commit(ledger).offsets, A)
    assert offsets(again) == {A: 50}


def test_once_a_batch_from_a_reset_has_sunk_the_checkpoint_goes_before_commits_again() -> None:
    ledger = alone(document(4, "before", a=(90, 100)))
    hold(ledger, a_reset(50), A)
    batch = document(5, a=(50, 60))
    ledger.emitted(batch)
    ledger.handed_out(batch)
    ledger.complete_batch(batch)
    commit = accept(ledger)
    assert told(commit, A).lineage == "lineage"
    again = alone(document(6, a=(60, 70)), "next")
    hold(again, commit.offsets, A)
    assert offsets(again) == {A: 70}


def test_batch_0_is_replayed_from_where_it_began_though_nothing_was_committed() -> None:
    batch = document(1, "before", a=(10, 40), b=(7, 7))
    ledger = alone()
    ledger.replayed(INITIAL_DOCUMENT, batch, batch.ranges, {})
    hold(ledger, {}, A, B)
    assert offsets(ledger) == {A: 10, B: 7}
    ledger.complete_batch(batch)
    assert offsets(ledger) == {A: 40, B: 7}


@pytest.mark.parametrize("span", [(10, 40), (10, 10)], ids=["with records", "empty"])
def test_a_partition_created_before_the_replay_of_batch_0_starts_at_earliest(span: tuple[int, int]) -> None:
    """The checkpoint tells where this query began, so `latest` would skip the first records of a new partition."""
    batch = document(1, "before", a=span)
    ledger = alone()
    ledger.replayed(INITIAL_DOCUMENT, batch, batch.ranges, {})
    hold(ledger, {}, A, B)
    assert ledger.unresolved == {B: Origin.EARLIEST}


def test_a_replay_of_a_batch_0_that_tells_no_position_founds() -> None:
    """AvailableNow may log such a document before the query holds a partition."""
    batch = document(1, "before")
    ledger = alone()
    ledger.replayed(INITIAL_DOCUMENT, batch, (), {})
    hold(ledger, {}, A)
    assert ledger.unresolved == {A: Origin.STARTING}


@pytest.mark.parametrize("begins", ["goes on", "replays", "goes on from an empty document"])
def test_partitions_after_a_run_that_found_none_start_at_earliest(begins: str) -> None:
    """Its document fixes the initial offsets as those of no partition, as Spark's source does (SPARK-41375)."""
    founded = Document("g", "lineage", "before", 1, is_founded=True)
    ledger = alone()
    if begins == "replays":
        ledger.replayed(INITIAL_DOCUMENT, founded, (), {})
    else:
        empty = empty_document(founded, group="g", lineage="lineage", run="before", positions={})
        ledger.complete_batch(founded if begins == "goes on" else empty)
    hold(ledger, {}, A)
    assert ledger.unresolved == {A: Origin.EARLIEST}


def test_positions_replace_the_mark_of_a_run_that_found_no_partition() -> None:
    founded = Document("g", "lineage", "before", 1, is_founded=True)
    ledger = alone()
    ledger.complete_batch(founded)
    following = document(2, "before", a=(0, 4))
    ledger.complete_batch(following)
    ledger.complete_batch(replace(founded, sequence=3))
    assert ledger.checkpoint == following
    assert not empty_document(founded, group="g", lineage="l", run="r", positions=following.positions).is_founded


# -- the batch in flight and the partitions held ----------------------------------------------------------------------

FIRST = document(1, a=(0, 5))
BEFORE = document(7, run="before", a=(90, 100))
"""A document that an earlier run planned."""


def batches_since(start: Document = INITIAL_DOCUMENT, group: str = "g") -> InFlightBatches:
    batches = InFlightBatches(group, "new")
    batches.complete(start)
    return batches


@pytest.mark.parametrize("group", ["g", ""])
def test_a_batch_that_sinks_without_its_data_being_asked_for_was_skipped(group: str) -> None:
    batches = batches_since(group=group)
    planned = document(4, a=(0, 5), b=(0, 3), c=(1, 2))
    extra = replace(planned, ranges=(*planned.ranges, OffsetRange(C, 2, 3)))
    batches.emitted(extra)
    with pytest.raises(SkippedBatchError) as raised:
        batches.complete(extra)
    text = str(raised.value)
    assert text.startswith("group g: " if group else "the sink skipped")
    assert "reports document 4 (t-0[0, 5), t-1[0, 3), t-2[1, 2), ...) as completed" in text
    assert "start again with a new checkpoint" in text
    assert text.endswith("continues at the group's committed offsets" if group else "it starts at startingOffsets")
    assert batches.checkpoint == INITIAL_DOCUMENT


def test_a_document_planned_after_a_replay_has_a_higher_number() -> None:
    batches = batches_since(FIRST)
    batches.replayed(FIRST, BEFORE, (), {})
    batches.complete(FIRST)
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
    batches = batches_since(FIRST)
    batches.complete(newer)
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
    one = Held(0, position=position, committed=committed)
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
    assert Held(0, found=found).found_as_seen(seen) is may_move
