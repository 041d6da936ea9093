"""Two sinks of one DataFrame with a group id, by `python -m tests.spark.two_sinks`: prints the rows of each as JSON.

The environment of the process is that of the driver. The arguments are the bootstrap servers, a topic, the group and a
directory for the checkpoints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(servers: str, topic: str, group: str, home: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("streamgroup").options(**options).option("kafka.group.id", group).load()
    queries = {}
    for name in ("one", "other"):
        writer = frame.writeStream.format("memory").queryName(name)
        writer = writer.option("checkpointLocation", str(Path(home) / name))
        queries[name] = writer.trigger(availableNow=True).start()
    for query in queries.values():
        query.awaitTermination(100)
    print(json.dumps({name: spark.table(name).count() for name in queries}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
