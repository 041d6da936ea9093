"""`streamgroup.progress(spark)`: the recent batches of a session's queries as a table of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamgroup.planning.batch import offset_metrics
from streamgroup.spark.completed_progress import behind_of, of_progress
from streamgroup.spark.queries import document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

COLUMNS = StructType(
    [
        StructField("started_at", TimestampType(), nullable=False),
        StructField("query", StringType(), nullable=False),
        StructField("query_id", StringType(), nullable=False),
        StructField("run_id", StringType(), nullable=False),
        StructField("batch", LongType(), nullable=False),
        StructField("group", StringType()),
        StructField("source", StringType(), nullable=False),
        StructField("rows", LongType(), nullable=False),
        StructField("input_rows_per_second", DoubleType()),
        StructField("processed_rows_per_second", DoubleType()),
        StructField("max_offsets_behind", LongType()),
        StructField("min_offsets_behind", LongType()),
        StructField("avg_offsets_behind", DoubleType()),
        StructField("positions", MapType(StringType(), LongType()), nullable=False),
        StructField("duration_ms", MapType(StringType(), LongType()), nullable=False),
    ]
)
"""The columns of the table; docs/monitor.md says what each holds."""


def progress_table(spark: SparkSession) -> DataFrame:
    """Return a row for each recent batch and streamgroup source of the queries that run in this session."""
    found = [row for query in spark.streams.active for one in query.recentProgress for row in rows(of_progress(one))]
    return spark.createDataFrame(found, COLUMNS)


def rows(batch: StreamingQueryProgress) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each streamgroup source of a completed progress."""
    for source in batch.sources:
        end = document(source.endOffset)
        if end is not None:
            yield _row(batch, source, end)


def _row(batch: StreamingQueryProgress, source: SourceProgress, end: Any) -> tuple[Any, ...]:
    metrics = offset_metrics(behind_of(source))
    behind = {name: float(text) for name, text in metrics.items()}
    positions = {
        f"{topic}-{number}": held[0]
        for topic, partitions in end["positions"].items()
        for number, held in partitions.items()
    }
    return (
        datetime.fromisoformat(batch.timestamp),
        batch.name or str(batch.id),
        str(batch.id),
        str(batch.runId),
        batch.batchId,
        end["group"] or None,
        source.description,
        source.numInputRows,
        source.inputRowsPerSecond,
        source.processedRowsPerSecond,
        _whole(behind.get("maxOffsetsBehindLatest")),
        _whole(behind.get("minOffsetsBehindLatest")),
        behind.get("avgOffsetsBehindLatest"),
        positions,
        dict(batch.durationMs),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
