"""`streamgroup.ranges()`: the offsets of the batch that a foreachBatch function writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgroup.driver.application import control
from streamgroup.errors import ConfigError
from streamgroup.model import OffsetRange, TopicPartition
from streamgroup.spark.queries import (
    Value,
    documents_in_flight,
    driver_context,
    jvm_pid,
    query_id_of_thread,
    runs_with,
)


def ranges(group: str | None = None, member: str | None = None) -> tuple[OffsetRange, ...]:
    """Return the offsets `[start, until)` of every partition in the batch in flight, for sinks that store them.

    Call it inside a `foreachBatch` function, in the thread in which Spark calls that function. The ranges of a replay
    leave out offsets that the group has committed since the batch was planned. The result is empty for a batch in which
    the source reads nothing: the first batch of a query without new records, or one that Spark runs for state or for
    another source. `group` chooses among the sources of the query; `member` (`group.member`) chooses among several
    sources in one group.

    Raises ConfigError outside a `foreachBatch` function, for an ambiguous choice, and through Spark Connect. Raises
    TransportError if the coordinator does not answer.
    """
    context = driver_context("ranges")
    query_id = query_id_of_thread(context)
    if not query_id:
        raise ConfigError(
            "cannot tell the ranges: this thread writes no batch. Call ranges() inside a foreachBatch function, in the "
            "thread in which Spark calls that function"
        )
    pid = jvm_pid(context)
    documents = documents_in_flight(context, query_id)
    found = _batches(pid, query_id, documents)
    chosen = [b for b in found if group in (None, b["group"]) and member in (None, b["name"])]
    if not chosen and not all(value.get("lineage") for value in documents or ()):
        return ()  # a source that has not planned yet: Spark runs batch 0 of a query even if nothing is to be read
    reading = [b for b in chosen if b["ranges"] is not None]
    if len(reading) > 1 or not chosen:
        raise ConfigError(_unclear(query_id, found, reading, group, member))
    return tuple(OffsetRange(TopicPartition(t, p), start, until) for b in reading for t, p, start, until in b["ranges"])


def _batches(pid: int, query_id: str, documents: list[Value] | None) -> list[Mapping[str, Any]]:
    """Return what the query's coordinators report of their part of the batch; `ranges` is None if they read nothing.

    The documents identify the coordinators. Without documents the listener does, from the query's first progress on.
    """
    statuses = control.statuses(pid)
    if documents is None:
        runs = runs_with((), statuses, query_id)
        if not runs:
            raise ConfigError(
                f"cannot tell the ranges of query {query_id}: this version of Spark does not show its coordinators. "
                "Call streamgroup.listen(spark) once in the application: they are known from the second batch on"
            )
    else:
        runs = runs_with((value["lineage"] for value in documents if value.get("lineage")), statuses)
    wanted = None if documents is None else {(value.get("lineage"), value["sequence"]) for value in documents}
    found: list[Mapping[str, Any]] = []
    for run in runs:
        batch = {**control.ask(pid, run, "ranges"), "name": statuses[run].get("name", "")}
        is_asked_for = wanted is None or (batch["lineage"], batch["sequence"]) in wanted
        # Without a lineage nothing is in flight: this source's part of the batch ends where the batch before did.
        if is_asked_for if batch["ranges"] is not None else not batch["lineage"]:
            found.append(batch)
    return found


def _unclear(
    query_id: str,
    found: list[Mapping[str, Any]],
    reading: list[Mapping[str, Any]],
    group: str | None,
    member: str | None,
) -> str:
    asked = "" if group is None else f" of group {group!r}"
    asked += "" if member is None else f" as member {member!r}"
    if not found:
        return (
            f"cannot tell the ranges of query {query_id}: no coordinator process has a part of this batch. Its sources "
            "are of another format, or its control channel could not be opened: look for a warning in the driver's log"
        )
    named = (f"group {b['group']!r}" + (f" as {b['name']!r}" if b["name"] else "") for b in reading or found)
    names = ", ".join(sorted(named))
    cause = "more than one source reads in this batch, those" if reading else f"it has no source{asked}, only those"
    return f"cannot tell the ranges of query {query_id}: {cause} of {names}. Choose one: ranges(group=…, member=…)"
