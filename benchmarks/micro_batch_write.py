"""The smallest micro-batch into Kafka, phase by phase, compared with Spark's own sink: alternating pairs.

    python -m benchmarks.micro_batch_write [--pairs 5] [--batches 40] [--json]

A streaming query writes one row in each batch, with no pause between batches. Spark's progress tells how long each
phase of a batch took. The first pair is a warm-up and does not count, nor do the first batches of each query.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console
from rich.table import Table

from benchmarks.batch_read import session
from benchmarks.batch_write import create_topic
from benchmarks.pairs import SIDES
from streamgroup.testing import KafkaServer

PHASES = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
WARM_UP = 5
"""The batches of each query that do not count."""
TIMEOUT_S = 300


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


def measure(spark: SparkSession, sink: str, server: KafkaServer, batches: int) -> dict[str, float]:
    """Return the median milliseconds of each phase over `batches` batches."""
    with tempfile.TemporaryDirectory() as home:
        query = start(spark, sink, server, Path(home))
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
    """Print the median of each phase, and of the ratios of the pairs."""
    table = Table(title="milliseconds of a micro-batch with one row, local[2]")
    for column in ("phase", *SIDES, "ratio (median)", "min - max"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in PHASES:
        ours, sparks = ([run[phase] for run in results[side]] for side in SIDES)
        ratios = [o / s for o, s in zip(ours, sparks, strict=True) if s] or [float("nan")]
        table.add_row(
            phase,
            f"{statistics.median(ours):.1f}",
            f"{statistics.median(sparks):.1f}",
            f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f} - {max(ratios):.2f}",
        )
    Console().print(table)


@click.command()
@click.option("--pairs", default=5, show_default=True, help="Pairs that count.")
@click.option("--batches", default=40, show_default=True, help="Batches of each query that count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(pairs: int, batches: int, as_json: bool) -> None:
    """Compare the smallest micro-batch with Spark's own sink."""
    results: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with KafkaServer("4.1.1", jvm_flags=("-Xmx1g", "-Xms1g")) as server:
        spark = session()
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        for side in SIDES:
            create_topic(server, f"micro-batch-{side}")
        for pair in range(pairs + 1):
            for side in SIDES if pair % 2 else SIDES[::-1]:
                measured = measure(spark, side, server, batches)
                if pair:
                    results[side].append(measured)
        spark.stop()
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
