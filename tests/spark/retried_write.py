"""A write whose task fails once after some of its rows are in Kafka, by `python -m tests.spark.retried_write`.

The session of the tests runs each task once; this one lets Spark run a task twice. The arguments are the bootstrap
servers and a topic of one partition.
"""

from __future__ import annotations

import sys
import time
from functools import cache

from confluent_kafka import Consumer, TopicPartition
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

ROWS = 5_000
HANDED_ON = 100
"""Rows that Spark hands on at a time."""
WIDTH = 1_000
"""Bytes of a value. Spark hands smaller values on only when it has many."""


def main(servers: str, topic: str) -> None:
    def padded(number: int) -> str:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and number % HANDED_ON == 0:
            until = time.monotonic() + 1  # the sink sends and receives when it gets the next rows
            while time.monotonic() < until:
                if end_of(servers, topic):
                    raise ValueError("the first attempt fails")
                time.sleep(0.05)
        return f"{number:{WIDTH}d}"

    spark = (
        SparkSession.builder.master("local[1,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .getOrCreate()
    )
    rows = spark.range(ROWS, numPartitions=1).select(udf(padded, "string", useArrow=False)("id").alias("value"))
    writer = rows.write.format("streamgroup").mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    spark.stop()


def end_of(servers: str, topic: str) -> int:
    return int(consumer_of(servers).get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1])


@cache
def consumer_of(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": "unused"})


if __name__ == "__main__":
    from tests.spark.retried_write import main as importable  # a worker imports no function of `__main__`

    importable(*sys.argv[1:])
