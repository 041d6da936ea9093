"""Scenarios of the ledger: replays of documents that another process planned, and topics that are created again."""

from __future__ import annotations

import pytest

from streamgroup.group.ledger import Ledger
from streamgroup.group.positions import Origin, StartPosition
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, OffsetRange, Position
from tests.unit.group.ledgers import (
    NOW,
    A,
    B,
    C,
    accept,
    assign,
    document,
    gain,
    in_flight,
    offsets,
    ours,
    started,
    told,
    topics,
)

# -- replays ----------------------------------------------------------------------------------------------------------

LOGGED = document(5, "before", a=(90, 100))


@pytest.mark.parametrize(
    ("seen", "found", "position"),
    [
        pytest.param(ours(90), ours(90), 100, id="nothing has happened since"),
        pytest.param(ours(90), ours(95, 9, run="other"), 100, id="a member went on within the range, and left"),
        pytest.param(ours(90), ours(130, 9, run="other"), 130, id="a member went on beyond it"),
        pytest.param(ours(90), CommittedOffset(95), 95, id="an operator reset it into the range, after the filter"),
        pytest.param(CommittedOffset(95), CommittedOffset(95), 100, id="an operator reset it into the range, before"),
        pytest.param(CommittedOffset(20), CommittedOffset(20), 20, id="an operator reset it to before the range"),
        pytest.param(None, None, 100, id="no commit: it starts at the checkpoint"),
    ],
)
@pytest.mark.parametrize("gained", ["before the proof", "after the proof"])
def test_a_proven_replay_moves_what_stands_in_its_ranges(
    seen: CommittedOffset | None, found: CommittedOffset | None, position: int, gained: str
) -> None:
    ledger = Ledger("g", "now", "lineage")
    start = document(4, "before", a=(90, 90))
    low = 90 if seen is None else max(90, seen.offset)
    ledger.replayed(start, LOGGED, (OffsetRange(A, low, 100),), {} if seen is None else {A: seen})
    if gained == "after the proof":
        ledger.mark_sunk(LOGGED)
    gain(ledger, {} if found is None else {A: found}, A)
    ledger.mark_sunk(LOGGED)
    assert offsets(ledger) == {A: position}


def test_a_partition_gained_while_its_batch_is_replayed_starts_before_that_batch() -> None:
    """The process before has asked for the batch and said so (R20); whether it sinks, only the replay will show."""
    ledger = Ledger("g", "now", "lineage")
    asked = ours(90, asked=LOGGED.sequence)
    ledger.replayed(document(4, "before", a=(80, 90)), LOGGED, LOGGED.ranges, {A: asked})
    assert gain(ledger, {A: asked}) == {A: StartPosition(Origin.COMMITTED, 90)}
    assert ledger.commit_due(NOW) is None


def test_a_replay_of_a_partition_that_the_log_had_to_place() -> None:
    ledger = Ledger("g", "now", "lineage")
    ledger.replayed(INITIAL_DOCUMENT, document(1, "before", a=(0, 10)), (OffsetRange(A, 0, 10),), {})
    ledger.mark_sunk(document(1, "before", a=(0, 10)))
    assert gain(ledger, {}, A) == {A: StartPosition(Origin.CHECKPOINT, 10, 5)}


def test_a_replay_is_of_no_use_to_a_partition_gained_after_the_membership_was_lost() -> None:
    """While the group is empty an operator may reset it, and a member may go on from there."""
    ledger = Ledger("g", "now", "lineage")
    ledger.replayed(document(4, "before", a=(90, 90)), LOGGED, (OffsetRange(A, 90, 100),), {A: ours(90)})
    ledger.mark_sunk(LOGGED)
    ledger.lost()
    gain(ledger, {A: ours(92, 9, run="other")})
    assert offsets(ledger) == {A: 92}


# -- topics created again ---------------------------------------------------------------------------------------------


def test_a_topic_created_again_voids_its_positions_and_the_batch_in_flight() -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90)}, planned)
    assert ledger.topics_seen(topics("new")) == [A]
    assert ledger.unresolved == {A: Origin.RECREATED}
    ledger.resolved(3, {A: 95})
    ledger.mark_sunk(planned)
    assert offsets(ledger) == {A: 95}
    assert told(accept(ledger), A).topic_id == "new"


def test_a_replay_of_a_topic_that_was_created_again_moves_nothing() -> None:
    ledger = Ledger("g", "now", "lineage")
    ledger.replayed(document(4, "before", a=(90, 90)), LOGGED, (OffsetRange(A, 0, 100),), {})
    assign(ledger, A)
    assert ledger.offsets_found("m", 3, {}, topics("new")) == {A: StartPosition(Origin.RECREATED)}
    ledger.resolved(3, {A: 0})
    ledger.mark_sunk(LOGGED)
    assert offsets(ledger) == {A: 0}


def test_a_partition_that_the_new_topic_has_not_is_held_no_more() -> None:
    ledger = started()
    gain(ledger, {A: ours(90), C: ours(7)})
    assert ledger.topics_seen(topics("new", count=1)) == [A]
    assert set(ledger.held) == {A}


def test_another_leader_alone_voids_nothing() -> None:
    ledger = started()
    gain(ledger, {A: ours(90)})
    ledger.vouched({A: 5})
    assert ledger.topics_seen(topics(epoch=6)) == []
    assert ledger.positions() == {A: Position(90, "id", 5)}, "the newer epoch is taken over when the log is checked"
    ledger.vouched({A: 6, B: 6})
    assert ledger.positions() == {A: Position(90, "id", 6)}
