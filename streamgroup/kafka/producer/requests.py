"""Builds the requests of a producer for each API version, and reads their responses by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from streamgroup.advice import RESOURCES, Operation, Requester, missing_right
from streamgroup.errors import error_of
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.events import MetadataRead, Send
from streamgroup.kafka.producer.transaction import LAST_PRODUCE_OF_V1
from streamgroup.kafka.wire.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from streamgroup.kafka.wire.messages.topics import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.model import NO_TOPIC_ID, Broker, TopicPartition

_LAST_BY_NAME = 12
"""Later versions of Produce have topic ids instead of names (KIP-516)."""
_CLIENT_WAITS_FROM = 6
"""Since this version of Produce the broker answers before the throttle time, and the client waits (KIP-219)."""
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
_LIMIT = "max.message.bytes"


def init_producer_id() -> InitProducerIdRequest:
    """Return an InitProducerId request for an idempotent producer. Any broker answers it with a new id and epoch 0."""
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)


def describe_limits(topics: Iterable[str]) -> DescribeConfigsRequest:
    """Return a DescribeConfigs request for the largest batch that each topic accepts. Any broker answers it."""
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=(_LIMIT,))
            for topic in sorted(topics)
        )
    )


def with_limits(read: MetadataRead, response: DescribeConfigsResponse, requester: Requester) -> MetadataRead:
    """Return `read` with the batch size limits in the DescribeConfigs response.

    A topic that the broker does not know yet is removed, so that the metadata are read again.
    """
    limits: dict[str, int] = {}
    reasons: dict[str, str] = {}
    topics = dict(read.topics)
    for result in response.results:
        name, error = result.resource_name, error_of(result.error_code)
        value = next((each.value for each in result.configs if each.name == _LIMIT), None)
        if result.error_code in RESOURCES:
            reasons[name] = missing_right(result.error_code, Operation.DESCRIBE_CONFIGS, name, requester)
        elif result.error_code and error.retriable:
            topics.pop(name, None)
        elif result.error_code or value is None:
            reasons[name] = f"{error.name} ({error.code}) for DescribeConfigs"
        else:
            limits[name] = int(value)
    return replace(read, topics=topics, max_message_bytes=limits, no_limits=reasons)


def produce_ceiling(send: Send) -> int | None:
    """Return the highest Produce version for the request; None for any. Versions from 13 on need topic ids.

    In a transaction V1, a later version than 11 would be refused.
    """
    if send.transaction is not None and not send.transaction.is_v2:
        return LAST_PRODUCE_OF_V1
    by_name = any(send.topic_ids.get(b.partition.topic, NO_TOPIC_ID) == NO_TOPIC_ID for b in send.batches)
    return _LAST_BY_NAME if by_name else None


def produce_request(send: Send, records_of: Callable[[ProducerBatch], Bytes]) -> ProduceRequest:
    """Return the Produce request. `records_of` returns the sealed bytes of a batch."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in send.batches:
        row = PartitionProduceData(index=batch.partition.partition, records=records_of(batch))
        topics.setdefault(batch.partition.topic, []).append(row)
    return ProduceRequest(
        transactional_id=None if send.transaction is None else send.transaction.id.name,
        acks=send.acks,
        timeout_ms=send.timeout_ms,
        topic_data=tuple(
            TopicProduceData(name=name, topic_id=send.topic_ids.get(name, NO_TOPIC_ID), partition_data=tuple(rows))
            for name, rows in topics.items()
        ),
    )


def answers_of(
    response: ProduceResponse, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Return the parts of a Produce response by partition. `topic_ids` is `Send.topic_ids`."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }


def throttle_s(response: ProduceResponse, version: int) -> float:
    """Return how many seconds the client must not send to this broker."""
    return response.throttle_time_ms / 1000 if version >= _CLIENT_WAITS_FROM else 0.0


def endpoints_of(response: ProduceResponse) -> tuple[Broker, ...]:
    """Return the addresses of new leaders (KIP-951)."""
    return tuple(Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints)
