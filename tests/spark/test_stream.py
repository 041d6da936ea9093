"""One streaming query: what it delivers, what it commits and when."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, committed, log_ends
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

RECORDS = 100_000
PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", [c if c == "zstd" else pytest.param(c, marks=pytest.mark.long) for c in CODECS])
@pytest.mark.timeout(180)
def test_100_000_records_of_every_codec_arrive_as_produced(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(kafka4, PARTITIONS, config={"retention.ms": "-1"})
    producer = Producer(
        {
            "bootstrap.servers": kafka4.bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,  # retries must not change the order, which tells the offsets
            "linger.ms": 20,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    expected = {}
    for n in range(RECORDS):
        partition = n % PARTITIONS
        key = None if n % 7 == 0 else b"key-%d" % n
        value = None if n % 11 == 0 else b"value-%d-" % n * (n % 5 + 1)
        headers = [("n", b"%d" % n), ("empty", None)] if n % 3 == 0 else None
        producer.produce(topic, value, key, partition=partition, headers=headers, timestamp=1_700_000_000_000 + n)
        expected[partition, n // PARTITIONS] = (key, value, headers, 1_700_000_000_000 + n)
        if n % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0

    group = f"codec-{codec}"
    frame = streams.read(kafka4, topic, group, includeHeaders="true", maxOffsetsPerTrigger=40_000)
    sunk = streams.to_parquet(frame.selectExpr("*", "unix_millis(timestamp) AS ms"), availableNow=True)
    sunk.finish(120)

    rows = sunk.rows("partition", "offset", "key", "value", "headers", "ms", "topic")
    assert len(rows) == RECORDS
    found = {
        (partition, offset): (
            key,
            value,
            None if headers is None else [(h["key"], h["value"]) for h in headers],
            ms,
        )
        for partition, offset, key, value, headers, ms, _ in rows
    }
    assert found == expected
    assert {row[-1] for row in rows} == {topic}
    assert committed(kafka4, group, topic) == log_ends(kafka4, topic, PARTITIONS)


def test_committed_within_a_second_after_a_batch_sank(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    sunk = streams.to_parquet(streams.read(kafka4, load.topic, "prompt"))
    took: list[float] = []
    while len(took) < 3 or (min(took) >= 1.0 and len(took) < 12):  # a busy machine delays some
        load.send((10, 200, 30)[len(took) % 3])
        wait_until(lambda: len(sunk.rows("offset")) == len(load.sent), "all rows in the sink")
        began = time.monotonic()
        ends = log_ends(kafka4, load.topic, 2)
        wait_until(lambda ends=ends: committed(kafka4, "prompt", load.topic) == ends, "all committed")
        took.append(time.monotonic() - began)
    assert min(took) < 1.0, took


def test_under_a_processing_time_trigger_a_batch_is_committed_with_the_next_one(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    sunk = streams.to_parquet(streams.read(kafka4, load.topic, "timed"), processingTime="2 seconds")
    load.send(40)
    wait_until(lambda: len(sunk.rows("offset")) == 40, "all rows in the sink")
    wait_until(lambda: committed(kafka4, "timed", load.topic) == {0: 20, 1: 20}, "committed at the next trigger")
    starts = [p["timestamp"] for p in sunk.query.recentProgress if p["numInputRows"]]
    assert len(starts) <= 2, "one batch takes what has come since the last trigger"


def test_available_now_ends_with_everything_committed(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 3), 3)
    load.send(1_000)
    frame = streams.read(kafka4, load.topic, "now", maxOffsetsPerTrigger=300)
    sunk = streams.to_parquet(frame, "now", availableNow=True)
    sunk.finish()
    assert sorted(sunk.values()) == sorted(load.sent)
    assert committed(kafka4, "now", load.topic) == log_ends(kafka4, load.topic, 3)
    batches = [p for p in sunk.query.recentProgress if p["numInputRows"]]
    assert len(batches) >= 4
    assert all(p["numInputRows"] <= 300 for p in batches)

    load.send(500)
    again = streams.to_parquet(frame, "now", availableNow=True)
    again.finish()
    assert sorted(again.values()) == sorted(load.sent)


def test_once_reads_all_in_one_batch_and_the_next_run_repeats_nothing(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    for _ in range(2):
        load.send(400)
        frame = streams.read(kafka4, load.topic, "once", maxOffsetsPerTrigger=10)
        sunk = streams.to_parquet(frame, "once", once=True)
        sunk.finish()
        assert sorted(sunk.values()) == sorted(load.sent)


def test_starting_at_latest_loses_nothing_that_comes_after(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(50)
    frame = streams.read(kafka4, load.topic, "late", startingOffsets="latest")
    sunk = streams.to_parquet(frame, "late")
    wait_until(lambda: committed(kafka4, "late", load.topic) == {0: 25, 1: 25}, "positions committed (R6)")
    new = load.send(40)
    wait_until(lambda: len(sunk.rows("offset")) == 40, "the new rows")
    assert sorted(sunk.values()) == sorted(new)


def test_read_committed_skips_aborted_transactions(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 1)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(20)
    for n in range(5):
        producer.begin_transaction()
        for k in range(5):
            producer.produce(topic, b"%d-%d" % (n, k), partition=0)
        producer.flush(20)
        if n % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    for level, kept in (("read_committed", (0, 2, 4)), ("read_uncommitted", range(5))):
        frame = streams.read(kafka4, topic, f"tx-{level}", kafka__isolation__level=level)
        sunk = streams.to_parquet(frame, level, availableNow=True)
        sunk.finish()
        assert sorted(sunk.values()) == sorted(f"{n}-{k}" for n in kept for k in range(5))
        assert committed(kafka4, f"tx-{level}", topic) == log_ends(kafka4, topic, 1)


def test_progress_reports_the_ends_of_the_logs(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(30)
    sunk = streams.to_parquet(streams.read(kafka4, load.topic, "report", maxOffsetsPerTrigger=10))
    progress = wait_until(
        lambda: next((p for p in sunk.query.recentProgress if p["numInputRows"]), None), "a batch's progress"
    )
    assert load.topic in str(progress["sources"][0]["latestOffset"])


def test_two_sources_of_one_query(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    one, two = (Load(kafka4, make_topic(kafka4, 2), 2) for _ in range(2))
    one.send(100)
    two.send(70)
    both = streams.read(kafka4, one.topic, "left").union(streams.read(kafka4, two.topic, "right"))
    sunk = streams.to_parquet(both, availableNow=True)
    sunk.finish()
    assert sorted(sunk.values()) == sorted(one.sent + two.sent)
    assert committed(kafka4, "left", one.topic) == {0: 50, 1: 50}
    assert committed(kafka4, "right", two.topic) == {0: 35, 1: 35}


def test_process_all_available_has_read_what_was_written_before_it(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    counts: list[int] = []

    def count(frame: DataFrame, batch: int) -> None:
        counts.append(frame.count())

    frame = streams.read(kafka4, load.topic, "all-available", group__mode="off")
    query = frame.writeStream.foreachBatch(count).option("checkpointLocation", str(streams.home / "all")).start()
    try:
        load.send(1)
        wait_until(lambda: sum(counts) == 1, "the query reads")
        for _ in range(3):
            load.send(1)
            query.processAllAvailable()
            assert sum(counts) == len(load.sent)
    finally:
        query.stop()


def test_wrong_options_fail_in_load_and_those_that_only_a_stream_refuses_with_their_own_words_last(
    spark: SparkSession, streams: Streams, kafka4: KafkaServer
) -> None:
    wrong = {"kafka.bootstrap.servers": kafka4.bootstrap_servers, "subscribe": "t", "startingOfsets": "latest"}
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException, match=r"ConfigError: .*Did you mean 'startingOffsets'\?\s+SQLSTATE"):
            reader.format("streamgroup").options(**wrong).load()
    query = streams.to_parquet(streams.read(kafka4, "t", "g", endingOffsets="latest"), availableNow=True).query
    assert query is not None
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(60)
    told = str(caught.value).partition("=== Streaming Query ===")[0].strip().splitlines()
    assert "cannot use option endingOffsets: a stream has no end" in [line for line in told if "Error: " in line][-1]
