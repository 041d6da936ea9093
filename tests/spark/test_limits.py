"""Limits of batches in bytes and by time, with a real broker and Spark."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Streams

pytestmark = [pytest.mark.spark, pytest.mark.live]

SIZE = 1_000
RECORDS = 600


def produce(server: KafkaServer, topic: str) -> None:
    """Write records of SIZE bytes in batches of a few, and one that is larger than a batch may be."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "batch.size": 4 * SIZE, "linger.ms": 1})
    for n in range(RECORDS):
        producer.produce(topic, b"%d " % n + bytes(SIZE), partition=n % 2)
    producer.produce(topic, b"large " + bytes(600 * SIZE), partition=0)
    assert producer.flush(30) == 0


@pytest.mark.timeout(120)
def test_batches_stay_within_their_bytes_and_a_larger_record_passes(
    streams: Streams, kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka41, 2)
    produce(kafka41, topic)
    limit = 150 * SIZE
    frame = streams.read(kafka41, topic, f"bytes-{topic}", maxBytesPerTrigger=limit)
    sunk = streams.to_parquet(frame.selectExpr("partition", "length(value) AS size"), availableNow=True)
    sunk.finish(60)
    sizes = [size for (size,) in sunk.rows("size")]
    assert len(sizes) == RECORDS + 1
    assert sunk.query is not None
    rows = [progress.numInputRows for progress in sunk.query.recentProgress if progress.numInputRows]
    assert max(rows) <= limit // SIZE
    assert len(rows) >= RECORDS * SIZE // limit
    assert rows[0] > 20, "the first sample has come before the first batch"


@pytest.mark.timeout(120)
def test_a_rate_holds_under_available_now_without_empty_batches(
    streams: Streams, kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka41, 2)
    produce(kafka41, topic)
    options = {"group.maxOffsetsPerSecond": 150, "group.targetBatchDuration": "2s"}
    began = time.monotonic()
    sunk = streams.to_parquet(streams.read(kafka41, topic, f"rate-{topic}", **options), availableNow=True)
    sunk.finish(60)
    assert time.monotonic() - began >= RECORDS / 150 - 1.0
    assert len(sunk.rows("offset")) == RECORDS + 1
    assert sunk.query is not None
    rows = [progress.numInputRows for progress in sunk.query.recentProgress]
    assert all(rows[:-1]), f"no batch before the last one is empty: {rows}"
