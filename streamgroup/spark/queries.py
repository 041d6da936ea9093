"""Finds the offset documents of the driver's queries, and the run ids of their coordinators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from streamgroup.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql.streaming.query import StreamingQuery

Value = Mapping[str, Any]
"""An offset document as a JSON value."""
_QUERY_ID = "sql.streaming.queryId"
"""The local property of a query's thread with the query's id."""


def driver_context(what: str) -> SparkContext:
    """Return the SparkContext of this process's driver. Raises ConfigError, which names `what`, if there is none."""
    from pyspark import SparkContext  # noqa: PLC0415  (absent under Spark Connect)

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise ConfigError(
            f"cannot call {what} in this process: it needs the driver's own process, and through Spark Connect the "
            "driver runs on the server. Call it in the driver"
        )
    return context


def jvm_pid(context: SparkContext) -> int:
    """Return the pid of the driver's JVM, the parent process of the coordinators."""
    jvm: Any = context._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def executor_cores(context: SparkContext) -> int:
    """Return the number of cores of the application's executors, at least 1.

    While executors register, these are the cores that the configuration asks for, if it does.
    """
    try:
        jvm: Any = context._jsc.sc()
        # The web UI shows the same list. In local mode the list has only the driver.
        executors = jvm.statusStore().executorList(True)
        registered: int = sum(executors.apply(n).totalCores() for n in range(executors.size()))
    except (Py4JError, AttributeError, TypeError):  # this version of Spark does not show them
        registered = context.defaultParallelism
    conf = context.getConf()
    configured = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    return max(1, registered, configured)


# --- documents -------------------------------------------------------------------------------------------------------


def document(offset: Any) -> Value | None:
    """Return the offset of a source, given as text or value, if it is a document of streamgroup with a lineage."""
    value = _streamgroup_value(offset)
    return value if value is not None and value.get("lineage") else None


def is_initial(offset: Any) -> bool:
    """Return whether an offset is the constant initial offset (R2) of a streamgroup source without a planned batch."""
    value = _streamgroup_value(offset)
    return value is not None and not value.get("lineage")


def _streamgroup_value(offset: Any) -> Value | None:
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except (ValueError, RecursionError):
        return None
    # In an offset of Spark's own connector, "streamgroup" may be a topic, whose value is not a number.
    return value if isinstance(value, Mapping) and isinstance(value.get("streamgroup"), int) else None


def documents_in(sources: Iterable[Any], *names: str) -> Iterator[Value]:
    """Yield the documents among the offsets `names` (`endOffset`, `startOffset`) of the sources of a progress."""
    for source in sources:
        for name in names:
            found = document(source[name] if isinstance(source, Mapping) else getattr(source, name))
            if found is not None:
                yield found


def planned_offsets(execution: Any) -> list[str] | None:
    """Return the end offsets of the last planned batch of a query (Spark's StreamExecution), in flight or not.

    They exist as soon as Spark has planned the batch or found it in the checkpoint; its progress follows only when the
    batch is completed. They are not part of Spark's public API: returns None if this version stores them elsewhere.
    """
    try:
        text = str(execution.availableOffsets().values().mkString("\n"))
    except (Py4JError, AttributeError, TypeError):
        return None
    return text.splitlines()


def running_query(context: SparkContext, query_id: str) -> Any:
    """Return Spark's StreamExecution of a running query; None if it has ended, or if this Spark does not show it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session: Any = SparkSession._instantiatedSession
    jvm: Any = context._jvm
    try:
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        return running.get(jvm.java.util.UUID.fromString(query_id))
    except (Py4JError, AttributeError, TypeError):
        return None


def query_name(context: SparkContext, query_id: str) -> str | None:
    """Return the name of a query that runs; None without one, or if this version of Spark does not show it."""
    execution = running_query(context, query_id)
    with suppress(Py4JError, AttributeError, TypeError):
        name = None if execution is None else execution.name()
        return None if name is None else str(name)
    return None


def output_mode(context: SparkContext, query_id: str) -> str | None:
    """Return the output mode of a query that runs, such as `Append`; None if this version of Spark does not show it."""
    execution = running_query(context, query_id)
    with suppress(Py4JError, AttributeError, TypeError):
        return None if execution is None else str(execution.outputMode())
    return None


def query_id_of_thread(context: SparkContext) -> str | None:
    """Return the id of the query whose batch this thread writes in a `foreachBatch` function, or None."""
    found = context.getLocalProperty(_QUERY_ID)
    return str(found) if found else None


def documents_in_flight(context: SparkContext, query_id: str) -> list[Value] | None:
    """Return the end documents of a query's batch in flight, or None if this version of Spark does not show them.

    The document of a source that has not planned a batch yet is the constant of R2, without a lineage. A source that
    reads nothing in this batch has the document of the batch before.
    """
    execution = running_query(context, query_id)
    offsets = None if execution is None else planned_offsets(execution)
    return None if offsets is None else [value for offset in offsets if (value := _streamgroup_value(offset))]


def documents_of_earlier_batches(context: SparkContext, query_id: str) -> list[Value]:
    """Return the end documents of the last completed batch of a query; none if this version of Spark hides them."""
    execution = running_query(context, query_id)
    with suppress(Py4JError, AttributeError, TypeError):
        text = "" if execution is None else str(execution.committedOffsets().values().mkString("\n"))
        return [value for offset in text.splitlines() if (value := _streamgroup_value(offset))]
    return []


def offsets_of(query: StreamingQuery) -> list[str] | None:
    """Return the `planned_offsets` of a query."""
    with suppress(Py4JError, AttributeError, TypeError):
        return planned_offsets(query._jsq.streamingQuery())
    return None


def documents_of(query: StreamingQuery) -> list[Value]:
    """Return the known documents of a query, the newest first."""
    newest = [found for offset in offsets_of(query) or () if (found := document(offset)) is not None]
    return newest + [
        found
        for progress in reversed(query.recentProgress)
        for found in documents_in(progress["sources"], "endOffset", "startOffset")
    ]


# --- runs ------------------------------------------------------------------------------------------------------------


def runs_with(lineages: Iterable[str], statuses: Mapping[str, Mapping[str, Any]], query_id: str = "") -> list[str]:
    """Return the run ids of a query: those that its listener has reported, and those with its documents' lineages.

    A lineage is the id that all copies of one checkpoint share. After a restart, and until it plans a batch, a query
    has documents with the previous run id, so the run id alone would not identify it. A run that a listener has
    reported for another query, with a copied checkpoint, is not included.
    """
    wanted = set(lineages)
    named = {run: str(status.get("query", {}).get("id", "")) for run, status in statuses.items()}
    return [
        run
        for run, status in statuses.items()
        if (named[run] == query_id if named[run] and query_id else status["lineage"] in wanted)
    ]
