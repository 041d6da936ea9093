"""Scenarios of the ledger of a cooperative member (R25): what is to be given up is held for its commit alone."""

from __future__ import annotations

from streamgroup.group.commits import CommitVerdict
from streamgroup.group.ledger import Ledger
from tests.unit.group.ledgers import (
    NOW,
    A,
    B,
    C,
    accept,
    document,
    due,
    gain,
    in_flight,
    offsets,
    ours,
    started,
    topics,
)

COMMITS = {A: ours(90), B: ours(40)}


def revoking() -> Ledger:
    """Document 5 reads A and B; generation 4 keeps A, takes B away and gives C."""
    ledger = in_flight(COMMITS, document(5, a=(90, 100), b=(40, 60)))
    ledger.assigned("m", 4, [A, C], {A}, {B})
    return ledger


def test_what_is_to_be_given_up_is_planned_no_more_and_what_is_kept_is_not_looked_up_again() -> None:
    ledger = revoking()
    assert ledger.offsets_found("m", 4, COMMITS | {C: ours(7)}, topics()).keys() == {C}
    assert offsets(ledger) == {A: 90, C: 7}
    assert ledger.in_use({B})


def test_its_batch_is_committed_with_the_rest_before_it_goes() -> None:
    ledger = revoking()
    ledger.offsets_found("m", 4, COMMITS | {C: ours(7)}, topics())
    ledger.mark_sunk(document(5, a=(90, 100), b=(40, 60)))
    assert ledger.in_use({B}), "the commit is due"
    commit = due(ledger)
    assert (commit.generation, offsets(commit)) == (4, {A: 100, B: 60, C: 7})
    assert ledger.in_use({B}), "the commit is unanswered"
    ledger.answered(commit, CommitVerdict.ACCEPTED, NOW)
    assert not ledger.in_use({B})
    ledger.give_up({B})
    assert ledger.held.keys() == {A, C}
    assert ledger.settled


def test_what_no_batch_reads_is_free_at_once() -> None:
    ledger = in_flight(COMMITS, document(5, a=(90, 100)))
    ledger.assigned("m", 4, [A], {A}, {B})
    assert not ledger.in_use({B})
    assert ledger.in_use({A})


def test_a_commit_that_a_rebalance_interrupted_is_made_again_for_what_is_to_be_given_up_too() -> None:
    ledger = in_flight(COMMITS, document(5, a=(90, 100), b=(40, 60)))
    ledger.mark_sunk(document(5, a=(90, 100), b=(40, 60)))
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    ledger.assigned("m", 4, [], frozenset(), {A, B})
    assert offsets(accept(ledger)) == {A: 100, B: 60}


def test_given_up_without_proof_it_moves_no_position_when_it_comes_back() -> None:
    """R22, R16: another member may have read on since."""
    ledger = revoking()
    ledger.give_up({B})
    other = {A: ours(90), B: ours(55, run="another")}
    gain(ledger, other, A, B, generation=5, kept=(A,))
    ledger.mark_sunk(document(5, a=(90, 100), b=(40, 60)))
    assert offsets(ledger) == {A: 100, B: 55}


def test_what_comes_back_before_it_was_given_up_goes_on() -> None:
    ledger = revoking()
    ledger.assigned("m", 5, [A, B, C], {A, B, C}, ())
    ledger.mark_sunk(document(5, a=(90, 100), b=(40, 60)))
    assert offsets(ledger) == {A: 100, B: 60}
    assert offsets(due(ledger)) == {A: 100, B: 60}
    assert ledger.offsets_wanted(topics()), "C was never found: it is gained anew"


def test_what_was_never_found_is_gone_when_it_is_taken_away() -> None:
    ledger = started(document(4))
    ledger.assigned("m", 3, [A, B], (), ())
    ledger.assigned("m", 4, [A], {A}, {B})
    assert ledger.held.keys() == {A}
    assert not ledger.in_use({B})


def test_a_topic_created_again_leaves_nothing_to_commit_of_what_is_to_be_given_up() -> None:
    ledger = revoking()
    ledger.offsets_found("m", 4, COMMITS | {C: ours(7)}, topics())
    void = ledger.topics_seen(topics("another"))
    assert set(void) == {A, C}
    assert ledger.held.keys() == {A, C}
    assert ledger.commit_due(NOW) is None
