"""One member as a Spark application of its own: a program that the tests start, watch and kill.

    python job_process.py SERVERS TOPIC GROUP HOME NAME BATCH

Its driver, its JVM and its coordinator are processes of one process group, as under spark-submit.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import streamgroup


def main() -> None:
    servers, topic, group, home, name, batch = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        spark.readStream.format("streamgroup")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", group)
        .option("kafka.client.id", name)
        .option("kafka.session.timeout.ms", 6000)
        .option("kafka.heartbeat.interval.ms", 500)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(Path(home) / f"{name}-checkpoint"))
        .start(str(Path(home) / f"{name}-out"))
    )

    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: asked.append(number))
    print("started", flush=True)
    while not query.awaitTermination(0.2):
        if asked:
            result = streamgroup.drain(query, 30)
            print(f"drained: {result.drained}", flush=True)


if __name__ == "__main__":
    main()
