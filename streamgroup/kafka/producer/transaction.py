"""A producer's transactions as its transaction coordinator sees them: begin, add offsets, end. Without sockets.

One `TransactionalProducer` is in the driver. Its methods are dialogues: generators that yield an `AskCoordinator` for
each request and a `Pause` before a repetition, and get the answers. `kafka/cluster/transactions.py` runs them over
connections. The tasks write records under the identity that `begin` returns. Brokers don't care which process or
connection a request comes from: they check the producer id and its epoch.

Each transaction has its own epoch, so a task of an earlier one is refused, and sequence numbers begin at 0 in every
partition. With transactions V1, InitProducerId raises the epoch before each transaction. With V2 (KIP-890, feature
`transaction.version` 2) the answer to EndTxn has the epoch of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from streamgroup.advice import RESOURCES, UNKNOWN, Operation, Requester, Resource, refusal
from streamgroup.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    FencedError,
    TransactionAbortedError,
    error_of,
    may_succeed_later,
)
from streamgroup.frozen import frozen
from streamgroup.kafka.producer.batch import NO_IDENTITY, ProducerIdentity
from streamgroup.kafka.wire.messages.offsets import by_topic
from streamgroup.kafka.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from streamgroup.kafka.wire.messages.transactions import (
    LAST_ADD_OF_CLIENTS,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from streamgroup.kafka.wire.schema import Request
from streamgroup.model import CommittedOffset, TopicPartition, name_some

_LAST_END_OF_V1 = 4
_LAST_COMMIT_OF_V1 = 4
LAST_PRODUCE_OF_V1 = 11
"""Later versions of EndTxn, TxnOffsetCommit and Produce are for transactions V2."""
_FIRST_WITH_EPOCH = 3
"""InitProducerId has the producer's id and epoch from this version on (KIP-360, Kafka 2.5). TxnOffsetCommit has the
member id and the generation since the same release (KIP-447)."""

# -- what a dialogue yields -------------------------------------------------------------------------------------------


class Role(Enum):
    """The broker that a request goes to: the coordinator of this key."""

    TRANSACTION = "transaction"
    GROUP = "group"


@frozen
class AskCoordinator:
    """Send the request that `make` builds for the negotiated version. The dialogue gets a `Reply`, or None without an
    answer: the request may have been carried out then."""

    role: Role
    key: str
    kind: type[Request[Any]]
    make: Callable[[int], Request[Any]]
    ceiling: int | None = None


class Reply(NamedTuple):
    """The answer to an `AskCoordinator`, and the version of the request."""

    version: int
    response: Any


@frozen
class Pause:
    """Wait for the backoff, or raise TransportError with `cause` if the deadline would pass. The dialogue gets None.

    `code` is the error code of the last answer, 0 without an answer: the coordinator is looked up again.
    """

    cause: str
    code: int = 0


@frozen
class FindMember:
    """Return the `GroupMember` that commits for this group now. Raises FencedError if it may not commit the batch."""

    group: str


class GroupMember(NamedTuple):
    """The member whose offsets a transaction commits."""

    member_id: str
    generation: int
    instance_id: str | None = None


T = TypeVar("T")
Dialogue = Generator[AskCoordinator | Pause | FindMember, Any, T]


@frozen
class GroupOffsets:
    """The offsets of one group that a transaction commits."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


# -- the producer -----------------------------------------------------------------------------------------------------


class Ended(Enum):
    """The outcome of EndTxn."""

    COMMITTED = "committed"
    UNKNOWN = "unknown"
    """The coordinator refuses to end the transaction. It may have ended it before, on a request whose answer was lost:
    the group's committed offsets show it."""


_FENCED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_MEMBER = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""The group does not accept this member id and generation: the member may have newer ones."""
_ABORTABLE = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})


@frozen
class TransactionalId:
    """A transactional id, and the milliseconds after which its coordinator aborts an open transaction."""

    name: str
    timeout_ms: int
    requester: Requester = UNKNOWN
    """The user that authorization errors name."""

    def ask(
        self, kind: type[Request[Any]], make: Callable[[int], Request[Any]], ceiling: int | None = None
    ) -> AskCoordinator:
        return AskCoordinator(Role.TRANSACTION, self.name, kind, make, ceiling)

    def refused(self, code: int, what: str, name: str = "") -> Exception:
        """Return the error for a request that was refused with `code`. `name` is the topic or group it may concern."""
        context = f"transactional id {self.name!r}: cannot {what}"
        error = error_of(code)
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return FencedError(
                f"{context}: {error.name} ({code}). The brokers have forgotten this id, which was not used for "
                "transactional.id.expiration.ms (7 days by default). Nothing of the batch is committed. Start the "
                "query again: it writes the batch again"
            )
        if code in _FENCED:
            return FencedError(
                f"{context}: {error.name} ({code}). Another run of this query, or another query with this "
                "transactional id, has taken over, or the transaction took longer than "
                f"kafka.transaction.timeout.ms={self.timeout_ms}. Nothing of the batch is committed. If another query "
                "runs with a copy of this checkpoint, give it a new checkpoint. If none runs, raise that option. Then "
                "start the query again: it writes the batch again"
            )
        if code in _ABORTABLE:
            return TransactionAbortedError(f"{context}: {error.name} ({code}): {error.text}")
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return ConfigError(
                f"{context}: kafka.transaction.timeout.ms={self.timeout_ms} is above transaction.max.timeout.ms of the "
                "brokers. Lower it, or raise transaction.max.timeout.ms"
            )
        kind = RESOURCES.get(code)
        if kind is not None:
            operation = Operation.WRITE if kind is Resource.TRANSACTIONAL_ID else Operation.READ
            named = self.name if kind is Resource.TRANSACTIONAL_ID else name
            return refusal(code, context, operation, named, self.requester)
        return BrokerError(code, context)

    def again(self, code: int, what: str, name: str = "") -> Dialogue[None]:
        """Pause before a repetition after error `code`, 0 without an answer. Raises `refused` if none can succeed."""
        if code and not may_succeed_later(code):
            raise self.refused(code, what, name)
        yield Pause(error_of(code).name if code else "no answer", code)


@frozen
class Transaction:
    """An open transaction, as the tasks get it that write records in it."""

    id: TransactionalId
    identity: ProducerIdentity
    is_v2: bool


class TransactionalProducer:
    """The state of one transactional id between its transactions. One thread uses it. See the module."""

    def __init__(self, transactional_id: TransactionalId) -> None:
        self.id = transactional_id
        self.identity = NO_IDENTITY
        """The producer id and epoch of the open transaction, or of the next one."""
        self._is_v2 = False
        self._is_unused = False
        """Whether no task has got the identity yet."""
        self._expected = NO_IDENTITY
        """The identity that the coordinator must have, else another run has taken over. NO_IDENTITY if this producer's
        request may have raised the epoch, and no answer has told it."""

    @property
    def _of_producer(self) -> dict[str, Any]:
        producer_id, epoch = self.identity
        return {"transactional_id": self.id.name, "producer_id": producer_id, "producer_epoch": epoch}

    def begin(self, *, is_v2: bool) -> Dialogue[Transaction]:
        """Return a transaction under whose identity nothing was written. `is_v2`: the cluster has transactions V2.

        The first one ends what an earlier run has left open: its transaction is aborted, and its tasks are refused.
        Raises FencedError if another run has begun since, ConfigError, BrokerError.
        """
        if not self._is_unused or is_v2 is not self._is_v2:
            yield from self._raise_epoch()
        self._is_v2, self._is_unused = is_v2, False
        return Transaction(self.id, self.identity, is_v2)

    def abort(self) -> Dialogue[None]:
        """Abort the open transaction under a new epoch, so that its running tasks are refused. Raises as `begin`.

        EndTxn comes first, because its coordinator checks the epoch: InitProducerId would abort the open transaction of
        the run that has taken over, whatever epoch it names. With transactions V1 EndTxn leaves the epoch, and a late
        request could write into no transaction, and hold up all consumers of `read_committed`.
        """
        code = yield from self._ask_to_end(committed=False)
        if code in _FENCED:
            raise self.id.refused(code, "abort the transaction")
        if code or not self._is_v2:  # an error code means that no transaction is open
            yield from self._raise_epoch()

    def commit(self, groups: Sequence[GroupOffsets]) -> Dialogue[Ended]:
        """Add the offsets of `groups` to the transaction, one request for each item, and commit it.

        Raises FencedError if another run or another member has taken over, TransactionAbortedError if the batch has to
        be written again, BrokerError. The transaction is not committed then.
        """
        for group in dict.fromkeys(one.group for one in groups) if not self._is_v2 else ():
            yield from self._add_group(group)
        for one in groups:
            yield from self._commit_offsets(one)
        return (yield from self._end())

    def _raise_epoch(self) -> Dialogue[None]:
        self._is_unused = False

        def make(version: int) -> InitProducerIdRequest:
            if version < _FIRST_WITH_EPOCH:
                raise ConfigError(
                    f"transactional id {self.id.name!r}: cannot begin a transaction: its broker is older than Kafka "
                    "2.5 and does not check which member commits offsets. Upgrade the brokers"
                )
            # Without its own epoch the producer would fence the run that has taken over.
            known = self._expected
            return InitProducerIdRequest(
                transactional_id=self.id.name,
                transaction_timeout_ms=self.id.timeout_ms,
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
            )

        while True:
            reply = yield self.id.ask(InitProducerIdRequest, make)
            if reply is not None and not reply.response.error_code:
                answer: InitProducerIdResponse = reply.response
                self.identity = self._expected = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                self._is_unused = True
                return
            code = _code_of(reply)
            if code in {0, ErrorCode.CONCURRENT_TRANSACTIONS}:
                # The coordinator has raised the epoch, or may have, to abort the open transaction first.
                self._expected = NO_IDENTITY
            yield from self.id.again(code, "begin a transaction")

    def _add_group(self, group: str) -> Dialogue[None]:
        request = AddOffsetsToTxnRequest(**self._of_producer, group_id=group)
        while True:
            reply = yield self.id.ask(AddOffsetsToTxnRequest, lambda _: request)
            if reply is not None and not reply.response.error_code:
                return
            what = f"add the offsets of group {group!r} to the transaction"
            yield from self.id.again(_code_of(reply), what, group)

    def _commit_offsets(self, one: GroupOffsets) -> Dialogue[None]:
        what = f"commit the offsets of group {one.group!r} in the transaction"
        ceiling = None if self._is_v2 else _LAST_COMMIT_OF_V1
        while True:
            member: GroupMember = yield FindMember(one.group)
            reply = yield AskCoordinator(
                Role.GROUP, one.group, TxnOffsetCommitRequest, self._offset_request(one, member), ceiling=ceiling
            )
            codes = {} if reply is None else _codes(reply.response)
            failed = next(((tp, code) for tp, code in codes.items() if code), None)
            if reply is not None and failed is None:
                return
            tp, code = failed or (None, 0)
            if code in _MEMBER:
                yield Pause(f"{error_of(code).name} for member {member.member_id!r}", code)
                continue
            topic = "" if tp is None else tp.topic
            yield from self.id.again(code, what, topic if RESOURCES.get(code) is Resource.TOPIC else one.group)

    def _offset_request(self, one: GroupOffsets, member: GroupMember) -> Callable[[int], TxnOffsetCommitRequest]:
        def make(version: int) -> TxnOffsetCommitRequest:
            return TxnOffsetCommitRequest(
                **self._of_producer,
                group_id=one.group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                topics=tuple(
                    TxnOffsetCommitRequestTopic(
                        name=topic, partitions=tuple(_row(one.offsets[TopicPartition(topic, n)], n) for n in numbers)
                    )
                    for topic, numbers in by_topic(one.offsets)
                ),
            )

        return make

    def _end(self) -> Dialogue[Ended]:
        if (yield from self._ask_to_end(committed=True)):
            return Ended.UNKNOWN
        return Ended.COMMITTED

    def _ask_to_end(self, *, committed: bool) -> Dialogue[int]:
        """Send EndTxn until it is answered, and return its error code. With V2 the answer has the next identity."""
        request = EndTxnRequest(**self._of_producer, committed=committed)
        ceiling = None if self._is_v2 else _LAST_END_OF_V1
        while True:
            reply = yield self.id.ask(EndTxnRequest, lambda _: request, ceiling)
            code = _code_of(reply)
            if reply is not None and not may_succeed_later(code):
                break
            yield from self.id.again(code, f"{'commit' if committed else 'abort'} the transaction")
        if self._is_v2 and not code:
            answer: EndTxnResponse = reply.response
            self.identity = self._expected = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._is_unused = True
        return code


def _code_of(reply: Reply | None) -> int:
    """Return the error code of an answer; 0 also without an answer."""
    return 0 if reply is None else int(reply.response.error_code)


def _row(offset: CommittedOffset, partition: int) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _codes(response: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


# -- partitions (transactions V1) -------------------------------------------------------------------------------------


def add_partitions(transaction: Transaction, partitions: Collection[TopicPartition]) -> Dialogue[None]:
    """Add `partitions` to the open transaction. A task does so before it writes to them; with V2 the brokers do.

    Raises FencedError, TransactionAbortedError, BrokerError.
    """
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.id.name,
        v3_and_below_producer_id=transaction.identity.producer_id,
        v3_and_below_producer_epoch=transaction.identity.epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(partitions)
        ),
    )
    what = f"add {name_some(partitions)} to the transaction"
    while True:
        reply = yield transaction.id.ask(AddPartitionsToTxnRequest, lambda _: request, LAST_ADD_OF_CLIENTS)
        codes = {} if reply is None else _added(reply.response)
        if reply is not None and not any(codes.values()):
            return
        # The other partitions of a refused request have OPERATION_NOT_ATTEMPTED.
        failed = [(tp, code) for tp, code in codes.items() if code not in {0, ErrorCode.OPERATION_NOT_ATTEMPTED}]
        failed.sort(key=lambda one: may_succeed_later(one[1]))
        tp, code = failed[0] if failed else (None, 0)
        yield from transaction.id.again(code, what, "" if tp is None else tp.topic)


def _added(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
