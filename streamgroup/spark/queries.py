"""What the driver knows of its queries: their offset documents, and by them the runs of their coordinators."""

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


def driver_context(what: str) -> SparkContext:
    """The context of this process's driver. Raises ConfigError where there is none: `what` needs it."""
    from pyspark import SparkContext  # noqa: PLC0415  (absent under Spark Connect)

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise ConfigError(
            f"{what} needs the driver's own process: it does not work through Spark Connect, where the coordinators "
            "are on the server"
        )
    return context


def jvm_pid(context: SparkContext) -> int:
    """The pid of the driver's JVM, which is the parent of its queries' coordinators."""
    jvm: Any = context._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


# --- documents -------------------------------------------------------------------------------------------------------


def document(offset: Any) -> Value | None:
    """An offset of a source, text or value, where it is a document of ours; None where it is another source's."""
    value = _ours(offset)
    return value if value is not None and value.get("lineage") else None


def is_initial(offset: Any) -> bool:
    """Whether an offset is R2's constant: the source is ours and has planned nothing."""
    value = _ours(offset)
    return value is not None and not value.get("lineage")


def _ours(offset: Any) -> Value | None:
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    # A topic of Spark's own connector may be called "streamgroup": its value is no number.
    return value if isinstance(value, Mapping) and isinstance(value.get("streamgroup"), int) else None


def documents_in(sources: Iterable[Any], *names: str) -> Iterator[Value]:
    """The documents among the offsets `names` (`endOffset`, `startOffset`) of a progress's sources."""
    for source in sources:
        for name in names:
            found = document(source[name] if isinstance(source, Mapping) else getattr(source, name))
            if found is not None:
                yield found


def planned_offsets(execution: Any) -> list[str] | None:
    """The offsets up to which a query (Spark's StreamExecution) has planned, the batch in flight included.

    They stand there from the moment that a batch is planned, or found in the checkpoint; its progress comes when it has
    sunk. None where this Spark keeps them elsewhere: nothing but experience says that they are there.
    """
    try:
        text = str(execution.availableOffsets().values().mkString("\n"))
    except (Py4JError, AttributeError, TypeError):
        return None
    return text.splitlines()


def offsets_of(query: StreamingQuery) -> list[str] | None:
    """`planned_offsets` of a query."""
    with suppress(Py4JError, AttributeError, TypeError):
        return planned_offsets(query._jsq.streamingQuery())
    return None


def documents_of(query: StreamingQuery) -> list[Value]:
    """All that is known of a query's documents, the newest first."""
    newest = [found for offset in offsets_of(query) or () if (found := document(offset)) is not None]
    return newest + [
        found
        for progress in reversed(query.recentProgress)
        for found in documents_in(progress["sources"], "endOffset", "startOffset")
    ]


# --- runs ------------------------------------------------------------------------------------------------------------


def runs_with(lineages: Iterable[str], told: Mapping[str, Mapping[str, Any]], query_id: str = "") -> list[str]:
    """The runs of a query: those that its listener has named, and those of its documents' lineages.

    The lineage tells more than the run: a query that has planned nothing since it was started again has documents of
    the run before. A run that was named as another query's, of a copied checkpoint, is not this one's.
    """
    wanted = set(lineages)
    named = {run: str(status.get("query", {}).get("id", "")) for run, status in told.items()}
    return [
        run
        for run, status in told.items()
        if (named[run] == query_id if named[run] and query_id else status["lineage"] in wanted)
    ]
