"""Counts the batches and the failures of the queries of one driver, for the metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import StreamingQueryListener

from streamgroup.coordinator.planning.batch import offsets_behind
from streamgroup.monitoring.query_totals import QueryTotals, failure_of
from streamgroup.spark.dead_letters import COUNTS
from streamgroup.spark.queries import document

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

log = logging.getLogger("streamgroup")

Failure = tuple[str, str]
"""The name of a query, or its id without a name, and the name of an error."""

DELIVERY_MS = 5_000
"""Maximum milliseconds that the last export waits for Spark's events, which Spark delivers asynchronously."""


class QueryCounter(StreamingQueryListener):
    """Counts batches, rows and failures of the queries that read from streamgroup, for the metrics."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], QueryTotals] = {}
        """By the query's id and the group: one query may read for two groups."""
        self._ended: set[str] = set()
        """The ids of queries that have ended since the last reading."""
        self._names: dict[str, str] = {}
        """The names of queries that run, by their ids."""
        self._failures: Counter[Failure] = Counter()
        self._lock = threading.Lock()

    def totals(self) -> list[QueryTotals]:
        """Return the totals of each query that is running or has ended since the last call.

        So the last batches of a query are included once. After that the query is absent, so that no alert waits for its
        next batch.
        """
        with self._lock:
            for (query, _), totals in self._totals.items():
                totals.dead_letters = COUNTS.of(query)
            found = list(self._totals.values())
            self._totals = {key: totals for key, totals in self._totals.items() if key[0] not in self._ended}
            self._ended.clear()
            return found

    def failures(self) -> Mapping[Failure, int]:
        """Return how often each query has failed by each error."""
        with self._lock:
            return dict(self._failures)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        """Continue the totals of the same query."""
        with self._lock:
            self._ended.discard(str(event.id))
            self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Add a batch. A progress that cannot be read must not fail Spark's listener bus."""
        try:
            self.add(event.progress, time.time())
        except Exception:
            log.warning("cannot read the progress of a query: one batch is missing from its metrics", exc_info=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: no batch is completed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Record that the query has ended, and by which error."""
        query = str(event.id)
        error = None if event.exception is None else failure_of(event.exception, event.errorClassOnException)
        with self._lock:
            self._ended.add(query)
            name = self._names.pop(query, query)
            if error is not None:
                self._failures[name, error] += 1

    def add(self, progress: StreamingQueryProgress, now: float) -> None:
        """Add the batch of `progress` to the totals of each group that it reads for."""
        groups: dict[str, tuple[int, list[int]]] = {}
        for source in progress.sources:
            end = document(source.endOffset)
            if end is not None:
                rows, behind = groups.get(end["group"] or "", (0, []))
                behind = behind + offsets_behind(end, source.latestOffset)
                groups[end["group"] or ""] = rows + source.numInputRows, behind
        query = str(progress.id)
        with self._lock:
            for group, (rows, behind) in groups.items():
                totals = self._totals.setdefault((query, group), QueryTotals(progress.name or query, group))
                totals.add(rows, progress.durationMs, behind, now)


def await_events(context: SparkContext) -> None:
    """Wait until Spark's listeners have got all events so far, unless the application has ended."""
    if context._jsc is not None:
        with suppress(Py4JError):  # not within DELIVERY_MS, or Spark ends
            context._jsc.sc().listenerBus().waitUntilEmpty(DELIVERY_MS)


def stop_counting(spark: SparkSession, context: SparkContext, counter: QueryCounter) -> None:
    """Remove the counter from the application's listeners, unless the application has ended."""
    if context._jsc is not None:
        spark.streams.removeListener(counter)
