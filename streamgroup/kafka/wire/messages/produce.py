"""The API that writes records: Produce."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import (
    Struct,
    array,
    boolean,
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

NO_ACKS = 0
"""The broker sends no response at all."""
LEADER_ACKS = 1
"""The leader responds after its own append."""
ALL_ACKS = -1
"""The leader responds when all in-sync replicas have the records."""


@message
class BatchIndexAndErrorMessage(Struct):
    """The index of a record because of which the broker rejected its whole batch (KIP-467)."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@message
class LeaderIdAndEpoch(Struct):
    """The current leader of a partition in a Produce response, only with NOT_LEADER_OR_FOLLOWER (KIP-951)."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@message
class PartitionProduceResponse(Struct):
    """One partition in a Produce response.

    `log_append_time_ms` is -1 if the topic stores the producer's timestamps.
    """

    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


@message
class TopicProduceResponse(Struct):
    """The partitions of one topic in a Produce response. A topic has a name up to v12, an id from v13 (KIP-516)."""

    name: str = string("0-12", ignorable=True)
    topic_id: str = uuid("13+", ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = array(PartitionProduceResponse, "0+")


@message
class NodeEndpoint(Struct):
    """The address of a leader in a Produce response, which `current_leader` of a partition refers to (KIP-951)."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@message
class ProduceResponse(Message, versions="0-13", flexible=9):
    """The response to Produce: one result per partition.

    From v6 on the client waits `throttle_time_ms`. Before v6 the broker has already waited.
    """

    responses: tuple[TopicProduceResponse, ...] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "10+", tag=0, tagged="10+")


@message
class PartitionProduceData(Struct):
    """The records for one partition in Produce: one record batch from v3 on, a message set before v3."""

    index: int = int32("0+")
    records: Bytes | None = records("0+", nullable="0+")


@message
class TopicProduceData(Struct):
    """The partitions of one topic in Produce. A topic has a name up to v12 and an id from v13 (KIP-516)."""

    name: str = string("0-12", ignorable=True)
    topic_id: str = uuid("13+", ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = array(PartitionProduceData, "0+")


@message
class ProduceRequest(Request[ProduceResponse], api_key=0, versions="0-13", flexible=9):
    """Writes records. Sent to partition leaders.

    v0 and v1 contain messages v0, v2 messages v1, and v3 and later record batches v2. zstd needs v7 (KIP-110).
    `timeout_ms` is how long the leader waits for the in-sync replicas. With NO_ACKS the broker sends no response.
    Brokers from 4.0 on list v0 to v2 in ApiVersions, but refuse them.
    """

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: tuple[TopicProduceData, ...] = array(TopicProduceData, "0+")

    @property
    def is_answered(self) -> bool:
        return self.acks != NO_ACKS


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
"""The values in a batch of a producer that is not idempotent."""


@message
class InitProducerIdResponse(Message, versions="0-6", flexible=2, latest_unused=True):
    """The response to InitProducerId: a producer id and its epoch.

    The fields of v6 describe a prepared transaction (KIP-939).
    """

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=NO_PRODUCER_ID)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=NO_PRODUCER_ID)
    ongoing_txn_producer_epoch: int = int16("6+", default=NO_PRODUCER_EPOCH)


@message
class InitProducerIdRequest(
    Request[InitProducerIdResponse], api_key=22, versions="0-6", flexible=2, latest_unused=True
):
    """Requests a producer id. Without a transactional id any broker answers, always with a new id at epoch 0.

    With a transactional id its transaction coordinator answers and increases the epoch, from v3 on if `producer_id` and
    `producer_epoch` are the current ones (KIP-360).
    """

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=NO_PRODUCER_ID)
    producer_epoch: int = int16("3+", default=NO_PRODUCER_EPOCH)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")
