"""Log lines with `event=` fields, which programs parse (docs/log-events.md, docs/jobs.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from streamgroup.coordinator.run.run_events import LostRecords, RunEvents
from streamgroup.errors import FencedError
from streamgroup.group import events as ev
from streamgroup.group.holdings import InFlightBatch
from streamgroup.jobs.backfill.command import BackfillPlan
from streamgroup.jobs.backfill.command import line_of as line_of_step
from streamgroup.jobs.following import line_of as line_of_batch
from streamgroup.logline import parse
from streamgroup.model import Document, OffsetRange
from streamgroup.spark.listener import lines_of
from tests.golden.case import Case
from tests.golden.stored import DOCUMENTS, LINEAGE, ORDERS, RUN, document_text

BATCH = Document("etl", LINEAGE, RUN, 7, tuple(OffsetRange(tp, 10, 20) for tp in ORDERS))
MEMBER = 'etl-6a1f (host "1")'
WHOSE = {"group": "etl", "run": RUN, "member": MEMBER, "generation": "4"}
LOST = LostRecords(ORDERS[1], "orders-1: records are lost", "the log begins at offset 9", at=5, to=9, count=4)

FIELDS: dict[str, dict[str, str]] = {
    "rebalance": {**WHOSE, "count": "2", "kept": "1", "reason": "the query starts"},
    "fence": {**WHOSE, "count": "2", "reason": "REBALANCE_IN_PROGRESS"},
    "repeat": {
        **WHOSE,
        "count": "20",
        "document": "7",
        "reason": "the membership was lost before the batch in flight was known to have sunk",
    },
    "replay": {
        **WHOSE,
        "count": "10",
        "of": "20",
        "document": "7",
        "reason": "the checkpoint holds a batch that is not known to have sunk",
    },
    "skip": {
        **WHOSE,
        "count": "20",
        "document": "7",
        "failed": "true",
        "reason": "reported as done, its data was never asked for",
    },
    "data_loss": {
        **WHOSE,
        "count": "4",
        "partition": "orders-1",
        "from": "5",
        "to": "9",
        "failed": "true",
        "reason": "the log begins at offset 9",
    },
}
FENCED = {**WHOSE, "count": "2", "failed": "true", "reason": "FENCED_INSTANCE_ID"}
PROGRESS = {
    "batchId": 12,
    "numInputRows": 1000,
    "batchDuration": 400,
    "durationMs": {"latestOffset": 1, "queryPlanning": 2, "walCommit": 3, "addBatch": 4, "commitOffsets": 5},
}
BATCH_FIELDS = {
    "batch": "12",
    "rows": "1000",
    "duration_ms": "400",
    "rows_per_second": "2500",
    "latest_offset_ms": "1",
    "query_planning_ms": "2",
    "wal_commit_ms": "3",
    "add_batch_ms": "4",
    "commit_offsets_ms": "5",
}


def cases() -> Iterator[Case]:
    """Yield a case for each kind of line."""
    happens: dict[str, Callable[[RunEvents], None]] = {
        "rebalance": lambda _: None,
        "fence": lambda events: events.on_action(ev.Lost("REBALANCE_IN_PROGRESS"), None),
        "repeat": lambda events: events.on_action(ev.Lost("over"), InFlightBatch(BATCH, planned_here=True)),
        "replay": lambda events: events.replaying(BATCH, BATCH.ranges[:1]),
        "skip": lambda events: events.skipped(BATCH),
        "data_loss": lambda events: events.lost_records([LOST], failed=True),
    }
    for kind, happen in happens.items():
        yield _case(kind, kind, FIELDS[kind], partial(_line_of_run, happen))
    yield _case("a fence that ends the query", "fence", FENCED, partial(_line_of_run, _fenced))
    yield _case("a batch of a job", "batch", BATCH_FIELDS, lambda: line_of_batch(PROGRESS, None))
    progress = {"query": "orders", "group": "etl", "batch": "12", "rows": "1000"}
    yield _case("a batch that has sunk", "progress", progress, _line_of_listener)
    step = {"step": "0", "offsets": "20", "duration_ms": "1500", "done": "20"}
    yield _case("a step of a backfill", "step", step, _line_of_step)


def _case(name: str, event: str, fields: dict[str, str], write: Callable[[], str]) -> Case:
    return Case("log-lines", name, {"event": event, **fields}, write, parse)


def _line_of_run(happen: Callable[[RunEvents], None]) -> str:
    """Return the last line of a member that has two partitions, after what happens to it."""
    lines: list[str] = []
    events = RunEvents("etl", RUN, lambda _, line: lines.append(line))
    events.on_action(ev.Joining("the query starts", abandoned=False), None)
    assigned: dict[str, Any] = {"kept": frozenset(ORDERS[:1]), "members": 3, "total": 6, "member_id": MEMBER}
    events.on_action(ev.Assigned(4, partitions=ORDERS, strategy="streamgroup-range", leader=False, **assigned), None)
    happen(events)
    return lines[-1]


def _fenced(events: RunEvents) -> None:
    events.failed(FencedError("another member has the same group.instance.id"))


def _line_of_listener() -> str:
    end = DOCUMENTS["a batch"]
    progress: Any = SimpleNamespace(
        name="orders",
        id="0f6a64d6",
        batchId=12,
        sources=[SimpleNamespace(endOffset=document_text(end), latestOffset=None, numInputRows=1000)],
    )
    (line,) = lines_of(progress)
    return line


def _line_of_step() -> str:
    plan = BackfillPlan(BATCH.ranges, 100, {})
    (step,) = plan.steps()
    return line_of_step(step, plan, 20, 1.5)
