"""Writes to Kafka through a real Spark: batch and stream, their columns, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.read_back import read_back
from tests.spark.retried_write import ROWS
from tests.spark.submitting import ROOT
from tests.spark.support import Load, Streams
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

COLUMNS = "key binary, value string, partition int, headers array<struct<key:string,value:binary>>"


def read(spark: SparkSession, server: KafkaServer, topic: str) -> DataFrame:
    reader = spark.read.format("streamgroup").option("kafka.bootstrap.servers", server.bootstrap_servers)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def save(frame: DataFrame, server: KafkaServer, **options: str) -> None:
    writer = frame.write.format("streamgroup").mode("append").options(**options)
    writer.option("kafka.bootstrap.servers", server.bootstrap_servers).save()


def values(spark: SparkSession, server: KafkaServer, topic: str) -> list[str]:
    return [row.value.decode() for row in read(spark, server, topic).orderBy("partition", "offset").collect()]


def test_a_batch_write_is_read_back_with_keys_partitions_and_headers(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 3)
    rows = [
        (b"k1", "first", 2, [Row(key="h", value=b"1"), Row(key="h", value=None)]),
        (None, "second", 0, None),
        (b"", None, 1, []),
    ]
    save(spark.createDataFrame(rows, COLUMNS), kafka4, topic=topic)
    found = {r.partition: (r.key, r.value, r.headers) for r in read(spark, kafka4, topic).collect()}
    assert {p: (k and bytes(k), v and bytes(v)) for p, (k, v, _) in found.items()} == {
        2: (b"k1", b"first"),
        0: (None, b"second"),
        1: (b"", None),
    }
    assert [(h.key, h.value and bytes(h.value)) for h in found[2][2]] == [("h", b"1"), ("h", None)]


def test_the_column_topic_names_the_topic_unless_the_option_does(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    one, two, three = (make_topic(kafka4) for _ in range(3))
    frame = spark.createDataFrame([(one, "a"), (two, "b"), (one, "c")], "topic string, value string").coalesce(1)
    save(frame, kafka4)
    save(frame, kafka4, topic=three)
    assert [values(spark, kafka4, topic) for topic in (one, two, three)] == [["a", "c"], ["b"], ["a", "b", "c"]]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_task_that_spark_runs_again_loses_nothing_and_repeats_what_it_had_written(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4)
    argv = [sys.executable, "-m", "tests.spark.retried_write", kafka4.bootstrap_servers, topic]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(argv, check=False, cwd=ROOT, env=environment, timeout=200, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    (found,) = read_back(kafka4, topic)
    numbers = [int(message.value()) for message in found]
    first_attempt = len(numbers) - ROWS
    assert first_attempt > 0
    assert numbers == [*range(first_attempt), *range(ROWS)]


def test_a_stream_from_topic_to_topic_goes_on_where_it_stopped(
    streams: Streams, spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    load, target = Load(kafka4, make_topic(kafka4, 2), 2), make_topic(kafka4, 3)
    load.send(200)
    frame = streams.read(kafka4, load.topic, "copy")

    def run() -> None:
        writer = frame.select("key", "value").writeStream.format("streamgroup").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", kafka4.bootstrap_servers)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert query.exception() is None

    run()
    load.send(100)
    run()
    assert sorted(values(spark, kafka4, target)) == sorted(load.sent)


def test_a_stream_in_update_mode_is_written_batch_by_batch(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """PySpark refuses the mode for every sink in Python, before this one is asked."""
    topic = make_topic(kafka4)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 6).option("numPartitions", 1).load()
    counts = rows.selectExpr("CAST(value % 2 AS STRING) AS key").groupBy("key").count()
    updates = counts.selectExpr("key", "CAST(count AS STRING) AS value").writeStream.outputMode("update")
    updates = updates.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="0 seconds")
    refused = updates.format("streamgroup").option("topic", topic).start()
    with pytest.raises(StreamingQueryException, match="streamgroup does not support Update mode"):
        refused.awaitTermination(60)
    updates = updates.option("checkpointLocation", str(tmp_path / "another"))
    query = updates.foreachBatch(lambda frame, _: save(frame, kafka4, topic=topic)).start()
    wait_until(lambda: len(values(spark, kafka4, topic)) >= 4, "two batches are written", 90)
    query.stop()
    assert values(spark, kafka4, topic)[:4] == ["3", "3", "6", "6"]


@pytest.mark.parametrize(
    ("columns", "mode", "options", "said"),
    [
        ("topic string", "append", {}, "the required column 'value' is missing"),
        ("value int", "append", {"topic": "t"}, "column 'value' has the unsupported type int"),
        ("value string", "append", {}, "the option 'topic' is required"),
        ("value string", "overwrite", {"topic": "t"}, "cannot overwrite a topic"),
        ("value string", "append", {"topic": "t", "kafka.acks": "2"}, "kafka.acks"),
        ("value string", "append", {"topic": "t", "kafka.key.serializer": "x"}, "kafka.key.serializer"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_task_runs(
    spark: SparkSession, columns: str, mode: str, options: dict[str, str], said: str
) -> None:
    writer = spark.createDataFrame([], columns).write.format("streamgroup").mode(mode).options(**options)
    with pytest.raises(PySparkException, match=said):
        writer.option("kafka.bootstrap.servers", "127.0.0.1:1").save()


def test_a_null_topic_fails_the_task_with_the_row(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    rows = [(make_topic(kafka4), "a"), (None, "b")]
    with pytest.raises(PySparkException, match="null topic present in the data"):
        save(spark.createDataFrame(rows, "topic string, value string").coalesce(1), kafka4)


def test_an_empty_frame_writes_nothing(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    save(spark.createDataFrame([], "value string"), kafka4, topic=topic)
    assert values(spark, kafka4, topic) == []


def test_a_stream_whose_sink_cannot_write_says_why(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    load = Load(kafka4, make_topic(kafka4), 1)
    load.send(5)
    writer = streams.read(kafka4, load.topic, "refused").selectExpr("offset as value").writeStream
    writer = writer.format("streamgroup").option("topic", "t").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.option("kafka.bootstrap.servers", kafka4.bootstrap_servers).trigger(availableNow=True).start()
    wait_until(lambda: query.exception() is not None, "the query fails", 60)
    assert "column 'value' has the unsupported type bigint" in str(query.exception())
