"""Reports of a listener to the ledger: that a batch has sunk, and under which number Spark knows it (R15, R17, R20)."""

from __future__ import annotations

import pytest

from streamgroup.errors import SkippedBatchError
from streamgroup.model import INITIAL_DOCUMENT
from tests.unit.group.ledgers import A, B, accept, assign, document, gain, in_flight, offsets, ours, started, told

PLANNED = document(5, a=(90, 100))


def test_only_the_document_in_flight_is_to_be_proven() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    for other in (
        INITIAL_DOCUMENT,
        document(4, a=(90, 90), b=(40, 40)),
        document(5, a=(90, 99)),
        document(5, "another", a=(90, 100)),
        document(6, a=(100, 110)),
    ):
        assert not ledger.on_batch_done(other, 7)
    assert ledger.in_flight is not None
    assert offsets(ledger) == {A: 90}
    assert ledger.on_batch_done(PLANNED, 7)
    assert not ledger.idle, "telling it is not yet proving it"


def test_the_commit_names_the_batch_that_was_reported() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    assert ledger.on_batch_done(PLANNED, 7)
    ledger.mark_sunk(PLANNED)
    assert told(accept(ledger), A).batch == 7


def test_a_batch_reported_after_spark_has_proven_it_is_named_by_the_commits_to_come() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    ledger.mark_sunk(PLANNED)
    assert told(accept(ledger), A).batch is None
    assert not ledger.on_batch_done(PLANNED, 7), "proven, and committed, already"
    assert ledger.commit_due(1000.0) is None, "a name alone is not worth a commit"
    commit = ledger.commit_due(1000.0, everything=True)
    assert commit is not None
    assert told(commit, A).batch == 7


def test_the_next_batch_has_no_name_until_it_is_reported() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    ledger.on_batch_done(PLANNED, 7)
    ledger.mark_sunk(PLANNED)
    accept(ledger)
    following = document(6, a=(100, 110))
    ledger.emitted(following)
    ledger.handed_out(following)
    ledger.mark_sunk(following)
    assert told(accept(ledger), A).batch is None


def test_a_batch_reported_without_a_number_is_proven_all_the_same() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    assert ledger.on_batch_done(PLANNED, None)
    ledger.mark_sunk(PLANNED)
    assert told(accept(ledger), A).batch is None


def test_a_batch_that_the_sink_skipped_is_none_that_sank_whoever_tells() -> None:
    ledger = started(document(4, a=(90, 90)))
    gain(ledger, {A: ours(90)})
    ledger.emitted(PLANNED)
    assert ledger.on_batch_done(PLANNED, 7)
    with pytest.raises(SkippedBatchError, match="the sink skipped a batch"):
        ledger.mark_sunk(PLANNED)
    assert offsets(ledger) == {A: 90}


# -- proven, and not yet committed -------------------------------------------------------------------------------------


def test_a_batch_proven_while_its_partitions_are_not_held_awaits_who_holds_them() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    ledger.lost()
    assert not ledger.awaits_holding, "nothing is proven yet"
    ledger.mark_sunk(PLANNED)
    assert (ledger.idle, ledger.commit_pending, ledger.awaits_holding) == (True, False, True)
    gain(ledger, {A: ours(90, run="now", sequence=4, asked=5)}, generation=4)
    accept(ledger)
    assert offsets(ledger) == {A: 100}
    assert not ledger.awaits_holding


def test_a_proven_batch_whose_membership_is_lost_before_its_commit_awaits_the_next_one() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    ledger.mark_sunk(PLANNED)
    assert not ledger.awaits_holding
    ledger.lost()
    assert (ledger.commit_pending, ledger.awaits_holding) == (False, True)


def test_a_committed_batch_whose_membership_is_lost_awaits_nobody() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    ledger.mark_sunk(PLANNED)
    accept(ledger)
    ledger.lost()
    assert not ledger.awaits_holding


def test_a_proven_batch_whose_partition_a_rebalance_takes_away_awaits_who_has_it() -> None:
    ledger = in_flight({A: ours(90)}, PLANNED)
    ledger.mark_sunk(PLANNED)
    assign(ledger, B, generation=4)
    assert ledger.awaits_holding
