"""The group's offset store: OffsetCommit, OffsetFetch.

The client does not use v10, which replaces topic names by topic ids (KIP-848). It is stable since Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from streamgroup.errors import DecodeError, ErrorCode
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.fields import Struct, array, boolean, int16, int32, int64, message, string, uuid
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.model import CommittedOffset, TopicPartition

NO_COMMIT = -1
"""The offset in an OffsetFetch response for a partition without a commit."""


@message
class OffsetCommitResponsePartition(Struct):
    """The result for one partition in an OffsetCommit response."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetCommitResponseTopic(Struct):
    """The partitions of one topic in an OffsetCommit response."""

    name: str = string("0-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = array(OffsetCommitResponsePartition, "0+")


@message
class OffsetCommitResponse(Message, versions="0-10", flexible=8, latest_unused=True):
    """The response to OffsetCommit: one result per partition."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = array(OffsetCommitResponseTopic, "0+")


@message
class OffsetCommitRequestPartition(Struct):
    """One partition in OffsetCommit, with the next offset to read."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    commit_timestamp: int = int64("1", default=-1)
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class OffsetCommitRequestTopic(Struct):
    """The partitions of one topic in OffsetCommit."""

    name: str = string("0-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = array(OffsetCommitRequestPartition, "0+")


@message
class OffsetCommitRequest(Request[OffsetCommitResponse], api_key=8, versions="0-10", flexible=8, latest_unused=True):
    """Commits offsets. v0 stores them in ZooKeeper.

    A client that is not a member sends generation -1 and member id `""`.
    """

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: tuple[OffsetCommitRequestTopic, ...] = array(OffsetCommitRequestTopic, "0+")


@message
class OffsetFetchResponsePartition(Struct):
    """The committed offset of one partition up to v7. `committed_offset` is NO_COMMIT if there is none."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@message
class OffsetFetchResponseTopic(Struct):
    """The partitions of one topic in an OffsetFetch response up to v7."""

    name: str = string("0-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(OffsetFetchResponsePartition, "0-7")


@message
class OffsetFetchResponsePartitions(Struct):
    """The committed offset of one partition from v8 on. `committed_offset` is NO_COMMIT if there is none."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponseTopics(Struct):
    """The partitions of one topic in an OffsetFetch response from v8 on."""

    name: str = string("8-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(OffsetFetchResponsePartitions, "8+")


@message
class OffsetFetchResponseGroup(Struct):
    """The committed offsets of one group in an OffsetFetch response (v8, KIP-709)."""

    group_id: str = string("8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponse(Message, versions="0-10", flexible=6, latest_unused=True):
    """The response to OffsetFetch: one group up to v7, several from v8. `fetched_offsets` reads both formats."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = array(OffsetFetchResponseGroup, "8+")


@message
class OffsetFetchRequestTopic(Struct):
    """The partitions of one topic in OffsetFetch up to v7."""

    name: str = string("0-7")
    partition_indexes: tuple[int, ...] = array("int32", "0-7")


@message
class OffsetFetchRequestTopics(Struct):
    """The partitions of one topic in OffsetFetch from v8 on."""

    name: str = string("8-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partition_indexes: tuple[int, ...] = array("int32", "8+")


@message
class OffsetFetchRequestGroup(Struct):
    """One group in OffsetFetch (v8). With `topics` None all its committed offsets are requested."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@message
class OffsetFetchRequest(Request[OffsetFetchResponse], api_key=9, versions="0-10", flexible=6, latest_unused=True):
    """Requests committed offsets: of one group up to v7, of several from v8. Built by `offset_fetch_request`.

    `require_stable` (v7, KIP-447) makes the broker wait for pending transactional commits.
    """

    group_id: str = string("0-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: tuple[OffsetFetchRequestGroup, ...] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


# -- OffsetFetch in one shape: up to v7 it names one group, from v8 a list of groups (KIP-709) -------------------------

FIRST_WITH_GROUPS = 8
FIRST_STABLE = 7
FIRST_WITH_ALL = 2
"""The first version that can ask for all commits of a group."""
ZOOKEEPER_VERSION = 0
"""OffsetFetch v0 and OffsetCommit v0 read and write, through any broker, the offsets that groups of 0.8 keep in
ZooKeeper. The broker answers UNKNOWN_TOPIC_OR_PARTITION for a partition without a commit."""
NO_METADATA = "(OffsetFetch v0 has no metadata)"
"""Replaces the metadata of a commit in ZooKeeper, which stores none: the member that committed is unknown."""


@frozen
class CommittedPartition:
    """The committed offset of one partition (None if there is none), or the error code of OffsetFetch for it."""

    error_code: int
    committed: CommittedOffset | None


@frozen
class FetchedOffsets:
    """The committed offsets of one group, from an OffsetFetch response. `error_code` is about the whole group."""

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
    topics = None if partitions is None else by_topic(partitions)
    if version < FIRST_WITH_GROUPS:
        one = None if topics is None else tuple(OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics)
        return OffsetFetchRequest(group_id=group, topics=one, require_stable=stable)
    many = None if topics is None else tuple(OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in topics)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=many),), require_stable=stable)


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return each topic with the numbers of its partitions, sorted."""
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
