"""The ledger answers from a summary of what it holds: whatever changes a partition, no old answer is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroup.group.commits import CommitMetadata, CommitVerdict
from streamgroup.group.holdings import summary_of
from streamgroup.group.ledger import Ledger
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    Document,
    OffsetRange,
    Position,
)
from tests.unit.group.ledgers import NOW, A, B, C, topics


def holding() -> Ledger:
    """A and B from commits, C waits for the log."""
    ledger = Ledger("g", "run", "lineage")
    ledger.mark_sunk(INITIAL_DOCUMENT)
    ledger.assigned("m", 1, [A, B, C], frozenset())
    ledger.offsets_found("m", 1, {A: CommittedOffset(3), B: CommittedOffset(7)}, topics())
    return ledger


def flying(ledger: Ledger) -> Document:
    positions = {A: Position(5, "id", 4), B: Position(7, "id")}
    document = Document("g", "lineage", "run", 1, (OffsetRange(A, 3, 5),), positions)
    ledger.emitted(document)
    ledger.handed_out(document)
    return document


def sinks(ledger: Ledger) -> None:
    ledger.mark_sunk(flying(ledger))


def sinks_after_it_was_lost_and_regained(ledger: Ledger) -> None:
    document = flying(ledger)
    ledger.lost()
    ledger.assigned("m2", 2, [A], frozenset())
    told = CommitMetadata("lineage", "run", 0, 0, 1, "id").text()
    ledger.offsets_found("m2", 2, {A: CommittedOffset(3, told)}, topics())
    assert ledger.positions()[A].offset == 3
    ledger.mark_sunk(document)
    assert ledger.positions()[A].offset == 5


def is_abandoned(ledger: Ledger) -> None:
    flying(ledger)
    ledger.abandoned()


def is_given_up(ledger: Ledger) -> None:
    ledger.assigned("m", 2, [A], frozenset({A}), frozenset({B}))
    assert ledger.partitions() == (A, B)
    ledger.give_up([B])


def is_committed(ledger: Ledger) -> None:
    ledger.resolved(1, {C: 0})
    commit = ledger.commit_due(0.0)
    assert ledger.commit_pending
    assert commit is not None
    ledger.answered(commit, CommitVerdict.ACCEPTED, NOW)
    assert not ledger.commit_pending


CHANGES: dict[str, Callable[[Ledger], object]] = {
    "assigned": lambda ledger: ledger.assigned("m", 2, [A, C], frozenset({A})),
    "found": lambda ledger: (ledger.assigned("m", 2, [A], ()), ledger.offsets_found("m", 2, {}, topics())),
    "lost": Ledger.lost,
    "sunk": sinks,
    "judged again": sinks_after_it_was_lost_and_regained,
    "abandoned": is_abandoned,
    "given up": is_given_up,
    "resolved": lambda ledger: ledger.resolved(1, {C: 0}),
    "moved": lambda ledger: ledger.moved(A, 9),
    "vouched": lambda ledger: ledger.vouched({A: 9}),
    "committed": is_committed,
    "recreated": lambda ledger: ledger.topics_seen(topics("another")),
    "recreated with fewer partitions": lambda ledger: ledger.topics_seen(topics("another", count=0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_the_ledger_answers_as_if_it_had_never_answered_before(change: str) -> None:
    ledger = holding()
    before = ledger.partitions(), ledger.positions(), ledger.settled, ledger.commit_pending
    CHANGES[change](ledger)
    now = summary_of(ledger.held)
    assert (ledger.partitions(), ledger.positions()) == (now.partitions, now.positions)
    assert ledger.commit_pending == (now.dirty or ledger.commits.unfinished)
    assert ledger.settled == (not now.unplaced and not ledger.commit_pending)
    assert (ledger.partitions(), ledger.positions(), ledger.settled, ledger.commit_pending) != before, (
        "it does change something"
    )


def test_a_topic_that_shows_its_id_at_last_shows_it_in_the_positions() -> None:
    ledger = Ledger("g", "run", "lineage")
    ledger.mark_sunk(INITIAL_DOCUMENT)
    ledger.assigned("m", 1, [A], frozenset())
    ledger.offsets_found("m", 1, {A: CommittedOffset(3)}, topics(""))
    assert ledger.positions() == {A: Position(3)}
    ledger.topics_seen(topics("id"))
    assert ledger.positions() == {A: Position(3, "id")}


def test_while_nothing_changes_the_answers_are_the_same_objects() -> None:
    ledger = holding()
    ledger.resolved(1, {C: 0})
    partitions, positions = ledger.partitions(), ledger.positions()
    ledger.mark_sunk(INITIAL_DOCUMENT)
    ledger.topics_seen(topics())
    ledger.vouched({A: -1})
    ledger.commit_due(0.0)
    assert ledger.partitions() is partitions
    assert ledger.positions() is positions
