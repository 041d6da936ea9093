"""The APIs of partition leaders: ListOffsets, OffsetForLeaderEpoch, Fetch."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import (
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uuid,
)
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""Isolation levels (KIP-98)."""
CONSUMER_REPLICA_ID = -1
"""The replica id of clients that are not brokers."""


@message
class ListOffsetsPartitionResponse(Struct):
    """The offset of one partition in a ListOffsets response, or -1. v0 returns `old_style_offsets`: segment starts."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    old_style_offsets: tuple[int, ...] = array("int64", "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@message
class ListOffsetsTopicResponse(Struct):
    """The partitions of one topic in a ListOffsets response."""

    name: str = string("0+")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = array(ListOffsetsPartitionResponse, "0+")


@message
class ListOffsetsResponse(Message, versions="0-11", flexible=6):
    """The response to ListOffsets: one offset per partition."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = array(ListOffsetsTopicResponse, "0+")


@message
class ListOffsetsPartition(Struct):
    """One partition in ListOffsets.

    `timestamp` is in ms since 1970, or -1 (latest), -2 (earliest), -3 (the record with the largest timestamp, v7).
    """

    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")
    max_num_offsets: int = int32("0", default=1)


@message
class ListOffsetsTopic(Struct):
    """The partitions of one topic in ListOffsets."""

    name: str = string("0+")
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition, "0+")


@message
class ListOffsetsRequest(Request[ListOffsetsResponse], api_key=2, versions="0-11", flexible=6):
    """Requests offsets by time. Sent to partition leaders.

    With READ_COMMITTED the latest offset is the last stable offset. Brokers without v2 have no transactions and always
    return the high watermark.
    """

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+", ignorable=True)
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


@message
class EpochEndOffset(Struct):
    """The largest epoch not above the requested one, and its end offset, in an OffsetForLeaderEpoch response."""

    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


@message
class OffsetForLeaderTopicResult(Struct):
    """The partitions of one topic in an OffsetForLeaderEpoch response."""

    topic: str = string("0+")
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset, "0+")


@message
class OffsetForLeaderEpochResponse(Message, versions="0-4", flexible=4):
    """The response to OffsetForLeaderEpoch: one end offset per partition."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult, "0+")


@message
class OffsetForLeaderPartition(Struct):
    """Requests the end offset of `leader_epoch` in one partition.

    A leader with another epoch than `current_leader_epoch` returns an error, unless that is -1.
    """

    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


@message
class OffsetForLeaderTopic(Struct):
    """The partitions of one topic in OffsetForLeaderEpoch."""

    topic: str = string("0+")
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition, "0+")


@message
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse], api_key=23, versions="0-4", flexible=4):
    """Requests end offsets of leader epochs, to find out whether a log was truncated (KIP-320).

    Sent to partition leaders. Clients send CONSUMER_REPLICA_ID.
    """

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic, "0+")


@message
class DivergingEpoch(Struct):
    """The largest epoch that the leader's log shares with the fetched position, and its end (KIP-595)."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@message
class LeaderIdAndEpoch(Struct):
    """The current leader of a partition in a Fetch response. Brokers send it only with some errors."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@message
class SnapshotId(Struct):
    """A snapshot of the metadata log; only its replicas use it."""

    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


@message
class AbortedTransaction(Struct):
    """An aborted transaction in a Fetch response.

    Consumers skip the producer's records from `first_offset` to its abort marker.
    """

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@message
class PartitionData(Struct):
    """One partition in a Fetch response. `records` may end with an incomplete batch; None means empty."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: DivergingEpoch = struct(DivergingEpoch, "12+", tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2, tagged="12+")
    aborted_transactions: tuple[AbortedTransaction, ...] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Bytes | None = records("0+", nullable="0+")


@message
class FetchableTopicResponse(Struct):
    """The partitions of one topic in a Fetch response. A topic has a name up to v12 and an id from v13 (KIP-516)."""

    topic: str = string("0-12", ignorable=True)
    topic_id: str = uuid("13+", ignorable=True)
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


@message
class NodeEndpoint(Struct):
    """The address of a leader in a Fetch response, which `current_leader` of a partition refers to (KIP-951)."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@message
class FetchResponse(Message, versions="0-18", flexible=12):
    """The response to Fetch: the records of the partitions, in the order of the request."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: tuple[FetchableTopicResponse, ...] = array(FetchableTopicResponse, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "16+", tag=0, tagged="16+")


@message
class ReplicaState(Struct):
    """The replica that fetches. Clients keep the defaults."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@message
class FetchPartition(Struct):
    """One partition in Fetch: the fetch offset, and a limit in bytes. A larger first batch is sent whole (KIP-74)."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: str = uuid("17+", ignorable=True, tag=0, tagged="17+")
    high_watermark: int = int64("18+", default=2**63 - 1, ignorable=True, tag=1, tagged="18+")


@message
class FetchTopic(Struct):
    """The partitions of one topic in Fetch. A topic has a name up to v12 and an id from v13 (KIP-516)."""

    topic: str = string("0-12", ignorable=True)
    topic_id: str = uuid("13+", ignorable=True)
    partitions: tuple[FetchPartition, ...] = array(FetchPartition, "0+")


@message
class ForgottenTopic(Struct):
    """Partitions to remove from an incremental fetch session (KIP-227)."""

    topic: str = string("7-12", ignorable=True)
    topic_id: str = uuid("13+", ignorable=True)
    partitions: tuple[int, ...] = array("int32", "7+")


@message
class FetchRequest(Request[FetchResponse], api_key=1, versions="0-18", flexible=12):
    """Requests records. Sent to partition leaders. The default session id and epoch mean no fetch session (KIP-227)."""

    cluster_id: str | None = string("12+", nullable="12+", default=None, ignorable=True, tag=0, tagged="12+")
    replica_id: int = int32("0-14", default=CONSUMER_REPLICA_ID)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1, tagged="15+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=2**31 - 1, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = array(FetchTopic, "0+")
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)
