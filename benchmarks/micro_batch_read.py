"""The smallest micro-batch out of Kafka, phase by phase, beside Spark's own source.

    python -m benchmarks.micro_batch_read [--rounds 5] [--batches 40] [--json]

A streaming query reads one record in each batch, with no pause between batches, into a sink that drops it. Spark's
progress tells how long each phase of a batch took. The two sources take turns. The first round is a warm-up and does
not count, nor do the first batches of each query.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks import charts
from benchmarks.charts import chart_option, record_option, rounds_chart
from benchmarks.micro_batch import WARM_UP, micro_batch_session, report, take_turns
from benchmarks.pairs import SIDES
from benchmarks.topics import create_topic
from streamgroup.testing import KafkaServer

TOPIC = "micro-batch"
GROUP = {"streamgroup": "kafka.group.id", "kafka": "groupIdPrefix"}


def start(spark: SparkSession, source: str, server: KafkaServer, checkpoint: Path) -> StreamingQuery:
    """Start a query that reads one record in each batch. streamgroup reads and commits as a member of a group."""
    options = {
        "kafka.bootstrap.servers": server.bootstrap_servers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1",
        GROUP[source]: checkpoint.name,
    }
    rows = spark.readStream.format(source).options(**options).load()
    return rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def fill(spark: SparkSession, server: KafkaServer, records: int) -> None:
    """Write `records` records into one partition: a batch takes one of each partition that has some."""
    create_topic(server, TOPIC)
    rows = spark.range(records).selectExpr("cast(cast(id as string) as binary) as value", "0 as partition")
    writer = rows.write.format("streamgroup").mode("append").option("topic", TOPIC)
    writer.option("kafka.bootstrap.servers", server.bootstrap_servers).save()


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds that count.")
@click.option("--batches", default=40, show_default=True, help="Batches of each query that count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@chart_option
@record_option
def main(*, rounds: int, batches: int, as_json: bool, chart: Path | None, record: str | None) -> None:
    """Compare the smallest micro-batch with Spark's own source."""
    with KafkaServer(jvm_flags=("-Xmx1g", "-Xms1g")) as server, micro_batch_session() as spark:
        fill(spark, server, 4 * (WARM_UP + batches))
        results = take_turns({source: partial(start, spark, source, server) for source in SIDES}, rounds, batches)
    if chart is not None:
        chart.write_text(rounds_chart(results, "A micro-batch that reads one record", "Spark's source"))
    if record is not None:
        charts.record("micro_batch_read", [results], record)
    report(results, as_json)


if __name__ == "__main__":
    main()
