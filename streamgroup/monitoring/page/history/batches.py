"""The batches that the members of this machine report: rows, and the duration of each phase."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from streamgroup.frozen import frozen
from streamgroup.model import ClusterSnapshot, GroupDescription, TopicPartition
from streamgroup.monitoring.query_totals import QueryFailure


@frozen
class SunkBatch:
    """A completed batch. `phases` has the milliseconds of each phase by Spark's names; `at` is when the batch began."""

    number: int
    at: float
    rows: int
    phases: Mapping[str, int] = field(default_factory=dict)


class RunBatches:
    """The newest batches since one start of a query. `name` is the name that the page shows."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.batches: deque[SunkBatch] = deque(maxlen=capacity)

    def add(self, reported: Iterable[Any]) -> None:
        """Add the new batches of a status. A status repeats the batches of the previous one."""
        newest = self.batches[-1].number if self.batches else -1
        for value in reported:
            batch = _batch_of(value)
            if batch is not None and batch.number > newest:
                self.batches.append(batch)
                newest = batch.number


class GroupBatches:
    """The newest batches of one group's queries, by run id.

    If there are too many runs, the one without a batch for the longest time is removed first.
    """

    def __init__(self, runs: int, batches: int) -> None:
        self._most_runs = runs
        self._capacity = batches
        self._runs: dict[str, RunBatches] = {}

    def add(self, statuses: Iterable[Status]) -> None:
        """Add the batches of all statuses."""
        for status in statuses:
            run = str(status.get("run", ""))
            reported = status.get("batches")
            if not isinstance(reported, list) or not reported:
                continue
            known = self._runs.pop(run, None) or RunBatches(_name_of(status), self._capacity)
            known.add(reported)
            self._runs[run] = known
        while len(self._runs) > self._most_runs:
            del self._runs[next(iter(self._runs))]

    def runs(self) -> dict[str, RunBatches]:
        return dict(self._runs)


def _name_of(status: Status) -> str:
    query = status.get("query")
    name = query.get("name") or query.get("id") if isinstance(query, Mapping) else ""
    return str(status.get("name") or name or status.get("run", ""))


def _batch_of(value: Any) -> SunkBatch | None:
    """Return a batch in a status; None for another form: the process may be of another release."""
    match value:
        case {
            "batch": int() as number,
            "began": str() as began,
            "rows": int() as rows,
            "durations_ms": dict() as phases,
        }:
            try:
                at = datetime.fromisoformat(began).timestamp()
            except ValueError:
                return None
            known = {str(name): ms for name, ms in phases.items() if isinstance(ms, int)}
            return SunkBatch(number, at, rows, known)
    return None


Status = Mapping[str, Any]
"""The status of a coordinator process, as its control channel returns it (docs/log-events.md)."""


@frozen
class GroupReading:
    """The state, members and committed offsets of one group, as read in one poll."""

    description: GroupDescription
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    coordinator: str = ""

    @property
    def name(self) -> str:
        return self.description.group_id

    def owners(self) -> dict[TopicPartition, str]:
        """Return the member id that holds each partition. Empty while the group rebalances."""
        return {tp: member.member_id for member in self.description.members for tp in member.assigned or ()}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that a member holds or gets, or that have a commit, sorted."""
        return sorted({*self.committed, *self.owners(), *self.description.moving})


@frozen
class Reading:
    """Everything that one poll of the page has read. `at` is in seconds since 1970.

    `statuses` are those of coordinator processes on this machine, `failures` the errors that have ended their queries.
    `notes` say what could not be read. `unread` are the groups that exist and could not be read. `stable` are the last
    stable offsets, which an open transaction keeps below the log ends.
    """

    at: float
    snapshot: ClusterSnapshot
    groups: tuple[GroupReading, ...] = ()
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    statuses: tuple[Status, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[QueryFailure, ...] = ()
    unread: frozenset[str] = frozenset()
    stable: Mapping[TopicPartition, int] = field(default_factory=dict)

    def statuses_of(self, group: str) -> Iterator[Status]:
        """Yield the statuses of the members of `group` on this machine."""
        return (status for status in self.statuses if status.get("group") == group)

    def failures_of(self, group: str) -> Iterator[QueryFailure]:
        """Yield the errors that have ended queries of `group` on this machine."""
        return (failure for failure in self.failures if group in failure.groups)
