"""The APIs of transactions: a producer's AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn, and an
operator's DescribeProducers, DescribeTransactions and ListTransactions. InitProducerId is in `produce.py`.

A cluster that has finalized `transaction.version` 2 (KIP-890) adds partitions by Produce v12, and a group by
TxnOffsetCommit v5. Its EndTxn v5 raises the epoch. A producer may use these versions only there.
"""

from __future__ import annotations

from streamgroup.kafka.wire.fields import Struct, array, boolean, int16, int32, int64, message, string
from streamgroup.kafka.wire.messages.produce import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from streamgroup.kafka.wire.schema import Message, Request

# -- a producer's transaction -----------------------------------------------------------------------------------------


@message
class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition in an AddPartitionsToTxn response."""

    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@message
class AddPartitionsToTxnTopicResult(Struct):
    """The partitions of one topic in an AddPartitionsToTxn response."""

    name: str = string("0+")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = array(AddPartitionsToTxnPartitionResult, "0+")


@message
class AddPartitionsToTxnResult(Struct):
    """The result for one transaction in an AddPartitionsToTxn response (v4)."""

    transactional_id: str = string("4+")
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = array(AddPartitionsToTxnTopicResult, "4+")


@message
class AddPartitionsToTxnResponse(Message, versions="0-5", flexible=3):
    """The response to AddPartitionsToTxn: one result per partition. If one has failed, none was added."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


@message
class AddPartitionsToTxnTopic(Struct):
    """The partitions of one topic in AddPartitionsToTxn."""

    name: str = string("0+")
    partitions: tuple[int, ...] = array("int32", "0+")


@message
class AddPartitionsToTxnTransaction(Struct):
    """One transaction in AddPartitionsToTxn (v4)."""

    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+", default=False)
    topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "4+")


LAST_ADD_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn are for brokers."""


@message
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse], api_key=24, versions="0-5", flexible=3):
    """Adds partitions to a transaction, before records are written to them. Sent to the transaction coordinator."""

    transactions: tuple[AddPartitionsToTxnTransaction, ...] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "0-3")


@message
class AddOffsetsToTxnResponse(Message, versions="0-4", flexible=3):
    """The response to AddOffsetsToTxn."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@message
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse], api_key=25, versions="0-4", flexible=3):
    """Adds the offsets of a group to a transaction, before TxnOffsetCommit. Sent to the transaction coordinator."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@message
class TxnOffsetCommitResponsePartition(Struct):
    """The result for one partition in a TxnOffsetCommit response."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class TxnOffsetCommitResponseTopic(Struct):
    """The partitions of one topic in a TxnOffsetCommit response."""

    name: str = string("0+")
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = array(TxnOffsetCommitResponsePartition, "0+")


@message
class TxnOffsetCommitResponse(Message, versions="0-5", flexible=3):
    """The response to TxnOffsetCommit: one result per partition."""

    throttle_time_ms: int = int32("0+")
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = array(TxnOffsetCommitResponseTopic, "0+")


@message
class TxnOffsetCommitRequestPartition(Struct):
    """One partition in TxnOffsetCommit, with the next offset to read."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@message
class TxnOffsetCommitRequestTopic(Struct):
    """The partitions of one topic in TxnOffsetCommit."""

    name: str = string("0+")
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = array(TxnOffsetCommitRequestPartition, "0+")


@message
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse], api_key=28, versions="0-5", flexible=3):
    """Commits offsets of a group as part of a transaction. Sent to the group coordinator.

    From v3 (Kafka 2.5) the request includes the member id and generation. If the generation is not the current one,
    the group coordinator returns ILLEGAL_GENERATION (KIP-447). If the request includes neither, it fences no member.
    """

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = array(TxnOffsetCommitRequestTopic, "0+")


@message
class EndTxnResponse(Message, versions="0-5", flexible=3):
    """The response to EndTxn. From v5 on with the id and epoch of the producer's next transaction."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=NO_PRODUCER_ID, ignorable=True)
    producer_epoch: int = int16("5+", default=NO_PRODUCER_EPOCH, ignorable=True)


@message
class EndTxnRequest(Request[EndTxnResponse], api_key=26, versions="0-5", flexible=3):
    """Commits or aborts a transaction. Sent to the transaction coordinator."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


# -- the view of an operator (KIP-664) --------------------------------------------------------------------------------


@message
class DescribedProducer(Struct):
    """A producer that has written to a partition, in a DescribeProducers response.

    `current_txn_start_offset` is the offset of the first record of its open transaction; -1 if none is open.
    """

    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=NO_SEQUENCE)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


@message
class DescribeProducersPartitionResponse(Struct):
    """One partition in a DescribeProducers response."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    active_producers: tuple[DescribedProducer, ...] = array(DescribedProducer, "0+")


@message
class DescribeProducersTopicResponse(Struct):
    """The partitions of one topic in a DescribeProducers response."""

    name: str = string("0+")
    partitions: tuple[DescribeProducersPartitionResponse, ...] = array(DescribeProducersPartitionResponse, "0+")


@message
class DescribeProducersResponse(Message, versions="0", flexible=0):
    """The response to DescribeProducers: one result per partition."""

    throttle_time_ms: int = int32("0+")
    topics: tuple[DescribeProducersTopicResponse, ...] = array(DescribeProducersTopicResponse, "0+")


@message
class DescribeProducersTopic(Struct):
    """The partitions of one topic in DescribeProducers."""

    name: str = string("0+")
    partition_indexes: tuple[int, ...] = array("int32", "0+")


@message
class DescribeProducersRequest(Request[DescribeProducersResponse], api_key=61, versions="0", flexible=0):
    """Requests the producers that a partition knows. Sent to partition leaders, of Kafka 2.8 and later."""

    topics: tuple[DescribeProducersTopic, ...] = array(DescribeProducersTopic, "0+")


@message
class TransactionTopic(Struct):
    """The partitions of one topic in a transaction, in a DescribeTransactions response."""

    topic: str = string("0+")
    partitions: tuple[int, ...] = array("int32", "0+")


@message
class DescribedTransaction(Struct):
    """One transaction in a DescribeTransactions response. Without an open transaction its start is -1."""

    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: tuple[TransactionTopic, ...] = array(TransactionTopic, "0+")


@message
class DescribeTransactionsResponse(Message, versions="0", flexible=0):
    """The response to DescribeTransactions: one result per transactional id."""

    throttle_time_ms: int = int32("0+")
    transaction_states: tuple[DescribedTransaction, ...] = array(DescribedTransaction, "0+")


@message
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse], api_key=65, versions="0", flexible=0):
    """Requests the state of transactional ids. Sent to their transaction coordinator, of Kafka 3.0 and later."""

    transactional_ids: tuple[str, ...] = array("string", "0+")


@message
class ListedTransaction(Struct):
    """One transactional id in a ListTransactions response."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


@message
class ListTransactionsResponse(Message, versions="0-2", flexible=0):
    """The response to ListTransactions: the ids that the broker is the coordinator of."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: tuple[str, ...] = array("string", "0+")
    transaction_states: tuple[ListedTransaction, ...] = array(ListedTransaction, "0+")


@message
class ListTransactionsRequest(Request[ListTransactionsResponse], api_key=66, versions="0-2", flexible=0):
    """Requests the transactional ids that a broker is the coordinator of. Sent to each broker of Kafka 3.0 and later.

    `duration_filter` (ms) leaves out younger transactions; -1 leaves out none.
    """

    state_filters: tuple[str, ...] = array("string", "0+")
    producer_id_filters: tuple[int, ...] = array("int64", "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
