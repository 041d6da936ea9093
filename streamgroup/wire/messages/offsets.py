"""The group's offset store: OffsetCommit, OffsetFetch. v10, with topic ids, is unstable in Kafka 4.1 (KIP-848)."""

from __future__ import annotations

from streamgroup.wire.fields import Struct, array, boolean, int16, int32, int64, message, string, uuid
from streamgroup.wire.schema import Message, Request

NO_COMMIT = -1
"""The offset in an OffsetFetch response for a partition without a commit."""


@message
class OffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = array(OffsetCommitResponsePartition, "0+")


@message
class OffsetCommitResponse(Message, versions="0-10", flexible=8, latest_unstable=True):
    """One result per partition: each may fail alone."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = array(OffsetCommitResponseTopic, "0+")


@message
class OffsetCommitRequestPartition(Struct):
    """The next offset to read of one partition."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    commit_timestamp: int = int64("1", default=-1)
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class OffsetCommitRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = array(OffsetCommitRequestPartition, "0+")


@message
class OffsetCommitRequest(Request[OffsetCommitResponse], api_key=8, versions="0-10", flexible=8, latest_unstable=True):
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
    """The commit of one partition up to v7; `committed_offset` is NO_COMMIT if it has none."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@message
class OffsetFetchResponseTopic(Struct):
    """The partitions of one topic up to v7."""

    name: str = string("0-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(OffsetFetchResponsePartition, "0-7")


@message
class OffsetFetchResponsePartitions(Struct):
    """The commit of one partition from v8; `committed_offset` is NO_COMMIT if it has none."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponseTopics(Struct):
    """The partitions of one topic from v8."""

    name: str = string("8-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(OffsetFetchResponsePartitions, "8+")


@message
class OffsetFetchResponseGroup(Struct):
    """The commits of one group (v8, KIP-709)."""

    group_id: str = string("8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@message
class OffsetFetchResponse(Message, versions="0-10", flexible=6, latest_unstable=True):
    """The commits of one group up to v7, of several from v8; `wire.offsets` reads both."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = array(OffsetFetchResponseGroup, "8+")


@message
class OffsetFetchRequestTopic(Struct):
    """The partitions of one topic up to v7."""

    name: str = string("0-7")
    partition_indexes: tuple[int, ...] = array("int32", "0-7")


@message
class OffsetFetchRequestTopics(Struct):
    """The partitions of one topic from v8."""

    name: str = string("8-9", ignorable=True)
    topic_id: str = uuid("10+", ignorable=True)
    partition_indexes: tuple[int, ...] = array("int32", "8+")


@message
class OffsetFetchRequestGroup(Struct):
    """One group (v8). `topics` None asks for all its commits."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@message
class OffsetFetchRequest(Request[OffsetFetchResponse], api_key=9, versions="0-10", flexible=6, latest_unstable=True):
    """Asks for the commits of one group up to v7, of several from v8; `wire.offsets` builds both.

    `require_stable` (v7, KIP-447) makes the broker wait for pending transactional commits.
    """

    group_id: str = string("0-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: tuple[OffsetFetchRequestGroup, ...] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")
