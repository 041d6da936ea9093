"""`streamgroup.drain(query)`: the stop that repeats nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgroup.driver.application import control
from streamgroup.driver.application.drains import drain_together
from streamgroup.errors import ConfigError
from streamgroup.spark.queries import (
    documents_in,
    documents_of,
    driver_context,
    is_initial,
    jvm_pid,
    offsets_of,
    runs_with,
)
from streamgroup.spark.telling import Teller

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("streamgroup")

FIRST_DOCUMENT_S = 10.0
"""How long a query is waited for of which nothing is known."""
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What came of a drain. `drained`: every batch planned has sunk, is committed, and the member has left its group.

    Where it is False, the time was over before: the query is stopped all the same, and one batch may be repeated.
    `groups` are those that were left; none where the query had planned nothing yet.
    """

    drained: bool
    groups: tuple[str, ...]


def drain(query: StreamingQuery, timeout: float = 60.0) -> DrainResult:
    """Stop `query` so that nothing is repeated (R30).

    All its members plan no more, wait until the last batch has sunk, commit and leave their groups; then the query is
    stopped. A batch counts as sunk when Spark reports its progress, so a trigger of minutes is not waited for.
    `timeout` is in seconds, a week at most. Raises ConfigError for a longer one, where the query does not read from
    streamgroup, or where it runs behind Spark Connect.
    """
    if not timeout <= control.LONGEST_DRAIN_S:  # NaN, too
        raise ConfigError(
            f"the timeout of a drain is in seconds, {control.LONGEST_DRAIN_S} (a week) at most, not {timeout}"
        )
    deadline = time.monotonic() + timeout
    pid = jvm_pid(driver_context("drain"))
    answers: dict[str, dict[str, Any]] = {}
    telling = _Telling(query, Teller(pid))
    was_active = query.isActive
    runs = _runs_of(query, pid, deadline)
    while runs:
        left = max(0.0, deadline - time.monotonic())
        answers |= dict(zip(runs, drain_together(pid, runs, left, meanwhile=telling.look), strict=True))
        # A source that had planned nothing is not known before it does.
        runs = [run for run in _named(query, control.statuses(pid)) if run not in answers]
    query.stop()
    if not answers:
        # Nothing was planned when we looked; a plan made between that and the stop was no drain's to wait for.
        return DrainResult(was_active and offsets_of(query) is not None and not documents_of(query), ())
    groups = tuple(sorted(answer["group"] for answer in answers.values() if "group" in answer))
    return DrainResult(all(answer["drained"] for answer in answers.values()), groups)


class _Telling:
    """While the drain waits: tells the coordinators what Spark reports of the last batch, as a listener would."""

    def __init__(self, query: StreamingQuery, teller: Teller) -> None:
        self._query = query
        self._teller = teller
        self._told = -1

    def look(self) -> None:
        """Tell of the last batch that Spark reports, once."""
        progress: Any = self._query.lastProgress
        if progress is None or progress["batchId"] == self._told:
            return
        self._told = progress["batchId"]
        query = {"id": str(self._query.id), "name": self._query.name or ""}
        self._teller.tell(list(documents_in(progress["sources"], "endOffset")), self._told, query)


def _named(query: StreamingQuery, told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The runs whose coordinators are known to be those of `query`, at this moment."""
    return runs_with((str(value["lineage"]) for value in documents_of(query)), told, str(query.id))


def _runs_of(query: StreamingQuery, pid: int, deadline: float) -> list[str]:
    """The runs of the coordinators of `query`; none where it has planned nothing, or has ended.

    Spark tells what it has planned, and what the checkpoint holds, from the moment that it knows. Where this Spark does
    not, the query's first progress is waited for: FIRST_DOCUMENT_S, or until the deadline while a batch is in flight.
    """
    first = min(deadline, time.monotonic() + FIRST_DOCUMENT_S)
    while True:
        documents, offsets, told = documents_of(query), offsets_of(query), control.statuses(pid)
        named = _named(query, told)
        planned_nothing = offsets is not None and not documents and (not offsets or any(map(is_initial, offsets)))
        if named or planned_nothing or not query.isActive:
            return named
        until = first if all(status["idle"] for status in told.values()) else deadline
        if time.monotonic() >= until or (offsets and not documents and not told):
            break
        time.sleep(POLL_S)
    if documents:
        log.warning("query %s: its coordinators cannot be reached: one batch may be repeated", query.name or query.id)
        return []
    raise ConfigError(
        f"query {query.name or query.id}: no source of it is a streamgroup member that has planned a batch yet; stop "
        "it with query.stop()"
    )
