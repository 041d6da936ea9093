"""`streamgroup.progress(...)`: a query's progress with the metrics and descriptions that Spark's Kafka source has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress
from pyspark.sql.types import (
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamgroup.coordinator.planning.batch import offset_metrics, offsets_behind
from streamgroup.errors import ConfigError
from streamgroup.options.parse import parse_source
from streamgroup.spark.queries import document, driver_context, is_initial, running_query
from streamgroup.spark.tables import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from typing_extensions import TypeIs


@overload
def progress(of: StreamingQueryProgress) -> StreamingQueryProgress: ...
@overload
def progress(of: StreamingQuery) -> StreamingQueryProgress | None: ...
@overload
def progress(of: SparkSession) -> DataFrame: ...
def progress(
    of: StreamingQuery | StreamingQueryProgress | SparkSession,
) -> StreamingQueryProgress | DataFrame | None:
    """Return the last progress of a query, or a progress from a listener, with the metrics that Spark leaves out.

    In each streamgroup source `metrics` has minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest,
    and `description` names topics, group and mode: `streamgroup[Subscribe[orders], group=orders-ingest, mode=member]`.
    All other fields are Spark's. Returns None for a query without a progress.

    For a session, return a table with a row for each recent batch and streamgroup source of the queries that run in it
    (docs/monitor.md has the columns). Spark keeps `spark.sql.streaming.numRecentProgressUpdates` batches of a query.

    Through Spark Connect, and for a progress whose query has ended, `description` is Spark's.
    """
    if isinstance(of, StreamingQueryProgress):
        return of_progress(of)
    return progress_table(of) if _is_session(of) else of_query(of)


def _is_session(of: StreamingQuery | SparkSession) -> TypeIs[SparkSession]:
    return hasattr(of, "readStream")


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


def of_query(query: StreamingQuery) -> StreamingQueryProgress | None:
    """Return the completed last progress of a query; None if it has none."""
    found = query.lastProgress
    return None if found is None else completed(found, _options_of(_execution(query)))


def of_progress(found: StreamingQueryProgress) -> StreamingQueryProgress:
    """Return a progress completed, with descriptions if its query runs in this driver."""
    return completed(found, _options_of(_running(found.id)))


def completed(found: StreamingQueryProgress, options: Mapping[str, Mapping[str, str]]) -> StreamingQueryProgress:
    """Return a copy of a progress with metrics and descriptions.

    `options` has those of each source, by the description that Spark gives the source.
    """
    values = json.loads(found.json)
    sources = []
    for source, value in zip(found.sources, values["sources"], strict=True):
        sources.append(_completed_source(source, value, options.get(source.description)))
    return StreamingQueryProgress(**{**found, "sources": sources}, jdict=values)


def _completed_source(
    source: SourceProgress, value: dict[str, Any], options: Mapping[str, str] | None
) -> SourceProgress:
    """Complete one source, and the JSON `value` of it in place."""
    if document(source.endOffset) is None and not is_initial(source.endOffset):
        return source  # of another format
    added: dict[str, Any] = {"metrics": {**source.metrics, **offset_metrics(behind_of(source))}}
    if options is not None:
        added["description"] = describe(options, source.endOffset)
    value.update(added)
    return SourceProgress(**{**source, **added}, jdict=value)


def behind_of(source: SourceProgress) -> list[int]:
    """Return the offsets from the end of the batch to the end of each log, of a source."""
    return offsets_behind(source.endOffset, source.latestOffset)


def describe(options: Mapping[str, str], end: Any = None) -> str:
    """Return the description of a stream with these options. `end` is an offset document of its query, if known.

    The document has the actual group. It has none in mode `off`, which may be the default of the application.
    """
    known = document(end)
    if known is not None and not known["group"]:
        options = {
            **{name: text for name, text in options.items() if name.lower() != "group.mode"},
            "group.mode": "off",
        }
    return parse_source(options, streaming=True).description


def _running(query_id: UUID) -> Any:
    """Return Spark's execution of a running query; None if it has ended, or through Spark Connect."""
    try:
        return running_query(driver_context("progress"), str(query_id))
    except ConfigError:
        return None


def _execution(query: StreamingQuery) -> Any:
    """Return Spark's execution of a query; None through Spark Connect."""
    try:
        return query._jsq.streamingQuery()
    except (Py4JError, AttributeError, TypeError):
        return None


def _options_of(execution: Any) -> dict[str, dict[str, str]]:
    """Return the options of a query's sources by the description that Spark gives each of them.

    They are in the query's plan, which is not part of Spark's public API. With a Spark that keeps them elsewhere the
    result is empty.
    """
    found: dict[str, dict[str, str]] = {}
    if execution is None:
        return found
    with suppress(Py4JError, AttributeError, TypeError):
        leaves = execution.logicalPlan().collectLeaves()
        for leaf in (leaves.apply(index) for index in range(leaves.size())):
            with suppress(Py4JError, ConfigError):  # a leaf that is not a streaming source, or one without options
                given = dict(leaf.relation().options().asCaseSensitiveMap())
                schema = StructType.fromJson(json.loads(leaf.schema().json()))
                found[str(leaf.stream().toString())] = read_options(schema, given)
    return found
