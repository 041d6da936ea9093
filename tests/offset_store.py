"""What the coordinators in memory make of OffsetCommit and OffsetFetch: messages as values, and values as messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

OFFSETS_VERSION = 9
"""Of both requests: the highest whose topics go by their names, that asks for a list of groups."""


def offsets_in(request: OffsetCommitRequest) -> dict[TopicPartition, CommittedOffset]:
    """What a commit tells."""
    return {
        TopicPartition(topic.name, p.partition_index): CommittedOffset(
            p.committed_offset, p.committed_metadata or "", p.committed_leader_epoch
        )
        for topic in request.topics
        for p in topic.partitions
    }


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


def fetch_answer(group: str, offsets: Mapping[TopicPartition, CommittedOffset], code: int = 0) -> OffsetFetchResponse:
    """What the group has committed; with a code, that alone."""
    rows: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for tp, offset in offsets.items() if not code else ():
        row = OffsetFetchResponsePartitions(
            partition_index=tp.partition,
            committed_offset=offset.offset,
            metadata=offset.metadata,
            committed_leader_epoch=offset.leader_epoch,
        )
        rows.setdefault(tp.topic, []).append(row)
    topics = tuple(OffsetFetchResponseTopics(name=name, partitions=tuple(p)) for name, p in rows.items())
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=code),))
