"""`streamgroup.drain(query)`: stop a query so that no record is repeated."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.control import channel as control
from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.spark.channel import CoordinatorChannel, channel_of
from streamgroup.spark.queries import documents_in, documents_of, is_initial, offsets_of, runs_with

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("streamgroup")

FIRST_DOCUMENT_S = 10.0
"""Seconds that a drain waits for the first offset document of a query."""
POLL_S = 0.05


@frozen
class DrainResult:
    """The result of a drain."""

    drained: bool
    """Whether every planned batch is written and committed, and the members have left their groups. If False, the query
    is stopped too, and one batch may be repeated."""
    groups: tuple[str, ...]
    """The groups that the query has left. Empty if the query had not planned a batch yet."""
    reason: str = ""
    """Why it is not drained, for example because the timeout has passed. Empty if it is drained."""


def drain(query: StreamingQuery, timeout: float = 60.0) -> DrainResult:
    """Stop `query` so that no record is repeated (R30).

    The members of the query plan no further batch, wait until the last batch is written, commit, and leave their
    groups. Then the query stops. A batch counts as written when Spark reports its progress, so the drain never waits
    for the next trigger.

    `timeout` is in seconds, at most a week. A query of Spark Connect is drained on the server, where streamgroup must
    be installed too. Raises ConfigError for a longer timeout, and for a query that does not read from streamgroup;
    through Spark Connect also TransportError.
    """
    if not timeout <= control.LONGEST_DRAIN_S:  # also refuses NaN
        raise ConfigError(
            f"invalid timeout {timeout} for a drain: expected at most {control.LONGEST_DRAIN_S} seconds (a week)"
        )
    deadline = time.monotonic() + timeout
    log_warnings_to_stderr()
    channel = channel_of(query, "drain")
    answers: dict[str, dict[str, Any]] = {}
    progress = _ProgressWatch(query, channel)
    was_active = query.isActive
    runs = _runs_of(query, channel, deadline)
    while runs:
        left = max(0.0, deadline - time.monotonic())
        answers |= dict(zip(runs, channel.drain(runs, left, progress.check), strict=True))
        # A source is unknown until it has planned its first batch, so it may appear during the drain.
        runs = [run for run in _named(query, channel.statuses()) if run not in answers]
    query.stop()
    if not answers:
        # No batch was planned at the last check. The drain did not wait for one planned between the check and the stop.
        if was_active and offsets_of(query) is not None and not documents_of(query):
            return DrainResult(True, ())
        reason = "none of its coordinators responds, or it has just planned its first batch"
        return _not_drained(query, (), reason if was_active else "it had ended before")
    groups = tuple(sorted(answer["group"] for answer in answers.values() if "group" in answer))
    unclean = [answer.get("why", "") for answer in answers.values() if not answer["drained"]]
    return _not_drained(query, groups, "; ".join(dict.fromkeys(unclean))) if unclean else DrainResult(True, groups)


def _not_drained(query: StreamingQuery, groups: tuple[str, ...], reason: str) -> DrainResult:
    log.warning("cannot drain query %s: %s. One batch may be repeated", query.name or query.id, reason)
    return DrainResult(False, groups, reason)


class _ProgressWatch:
    """Reports the last batch in Spark's progress to the coordinators while a drain waits, as a listener would."""

    def __init__(self, query: StreamingQuery, channel: CoordinatorChannel) -> None:
        self._query = query
        self._channel = channel
        self._last_batch = -1

    def check(self) -> None:
        progress: Any = self._query.lastProgress
        if progress is None or progress["batchId"] == self._last_batch:
            return
        self._last_batch = progress["batchId"]
        query = {"id": str(self._query.id), "name": self._query.name or ""}
        self._channel.notify(list(documents_in(progress["sources"], "endOffset")), self._last_batch, query)


def _named(query: StreamingQuery, statuses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the runs whose coordinators are known to belong to `query` at this moment."""
    return runs_with((str(value["lineage"]) for value in documents_of(query)), statuses, str(query.id))


def _runs_of(query: StreamingQuery, channel: CoordinatorChannel, deadline: float) -> list[str]:
    """Return the runs of the coordinators of `query`, or none if it has not planned a batch or has ended.

    Spark shows the offsets of the planned batch and of the checkpoint as soon as it knows them. With a version of Spark
    that does not, this function waits for the query's first progress: FIRST_DOCUMENT_S, or until the deadline while a
    batch is in flight.
    """
    first = min(deadline, time.monotonic() + FIRST_DOCUMENT_S)
    while True:
        documents, offsets, statuses = documents_of(query), offsets_of(query), channel.statuses()
        named = _named(query, statuses)
        planned_nothing = offsets is not None and not documents and (not offsets or any(map(is_initial, offsets)))
        if named or planned_nothing or not query.isActive:
            return named
        until = first if all(status["idle"] for status in statuses.values()) else deadline
        if time.monotonic() >= until or (offsets and not documents and not statuses):
            break
        time.sleep(POLL_S)
    if documents:
        return []
    raise ConfigError(
        f"cannot drain query {query.name or query.id}: none of its sources is a streamgroup member that has planned "
        f"a batch. Stop it with query.stop()"
    )
