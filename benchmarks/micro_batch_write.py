"""The smallest micro-batch into Kafka, phase by phase, beside Spark's own sink and a sink in Python that does nothing.

    python -m benchmarks.micro_batch_write [--rounds 5] [--batches 40] [--json]

A streaming query writes one row in each batch, with no pause between batches. Spark's progress tells how long each
phase of a batch took. The three sinks take turns. The first round is a warm-up and does not count, nor do the first
batches of each query. The sink that does nothing shows what PySpark itself takes for a batch.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from benchmarks.batch_read import session
from benchmarks.topics import create_topic
from streamgroup.testing import KafkaServer

PHASES = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
SINKS = ("streamgroup", "kafka", "nothing")
WARM_UP = 5
"""The batches of each query that do not count."""
TIMEOUT_S = 300


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


def measure(begin: Callable[[Path], StreamingQuery], batches: int) -> dict[str, float]:
    """Return the median milliseconds of each phase over `batches` batches. `begin` takes the checkpoint's path."""
    with tempfile.TemporaryDirectory() as home:
        query = begin(Path(home))
        try:
            progress = _progress(query, WARM_UP + batches)
        finally:
            query.stop()
    return {phase: statistics.median(each.durationMs.get(phase, 0) for each in progress) for phase in PHASES}


def _progress(query: StreamingQuery, count: int) -> list[StreamingQueryProgress]:
    """Wait for the progress of `count` batches with a row. Return all but the first ones."""
    for _ in range(TIMEOUT_S):
        written = [each for each in query.recentProgress if each.numInputRows]
        if len(written) >= count:
            return written[WARM_UP:count]
        if query.awaitTermination(1):  # raises the query's error
            break
    raise click.ClickException(f"the query has not written {count} batches")


def show(results: dict[str, list[dict[str, float]]]) -> None:
    """Print the median of each phase, and the median ratio of each format in Python to Spark's own, round by round."""
    table = Table(title="milliseconds of a micro-batch with one row, local[2]")
    others = [each for each in results if each != "kafka"]
    for column in ("phase", *results, *(f"{each} / kafka" for each in others)):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in PHASES:
        times = {each: [run[phase] for run in results[each]] for each in results}
        medians = (f"{statistics.median(times[each]):.1f}" for each in results)
        ratios = (_ratio(times[each], times["kafka"]) for each in others)
        table.add_row(phase, *medians, *ratios)
    Console().print(table)


def _ratio(ones: list[float], others: list[float]) -> str:
    ratios = [one / other for one, other in zip(ones, others, strict=True) if other]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})" if ratios else "-"


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds that count.")
@click.option("--batches", default=40, show_default=True, help="Batches of each query that count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(rounds: int, batches: int, as_json: bool) -> None:
    """Compare the smallest micro-batch with Spark's own sink."""
    results: dict[str, list[dict[str, float]]] = {sink: [] for sink in SINKS}
    with KafkaServer("4.1.1", jvm_flags=("-Xmx1g", "-Xms1g")) as server:
        spark = session()
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        spark.dataSource.register(sink_that_does_nothing())
        for sink in SINKS:
            create_topic(server, f"micro-batch-{sink}")
        for number in range(rounds + 1):
            for sink in SINKS if number % 2 else SINKS[::-1]:
                measured = measure(partial(start, spark, sink, server), batches)
                if number:
                    results[sink].append(measured)
        spark.stop()
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
