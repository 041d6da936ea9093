"""The requests of the offset store as values, and values as its responses, in the shapes of one version each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamgroup.errors import ErrorCode
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.wire.messages import offsets as o
from streamgroup.wire.registrations import is_node_name


def partitions_wanted(request: o.OffsetFetchRequest) -> tuple[TopicPartition, ...] | None:
    """What is asked for (v7); None is all that the group has."""
    if request.topics is None:
        return None
    return tuple(TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes if is_node_name(t.name))


def offsets_in(request: o.OffsetCommitRequest) -> dict[TopicPartition, CommittedOffset]:
    """What is to be committed (v8)."""
    return {
        TopicPartition(t.name, p.partition_index): CommittedOffset(
            p.committed_offset, p.committed_metadata or "", p.committed_leader_epoch
        )
        for t in request.topics
        for p in t.partitions
    }


def fetch_response(
    committed: Mapping[TopicPartition, CommittedOffset], wanted: tuple[TopicPartition, ...] | None
) -> o.OffsetFetchResponse:
    """What was committed, of the partitions `wanted` (v7)."""
    nothing = CommittedOffset(o.NO_COMMIT)
    told = committed if wanted is None else {tp: committed.get(tp, nothing) for tp in wanted}
    rows: dict[str, list[o.OffsetFetchResponsePartition]] = {}
    for tp, found in sorted(told.items()):
        row = o.OffsetFetchResponsePartition(
            partition_index=tp.partition,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        )
        rows.setdefault(tp.topic, []).append(row)
    topics = (o.OffsetFetchResponseTopic(name=name, partitions=tuple(some)) for name, some in rows.items())
    return o.OffsetFetchResponse(topics=tuple(topics))


def commit_response(offsets: Iterable[TopicPartition], codes: Mapping[TopicPartition, int]) -> o.OffsetCommitResponse:
    """Each partition's own code (v8); one without, whose topic no node can be called after, does not exist."""
    rows: dict[str, list[o.OffsetCommitResponsePartition]] = {}
    for tp in offsets:
        code = codes.get(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        row = o.OffsetCommitResponsePartition(partition_index=tp.partition, error_code=code)
        rows.setdefault(tp.topic, []).append(row)
    topics = (o.OffsetCommitResponseTopic(name=name, partitions=tuple(some)) for name, some in rows.items())
    return o.OffsetCommitResponse(topics=tuple(topics))
