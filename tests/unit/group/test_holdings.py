"""A run knows which document is in flight, which one has sunk, and from where the query would go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import SkippedBatchError
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.holdings import Held, InFlightBatch, InFlightBatches, Summary, summary_of
from streamgroup.group.positions import Origin, StartPosition
from streamgroup.model import INITIAL_DOCUMENT, UNKNOWN_EPOCH, CommittedOffset, Document, OffsetRange, Position
from tests.unit.group.ledgers import A, B, C, document, ours

FIRST, SECOND = document(1, a=(0, 5)), document(2, a=(5, 9), b=(0, 3))
BEFORE = document(7, run="before", a=(90, 100))
"""A document that an earlier run planned."""
EMPTY = Document("g", "lineage", "before", 1)


def started(start: Document = INITIAL_DOCUMENT, group: str = "g") -> InFlightBatches:
    batches = InFlightBatches(group, "new")
    batches.mark_sunk(start)
    return batches


def flying(planned: Document = FIRST) -> InFlightBatches:
    """Spark was given a document and has called `partitions` for it."""
    batches = started()
    batches.emitted(planned)
    batches.handed_out(planned)
    return batches


def test_before_spark_passes_a_start_the_checkpoint_is_not_known() -> None:
    batches = InFlightBatches("g", "new")
    assert (batches.started, batches.lineage, batches.proven_sequence, batches.last_sequence) == (False, "new", 0, 0)
    batches.mark_sunk(INITIAL_DOCUMENT)
    assert batches.started
    assert batches.checkpoint == INITIAL_DOCUMENT


def test_a_document_sinks_when_spark_starts_from_it() -> None:
    batches = flying()
    assert batches.in_flight is not None
    assert batches.is_planned_here(FIRST)
    assert not batches.is_proven(FIRST)
    sunk = batches.mark_sunk(FIRST)
    assert sunk is not None
    assert (sunk.document, sunk.planned_here, sunk.ranges) == (FIRST, True, FIRST.ranges)
    assert batches.in_flight is None
    assert batches.is_proven(FIRST)
    assert (batches.checkpoint, batches.proven_sequence, batches.lineage) == (FIRST, 1, "lineage")
    assert batches.mark_sunk(FIRST) is None, "Spark may ask from there again"


def test_the_start_before_a_batch_in_flight_sinks_nothing() -> None:
    batches = flying()
    assert batches.mark_sunk(INITIAL_DOCUMENT) is None
    assert batches.in_flight is not None
    assert batches.checkpoint == INITIAL_DOCUMENT


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


def test_an_empty_document_may_sink_without_being_asked_for() -> None:
    batches = started()
    empty = Document("g", "lineage", "now", 1)
    batches.emitted(empty)
    sunk = batches.mark_sunk(empty)
    assert sunk is not None
    assert batches.is_proven(empty)
    assert batches.checkpoint == INITIAL_DOCUMENT, "it has sunk nothing"


def test_data_of_a_document_that_is_not_in_flight_is_refused() -> None:
    for batches in (started(), flying(FIRST)):
        with pytest.raises(ValueError, match=r"^group g: document 2 is not in flight$"):
            batches.handed_out(SECOND)


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


def test_a_batch_planned_here_is_no_replay() -> None:
    assert flying().begun(A) is None


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


def test_a_founded_document_replaces_the_constant_that_every_query_starts_from() -> None:
    founded = Document("g", "lineage", "now", 1, is_founded=True)
    assert started(founded).checkpoint == founded


def test_an_older_start_than_the_checkpoint_is_ignored() -> None:
    batches = started(SECOND)
    batches.mark_sunk(FIRST)
    assert batches.is_proven(SECOND)
    assert batches.checkpoint == SECOND


@pytest.mark.parametrize(
    ("replayed", "is_known"),
    [(BEFORE, True), (replace(EMPTY, is_founded=True), True), (EMPTY, False)],
)
def test_a_query_that_replays_a_document_with_positions_is_past_its_founding(
    replayed: Document, is_known: bool
) -> None:
    batches = started()
    batches.replayed(INITIAL_DOCUMENT, replayed, (), {})
    assert batches.newest_known == (replayed if is_known else INITIAL_DOCUMENT)


def test_a_document_planned_here_is_not_yet_in_sparks_checkpoint() -> None:
    assert flying().newest_known == INITIAL_DOCUMENT


def test_the_lineage_of_a_replay_is_kept_for_the_next_document() -> None:
    batches = started()
    batches.replayed(INITIAL_DOCUMENT, BEFORE, (), {})
    assert batches.lineage == "lineage"
    assert started(Document("g", "of an empty one", "now", 1)).lineage == "of an empty one"


def test_the_batch_id_of_the_listener_counts_for_the_newest_sunk_document_only() -> None:
    batches = flying()
    batches.named(FIRST, 41)
    assert batches.batch is None, "it has not sunk"
    batches.mark_sunk(FIRST)
    assert batches.batch == 41
    batches.mark_sunk(SECOND)
    assert batches.batch is None


def test_a_partition_lost_in_flight_is_noted_on_documents_planned_here_only() -> None:
    batches = started()
    batches.lose(A)
    batches.emitted(FIRST)
    batches.lose(A)
    assert batches.in_flight is not None
    assert batches.in_flight.lost == {A}
    batches.replayed(INITIAL_DOCUMENT, BEFORE, (), {})
    batches.lose(A)
    assert batches.in_flight.lost == set(), "a replay is judged by the commits that its filter saw"


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
    ("origin", "position", "is_unresolved"),
    [(None, None, False), (Origin.EARLIEST, None, True), (Origin.STARTING, None, True), (Origin.EARLIEST, 0, False)],
)
def test_the_log_decides_a_position_only_once_the_commits_were_found_and_gave_none(
    origin: Origin | None, position: int | None, is_unresolved: bool
) -> None:
    assert held(origin=origin, position=position).is_unresolved is is_unresolved


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        (Origin.STARTING, True),
        (Origin.CHECKPOINT, True),
        (Origin.CHECKPOINT_AHEAD, True),
        (Origin.COMMITTED, False),
        (Origin.EARLIEST, False),
        (Origin.RECREATED, False),
        (None, False),
    ],
)
def test_only_the_member_knows_a_start_of_its_own_until_the_start_is_committed(
    origin: Origin | None, is_own: bool
) -> None:
    assert held(origin=origin).is_own is is_own
    assert held(origin=origin, position=5, committed=3).is_own is is_own
    assert not held(origin=origin, position=5, committed=5).is_own


@pytest.mark.parametrize(("origin", "committed"), [(Origin.COMMITTED, 7), (Origin.CHECKPOINT, None)])
def test_a_start_that_is_not_the_groups_commit_is_to_be_committed(origin: Origin, committed: int | None) -> None:
    one = held(committed=1)
    one.place(StartPosition(origin, 7, leader_epoch=3))
    assert (one.origin, one.position, one.leader_epoch, one.committed) == (origin, 7, 3, committed)
    assert one.dirty is (committed is None)


def test_a_move_takes_the_leader_epoch_with_it() -> None:
    one = held(position=5, leader_epoch=3)
    one.move(6, 4)
    assert (one.position, one.leader_epoch) == (6, 4)
    one.move(7)
    assert (one.position, one.leader_epoch) == (7, UNKNOWN_EPOCH), "the old epoch says nothing of the new position"


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


def test_a_commit_in_a_later_format_is_taken_for_an_operators() -> None:
    later = CommitMetadata("lineage", "run", 1, 1, 1).text().replace('"streamgroup":1', '"streamgroup":99')
    assert not held(found=CommittedOffset(9, later)).found_as_seen(CommittedOffset(5))


def test_a_summary_lists_what_is_planned_awaited_and_not_placed_in_order() -> None:
    summary = summary_of(
        {
            C: held(),
            B: held(origin=Origin.EARLIEST),
            A: held(origin=Origin.COMMITTED, position=5, committed=5, topic_id="id", leader_epoch=3),
        }
    )
    assert summary == Summary((A, B, C), {A: Position(5, "id", 3)}, awaiting=(C,), unplaced=(B, C), dirty=False)


def test_a_partition_that_is_given_up_is_held_and_committed_but_not_planned() -> None:
    summary = summary_of({A: held(origin=Origin.COMMITTED, position=9, committed=5, leaving=True)})
    assert (summary.partitions, summary.positions, summary.dirty) == ((A,), {}, True)


def test_a_summary_of_nothing_is_empty_and_clean() -> None:
    assert summary_of({}) == Summary((), {}, (), (), dirty=False)


def test_the_positions_of_a_summary_do_not_follow_later_moves() -> None:
    one = held(origin=Origin.COMMITTED, position=5)
    summary = summary_of({A: one})
    one.move(9)
    assert summary.positions == {A: Position(5)}
    with pytest.raises(TypeError):
        summary.positions[A] = Position(9)  # type: ignore[index]
