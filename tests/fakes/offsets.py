"""OffsetCommit and OffsetFetch of the coordinators in memory: messages as values, and values as messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streamgroup.errors import ErrorCode
from streamgroup.kafka.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from streamgroup.model import CommittedOffset, TopicPartition

NO_OFFSET = CommittedOffset(-1)
OFFSETS_VERSION = 9
"""Of both requests: the highest whose topics go by their names, that asks for a list of groups."""


def offsets_in(request: OffsetCommitRequest) -> dict[TopicPartition, CommittedOffset]:
    """The content of a commit."""
    return {
        TopicPartition(topic.name, p.partition_index): CommittedOffset(
            p.committed_offset, p.committed_metadata or "", p.committed_leader_epoch
        )
        for topic in request.topics
        for p in topic.partitions
    }


def batch_bytes(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
    """The size of the record batch that these offsets become in `__consumer_offsets`: OffsetCommitKey v1 (version,
    group, topic, partition), OffsetCommitValue v3 (version, offset, leader epoch, metadata, time)."""
    size = 61
    for tp, offset in offsets.items():
        key = 2 + 2 + len(group.encode()) + 2 + len(tp.topic) + 4
        value = 2 + 8 + 4 + 2 + len(offset.metadata.encode()) + 8
        # Attributes, deltas of time and offset (at most 2 and 3 bytes here), both lengths, no headers.
        body = 1 + 2 + 3 + _varint_bytes(key) + key + _varint_bytes(value) + value + 1
        size += _varint_bytes(body) + body
    return size


def _varint_bytes(value: int) -> int:
    return max(1, -(-(2 * value).bit_length() // 7))


def commit_answer(request: OffsetCommitRequest, code_of: Callable[[TopicPartition], int]) -> OffsetCommitResponse:
    """Its answer: a code for each partition."""

    def row(topic: str, partition: int) -> OffsetCommitResponsePartition:
        code = code_of(TopicPartition(topic, partition))
        return OffsetCommitResponsePartition(partition_index=partition, error_code=code)

    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name, partitions=tuple(row(topic.name, p.partition_index) for p in topic.partitions)
            )
            for topic in request.topics
        )
    )


def wanted_by(request: OffsetFetchRequest) -> set[TopicPartition] | None:
    """The partitions that a request for a list of groups names; None: all."""
    topics = request.groups[0].topics
    return None if topics is None else {TopicPartition(t.name or "", p) for t in topics for p in t.partition_indexes}


def fetch_answer(
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    code: int = 0,
    unstable: Collection[TopicPartition] = (),
) -> OffsetFetchResponse:
    """The answer with the group's offsets; with a code, that alone. `unstable`: those in an open transaction."""
    rows: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for tp, offset in {**dict.fromkeys(unstable, NO_OFFSET), **offsets}.items() if not code else ():
        row = OffsetFetchResponsePartitions(
            partition_index=tp.partition,
            committed_offset=offset.offset,
            metadata=offset.metadata,
            committed_leader_epoch=offset.leader_epoch,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if tp in unstable else 0,
        )
        rows.setdefault(tp.topic, []).append(row)
    topics = tuple(OffsetFetchResponseTopics(name=name, partitions=tuple(p)) for name, p in rows.items())
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=code),))


def zookeepers_answer(
    request: OffsetFetchRequest, offsets: Mapping[TopicPartition, CommittedOffset], unknown: Collection[str] = ()
) -> OffsetFetchResponse:
    """The answer of a broker in v0: for these partitions alone, and without metadata. A partition that has no commit is
    unknown, as are all of the topics that the broker, which has just started, does not know of yet."""

    def row(topic: str, partition: int) -> OffsetFetchResponsePartition:
        found = None if topic in unknown else offsets.get(TopicPartition(topic, partition))
        if found is None:
            return OffsetFetchResponsePartition(
                partition_index=partition, committed_offset=-1, metadata="", error_code=3
            )
        return OffsetFetchResponsePartition(partition_index=partition, committed_offset=found.offset, metadata="")

    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=each.name, partitions=tuple(row(each.name, p) for p in each.partition_indexes)
            )
            for each in request.topics or ()
        )
    )
