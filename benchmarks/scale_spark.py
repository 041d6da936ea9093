"""Micro-batches of a stream that reads many partitions, beside Spark's own connector.

    python -m benchmarks.scale_spark [--partitions N] [--rounds N]

A topic has one record in each partition when the query starts. Then, round by round, each partition gets another one.
A round ends when all its records have sunk. The first batch of Spark's source has a task for each partition. That
of streamgroup has at most 512 tasks.
"""

from __future__ import annotations

import os
import tempfile
import time

import click
from pyspark.sql import SparkSession

from benchmarks.batch_read import session
from benchmarks.scale_broker import TIMEOUT_S, create_topic, holds_in_time, produce_to_each
from streamgroup.testing import KafkaServer

SOURCES = ("streamgroup", "kafka")


def measure(spark: SparkSession, source: str, server: KafkaServer, partitions: int, rounds: int) -> list[float]:
    """Return the seconds of each round, the first one from the start of the query, up to one that takes too long."""
    topic = f"many-{source}"
    create_topic(server, topic, partitions)
    produce_to_each(server, topic, partitions)
    options = {"subscribe": topic, "kafka.bootstrap.servers": server.bootstrap_servers, "startingOffsets": "earliest"}
    if source == "streamgroup":
        options["kafka.group.id"] = "scale"
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        sink = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
        began = time.monotonic()
        query = sink.option("checkpointLocation", home).start()

        def sunk() -> int:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            return sum(progress.numInputRows for progress in query.recentProgress)

        try:
            for done in range(1, rounds + 1):
                if not holds_in_time(lambda done=done: sunk() >= done * partitions):
                    break
                seconds.append(time.monotonic() - began)
                if done < rounds:
                    produce_to_each(server, topic, partitions)
                    began = time.monotonic()
        finally:
            query.stop()
    return seconds


@click.command(help=__doc__)
@click.option("--partitions", default=2_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(partitions: int, rounds: int) -> None:
    with KafkaServer(jvm_flags=("-Xmx1g",), start_timeout_s=120) as server:
        spark = session()
        heads = " | ".join(["first", *(f"round {number}" for number in range(2, rounds + 1))])
        click.echo(f"| {partitions} partitions | {heads} | load |\n|---{'|---' * (rounds + 1)}|")
        for source in SOURCES:
            cells = [f"{each:.1f} s" for each in measure(spark, source, server, partitions, rounds)]
            cells += [f"over {TIMEOUT_S:.0f} s"] * (rounds > len(cells))
            cells += [""] * (rounds - len(cells))
            click.echo(f"| {source} | {' | '.join(cells)} | {os.getloadavg()[0]:.1f} |")
        spark.stop()


if __name__ == "__main__":
    main()
