"""OffsetFetch in one shape for all versions: up to v7 it names one group, from v8 a list of groups (KIP-709)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamgroup.errors import DecodeError, ErrorCode
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.wire.messages.offsets import (
    NO_COMMIT,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

FIRST_WITH_GROUPS = 8
FIRST_STABLE = 7
FIRST_WITH_ALL = 2
"""The first version that can ask for all commits of a group."""
ZOOKEEPER_VERSION = 0
"""OffsetFetch v0 and OffsetCommit v0 read and write, through any broker, the offsets that groups of 0.8 keep in
ZooKeeper. The broker answers UNKNOWN_TOPIC_OR_PARTITION for a partition without a commit."""
NO_METADATA = "(OffsetFetch v0 tells no metadata)"
"""Stands for the metadata of a commit in ZooKeeper, which has none: nothing tells who made the commit."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """The commit of one partition, None if it has none; or the error code that OffsetFetch answered for it."""

    error_code: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """The commits of one group. `error_code` concerns the whole group."""

    error_code: int
    partitions: Mapping[TopicPartition, CommittedPartition] = field(default_factory=dict)


def offset_fetch_request(
    version: int,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    known: Iterable[TopicPartition] = (),
    require_stable: bool = True,
) -> OffsetFetchRequest:
    """Build the request for the commits of `partitions`, or with None for all commits of `group`.

    Versions below 2 cannot ask for all commits: None then asks for the `known` partitions. `require_stable` makes the
    broker wait for pending transactional commits, which would otherwise be read twice (R19, KIP-447). Brokers without
    v7 never answer pending commits.
    """
    stable = require_stable and version >= FIRST_STABLE
    if partitions is None and version < FIRST_WITH_ALL:
        partitions = known
    topics = None if partitions is None else _by_topic(partitions)
    if version < FIRST_WITH_GROUPS:
        one = None if topics is None else tuple(OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics)
        return OffsetFetchRequest(group_id=group, topics=one, require_stable=stable)
    many = None if topics is None else tuple(OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in topics)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=many),), require_stable=stable)


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return tuple((name, tuple(ids)) for name, ids in found.items())


def fetched_offsets(response: OffsetFetchResponse, version: int, group: str) -> FetchedOffsets:
    """Return the commits of `group` in a response of `version`. Raises DecodeError if the response lacks the group."""
    rows: dict[TopicPartition, CommittedPartition] = {}
    if version < FIRST_WITH_GROUPS:
        for topic in response.topics:
            rows |= {TopicPartition(topic.name, p.partition_index): _row(p, version) for p in topic.partitions}
        return FetchedOffsets(response.error_code, rows)
    answer = next((g for g in response.groups if g.group_id == group), None)
    if answer is None:
        raise DecodeError(f"OffsetFetchResponse v{version}: group {group!r} is missing")
    for found in answer.topics:
        rows |= {TopicPartition(found.name, p.partition_index): _row(p, version) for p in found.partitions}
    return FetchedOffsets(answer.error_code, rows)


def _row(partition: OffsetFetchResponsePartition | OffsetFetchResponsePartitions, version: int) -> CommittedPartition:
    code = partition.error_code
    if version == ZOOKEEPER_VERSION and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return CommittedPartition(ErrorCode.NONE, None)
    if code != ErrorCode.NONE or partition.committed_offset == NO_COMMIT:
        return CommittedPartition(code, None)
    metadata = NO_METADATA if version == ZOOKEEPER_VERSION else partition.metadata or ""
    offset = CommittedOffset(partition.committed_offset, metadata, partition.committed_leader_epoch)
    return CommittedPartition(code, offset)
