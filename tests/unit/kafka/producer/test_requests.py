"""Produce requests of every version, and their answers by partition."""

from __future__ import annotations

import pytest

from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.events import Send
from streamgroup.kafka.producer.requests import answers_of, produce_ceiling, produce_request, throttle_s
from streamgroup.kafka.wire.messages import produce as messages
from streamgroup.kafka.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from streamgroup.kafka.wire.schema import decode, encode
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import TopicPartition
from tests.unit.kafka.producer.world import Records

ID = "00000000-0000-0001-0000-000000000002"


def send(**topic_ids: str) -> Send:
    partitions = (TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a", 2))
    batches = tuple(ProducerBatch(partition, Records((partition.partition,)), 0.0) for partition in partitions)
    return Send(3, 1, batches, -1, 30_000, topic_ids)


@pytest.mark.parametrize("version", range(14))
def test_every_version_carries_the_batches_by_topic(version: int) -> None:
    request = produce_request(send(a=ID, b=ID), lambda batch: str(batch.partition).encode())
    back = decode(messages.ProduceRequest, encode(request, version), version)
    assert (back.acks, back.timeout_ms, back.transactional_id) == (-1, 30_000, None)
    assert [topic.name or topic.topic_id for topic in back.topic_data] == ([ID, ID] if version >= 13 else ["a", "b"])
    rows = [(row.index, bytes(row.records or b"")) for topic in back.topic_data for row in topic.partition_data]
    assert rows == [(0, b"a-0"), (2, b"a-2"), (1, b"b-1")]


@pytest.mark.parametrize("topic_ids", [{}, {"a": ID, "b": ID}], ids=["by name", "by id"])
def test_brokers_that_list_versions_which_they_refuse_get_a_later_one(topic_ids: dict[str, str]) -> None:
    """Kafka 4.0 and later list v0 to v2 of Produce, for librdkafka, and refuse them."""
    for newest in range(3, 14):
        versions = BrokerVersions("b", {messages.ProduceRequest.API_KEY: (0, newest)})
        assert versions.highest(messages.ProduceRequest, produce_ceiling(send(**topic_ids))) >= 3


def test_topics_without_an_id_are_sent_by_name() -> None:
    assert produce_ceiling(send(a=ID)) == 12
    assert produce_ceiling(send(a=ID, b="")) == 12
    assert produce_ceiling(send(a=ID, b="00000000-0000-0001-0000-000000000003")) is None


def test_answers_are_found_by_name_and_by_id() -> None:
    rows = (PartitionProduceResponse(index=1, error_code=6), PartitionProduceResponse(index=2))
    for topic in (
        TopicProduceResponse(name="a", partition_responses=rows),
        TopicProduceResponse(topic_id=ID, partition_responses=rows),
    ):
        answers = answers_of(ProduceResponse(responses=(topic,)), {"a": ID})
        assert {partition: answer.error_code for partition, answer in answers.items()} == {("a", 1): 6, ("a", 2): 0}


@pytest.mark.parametrize(("version", "seconds"), [(1, 0.0), (5, 0.0), (6, 0.25), (13, 0.25)])
def test_the_client_waits_for_the_throttle_time_from_v6_on(version: int, seconds: float) -> None:
    assert throttle_s(ProduceResponse(throttle_time_ms=250), version) == seconds
