"""Ledgers of queries whose offsets are in a table of a database (R37)."""

from __future__ import annotations

from streamgroup.group.commits import CommitMetadata
from streamgroup.model import INITIAL_DOCUMENT
from tests.unit.group.ledgers import BOTH, PLANNED, A, B, gain, in_flight, last_commit, offsets, ours, started, told


def test_a_batch_stored_under_a_kept_claim_moves_its_partition_though_it_was_lost_and_regained() -> None:
    """The offset table has the end of the batch, whatever the commit says that was found before it was stored."""
    ledger = in_flight({A: ours(90, 9, run="other")}, in_table=True)
    ledger.lost()
    gain(ledger, {A: ours(90, 9, run="other")}, generation=4)
    ledger.complete_batch(PLANNED)
    assert offsets(ledger) == {A: 100}


def test_a_batch_does_not_move_a_partition_that_the_table_has_elsewhere() -> None:
    ledger = in_flight({A: ours(90)}, in_table=True)
    ledger.lost()
    gain(ledger, {A: ours(95, 9, run="other")}, generation=4)
    ledger.complete_batch(PLANNED)
    assert offsets(ledger) == {A: 95}


def test_the_offset_table_gets_the_end_of_each_range_and_the_metadata_of_a_commit_after_the_batch() -> None:
    ledger = in_flight({A: ours(90), B: ours(40)}, BOTH, in_table=True)
    stored = ledger.stored_with_batch()
    assert {tp: (one.offset, one.leader_epoch) for tp, one in stored.items()} == {A: (100, 5), B: (60, 5)}
    assert CommitMetadata.parse(stored[A].metadata) == CommitMetadata("lineage", "now", 5, 5, 1, "id", in_table=True)
    ledger.complete_batch(BOTH)
    commit = last_commit(ledger)
    assert {tp: told(commit, tp) for tp in (A, B)} == {tp: CommitMetadata.parse(stored[tp].metadata) for tp in (A, B)}
    assert ledger.stored_with_batch() == {}


def test_a_replay_of_partitions_that_are_not_held_is_stored_with_their_topics() -> None:
    ledger = started(in_table=True)
    ledger.replayed(INITIAL_DOCUMENT, PLANNED, PLANNED.ranges, {})
    metadata = CommitMetadata.parse(ledger.stored_with_batch()[A].metadata)
    assert metadata is not None
    assert (metadata.sequence, metadata.topic_id) == (5, "id")
