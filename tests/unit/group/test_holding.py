"""A held partition knows its position, the commit it was found with, and whether the position is committed."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.group.holding import Held, Summary, summary_of
from streamgroup.group.positions import Origin, StartPosition
from streamgroup.model import UNKNOWN_EPOCH, CommittedOffset, Position
from tests.unit.group.ledgers import A, B, C, ours


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
