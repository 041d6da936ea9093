"""An application for an environment that has the package and PySpark, and nothing of the tests.

    python clean_environment_application.py BOOTSTRAP_SERVERS TOPIC GROUP HOME

It writes 100 records, reads them in a batch, and reads them with a stream of a group. It prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys

import pyspark
from pyspark.sql import DataFrame, SparkSession


def sums(rows: DataFrame) -> list[int]:
    return list(rows.selectExpr("count(*)", "sum(number)").collect()[0])


def main(servers: str, topic: str, group: str, home: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    kafka = {"kafka.bootstrap.servers": servers}
    rows = spark.range(100).selectExpr("cast(cast(id as string) as binary) as value")
    rows.write.format("streamgroup").options(**kafka, topic=topic).mode("append").save()
    values = "cast(cast(value as string) as bigint) as number"
    batch = spark.read.format("streamgroup").options(**kafka, subscribe=topic).load().selectExpr(values)
    stream = spark.readStream.format("streamgroup").options(
        **kafka, subscribe=topic, startingOffsets="earliest", **{"kafka.group.id": group}
    )
    query = (
        stream.load()
        .selectExpr(values)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{home}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{home}/rows")
    )
    query.awaitTermination()
    sunk = spark.read.parquet(f"{home}/rows")
    sums = {
        name: frame.selectExpr("count(*)", "sum(number)").first()
        for name, frame in (("batch", batch), ("stream", sunk))
    }
    print(json.dumps({"pyspark": pyspark.__version__, **{name: list(row or ()) for name, row in sums.items()}}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
