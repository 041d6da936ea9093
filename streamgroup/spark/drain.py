"""`streamgroup.drain(query)`: the stop that repeats nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgroup.driver import control
from streamgroup.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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
    found = _runs_of(query, pid, deadline)
    answers = [control.ask(pid, run, "drain", timeout=max(0.0, deadline - time.monotonic())) for run in found]
    query.stop()
    return DrainResult(bool(answers) and all(a["drained"] for a in answers), tuple(a["group"] for a in answers))


def _jvm_pid() -> int:
    from pyspark import SparkContext  # noqa: PLC0415  (absent under Spark Connect)

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise ConfigError("drain needs the driver's own process: it does not work through Spark Connect")
    return int(context._jvm.java.lang.ProcessHandle.current().pid())


def _runs_of(query: StreamingQuery, pid: int, deadline: float) -> list[str]:
    """The runs of the coordinators of `query`, from its offset documents; its first progress is waited for."""
    until = min(deadline, time.monotonic() + FIRST_PROGRESS_S)
    while True:
        named = set(_documented(query)) & set(control.runs(pid))
        if named or not query.isActive or time.monotonic() >= until:
            break
        time.sleep(POLL_S)
    if not named and query.isActive:
        raise ConfigError(
            f"query {query.name or query.id}: no source of it is a streamgroup member that has planned a batch yet; "
            "stop it with query.stop()"
        )
    return sorted(named)


def _documented(query: StreamingQuery) -> Iterator[str]:
    for progress in reversed(query.recentProgress):
        for source in progress["sources"]:
            for offset in (source["endOffset"], source["startOffset"]):
                run = _run(offset)
                if run:
                    yield run


def _run(offset: Any) -> str:
    value = json.loads(offset) if isinstance(offset, str) else offset
    return str(value.get("run", "")) if isinstance(value, dict) and "streamgroup" in value else ""
