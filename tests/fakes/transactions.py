"""A transaction coordinator with a group coordinator, and a runner of dialogues that may lose requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamgroup.errors import ErrorCode, TransportError
from streamgroup.kafka.producer.batch import ProducerIdentity
from streamgroup.kafka.producer.transaction import AskCoordinator, Dialogue, FindMember, GroupMember, Pause, Reply
from streamgroup.kafka.wire.messages import transactions as wire
from streamgroup.kafka.wire.messages.produce import NO_PRODUCER_EPOCH, InitProducerIdRequest, InitProducerIdResponse
from streamgroup.model import TopicPartition

T = TypeVar("T")


MEMBER = GroupMember("m", 3)
FIRST_OFFSETS_OF_V2 = 5
"""TxnOffsetCommit adds the offsets to the transaction itself from this version on."""


@dataclass
class Coordinator:
    """The state of one transactional id. `markers` counts the requests that find its last end still under way."""

    is_v2: bool
    markers: int = 0
    """So many requests after an end are answered with CONCURRENT_TRANSACTIONS."""
    member: GroupMember = MEMBER
    """The member that the group accepts."""
    epoch: int = -1
    state: str = "Empty"
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    commits: list[int] = field(default_factory=list)
    """The epochs of the transactions that were committed."""
    _pending: dict[TopicPartition, int] = field(default_factory=dict)
    _busy: int = 0
    _last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, if its producer has raised it."""

    def answer(self, request: Any, version: int) -> Any:
        match request:
            case InitProducerIdRequest():
                code = self._init(request.producer_epoch)
                return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)
            case wire.AddOffsetsToTxnRequest():
                return wire.AddOffsetsToTxnResponse(error_code=self._added(request.producer_epoch))
            case wire.AddPartitionsToTxnRequest():
                return self._partitions_added(request)
            case wire.TxnOffsetCommitRequest():
                return self._offsets(request, version)
            case wire.EndTxnRequest():
                code = self._end(request.producer_epoch, is_committed=request.committed)
                return wire.EndTxnResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)
        raise AssertionError(request)

    def _is_busy(self) -> bool:
        self._busy = max(0, self._busy - 1)
        return self._busy > 0

    def _init(self, expected: int) -> int:
        if self._is_busy():
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.state == "Ongoing":  # whatever epoch is expected
            self.epoch += 1
            self._decide(is_committed=False)
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if NO_PRODUCER_EPOCH != expected == self._last_epoch:  # a repeated request
            return 0
        if expected not in {NO_PRODUCER_EPOCH, self.epoch}:
            return ErrorCode.PRODUCER_FENCED
        self._last_epoch = expected
        self.epoch += 1
        self.state = "Empty"
        return 0

    def _decide(self, *, is_committed: bool) -> None:
        """The outcome is in the log of transactions. The markers follow."""
        self.state, self._busy = "Committed" if is_committed else "Aborted", self.markers + 1
        self.committed |= self._pending if is_committed else {}
        self._pending.clear()

    def _added(self, epoch: int) -> int:
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self._is_busy():
            return ErrorCode.CONCURRENT_TRANSACTIONS
        self.state = "Ongoing"
        return 0

    def _partitions_added(self, request: Any) -> Any:
        return added_answer(request, self._added(request.v3_and_below_producer_epoch))

    def _offsets(self, request: Any, version: int) -> Any:
        code = self._refusal_of_member(request) or self._refusal_of_offsets(request, version)
        if not code:
            for topic in request.topics:
                for row in topic.partitions:
                    self._pending[TopicPartition(topic.name, row.partition_index)] = row.committed_offset
        return committed_answer(request, code)

    def _refusal_of_member(self, request: wire.TxnOffsetCommitRequest) -> int:
        known = (request.member_id, request.generation_id) == self.member[:2]
        return 0 if known else ErrorCode.ILLEGAL_GENERATION

    def _refusal_of_offsets(self, request: wire.TxnOffsetCommitRequest, version: int) -> int:
        if request.producer_epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if version >= FIRST_OFFSETS_OF_V2:
            return self._added(request.producer_epoch)
        return 0 if self.state == "Ongoing" else ErrorCode.INVALID_TXN_STATE

    def _end(self, epoch: int, *, is_committed: bool) -> int:
        state = "Committed" if is_committed else "Aborted"
        is_repeated = self.state == state and epoch == self.epoch - self.is_v2
        if is_repeated:
            return ErrorCode.CONCURRENT_TRANSACTIONS if self._is_busy() else 0
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.state != "Ongoing":
            return ErrorCode.INVALID_TXN_STATE
        if is_committed:
            self.commits.append(epoch)
        self._decide(is_committed=is_committed)
        if self.is_v2:
            self._last_epoch = self.epoch
            self.epoch += 1
        return 0


def added_answer(request: wire.AddPartitionsToTxnRequest, code: int) -> wire.AddPartitionsToTxnResponse:
    """`code` for each partition."""
    topics = tuple(
        wire.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                wire.AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
                for n in topic.partitions
            ),
        )
        for topic in request.v3_and_below_topics
    )
    return wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def committed_answer(request: wire.TxnOffsetCommitRequest, code: int) -> wire.TxnOffsetCommitResponse:
    """`code` for each partition."""
    topics = tuple(
        wire.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                wire.TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
                for row in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return wire.TxnOffsetCommitResponse(topics=topics)


def converse(
    dialogue: Dialogue[T],
    coordinator: Coordinator,
    *,
    losses: Iterable[str] = (),
    member: Callable[[], GroupMember] = lambda: MEMBER,
    most: int = 30,
) -> T:
    """Run a dialogue. Each request takes the next of `losses`: "request", "answer", or "" for none.

    Raises TransportError after `most` pauses, as the deadline does.
    """
    lost = iter(losses)
    answer: Any = None
    while True:
        try:
            step = dialogue.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = None
        match step:
            case AskCoordinator():
                version = min(step.kind.VERSIONS[1], 99 if step.ceiling is None else step.ceiling)
                loss = next(lost, "")
                if loss != "request":
                    response = coordinator.answer(step.make(version), version)
                    answer = None if loss == "answer" else Reply(version, response)
            case FindMember():
                answer = member()
            case Pause():
                most -= 1
                if most < 0:
                    raise TransportError(step.cause)


def identity(epoch: int) -> ProducerIdentity:
    return ProducerIdentity(7, epoch)
