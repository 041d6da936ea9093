"""The ledger of a query that is not a member: what it commits, and where it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from streamgroup.coordinator.planning.batch import empty_document
from streamgroup.errors import ConfigError
from streamgroup.group.commits import NOT_FOUNDED, CommitVerdict
from streamgroup.group.ledger import Ledger
from streamgroup.group.positions import Origin
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, TopicPartition
from tests.unit.group.ledgers import NOW, A, B, accept, document, due, last_commit, offsets, told, topics


def alone(start: Document = INITIAL_DOCUMENT, run: str = "now") -> Ledger:
    ledger = Ledger("g", run, "lineage", alone=True)
    ledger.mark_sunk(start)
    return ledger


def hold(
    ledger: Ledger, commits: Mapping[TopicPartition, CommittedOffset], *partitions: TopicPartition, generation: int = 1
) -> None:
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
        ledger.mark_sunk(skipped)
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
    ledger.mark_sunk(replayed)
    again = alone(replayed, "next")
    hold(again, last_commit(ledger).offsets, A)
    assert offsets(again) == {A: 50}


def test_once_a_batch_from_a_reset_has_sunk_the_checkpoint_goes_before_commits_again() -> None:
    ledger = alone(document(4, "before", a=(90, 100)))
    hold(ledger, a_reset(50), A)
    batch = document(5, a=(50, 60))
    ledger.emitted(batch)
    ledger.handed_out(batch)
    ledger.mark_sunk(batch)
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
    ledger.mark_sunk(batch)
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
        ledger.mark_sunk(founded if begins == "goes on" else empty)
    hold(ledger, {}, A)
    assert ledger.unresolved == {A: Origin.EARLIEST}


def test_positions_replace_the_mark_of_a_run_that_found_no_partition() -> None:
    founded = Document("g", "lineage", "before", 1, is_founded=True)
    ledger = alone()
    ledger.mark_sunk(founded)
    following = document(2, "before", a=(0, 4))
    ledger.mark_sunk(following)
    ledger.mark_sunk(replace(founded, sequence=3))
    assert ledger.checkpoint == following
    assert not empty_document(founded, group="g", lineage="l", run="r", positions=following.positions).is_founded
