"""`streamgroup.ranges()`: what the batch covers that a foreachBatch function is writing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from streamgroup.driver.application import control
from streamgroup.errors import ConfigError
from streamgroup.model import OffsetRange, TopicPartition
from streamgroup.spark.queries import (
    Value,
    document,
    driver_context,
    jvm_pid,
    planned_offsets,
    runs_with,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

QUERY_ID = "sql.streaming.queryId"
"""The local property by which Spark names the query to the thread that runs its batches."""


def ranges(group: str | None = None, member: str | None = None) -> tuple[OffsetRange, ...]:
    """The offsets `[start, until)` of every partition that the batch in flight covers, for sinks that store them.

    To be called inside a `foreachBatch` function, in the thread that Spark calls it in. A replay covers what is left of
    it: what the group has committed since is not read again. `group`, and `member` where several sources are members of
    one group (`group.member`), choose among the sources of the query. Raises ConfigError where it is called elsewhere,
    where the choice is not clear, or through Spark Connect; TransportError where the coordinator does not answer.
    """
    context = driver_context("ranges")
    query_id = context.getLocalProperty(QUERY_ID)
    if not query_id:
        raise ConfigError(
            "ranges tells of the batch that is being written: call it inside a foreachBatch function, in the thread in "
            "which Spark calls that (threads of your own do not know their query)"
        )
    pid = jvm_pid(context)
    found = _batches(pid, query_id, _documents(context, query_id))
    chosen = [b for b in found if group in (None, b["group"]) and member in (None, b["name"])]
    if len(chosen) != 1:
        raise ConfigError(_unclear(query_id, found, group, member))
    return tuple(OffsetRange(TopicPartition(t, p), start, until) for t, p, start, until in chosen[0]["ranges"])


def _documents(context: SparkContext, query_id: str) -> list[Value] | None:
    """The end documents of the batch in flight of a query of any session; None where this Spark does not tell."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session: Any = SparkSession._instantiatedSession
    jvm: Any = context._jvm
    try:
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        offsets = planned_offsets(running.get(jvm.java.util.UUID.fromString(query_id)))
    except (Py4JError, AttributeError, TypeError):
        return None
    return None if offsets is None else [value for offset in offsets if (value := document(offset)) is not None]


def _batches(pid: int, query_id: str, documents: list[Value] | None) -> list[Mapping[str, Any]]:
    """What the coordinators of the query say of their batches in flight.

    Spark's own documents tell which they are, and else the listener, from the query's first progress on.
    """
    told = control.statuses(pid)
    if documents is None:
        runs = runs_with((), told, query_id)
        if not runs:
            raise ConfigError(
                f"query {query_id}: this version of Spark does not tell which coordinators are its: call "
                "streamgroup.listen(spark) once in the application; they are known from the second batch on"
            )
    else:
        runs = runs_with((str(value["lineage"]) for value in documents), told)
    wanted = None if documents is None else {(value["lineage"], value["sequence"]) for value in documents}
    found: list[Mapping[str, Any]] = []
    for run in runs:
        batch = {**control.ask(pid, run, "ranges"), "name": told[run].get("name", "")}
        if batch["ranges"] is not None and (wanted is None or (batch["lineage"], batch["sequence"]) in wanted):
            found.append(batch)
    return found


def _unclear(query_id: str, found: list[Mapping[str, Any]], group: str | None, member: str | None) -> str:
    asked = "" if group is None else f" of group {group!r}"
    asked += "" if member is None else f" as member {member!r}"
    if not found:
        return (
            f"query {query_id}: no batch of a streamgroup source is in flight: its sources read nothing in this batch, "
            "or are others"
        )
    names = ", ".join(sorted(f"group {b['group']!r}" + (f" as {b['name']!r}" if b["name"] else "") for b in found))
    return (
        f"query {query_id}: {'no' if asked else 'more than one'} batch{asked or ' is in flight'}: there are those of "
        f"{names}. Choose one: ranges(group=…, member=…)"
    )
