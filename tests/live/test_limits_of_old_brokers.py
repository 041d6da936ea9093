"""Limits of batches in bytes, at brokers before 0.11: samples by their versions of Fetch, and bytes as offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server, Producer07
from tests.conftest import MakeTopic
from tests.fault.harness import QUICK, Stream
from tests.old_kafka import librdkafka
from tests.servers import each_of
from tests.waiting import wait_until

pytestmark = pytest.mark.live

SIZE = 1_000
RECORDS = 300
LIMIT = 50 * SIZE

kafka = each_of("kafka08", long=("kafka09", "kafka010"))


@pytest.fixture(scope="module")
def kafka07() -> Iterator[Kafka07Server]:
    with Kafka07Server(config={"num.partitions": 2}) as server:
        yield server


def batch_sizes(query: Stream) -> list[int]:
    """Let `query` read all records, and return the bytes of the values of each batch."""
    with query:
        wait_until(lambda: query.error is not None or len(query.rows) >= RECORDS, "everything is read")
    assert query.error is None
    assert len({row.value for row in query.rows}) == len(query.rows) == RECORDS
    return [sum(len(row.value) for row in rows) for rows in query.sunk.values()]


def test_batches_stay_within_their_bytes(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 2)
    producer = Producer({**librdkafka(kafka), "batch.num.messages": 4})
    for number in range(RECORDS):
        producer.produce(topic, b"%d " % number + bytes(SIZE), partition=number % 2)
    assert producer.flush(30) == 0
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": f"bytes-{topic}",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": str(LIMIT),
        **QUICK,
    }
    if kafka.version.startswith("0.8"):
        options["zookeeper.connect"] = kafka.zookeeper_connect
    sizes = batch_sizes(Stream("bytes", options))
    assert max(sizes) <= LIMIT
    assert sizes[0] > LIMIT / 3, "the first sample has come before the first batch"


def test_bytes_of_0_7_are_its_offsets(kafka07: Kafka07Server) -> None:
    with Producer07(zookeeper=kafka07.zookeeper_connect) as producer:
        for number in range(RECORDS):
            producer.produce("events", [b"%d " % number + bytes(SIZE)], broker=0, partition=number % 2)
    query = Stream(
        "bytes",
        {
            "zookeeper.connect": kafka07.zookeeper_connect,
            "kafka.group.id": "bytes",
            "subscribe": "events",
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": str(LIMIT),
        },
    )
    sizes = batch_sizes(query)
    assert max(sizes) <= LIMIT
    assert sizes[0] > LIMIT - 3 * SIZE, "a message of each partition at most is left out"
