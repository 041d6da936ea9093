"""`streamgroup.progress(...)`: what Spark's Kafka source shows in the progress of a query, of this source."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from pyspark.sql.streaming.listener import StreamingQueryProgress

from streamgroup.spark.completed_progress import of_progress, of_query
from streamgroup.spark.progress_table import progress_table

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
    """Return the last progress of a query, or a progress that a listener was given, with what Spark leaves out.

    In each streamgroup source `metrics` has minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest,
    and `description` says what is read: `streamgroup[Subscribe[orders], group=orders-ingest, mode=member]`. All other
    fields are Spark's. Returns None for a query without a progress.

    Of a session: a table with a row for each recent batch and streamgroup source of the queries that run in it
    (docs/monitor.md has the columns). Spark keeps `spark.sql.streaming.numRecentProgressUpdates` batches of a query.

    Through Spark Connect, and for a progress whose query has ended, `description` stays the one of Spark.
    """
    if isinstance(of, StreamingQueryProgress):
        return of_progress(of)
    return progress_table(of) if _is_session(of) else of_query(of)


def _is_session(of: StreamingQuery | SparkSession) -> TypeIs[SparkSession]:
    """Return whether it is a session, of this process or of Spark Connect."""
    return hasattr(of, "readStream")
