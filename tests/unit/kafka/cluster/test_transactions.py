"""Which open transactions hold up a partition, and which of them hang: leaders and coordinators by a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from streamgroup.advice import Requester
from streamgroup.errors import BrokerError, ErrorCode, TransportError, UnsupportedVersionError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.transactions import HANGING_AFTER_MS, HeldUp, held_up
from streamgroup.kafka.wire.messages.transactions import (
    DescribedProducer,
    DescribedTransaction,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionTopic,
)
from streamgroup.model import TopicPartition
from tests.fakes.cluster import FakeCluster, Logs, logs_of

NOW_MS = 10_000_000
P = [TopicPartition("t", n) for n in range(3)]

Producers = Mapping[int, Sequence[DescribedProducer]]


def producer(producer_id: int, start: int, last_ms: int = NOW_MS - 1_000) -> DescribedProducer:
    return DescribedProducer(
        producer_id=producer_id,
        producer_epoch=2,
        last_timestamp=last_ms,
        coordinator_epoch=5,
        current_txn_start_offset=start,
    )


def transaction(producer_id: int, *partitions: int, state: str = "Ongoing") -> DescribedTransaction:
    topics = (TransactionTopic(topic="t", partitions=partitions),) if partitions else ()
    return DescribedTransaction(
        transactional_id=f"id-{producer_id}",
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=NOW_MS - 5_000,
        producer_id=producer_id,
        producer_epoch=2,
        topics=topics,
    )


class Brokers(FakeCluster):
    """Two brokers. Each lookup takes the next of `producers` and of `transactions`; the last ones stay."""

    requester = Requester("User:reader", "b:9092")

    def __init__(
        self, logs: Logs, producers: Sequence[Producers], transactions: Sequence[Sequence[DescribedTransaction]] = ((),)
    ) -> None:
        super().__init__(logs)
        self.producers = list(producers)
        self.transactions = list(transactions)
        self.lacks: tuple[type[Any], ...] = ()
        self.codes: dict[TopicPartition, int] = {}
        self.listing_code = 0
        self.silent: set[int] = set()
        self.asked: list[tuple[int, ...]] = []

    def call_each(self, requests: Mapping[int, DescribeProducersRequest], deadline: float) -> dict[int, Any]:
        if DescribeProducersRequest in self.lacks:
            raise UnsupportedVersionError("DescribeProducers")
        now = self.producers[0] if len(self.producers) == 1 else self.producers.pop(0)
        self.asked.append(tuple(n for one in requests.values() for n in one.topics[0].partition_indexes))
        return {
            node: TransportError("no response") if node in self.silent else self._described(request, now)
            for node, request in requests.items()
        }

    def _described(self, request: DescribeProducersRequest, now: Producers) -> DescribeProducersResponse:
        rows = tuple(
            DescribeProducersPartitionResponse(
                partition_index=n,
                error_code=self.codes.get(TopicPartition("t", n), 0),
                active_producers=(producer(99, -1), *now.get(n, ())),
            )
            for n in request.topics[0].partition_indexes
        )
        return DescribeProducersResponse(topics=(DescribeProducersTopicResponse(name="t", partitions=rows),))

    def call(self, request: Any, node: int, deadline: float) -> Any:
        if isinstance(request, ListTransactionsRequest):
            if ListTransactionsRequest in self.lacks:
                raise UnsupportedVersionError("ListTransactions")
            if node:  # the first broker is the coordinator of all ids
                return ListTransactionsResponse(error_code=self.listing_code)
            self.now = self.transactions[0] if len(self.transactions) == 1 else self.transactions.pop(0)
            states = tuple(
                ListedTransaction(transactional_id=one.transactional_id, producer_id=one.producer_id)
                for one in self.now
                if one.producer_id in request.producer_id_filters
            )
            return ListTransactionsResponse(transaction_states=states)
        assert isinstance(request, DescribeTransactionsRequest)
        rows = tuple(one for one in self.now if one.transactional_id in request.transactional_ids)
        return DescribeTransactionsResponse(transaction_states=rows)

    def look(self) -> list[HeldUp]:
        return held_up(cast("KafkaCluster", self), P, self.deadline(1_000), NOW_MS)


def logs() -> Logs:
    """Return the logs of three partitions. An open transaction holds up the first two."""
    found = logs_of([10, 20, 30])
    found.stable = {P[0]: 4, P[1]: 7}
    return found


def test_only_partitions_whose_last_stable_offset_is_below_their_end_are_looked_up() -> None:
    brokers = Brokers(logs(), [{0: [producer(1, 4)], 1: [producer(1, 7), producer(2, 9)]}], [[transaction(1, 0, 1)]])
    brokers.transactions = [[transaction(1, 0, 1), transaction(2, 1)]]
    found = brokers.look()
    assert [(one.partition, one.stable, one.end) for one in found] == [(P[0], 4, 10), (P[1], 7, 20), (P[1], 7, 20)]
    assert [one.transaction and one.transaction.transactional_id for one in found] == ["id-1", "id-1", "id-2"]
    assert not any(one.is_hanging or one.problem for one in found)
    first = found[0].producer
    assert first is not None
    assert (first.identity, first.start_offset, first.last_timestamp_ms) == ((1, 2), 4, NOW_MS - 1_000)
    assert first.coordinator_epoch == 5
    assert brokers.asked == [(0, 1)]


def test_without_an_open_transaction_no_leader_is_asked_for_producers() -> None:
    brokers = Brokers(logs_of([10, 20, 30]), [{}])
    assert (brokers.look(), brokers.asked) == ([], [])


@pytest.mark.parametrize("state", [transaction(1, state="CompleteAbort"), transaction(1, 1)])
def test_a_transaction_hangs_if_its_coordinator_does_not_have_the_partition(state: DescribedTransaction) -> None:
    brokers = Brokers(logs(), [{0: [producer(1, 4)]}], [[state]])
    brokers.logs.stable = {P[0]: 4}
    (one,) = brokers.look()
    assert (one.is_hanging, one.transaction is not None) == (True, True)
    assert brokers.asked == [(0,), (0,)], "it is looked up twice"


@pytest.mark.parametrize(("age_ms", "hangs"), [(HANGING_AFTER_MS + 1, True), (HANGING_AFTER_MS, False)])
def test_a_transaction_that_no_coordinator_lists_hangs_when_it_is_old(age_ms: int, hangs: bool) -> None:
    brokers = Brokers(logs(), [{0: [producer(1, 4, NOW_MS - age_ms)]}])
    brokers.logs.stable = {P[0]: 4}
    (one,) = brokers.look()
    assert (one.is_hanging, one.transaction, one.problem) == (hangs, None, "")


def test_a_transaction_that_ends_between_two_responses_does_not_hang() -> None:
    open_, ended = {0: [producer(1, 4)], 1: [producer(2, 7)]}, {1: [producer(2, 7)]}
    brokers = Brokers(logs(), [open_, ended], [[transaction(1, state="CompleteCommit"), transaction(2, 1)]])
    (one,) = brokers.look()
    assert (one.partition, one.is_hanging) == (P[1], False)
    assert brokers.asked == [(0, 1), (0,)]


def test_another_transaction_that_begins_meanwhile_does_not_hang() -> None:
    brokers = Brokers(
        logs(), [{0: [producer(1, 4)]}, {0: [producer(1, 8)]}], [[transaction(1, state="CompleteCommit")]]
    )
    assert brokers.look() == []


def _lacks(*kinds: type[Any]) -> Callable[[Brokers], None]:
    return lambda brokers: setattr(brokers, "lacks", kinds)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_lacks(DescribeProducersRequest), "brokers before Kafka 2.8 do not report the producers of a partition"),
        (lambda brokers: brokers.silent.add(0), "no response"),
        (
            lambda brokers: brokers.codes.update({P[0]: ErrorCode.TOPIC_AUTHORIZATION_FAILED}),
            "User:reader is not allowed the operation Read on topic 't'",
        ),
        (
            lambda brokers: brokers.codes.update({P[0]: ErrorCode.NOT_LEADER_OR_FOLLOWER}),
            "NOT_LEADER_OR_FOLLOWER. Run the command again",
        ),
    ],
)
def test_a_partition_whose_producers_are_unknown_has_the_reason(
    change: Callable[[Brokers], None], problem: str
) -> None:
    brokers = Brokers(logs(), [{1: [producer(1, 7)]}], [[transaction(1, 1)]])
    change(brokers)
    first = brokers.look()[0]
    assert (first.partition, first.producer, first.stable, first.end) == (P[0], None, 4, 10)
    assert first.problem.startswith(problem)


def test_brokers_before_3_do_not_list_transactions() -> None:
    brokers = Brokers(logs(), [{0: [producer(1, 4, 0)]}])
    brokers.lacks = (ListTransactionsRequest,)
    (one,) = brokers.look()
    assert (one.is_hanging, one.transaction) == (False, None)
    assert one.problem.startswith("brokers before Kafka 3.0 do not list transactions")


def test_a_coordinator_that_cannot_list_is_an_error() -> None:
    brokers = Brokers(logs(), [{0: [producer(1, 4)]}])
    brokers.listing_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(BrokerError, match="cannot list the transactions of broker 1"):
        brokers.look()
