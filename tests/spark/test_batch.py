"""`spark.read.format("streamgroup")`, beside what was produced and beside Spark's semantics of offsets."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.servers import each_of
from tests.spark.support import Load, committed, delete_records

pytestmark = [pytest.mark.spark, pytest.mark.live]


def read(spark: SparkSession, server: KafkaServer, **options: object) -> DataFrame:
    return (
        spark.read.format("streamgroup")
        .option("kafka.bootstrap.servers", server.bootstrap_servers)
        .options(**{name.replace("__", "."): str(value) for name, value in options.items()})
        .load()
    )


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


kafka = each_of("kafka4", long=("kafka39",))


def test_from_earliest_to_latest_is_everything_once(
    spark: SparkSession, kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka, make_topic(kafka, 3), 3)
    sent = load.send(3_000)
    frame = read(spark, kafka, subscribe=load.topic)
    assert [f.name for f in frame.schema.fields] == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    assert values(frame) == sorted(sent)


def test_between_given_offsets(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(200)
    frame = read(
        spark,
        kafka4,
        subscribe=load.topic,
        startingOffsets=json.dumps({load.topic: {"0": 10, "1": -2}}),
        endingOffsets=json.dumps({load.topic: {"0": 20, "1": -1}}),
    )
    found = {(r.partition, r.offset) for r in frame.select("partition", "offset").collect()}
    assert found == {(0, n) for n in range(10, 20)} | {(1, n) for n in range(100)}


def test_by_timestamps(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 1, config={"retention.ms": "-1"}), 1)
    began = 1_700_000_000_000
    for n in range(10):
        load.send(1, timestamp=began + n * 1000)
    frame = read(
        spark,
        kafka4,
        subscribe=load.topic,
        startingTimestamp=began + 2_500,
        endingOffsetsByTimestamp=json.dumps({load.topic: {"0": began + 7_000}}),
    )
    assert sorted(r.offset for r in frame.select("offset").collect()) == [3, 4, 5, 6]


def test_pattern_and_assign(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    first = Load(kafka4, make_topic(kafka4, 2, name="patterned-a"), 2)
    second = Load(kafka4, make_topic(kafka4, 1, name="patterned-b"), 1)
    both = first.send(20) + second.send(10)
    assert values(read(spark, kafka4, subscribePattern="patterned-[ab]")) == sorted(both)
    assigned = read(spark, kafka4, assign=json.dumps({"patterned-a": [1]}))
    assert values(assigned) == sorted(v for v in first.sent if v.startswith("patterned-a-1-"))


def test_min_partitions_splits_without_loss(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    sent = load.send(5_000)
    frame = read(spark, kafka4, subscribe=load.topic, minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert values(frame) == sorted(sent)


def test_headers_and_nulls(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4, 1)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers})
    producer.produce(topic, value=None, key=b"only key", partition=0)
    producer.produce(topic, value=b"", key=None, partition=0, headers=[("h", b"1"), ("h", None)])
    producer.flush(20)
    rows = read(spark, kafka4, subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [(r.key, r.value) for r in rows] == [(bytearray(b"only key"), None), (None, bytearray(b""))]
    assert rows[0].headers is None
    assert [(h.key, h.value) for h in rows[1].headers] == [("h", bytearray(b"1")), ("h", None)]


def test_a_group_id_in_a_batch_read_commits_nothing(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    sent = load.send(10)
    assert values(read(spark, kafka4, subscribe=load.topic, kafka__group__id="batch-reader")) == sent
    assert committed(kafka4, "batch-reader", load.topic) == {}


def test_spark_plans_a_dataframe_once_and_load_plans_anew(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """PySpark keeps the partitions of a batch reader for all actions on what one load() has returned."""
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(10)
    frame = read(spark, kafka4, subscribe=load.topic)
    assert frame.count() == 10
    load.send(5)
    assert frame.count() == 10
    assert frame.where("offset >= 0").count() == 10
    assert read(spark, kafka4, subscribe=load.topic).count() == 15
    delete_records(kafka4, load.topic, {0: 3})
    with pytest.raises(PySparkException, match=r"-0: the offsets \[0, 3\) were planned .* Call load\(\) again"):
        frame.count()
    assert read(spark, kafka4, subscribe=load.topic).count() == 12


def test_timestamps_are_those_of_the_records(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    at = int(time.time() * 1000) - 86_400_123
    load.send(1, timestamp=at)
    row = read(spark, kafka4, subscribe=load.topic).selectExpr("unix_millis(timestamp) AS ms", "timestampType").first()
    assert row is not None
    assert (row.ms, row.timestampType) == (at, 0)
