"""Spark's micro-batch loop, its checkpoint and its sinks, in the order of calls that `facts` of PySpark 4.2 showed.

latestOffset -> offsets/N -> (batch 0: initialOffset again) -> partitions -> tasks -> sink -> commits/N -> latestOffset.
A restart replays what is in `offsets` and not in `commits`. Between any two of these the query may be killed: each is a
*point*, and time goes by between points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.model import INITIAL_DOCUMENT, OffsetRange
from tests.sim import table, transactions
from tests.sim.clock import Sleep, Steps
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import Query

LISTENER_S = 0.5
"""How long after `commits/N` the listener tells of it, at most."""
POINTS = ("planned", "logged", "asked", "task", "sunk", "done")
"""Where a query may be killed between two actions: after `latestOffset`, `offsets/N`, `partitions`, each task, the
sink, `commits/N`."""
TABLE_POINTS = (*POINTS, "begun", "row", "stored")
"""The same with an offset table: also after the transaction has judged the batch, has each range, has the offsets."""

TRANSACTION_POINTS = (*POINTS, "begun", "row", "written", "ended")
"""The same with transactions: also after the epoch is known, each range is written, all are, EndTxn is answered."""


@dataclass
class Checkpoint:
    """The offset log and the commit log, as texts."""

    offsets: list[str] = field(default_factory=list)
    committed: int = -1
    """The newest batch in `commits`."""

    def copy(self, batches: int | None = None) -> Checkpoint:
        """As it is, or as it was that many batches ago."""
        kept = self.offsets if batches is None else self.offsets[: max(0, len(self.offsets) - batches)]
        return Checkpoint(list(kept), min(self.committed, len(kept) - 1))


@dataclass
class Directory:
    """The content of a file sink's `_spark_metadata`: the numbers of the batches that it has."""

    seen: set[int] = field(default_factory=set)


def initial_offset() -> dict[str, Any]:
    """`GroupStreamReader.initialOffset` (R2)."""
    return to_value(INITIAL_DOCUMENT)


def micro_batches(query: Query, process: Process) -> Steps:
    """One run of the query. Ends by itself under AvailableNow and Once alone."""
    checkpoint, settings = query.checkpoint, query.settings
    if settings.available_now:
        yield from process.call(process.prepare_available_now())
    number = len(checkpoint.offsets) - 1
    end: Mapping[str, Any] = json.loads(checkpoint.offsets[number]) if number >= 0 else initial_offset()
    if number > checkpoint.committed:
        start = json.loads(checkpoint.offsets[number - 1]) if number > 0 else initial_offset()
        process.batch = number
        yield from _batch(query, process, number, start, end)
        if settings.once:
            return
    number += 1
    while True:
        yield Sleep(settings.trigger_s)
        start = end
        most = None if settings.once else query.max_offsets
        end = yield from process.call(process.latest_offset(start, most, once=settings.once))
        if end == start:
            process.world.checker.idled(process)
        if end == start and settings.available_now:
            if not process.draining:
                process.world.checker.ended(process)
            return
        if end == start and settings.once:
            return
        if end == start and not (number == 0 and settings.empty_first):
            continue
        if end["ranges"]:  # an empty batch of AvailableNow repeats nothing: what may be is the one before it
            process.batch = number
        yield from query.point("planned")
        process.world.checker.logged(process, from_value(end))
        checkpoint.offsets.append(json.dumps(end))
        yield from query.point("logged")
        yield from _batch(query, process, number, start, end)
        if settings.once:
            return
        number += 1


def _batch(query: Query, process: Process, number: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> Steps:
    if query.settings.file_sink and number in query.directory.seen:
        process.clock.note(query.name, f"the sink skips batch {number}")
        process.world.checker.sink_skipped(process, from_value(end))
    else:
        ranges = yield from process.call(process.partitions(start, end))
        yield from query.point("asked")
        yield from _sink(query, process, number, ranges)
        yield from query.point("sunk")
    query.checkpoint.committed = number
    process.clock.note(query.name, f"commits/{number}")
    if query.settings.listener:
        told = partial(process.told, from_value(end), number)
        process.later(LISTENER_S * query.chance.random(), partial(query.driver.report, told))
    yield from query.point("done")


def _sink(query: Query, process: Process, number: int, ranges: tuple[OffsetRange, ...]) -> Steps:
    """Rows written one task after the other as side effects, or as files that count when the batch is in the log."""
    if process.table is not None:
        if ranges:
            yield from table.store_batch(query, process, ranges)
        return
    if process.settings.in_transaction:
        if ranges:
            yield from transactions.write_batch(process)
        return
    checker, whole = process.world.checker, query.settings.file_sink
    for range_ in ranges:
        yield Sleep(query.task_s())
        if not whole:
            checker.delivered(process, number, range_)
        yield from query.point("task")
    if whole:
        for range_ in ranges:
            checker.delivered(process, number, range_)
        query.directory.seen.add(number)
