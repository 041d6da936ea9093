"""Scenarios of the ledger: under which leader epoch a position was taken, and who may change that (R8)."""

from __future__ import annotations

import pytest

from streamgroup.group.ledger import Ledger
from streamgroup.model import CommittedOffset, TopicPartition
from tests.unit.group.ledgers import A, B, C, document, due, gain, in_flight, ours, started, topics


def epochs(ledger: Ledger) -> dict[TopicPartition, int]:
    return {tp: p.leader_epoch for tp, p in ledger.positions().items()}


def test_positions_keep_the_epoch_that_the_checkpoint_or_the_commit_gives_and_commits_tell_it() -> None:
    ledger = started(document(4, a=(90, 90)))
    by_java = CommittedOffset(40, "", 3)
    gain(ledger, {B: by_java, C: CommittedOffset(7)}, A, B, C)
    assert epochs(ledger) == {A: 5, B: 3, C: -1}
    ledger.topics_seen(topics(epoch=9))
    commit = due(ledger)
    assert {tp: offset.leader_epoch for tp, offset in commit.offsets.items()} == {A: 5, B: 3, C: -1}


def test_an_epoch_is_taken_over_when_the_log_was_checked_and_a_batch_brings_that_of_its_planning() -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90), B: ours(40)}, planned)
    ledger.vouched({A: 6, B: 7, C: 8})
    assert epochs(ledger) == {A: 6, B: 7}
    ledger.mark_sunk(planned)
    assert epochs(ledger) == {A: 5, B: 7}, "planned under 5: whether 6 has it all is to be checked again"


@pytest.mark.parametrize("how", ["moved", "resolved", "recreated"])
def test_a_position_that_the_log_has_placed_has_no_epoch_until_one_is_vouched_for(how: str) -> None:
    ledger = started()
    gain(ledger, {} if how == "resolved" else {A: CommittedOffset(90, "", 4)}, A)
    if how == "moved":
        ledger.moved(A, 50)
    elif how == "recreated":
        ledger.topics_seen(topics("first"))
        ledger.topics_seen(topics("second"))
    ledger.resolved(3, {A: 50})
    assert ledger.positions()[A].offset == 50
    assert epochs(ledger) == {A: -1}
    ledger.vouched({A: 6})
    assert epochs(ledger) == {A: 6}
