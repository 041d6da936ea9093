"""The same reads by Spark's own source and by this one."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from streamgroup.testing import KafkaServer
from tests.spark.support import Streams
from tests.waiting import wait_until

THEIRS, OURS = "kafka", "streamgroup"
BOTH = (THEIRS, OURS)
PATIENCE = 120.0
ADMIN_S = 30


def batch(spark: SparkSession, form: str, server: KafkaServer, **options: Any) -> DataFrame:
    """A batch read by one format; `__` in an option's name is a dot."""
    return _loaded(spark.read, form, server, options)


def stream(spark: SparkSession, form: str, server: KafkaServer, **options: Any) -> DataFrame:
    """A stream without a group, from the earliest offsets."""
    return _loaded(spark.readStream, form, server, {"startingOffsets": "earliest", **options})


def _loaded(reader: Any, form: str, server: KafkaServer, options: dict[str, Any]) -> DataFrame:
    reader = reader.format(form).option("kafka.bootstrap.servers", server.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def values(frame: DataFrame) -> list[str]:
    """The values of a batch read, sorted."""
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def run_to_end(streams: Streams, form: str, server: KafkaServer, **options: Any) -> list[str]:
    """The values in the sink after a run with AvailableNow. The next run of this format goes on there."""
    sunk = streams.to_parquet(stream(streams.spark, form, server, **options), form, availableNow=True)
    sunk.finish(PATIENCE)
    return sorted(sunk.values())


def delete_topic(server: KafkaServer, topic: str) -> None:
    """Delete a topic and wait until the broker no longer lists it."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 3})
    admin.delete_topics([topic], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is deleted", PATIENCE)
