"""`streamgroup.drain(query)`: the stop that repeats nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgroup.driver import control
from streamgroup.errors import ConfigError, StreamGroupError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("streamgroup")

ANSWER_S = 5.0
"""How much longer than its deadline a drain's answer may take."""
FIRST_PROGRESS_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What came of a drain. `drained`: every batch planned has sunk, is committed, and the member has left its group.

    Where it is False, the time was over before: the query is stopped all the same, and one batch may be repeated.
    """

    drained: bool
    groups: tuple[str, ...]


def drain(query: StreamingQuery, timeout: float = 60.0) -> DrainResult:
    """Stop `query` so that nothing is repeated (R30).

    Its members plan no more, wait until the last batch is proven sunk, commit and leave their groups; then the query is
    stopped. With a trigger of minutes the proof comes with the next trigger: give `timeout` (seconds) that long. Raises
    ConfigError where the query does not read from streamgroup, or runs behind Spark Connect.
    """
    deadline = time.monotonic() + timeout
    pid = _jvm_pid()
    answers = [_drain_run(pid, run, deadline) for run in _runs_of(query, pid, deadline)]
    query.stop()
    groups = tuple(answer["group"] for answer in answers if "group" in answer)
    return DrainResult(bool(answers) and all(answer["drained"] for answer in answers), groups)


def _drain_run(pid: int, run: str, deadline: float) -> dict[str, Any]:
    """Drain one coordinator; one that refuses or is no more is not drained, and the query is stopped all the same."""
    left = max(0.0, deadline - time.monotonic())
    try:
        return control.ask(pid, run, "drain", patience=left + ANSWER_S, timeout=left)
    except StreamGroupError as error:
        log.warning("%s", error)
        return {"drained": False}


def _jvm_pid() -> int:
    from pyspark import SparkContext  # noqa: PLC0415  (absent under Spark Connect)

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise ConfigError("drain needs the driver's own process: it does not work through Spark Connect")
    return int(context._jvm.java.lang.ProcessHandle.current().pid())


def _runs_of(query: StreamingQuery, pid: int, deadline: float) -> list[str]:
    """The runs of the coordinators of `query`; its first progress is waited for, as long as a batch is in flight.

    They are known by the lineage of its offset documents: one that has planned nothing yet in this run has documents of
    the run before.
    """
    first = min(deadline, time.monotonic() + FIRST_PROGRESS_S)
    while True:
        lineages = set(_lineages(query))
        statuses = {run: _status(pid, run) for run in control.runs(pid)}
        named = [run for run, status in statuses.items() if status["lineage"] in lineages]
        until = first if all(status["idle"] for status in statuses.values()) else deadline
        if named or not query.isActive or time.monotonic() >= until:
            break
        time.sleep(POLL_S)
    if not named and query.isActive:
        raise ConfigError(
            f"query {query.name or query.id}: no source of it is a streamgroup member that has planned a batch yet; "
            "stop it with query.stop()"
        )
    return named


def _status(pid: int, run: str) -> dict[str, Any]:
    try:
        return control.ask(pid, run, "status")
    except StreamGroupError:  # killed, and its socket left behind; or another's
        return {"lineage": "", "idle": True}


def _lineages(query: StreamingQuery) -> Iterator[str]:
    for progress in reversed(query.recentProgress):
        for source in progress["sources"]:
            for offset in (source["endOffset"], source["startOffset"]):
                lineage = _lineage(offset)
                if lineage:
                    yield lineage


def _lineage(offset: Any) -> str:
    value = json.loads(offset) if isinstance(offset, str) else offset
    return str(value.get("lineage", "")) if isinstance(value, dict) and "streamgroup" in value else ""
