"""Runs the dialogues of transactions (`kafka/producer/transaction.py`) over the connections of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from streamgroup.errors import BrokerError, ConfigError, ErrorCode, TransportError, UnsupportedVersionError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.producer.batch import ProducerIdentity
from streamgroup.kafka.producer.transaction import (
    AskCoordinator,
    Dialogue,
    FindMember,
    GroupMember,
    Pause,
    Reply,
    Role,
    TransactionalId,
    TransactionalProducer,
)
from streamgroup.kafka.wire.messages.group import GROUP_KEY, TRANSACTION_KEY
from streamgroup.kafka.wire.messages.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from streamgroup.model import Broker, TopicPartition

T = TypeVar("T")

_MOVED = frozenset(
    {
        0,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_KEY_TYPES = {Role.GROUP: GROUP_KEY, Role.TRANSACTION: TRANSACTION_KEY}


def _no_member(group: str) -> NoReturn:
    raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member commits for group {group!r}")


def end_earlier(cluster: KafkaCluster, transactional_id: TransactionalId, deadline: float) -> None:
    """Abort the transaction that an earlier producer with this id has left open, and refuse its requests from now on.

    Raises ConfigError if the brokers have no transactions, FencedError, BrokerError, TransportError.
    """
    producer = TransactionalProducer(transactional_id)
    beginning = producer.begin(is_v2=has_transactions_v2(cluster, deadline))
    TransactionRunner(cluster).run(beginning, f"producer id for transactional id {transactional_id.name!r}", deadline)


def has_transactions_v2(cluster: KafkaCluster, deadline: float) -> bool:
    """Return whether the cluster has transactions V2 switched on. Raises ConfigError if it has no transactions."""
    try:
        return cluster.has_transactions_v2(deadline)
    except UnsupportedVersionError as error:
        raise ConfigError(
            f"cannot write in a transaction: {error}. Transactions that commit the offsets of a member need Kafka 2.5 "
            "or later. Leave offsets.store=transaction out: then a record may be written twice"
        ) from None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that its coordinator has not ended. Times are milliseconds."""

    transactional_id: str
    state: str
    """`Ongoing`, or `PrepareCommit` or `PrepareAbort` while its end is written to the partitions."""
    producer: ProducerIdentity
    started_ms: int
    """Since 1970."""
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the coordinator should have ended it before. It looks for old transactions every 10 s."""
        return now_ms > self.started_ms + self.timeout_ms + _COORDINATOR_LOOKS_MS


_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_COORDINATOR_LOOKS_MS = 30_000


def open_transactions(cluster: KafkaCluster, deadline: float) -> list[OpenTransaction]:
    """Return the open transactions of all ids that the user may describe, the oldest first (KIP-664).

    Raises UnsupportedVersionError for brokers before 3.0, TransportError, BrokerError.
    """
    found = []
    for node in sorted(cluster.snapshot((), deadline).brokers):
        listed = cluster.call(ListTransactionsRequest(state_filters=_OPEN_STATES), node, deadline)
        if listed.error_code:
            raise BrokerError(listed.error_code, f"cannot list the transactions of broker {node}")
        ids = tuple(one.transactional_id for one in listed.transaction_states)
        if not ids:
            continue
        described = cluster.call(DescribeTransactionsRequest(transactional_ids=ids), node, deadline)
        found += [_opened(one) for one in described.transaction_states if not one.error_code]  # else it has ended
    return sorted(found, key=lambda one: one.started_ms)


def _opened(one: DescribedTransaction) -> OpenTransaction:
    return OpenTransaction(
        one.transactional_id,
        one.transaction_state,
        ProducerIdentity(one.producer_id, one.producer_epoch),
        one.transaction_start_time_ms,
        one.transaction_timeout_ms,
        tuple(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
    )


class TransactionRunner:
    """Carries out the requests of dialogues. It keeps the addresses of the coordinators. One thread uses it."""

    def __init__(self, cluster: KafkaCluster, member_of: Callable[[str], GroupMember] = _no_member) -> None:
        """`member_of(group)` returns the member that commits for a group, or raises FencedError."""
        self._cluster = cluster
        self._member_of = member_of
        self._coordinators: dict[tuple[Role, str], Broker] = {}

    def run(self, dialogue: Dialogue[T], what: str, deadline: float) -> T:
        """Run a dialogue until it returns. `what` is the missing result in errors: "no <what> from cluster ...".

        Raises what the dialogue raises, and TransportError if it has not returned by the deadline.
        """
        retry = self._cluster.retry(what, deadline)
        answer: Any = None
        cause = ""
        while True:
            try:
                step = dialogue.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = None
            match step:
                case AskCoordinator():
                    try:
                        answer = self._asked(step, deadline)
                    except TransportError as error:
                        cause = str(error)
                case FindMember(group):
                    answer = self._member_of(group)
                case Pause(text, code):
                    if code in _MOVED:
                        self._coordinators.clear()
                    retry.again(text if code else f"{text}: {cause}")

    def _asked(self, ask: AskCoordinator, deadline: float) -> Reply:
        """Return the answer to a request. Raises TransportError if none came: it may have been carried out then."""
        at = (ask.role, ask.key)
        if at not in self._coordinators:
            self._coordinators[at] = self._cluster.coordinator(ask.key, deadline, _KEY_TYPES[ask.role])
        version, response = self._cluster.call_versioned(
            ask.kind, ask.make, self._coordinators[at], deadline, ceiling=ask.ceiling, keep_trying=False
        )
        return Reply(version, response)
