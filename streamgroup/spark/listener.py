"""`streamgroup.listen(spark)`: commits a batch when it is completed, not when Spark requests the next one (R15)."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from streamgroup.coordinator.control import channel as control
from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.coordinator.planning.batch import offset_metrics, offsets_behind
from streamgroup.logline import render, snake_case
from streamgroup.monitoring.query_totals import QueryFailure, failure_of, is_ours, message_of
from streamgroup.spark.channel import CoordinatorChannel, LocalCoordinatorChannel, is_remote
from streamgroup.spark.queries import Value, document, documents_in, driver_context, executor_cores, jvm_pid
from streamgroup.text import counted

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

_STATEFUL = (
    "query %s keeps state (%s), but its source is a member of group %s: partitions move to other members without their "
    "state. Set option('group.mode', 'commit') for a stateful query: it then reads all partitions and only commits"
)


class GroupListener(StreamingQueryListener):
    """Reports completed batches to the coordinators of this driver. It never blocks or fails Spark's listener bus."""

    def __init__(self, channel: CoordinatorChannel, cores: Callable[[], int]) -> None:
        self._channel = channel
        self._cores = cores
        """Returns the number of cores of the application's executors."""
        self._stateful: set[str] = set()
        self._names: dict[str, str] = {}
        """The names of queries that run, by their ids."""
        self._groups: dict[str, tuple[str, ...]] = {}
        """The groups of the batches of queries that run, by the queries' ids."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        """Renew the listener's marker file: the number of cores changes, and a cleaner may have deleted the file.

        Spark waits for this method before it creates the coordinator process of the query.
        """
        query = str(getattr(event, "id", ""))
        self._names[query] = getattr(event, "name", None) or query
        with suppress(OSError):
            self._channel.announce_listener(self._cores())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report a batch that Spark has written to its commit log to the coordinators, in a separate thread."""
        try:
            progress = event.progress
            documents = list(documents_in(progress.sources, "endOffset"))
            if documents:
                self._on_progress(progress, documents)
        except Exception:
            log.warning(
                "cannot read the progress of a query: the coordinator process commits the batch only at the next "
                "trigger",
                exc_info=True,
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: no batch is completed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Store the query's error for the live page, and forget the query. Its coordinator leaves the group itself."""
        query = str(getattr(event, "id", ""))
        self._stateful.discard(query)  # so that the log warns again if it restarts with state
        name, groups = self._names.pop(query, query), self._groups.pop(query, None)
        text = getattr(event, "exception", None)
        # The listener gets the events of all queries, also of those that read from other sources.
        if text is None or (groups is None and not is_ours(text)):
            return
        error = failure_of(text, event.errorClassOnException)
        if error is None:
            return
        try:
            self._channel.record_failure(QueryFailure(time.time(), name, groups or (), error, message_of(text)))
        except Exception as failed:  # nothing may fail Spark's bus
            log.warning("cannot store the error of query %s for the live page: %s", name, failed)

    def _on_progress(self, progress: StreamingQueryProgress, documents: list[Value]) -> None:
        query = {"id": str(progress.id), "name": progress.name or "", **_figures(progress)}
        self._names[query["id"]] = progress.name or query["id"]
        known = self._groups.get(query["id"], ())
        self._groups[query["id"]] = tuple(sorted({*known, *(str(one["group"]) for one in documents if one["group"])}))
        operators = sorted({operator.operatorName for operator in progress.stateOperators})
        arguments = (documents, progress.batchId, query, operators)
        threading.Thread(target=self._notify, args=arguments, name="streamgroup-sunk", daemon=True).start()
        for line in lines_of(progress):
            log.info("%s", line)

    def _notify(self, documents: list[Value], batch: int, query: dict[str, Any], operators: list[str]) -> None:
        self._channel.notify(documents, batch, query)
        if not operators or query["id"] in self._stateful:
            return
        shared = self._channel.groups_joined(documents)
        if shared:
            self._stateful.add(query["id"])
            log.warning(_STATEFUL, query["name"] or query["id"], ", ".join(operators), ", ".join(shared))


def _figures(progress: StreamingQueryProgress) -> dict[str, Any]:
    """Return the metrics of a batch as `batch`, which becomes part of its coordinators' status (docs/log-events.md).

    Returns an empty dict if this version of Spark lacks one: the commit must not depend on metrics.
    """
    try:
        figures = {
            "batch": progress.batchId,
            "began": progress.timestamp,
            "rows": sum(source.numInputRows for source in progress.sources),
            "durations_ms": dict(progress.durationMs),
        }
    except (AttributeError, TypeError):
        log.debug("cannot read the metrics of a batch from StreamingQueryProgress", exc_info=True)
        return {}
    return {"batch": figures}


def _durations(progress: StreamingQueryProgress) -> dict[str, int]:
    """Return the milliseconds of the phases of a batch, by Spark's names; empty if this Spark reports none."""
    return dict(getattr(progress, "durationMs", None) or {})


def lines_of(progress: StreamingQueryProgress) -> Iterator[str]:
    """Yield the log line of a completed batch for each of its streamgroup sources.

    The keys are in docs/log-events.md.
    """
    who = progress.name or str(progress.id)
    for source in progress.sources:
        end = document(source.endOffset)
        if end is None:
            continue
        behind = offsets_behind(end, source.latestOffset)
        words = f"query {who}: batch {progress.batchId} is complete, {counted(source.numInputRows, 'row')}"
        if behind:
            words += f", at most {counted(max(behind), 'offset')} behind"
        yield render(
            words,
            "progress",
            query=who,
            group=end["group"] or None,
            batch=progress.batchId,
            rows=source.numInputRows,
            **{snake_case(name): value for name, value in offset_metrics(behind).items()},
            **{f"{snake_case(phase)}_ms": milliseconds for phase, milliseconds in _durations(progress).items()},
        )


_listening: weakref.WeakKeyDictionary[SparkContext, list[tuple[Any, GroupListener]]] = weakref.WeakKeyDictionary()
"""The listeners by application and session. Every session has its own bus until the application ends."""
_listening_remotely: dict[str, GroupListener] = {}
"""The listeners by the id of a session of Spark Connect."""
_lock = threading.Lock()


def listen(spark: SparkSession) -> GroupListener:
    """Commit every batch of this session's queries as soon as it is written. Return the session's only listener.

    Without a listener, a coordinator learns that a batch is written only when Spark requests the next one. With a
    trigger of minutes that is minutes later, and after Trigger.Once it never happens. Call `listen` once, before or
    after the queries start.

    Through Spark Connect the listener runs in the client and reports each batch by a small job, so it helps only with
    long triggers. The server needs streamgroup, too. Raises TransportError if the server does not have it.
    """
    log_warnings_to_stderr()
    if is_remote(spark):
        return _listen_remotely(spark)
    context = driver_context("listen")
    pid = jvm_pid(context)
    bus: Any = spark._jsparkSession.streams()
    with _lock:
        sessions = _listening.setdefault(context, [])
        for listened, listener in sessions:
            if listened.equals(bus):
                return listener
        cores = partial(executor_cores, context)
        listener = GroupListener(LocalCoordinatorChannel(pid), cores)
        spark.streams.addListener(listener)
        sessions.append((bus, listener))
    _announce(pid, cores())
    return listener


def _listen_remotely(spark: Any) -> GroupListener:
    from streamgroup.spark.connect import ConnectChannel  # noqa: PLC0415  (only for clients of Spark Connect)

    with _lock:
        listener = _listening_remotely.get(spark.session_id)
        if listener is None:
            listener = GroupListener(ConnectChannel(spark), lambda: 1)
            spark.streams.addListener(listener)
            _listening_remotely[spark.session_id] = listener
        return listener


def _announce(pid: int, cores: int) -> None:
    """Write the listener's marker file. With it, a coordinator that stops waits for a last report."""
    try:
        control.announce_listener(pid, cores)
    except OSError as error:
        log.warning(
            "cannot announce the StreamingQueryListener to the coordinator processes: %s. A coordinator that ends "
            "before Spark's next trigger may not commit the last batch, and the next start then repeats that batch. "
            "Make the directory of the control sockets writable",
            error,
        )
        return
    atexit.register(control.unannounce_listener, pid)
