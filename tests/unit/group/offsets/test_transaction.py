"""The offset store of a group whose offsets the sink's transactions commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.errors import ConfigError
from streamgroup.group import events as ev
from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionVerdict,
    Verdict,
)
from streamgroup.group.offsets.transaction import TransactionOffsetStore
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from tests.fakes.kafka_offsets import KafkaOffsets

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FETCH = FetchOffsets(1, "g", frozenset({A, B}), 1_000)


def commit(**offsets: int) -> CommitOffsets:
    rows = {{"a": A, "b": B}[name]: CommittedOffset(offset, "m") for name, offset in offsets.items()}
    return CommitOffsets(2, "g", "member", 3, rows, 1_000)


def assigned(*partitions: TopicPartition, kept: frozenset[TopicPartition] = frozenset()) -> ev.Assigned:
    return ev.Assigned(3, "member", partitions, kept, "range", True, 1, 1)


@pytest.fixture
def kafka() -> KafkaOffsets:
    return KafkaOffsets()


@pytest.fixture
def store(kafka: KafkaOffsets) -> TransactionOffsetStore:
    """A store that has fetched A: 10, and no offset of B."""
    made = TransactionOffsetStore(kafka)
    made.follow(assigned(A, B))
    kafka.committed = {A: CommittedOffset(10)}
    assert made.fetch(FETCH, 0.0).answers == (OffsetsFetched(1, kafka.committed),)
    return made


def test_the_end_of_a_batch_is_looked_up_and_never_committed(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    """A late repetition of a commit could set the group back after the next transaction."""
    store.planned([OffsetRange(A, 10, 20)])
    kafka.committed = {A: CommittedOffset(20)}
    (answer,) = store.commit(commit(a=20), 0.0).answers
    assert answer == OffsetsCommitted(2, {A: COMMITTED})
    assert not kafka.asked
    assert kafka.fetches[-1] == FetchOffsets(2, "g", frozenset({A}), 1_000, is_partial=True)


def test_a_start_is_committed_once_and_an_offset_that_the_group_has_is_not(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    request = commit(a=10, b=5)
    for _ in range(2):
        (answer,) = store.commit(request, 0.0).answers
        assert answer == OffsetsCommitted(2, {A: COMMITTED, B: COMMITTED})
    assert kafka.asked == [replace(request, offsets={B: request.offsets[B]})]


def test_the_start_of_the_batch_in_flight_is_not_committed_again(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    """The sink has committed the batch, and another assignment has fetched its end before Spark calls again."""
    store.planned([OffsetRange(A, 10, 20)])
    store.follow(assigned(A, B, kept=frozenset({A})))
    kafka.committed = {A: CommittedOffset(20)}
    store.fetch(FETCH, 0.0)
    (answer,) = store.commit(commit(a=10, b=5), 0.0).answers
    assert answer == OffsetsCommitted(2, {A: COMMITTED, B: COMMITTED})
    assert [one.offsets.keys() for one in kafka.asked] == [{B}]
    store.commit(commit(a=20), 0.0)
    assert len(kafka.asked) == 1


def test_a_batch_that_is_looked_up_later_is_still_not_committed(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    store.planned([OffsetRange(A, 10, 20)])
    kafka.refusal = PartitionVerdict(Verdict.RETRIABLE, 88)
    store.commit(commit(a=20), 0.0)
    store.planned([OffsetRange(B, 5, 6)])
    kafka.refusal, kafka.committed = None, {A: CommittedOffset(20)}
    store.commit(commit(a=20), 0.0)
    assert not kafka.asked


def test_a_batch_whose_partition_was_lost_and_assigned_again_is_looked_up(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    store.planned([OffsetRange(A, 10, 20)])
    store.follow(ev.Lost("session ended"))
    store.follow(assigned(A))
    store.fetch(FETCH, 0.0)
    kafka.committed = {A: CommittedOffset(20)}
    store.commit(commit(a=20), 0.0)
    assert not kafka.asked


@pytest.mark.parametrize("is_fetched", [False, True])
def test_a_position_that_moves_back_to_the_start_of_the_last_batch_is_committed(
    store: TransactionOffsetStore, kafka: KafkaOffsets, is_fetched: bool
) -> None:
    """The log was replaced, and the data-loss policy moved the position there."""
    store.planned([OffsetRange(A, 10, 20)])
    kafka.committed = {A: CommittedOffset(20)}
    if is_fetched:
        store.fetch(FETCH, 0.0)
    store.commit(commit(a=20), 0.0)
    store.commit(commit(a=10), 0.0)
    assert [one.offsets for one in kafka.asked] == [commit(a=10).offsets]


def test_a_batch_and_a_position_that_moved_are_looked_up_and_committed(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    store.planned([OffsetRange(A, 10, 20)])
    kafka.committed = {A: CommittedOffset(20)}
    request = commit(a=20, b=7)
    (answer,) = store.commit(request, 0.0).answers
    assert answer == OffsetsCommitted(2, {A: COMMITTED, B: COMMITTED})
    assert [one.offsets for one in kafka.asked] == [{B: request.offsets[B]}]


def test_a_batch_that_no_transaction_has_committed_ends_the_query(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    store.planned([OffsetRange(A, 10, 20)])
    outcome = store.commit(commit(a=20, b=7), 0.0)
    (action,) = outcome.actions
    assert isinstance(action.error, ConfigError)
    assert "group g: the sink has written a batch, and the group does not have its end for t-0" in str(action.error)
    assert "streamgroup.exactly_once" in str(action.error)
    assert not kafka.asked
    assert not outcome.answers


def test_a_look_up_that_is_refused_is_tried_again_by_the_member(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    store.planned([OffsetRange(A, 10, 20)])
    kafka.refusal = PartitionVerdict(Verdict.RETRIABLE, 88)
    (answer,) = store.commit(commit(a=20, b=7), 0.0).answers
    assert answer == OffsetsCommitted(2, {A: kafka.refusal})
    kafka.refusal, kafka.committed = None, {A: CommittedOffset(20)}
    (answer,) = store.commit(commit(a=20, b=7), 0.0).answers
    assert answer == OffsetsCommitted(2, {A: COMMITTED, B: COMMITTED})


def test_what_is_known_of_a_partition_is_forgotten_when_it_may_have_moved(
    store: TransactionOffsetStore, kafka: KafkaOffsets
) -> None:
    request = commit(a=10)
    store.follow(assigned(A, B, kept=frozenset({A})))
    store.commit(request, 0.0)
    assert not kafka.asked
    for action in (assigned(A, B), ev.Lost("session ended"), ev.Left()):
        kafka.asked.clear()
        store.follow(action)
        store.commit(request, 0.0)
        assert kafka.asked == [request]


def test_a_commit_of_it_does_not_renew_the_lease(store: TransactionOffsetStore) -> None:
    assert not store.is_the_groups
