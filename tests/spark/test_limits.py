"""Limits of batches in bytes and by time, with a real broker and Spark."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Streams
from tests.waiting import wait_until

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
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 2)
    produce(kafka4, topic)
    limit = 150 * SIZE
    frame = streams.read(kafka4, topic, f"bytes-{topic}", maxBytesPerTrigger=limit)
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
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 2)
    produce(kafka4, topic)
    options = {"group.maxOffsetsPerSecond": 150}
    began = time.monotonic()
    sunk = streams.to_parquet(streams.read(kafka4, topic, f"rate-{topic}", **options), availableNow=True)
    sunk.finish(60)
    assert time.monotonic() - began >= RECORDS / 150 - 1.0
    assert len(sunk.rows("offset")) == RECORDS + 1
    assert sunk.query is not None
    rows = [progress.numInputRows for progress in sunk.query.recentProgress]
    assert all(rows[:-1]), f"no batch before the last one is empty: {rows}"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_rate_in_bytes_holds(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4, 2)
    produce(kafka4, topic)
    began = time.monotonic()
    frame = streams.read(kafka4, topic, f"bytes-rate-{topic}", **{"group.maxBytesPerSecond": 150 * SIZE})
    sunk = streams.to_parquet(frame, availableNow=True)
    sunk.finish(90)
    assert time.monotonic() - began >= RECORDS / 150 - 1.0
    assert len(sunk.rows("offset")) == RECORDS + 1


@pytest.mark.long
@pytest.mark.timeout(180)
def test_batches_become_as_large_as_their_target_lets_them(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """The sink takes 5 ms for a record, so 400 of them last 2 s."""
    topic, sizes, target_s = make_topic(kafka4, 2), list[int](), 2.0
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers})
    for n in range(14_000):
        producer.produce(topic, b"%d" % n, partition=n % 2)
    assert producer.flush(30) == 0

    def sink(rows: DataFrame, batch: int) -> None:
        size = rows.count()
        time.sleep(0.005 * min(size, 2_000))  # the first batch, which is not sized yet, has 10 000
        sizes.append(size)

    options = {"group.targetBatchDuration": f"{target_s:g}s"}
    frame = streams.read(kafka4, topic, f"target-{topic}", **options)
    query = frame.writeStream.foreachBatch(sink).start()
    try:
        wait_until(lambda: sum(sizes) >= 12_500 or query.exception() is not None, "most is read", 120)
    finally:
        query.stop()
    assert sizes[0] == 10_000
    assert sizes[1] == 2_500, "a quarter at least"
    assert all(size <= 400 for size in sizes[3:]), sizes
