"""An application for an environment that has the package and PySpark, and nothing of the tests.

    python clean_environment_application.py BOOTSTRAP_SERVERS TOPIC GROUP HOME

It writes 100 records, reads them in a batch, and reads them with a stream of a group. Then it reads them with a query
that has one named source, and continues that query with two. It starts the first query again on the idle topic, stops
its SparkContext alone, as a notebook's user does, and starts the query again. It prints what it found as JSON.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

VALUES = "cast(cast(value as string) as bigint) as number"


def session() -> SparkSession:
    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


def sums(rows: DataFrame) -> list[int]:
    return list(rows.selectExpr("count(*)", "sum(number)").collect()[0])


def named(spark: SparkSession, options: dict[str, str], home: str, *names: str) -> None:
    """Read all that is there with sources of these names. Each starts at the beginning of the topic."""
    settings = {"queryEvolution.enableSourceEvolution": "true", "offsetLog.formatVersion": "2"}
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.streaming.{setting}", value)
    reader = spark.readStream.format("streamgroup").options(**options)
    frames = [reader.name(name).load().selectExpr(VALUES) for name in names]
    rows = functools.reduce(DataFrame.union, frames).writeStream.format("parquet").trigger(availableNow=True)
    rows.option("checkpointLocation", f"{home}/named-checkpoint").start(f"{home}/named").awaitTermination()
    for setting in settings:
        spark.conf.unset(f"spark.sql.streaming.{setting}")


def main(servers: str, topic: str, group: str, home: str) -> None:
    spark = session()
    kafka = {"kafka.bootstrap.servers": servers}
    rows = spark.range(100).selectExpr("cast(cast(id as string) as binary) as value")
    rows.write.format("streamgroup").options(**kafka, topic=topic).mode("append").save()
    batch = spark.read.format("streamgroup").options(**kafka, subscribe=topic).load().selectExpr(VALUES)

    def start(spark: SparkSession, **trigger: Any) -> Any:
        stream = spark.readStream.format("streamgroup").options(
            **kafka, subscribe=topic, startingOffsets="earliest", **{"kafka.group.id": group}
        )
        writer = stream.load().selectExpr(VALUES).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{home}/checkpoint")
        return (writer.trigger(**trigger) if trigger else writer).start(f"{home}/rows")

    start(spark, availableNow=True).awaitTermination()
    sunk = spark.read.parquet(f"{home}/rows")
    sums = {
        name: frame.selectExpr("count(*)", "sum(number)").first()
        for name, frame in (("batch", batch), ("stream", sunk))
    }
    found = {name: list(row or ()) for name, row in sums.items()}
    named(spark, kafka | {"subscribe": topic, "startingOffsets": "earliest"}, home, "first")
    named(spark, kafka | {"subscribe": topic, "startingOffsets": "earliest"}, home, "second", "first")
    found["named"] = list(spark.read.parquet(f"{home}/named").selectExpr("count(*)", "sum(number)").first() or ())
    start(spark).processAllAvailable()
    spark.stop()
    spark = session()
    again = start(spark)
    again.processAllAvailable()
    print(json.dumps({"pyspark": pyspark.__version__, **found, "again": again.isActive}))
    again.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
