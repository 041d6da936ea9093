"""The smallest micro-batch into Kafka, phase by phase, beside Spark's own sink and a sink in Python that does nothing.

    python -m benchmarks.micro_batch_write [--rounds 5] [--batches 40] [--json]

A streaming query writes one row in each batch, with no pause between batches. Spark's progress tells how long each
phase of a batch took. The three sinks take turns. The first round is a warm-up and does not count, nor do the first
batches of each query. The sink that does nothing shows what PySpark itself takes for a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from benchmarks import charts
from benchmarks.charts import chart_option, record_option, rounds_chart
from benchmarks.micro_batch import micro_batch_session, report, take_turns
from benchmarks.pairs import SIDES
from benchmarks.topics import create_topic
from streamgroup.testing import KafkaServer

SINKS = (*SIDES, "nothing")


def sink_that_does_nothing() -> type[DataSource]:
    """Return the data source `nothing`. It is made in a function so that Spark's workers need not import this file."""
    from pyspark.sql.datasource import WriterCommitMessage  # noqa: PLC0415  (pickled with the class)

    class Writer(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
            return Writer()

    return Nothing


def start(spark: SparkSession, sink: str, server: KafkaServer, checkpoint: Path) -> StreamingQuery:
    """Start a query that writes one row in each batch."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return (
        rows.selectExpr("cast(cast(value as string) as binary) as value")
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", server.bootstrap_servers)
        .option("topic", f"micro-batch-{sink}")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds that count.")
@click.option("--batches", default=40, show_default=True, help="Batches of each query that count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@chart_option
@record_option
def main(*, rounds: int, batches: int, as_json: bool, chart: Path | None, record: str | None) -> None:
    """Compare the smallest micro-batch with Spark's own sink."""
    with KafkaServer(jvm_flags=("-Xmx1g", "-Xms1g")) as server, micro_batch_session() as spark:
        spark.dataSource.register(sink_that_does_nothing())
        for sink in SINKS:
            create_topic(server, f"micro-batch-{sink}")
        results = take_turns({sink: partial(start, spark, sink, server) for sink in SINKS}, rounds, batches)
    if chart is not None:
        chart.write_text(rounds_chart(results, "A micro-batch that writes one row", "Spark's sink"))
    if record is not None:
        charts.record("micro_batch_write", [results], record)
    report(results, as_json)


if __name__ == "__main__":
    main()
