"""Writes through a real Spark whose brokers are found in ZooKeeper: two emulated brokers of Kafka 0.7, and a 0.8."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server
from tests.conftest import MakeTopic
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

RECORDS = 2_000
CONFIG = {
    "num.partitions": 3,
    "log.flush.interval": 50,
    "log.default.flush.interval.ms": 100,
    "log.default.flush.scheduler.interval.ms": 100,
    "zk.sessiontimeout.ms": 1_000,
}
OF_BOTH = [0, 1, 2, 10_000, 10_001, 10_002]
"""The broker-partitions of a topic."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config=CONFIG) as server:
        yield server


def save(frame: DataFrame, zookeeper: str, **options: str) -> None:
    writer = frame.write.format("streamgroup").mode("append").option("zookeeper.connect", zookeeper)
    writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save()


def logs(spark: SparkSession, zookeeper: str, topic: str) -> dict[int, list[str]]:
    """The values of each partition, as the source reads them."""
    reader = spark.read.format("streamgroup").option("zookeeper.connect", zookeeper).option("subscribe", topic)
    frame = reader.load().selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    found: dict[int, list[str]] = defaultdict(list)
    for row in sorted(frame.collect(), key=lambda row: (row.partition, row.offset)):
        found[row.partition].append(row.value)
    return dict(found)


def count(found: dict[int, list[str]]) -> int:
    return sum(map(len, found.values()))


@pytest.mark.parametrize(
    "codec", ["gzip", pytest.param("none", marks=pytest.mark.long), pytest.param("snappy", marks=pytest.mark.long)]
)
def test_a_batch_into_kafka_07_is_read_back_by_the_source(
    spark: SparkSession, kafka: Kafka07Server, codec: str
) -> None:
    topic = f"batch-{codec}"
    for partition in (0, 10_000):  # both brokers create the topic
        save(
            spark.createDataFrame([("first", partition)], "value string, partition int"),
            kafka.zookeeper_connect,
            topic=topic,
            verify="true",
        )
    wait_until(lambda: count(logs(spark, kafka.zookeeper_connect, topic)) == 2, "the topic is registered", 30)
    frame = spark.range(RECORDS).selectExpr(
        "CAST(id AS STRING) AS value",
        f"element_at(array({', '.join(map(str, OF_BOTH))}), CAST(id % 6 + 1 AS INT)) AS partition",
    )
    save(frame.coalesce(1), kafka.zookeeper_connect, topic=topic, kafka__compression__type=codec, verify="true")
    found = logs(spark, kafka.zookeeper_connect, topic)
    for index, partition in enumerate(OF_BOTH):
        first = ["first"] if partition in (0, 10_000) else []
        assert found[partition] == first + [str(n) for n in range(RECORDS) if n % 6 == index]


def test_a_stream_into_kafka_07_goes_on_where_it_stopped(
    spark: SparkSession, kafka: Kafka07Server, tmp_path: Path
) -> None:
    source, target = "from", "to"
    for run in range(2):
        values = spark.range(run * 300, run * 300 + 300).selectExpr("CAST(id AS STRING) AS value")
        save(values, kafka.zookeeper_connect, topic=source, verify="true")
        frame = spark.readStream.format("streamgroup").option("zookeeper.connect", kafka.zookeeper_connect)
        frame = frame.option("subscribe", source).option("startingOffsets", "earliest").load()
        writer = frame.select("value").writeStream.format("streamgroup").option("topic", target)
        writer = writer.option("zookeeper.connect", kafka.zookeeper_connect).option("verify", "true")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(120)
        assert query.exception() is None
    found = logs(spark, kafka.zookeeper_connect, target)
    assert sorted(int(value) for log in found.values() for value in log) == list(range(600))


def test_keys_choose_the_broker_partition_and_are_not_written(spark: SparkSession, kafka: Kafka07Server) -> None:
    topic = "keyed"
    frame = spark.range(200).selectExpr("CONCAT('key-', id % 10) AS key", "CONCAT('key-', id % 10) AS value")
    save(frame, kafka.zookeeper_connect, topic=topic, verify="true")
    found = logs(spark, kafka.zookeeper_connect, topic)
    assert count(found) == 200
    assert set(found) <= {0, 10_000}, "a new topic goes to partition 0 of each broker"
    assert sum(len(set(log)) for log in found.values()) == 10, "no key is in two partitions"


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("'a' AS value", {"kafka__compression__type": "lz4"}, "Kafka 0.7 has none, gzip, snappy"),
        ("'a' AS value, 50000 AS partition", {}, "broker 5 is not registered in ZooKeeper"),
        ("CAST(NULL AS STRING) AS value, 1 AS partition", {}, "cannot write to refused 0-1: .* no null values"),
    ],
)
def test_what_kafka_07_cannot_hold_fails_the_write_and_says_where(
    spark: SparkSession, kafka: Kafka07Server, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        save(spark.range(1).selectExpr(*columns.split(", ")), kafka.zookeeper_connect, topic="refused", **options)


def test_a_stream_whose_zookeeper_has_no_brokers_says_so(
    spark: SparkSession, kafka: Kafka07Server, tmp_path: Path
) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = frame.writeStream.format("streamgroup").option("topic", "t").option("kafka.max.block.ms", "500")
    writer = writer.option("zookeeper.connect", f"{kafka.zookeeper_connect}/nowhere")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: query.exception() is not None, "the query fails", 90)
        assert "Set the path at the end of zookeeper.connect to the one that the brokers have" in str(query.exception())
    finally:
        query.stop()


def test_the_brokers_of_a_later_kafka_are_found_in_zookeeper(
    spark: SparkSession, kafka08: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka08, 2)
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition").coalesce(1)
    save(frame, kafka08.zookeeper_connect, topic=topic)
    expected = {p: [str(n) for n in range(100) if n % 2 == p] for p in range(2)}
    assert logs(spark, kafka08.zookeeper_connect, topic) == expected
