"""Runs the dialogues of transactions (`kafka/producer/transaction.py`) over the connections of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar

from streamgroup.advice import RESOURCES, Operation, missing_right
from streamgroup.errors import BrokerError, ConfigError, ErrorCode, TransportError, UnsupportedVersionError, error_of
from streamgroup.frozen import frozen
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
from streamgroup.kafka.wire.messages.offsets import by_topic
from streamgroup.kafka.wire.messages.transactions import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from streamgroup.model import LATEST, Broker, TopicPartition
from streamgroup.options.types import Isolation

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


@frozen
class OpenTransaction:
    """The newest transaction of an id, as its coordinator reports it. Times are milliseconds."""

    transactional_id: str
    state: str
    """`Ongoing`, `PrepareCommit` or `PrepareAbort` while its end is written to the partitions, or an ended one's."""
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
    request = ListTransactionsRequest(state_filters=_OPEN_STATES)
    return sorted(_described(cluster, request, deadline), key=lambda one: one.started_ms)


def _described(cluster: KafkaCluster, request: ListTransactionsRequest, deadline: float) -> Iterator[OpenTransaction]:
    """Describe the transactional ids that the brokers list. Leaves out those that have ended meanwhile."""
    for node in sorted(cluster.snapshot((), deadline).brokers):
        listed = cluster.call(request, node, deadline)
        if listed.error_code:
            raise BrokerError(listed.error_code, f"cannot list the transactions of broker {node}")
        ids = tuple(one.transactional_id for one in listed.transaction_states)
        if ids:
            described = cluster.call(DescribeTransactionsRequest(transactional_ids=ids), node, deadline)
            yield from (_opened(one) for one in described.transaction_states if not one.error_code)


def _opened(one: DescribedTransaction) -> OpenTransaction:
    return OpenTransaction(
        one.transactional_id,
        one.transaction_state,
        ProducerIdentity(one.producer_id, one.producer_epoch),
        one.transaction_start_time_ms,
        one.transaction_timeout_ms,
        tuple(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
    )


# -- open transactions of partitions ----------------------------------------------------------------------------------


@frozen
class OpenProducer:
    """A producer with an open transaction in one partition, as the partition's leader reports it."""

    identity: ProducerIdentity
    start_offset: int
    """The offset of the transaction's first record in this partition."""
    last_timestamp_ms: int
    """The timestamp of the producer's newest record, in milliseconds since 1970."""
    coordinator_epoch: int
    """The epoch of the coordinator that wrote the newest marker; -1 if the producer has none in the log."""


@frozen
class HeldUp:
    """An open transaction in a partition. Consumers with `isolation.level=read_committed` wait at `stable`."""

    partition: TopicPartition
    stable: int
    """The last stable offset."""
    end: int
    """The log end offset."""
    producer: OpenProducer | None
    """None if the leader does not report it; `problem` says why."""
    transaction: OpenTransaction | None = None
    """The newest transaction of the producer id at its coordinator. None if no coordinator lists this producer id."""
    is_hanging: bool = False
    """Whether no coordinator will end it, because it does not have this partition in an open transaction."""
    problem: str = ""
    """Why the producer or its transaction is unknown."""


HANGING_AFTER_MS = 900_000
"""The age of a transaction that no coordinator lists from which on it counts as hanging: the default of
`transaction.max.timeout.ms`, as in `kafka-transactions.sh find-hanging`. A user who may not describe a transactional id
does not see it in the list."""


def held_up(
    cluster: KafkaCluster, partitions: Collection[TopicPartition], deadline: float, now_ms: int
) -> list[HeldUp]:
    """Return the open transactions that hold up the partitions, by partition and start offset (KIP-664).

    A transaction is hanging as `kafka-transactions.sh find-hanging` defines it: its coordinator does not have this
    partition in an open transaction of the producer id. Such a transaction is looked up twice, because one may end
    between the responses of leader and coordinator. `now_ms` is the time in milliseconds since 1970.

    Brokers before 2.8 do not report producers, and brokers before 3.0 do not list transactions: then these are None,
    and `problem` says so. Raises TransportError, BrokerError.
    """
    waiting = _waiting(cluster, partitions, deadline)
    found = _looked_up(cluster, waiting, deadline, now_ms)
    doubtful = {_key(one) for one in found if _is_doubtful(one)}
    if not doubtful:
        return found
    again = {tp: waiting[tp] for tp, _, _ in doubtful}
    sure = [one for one in found if one.partition not in again]
    for one in _looked_up(cluster, again, deadline, now_ms):
        if not _is_doubtful(one) or _key(one) in doubtful:
            sure.append(one)
    return sorted(sure, key=_key)


def _waiting(
    cluster: KafkaCluster, partitions: Collection[TopicPartition], deadline: float
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the last stable offset and the end of each partition in which they differ."""
    if not partitions:
        return {}
    wanted = dict.fromkeys(partitions, LATEST)
    # The ends first: a record that is written meanwhile must not look as if a transaction held it up.
    ends = cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, deadline)
    stable = cluster.list_offsets(wanted, Isolation.READ_COMMITTED, deadline)
    offsets = {tp: (stable[tp].offset, ends[tp].offset) for tp in wanted}
    return {tp: (first, end) for tp, (first, end) in offsets.items() if first < end}


def _looked_up(
    cluster: KafkaCluster, waiting: dict[TopicPartition, tuple[int, int]], deadline: float, now_ms: int
) -> list[HeldUp]:
    producers, problems = _open_producers(cluster, waiting, deadline)
    ids = tuple(sorted({one.identity.producer_id for found in producers.values() for one in found}))
    transactions: dict[int, OpenTransaction] = {}
    lacking = ""
    if ids:
        try:
            listed = _described(cluster, ListTransactionsRequest(producer_id_filters=ids), deadline)
            transactions = {one.producer.producer_id: one for one in listed}
        except UnsupportedVersionError:
            lacking = "brokers before Kafka 3.0 do not list transactions, so its transactional id is unknown"
    rows = [HeldUp(tp, *waiting[tp], None, problem=problem) for tp, problem in problems.items()]
    for tp, found in producers.items():
        for one in found:
            known = transactions.get(one.identity.producer_id)
            if known is None:
                hangs = not lacking and now_ms - one.last_timestamp_ms > HANGING_AFTER_MS
            else:
                hangs = tp not in known.partitions
            rows.append(HeldUp(tp, *waiting[tp], one, known, hangs, lacking))
    return sorted(rows, key=_key)


def _open_producers(
    cluster: KafkaCluster, partitions: Collection[TopicPartition], deadline: float
) -> tuple[dict[TopicPartition, list[OpenProducer]], dict[TopicPartition, str]]:
    """Return, by partition, the producers with an open transaction, and the reason if they are unknown."""
    if not partitions:
        return {}, {}
    snapshot = cluster.snapshot({tp.topic for tp in partitions}, deadline)
    by_node: dict[int, list[TopicPartition]] = {}
    problems = dict.fromkeys(partitions, "it has no leader")
    for tp in partitions:
        leader = snapshot.leader(tp)
        if leader is not None:
            by_node.setdefault(leader.node_id, []).append(tp)
    requests = {
        node: DescribeProducersRequest(
            topics=tuple(
                DescribeProducersTopic(name=name, partition_indexes=tuple(numbers)) for name, numbers in by_topic(mine)
            )
        )
        for node, mine in by_node.items()
    }
    found: dict[TopicPartition, list[OpenProducer]] = {}
    try:
        answers = cluster.call_each(requests, deadline)
    except UnsupportedVersionError:
        old = "brokers before Kafka 2.8 do not report the producers of a partition"
        return {}, dict.fromkeys(partitions, old)
    for node, answer in answers.items():
        if isinstance(answer, TransportError):
            problems |= dict.fromkeys(by_node[node], str(answer))
            continue
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code in RESOURCES:
                    problems[tp] = missing_right(row.error_code, Operation.READ, topic.name, cluster.requester)
                elif row.error_code:
                    problems[tp] = f"{error_of(row.error_code).name}. Run the command again"
                else:
                    problems.pop(tp, None)
                    found[tp] = [
                        OpenProducer(
                            ProducerIdentity(one.producer_id, one.producer_epoch),
                            one.current_txn_start_offset,
                            one.last_timestamp,
                            one.coordinator_epoch,
                        )
                        for one in row.active_producers
                        if one.current_txn_start_offset >= 0
                    ]
    return found, problems


def _is_doubtful(one: HeldUp) -> bool:
    """Return whether the coordinator did not have the transaction that the leader had just reported."""
    return one.is_hanging or (one.producer is not None and one.transaction is None and not one.problem)


def _key(one: HeldUp) -> tuple[TopicPartition, int, int]:
    if one.producer is None:
        return one.partition, -1, -1
    return one.partition, one.producer.start_offset, one.producer.identity.producer_id


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
