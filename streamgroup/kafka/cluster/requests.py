"""ListOffsets and OffsetForLeaderEpoch requests to partition leaders, and their responses, as pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NamedTuple, TypeVar

from streamgroup.advice import UNKNOWN, Operation, Requester, refusal
from streamgroup.errors import BrokerError, ErrorCode, error_of
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.messages.log import (
    CONSUMER_REPLICA_ID,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from streamgroup.model import UNKNOWN_EPOCH, ClusterSnapshot, PartitionInfo, TopicPartition
from streamgroup.options.types import Isolation

V = TypeVar("V")
P = TypeVar("P")

NO_OFFSET = -1
"""The offset of a timestamp that is later than every record."""

_FINAL = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Error codes of ListOffsets and OffsetForLeaderEpoch that no retry resolves. The client retries after any other code,
as Java's consumer does: a broker may fail with an unexpected code and recover a moment later."""


@frozen
class ListedOffset:
    """The result of ListOffsets for one partition. `timestamp` (ms) is -1 unless the request had a timestamp."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = UNKNOWN_EPOCH
    segments: tuple[int, ...] = ()
    """Kafka 0.7: the starts of the log's segments, ascending, listed with EARLIEST."""
    coarse: bool = field(default=False, compare=False)
    """True if the offset of a timestamp is the start of a segment, at or before the record (brokers before 0.10.1)."""


class EpochCheck(NamedTuple):
    """A position to check for truncation: its leader epoch, and the newest known leader epoch of the partition."""

    taken: int
    current: int


@frozen
class EpochEnd:
    """The result of OffsetForLeaderEpoch: the largest epoch that is not above the requested one, and its end offset."""

    epoch: int = UNKNOWN_EPOCH
    end_offset: int = NO_OFFSET
    refused: bool = field(default=False, compare=False)
    """True if the user is not authorized: brokers before 2.3 with an authorizer answer only other brokers."""

    @property
    def known(self) -> bool:
        """Whether the leader knows the end. Logs with old message formats have no epochs."""
        return self.end_offset != NO_OFFSET


def _by_leader(
    wanted: Mapping[TopicPartition, V], snapshot: ClusterSnapshot, row: Callable[[TopicPartition, V, PartitionInfo], P]
) -> tuple[dict[int, dict[str, list[P]]], list[str]]:
    """Return the rows of a request by leader and topic, and the reasons for partitions that no leader can answer."""
    by_leader: dict[int, dict[str, list[P]]] = defaultdict(lambda: defaultdict(list))
    causes: list[str] = []
    for tp in sorted(wanted):
        info = snapshot.partition(tp)
        if info is None:
            causes.append(f"{tp} does not exist")
        elif info.leader not in snapshot.brokers:
            causes.append(f"{tp} has no leader")
        else:
            by_leader[info.leader][tp.topic].append(row(tp, wanted[tp], info))
    return by_leader, causes


def offset_requests(
    wanted: Mapping[TopicPartition, int], snapshot: ClusterSnapshot, isolation: Isolation
) -> tuple[dict[int, ListOffsetsRequest], list[str]]:
    """Return a ListOffsets request for each leader, by node id.

    Also return a reason for each partition that no leader can answer.
    """
    by_leader, causes = _by_leader(
        wanted,
        snapshot,
        lambda tp, at, info: ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=info.leader_epoch, timestamp=at
        ),
    )
    requests = {
        node: ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=isolation.value,
            topics=tuple(ListOffsetsTopic(name=topic, partitions=tuple(parts)) for topic, parts in topics.items()),
        )
        for node, topics in by_leader.items()
    }
    return requests, causes


def read_offsets(
    response: ListOffsetsResponse,
    listed: dict[TopicPartition, ListedOffset],
    causes: list[str],
    requester: Requester = UNKNOWN,
) -> None:
    """Add the offsets of `response` to `listed`, and its retriable errors to `causes`.

    Raises BrokerError for an error that no retry resolves. `requester` is for authorization errors.
    """
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code == 0:
                found = p.old_style_offsets[0] if p.old_style_offsets else p.offset  # v0: the newest first
                listed[tp] = ListedOffset(found, p.timestamp, p.leader_epoch, coarse=bool(p.old_style_offsets))
                continue
            error = error_of(p.error_code)
            if p.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                listed[tp] = ListedOffset(NO_OFFSET)  # message formats before 0.10 have no timestamps
            elif p.error_code in _FINAL:
                raise _final(p.error_code, f"cannot list the offsets of {tp}", tp, requester)
            else:
                causes.append(f"{tp}: {error.name}")


def epoch_requests(
    wanted: Mapping[TopicPartition, EpochCheck], snapshot: ClusterSnapshot
) -> tuple[dict[int, OffsetForLeaderEpochRequest], list[str]]:
    """Return an OffsetForLeaderEpoch request for each leader, by node id.

    Also return a reason for each partition that no leader can answer. A leader of an older epoch than `current` returns
    an error (KIP-320).
    """
    by_leader, causes = _by_leader(
        wanted,
        snapshot,
        lambda tp, check, info: OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=max(check.current, info.leader_epoch), leader_epoch=check.taken
        ),
    )
    requests = {
        node: OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=tuple(OffsetForLeaderTopic(topic=topic, partitions=tuple(parts)) for topic, parts in topics.items()),
        )
        for node, topics in by_leader.items()
    }
    return requests, causes


def read_epoch_ends(
    response: OffsetForLeaderEpochResponse,
    ends: dict[TopicPartition, EpochEnd],
    causes: list[str],
    requester: Requester = UNKNOWN,
) -> None:
    """Add the epoch ends of `response` to `ends`, and its retriable errors to `causes`.

    A leader that does not know the end is a result, too. Raises as `read_offsets`.
    """
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.topic, p.partition)
            if p.error_code == 0:
                ends[tp] = EpochEnd(p.leader_epoch, p.end_offset)
                continue
            error = error_of(p.error_code)
            if p.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                ends[tp] = EpochEnd(refused=True)
            elif p.error_code in _FINAL:
                raise _final(p.error_code, f"cannot read the end of a leader epoch of {tp}", tp, requester)
            else:
                causes.append(f"{tp}: {error.name}")


def _final(code: int, context: str, tp: TopicPartition, requester: Requester) -> BrokerError:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return refusal(code, context, Operation.DESCRIBE, tp.topic, requester)
    return BrokerError(code, context)
