"""The timeline of a group: the partitions that each member has held, and marks for events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from streamgroup.frozen import frozen
from streamgroup.logformat import LogFormat
from streamgroup.model import GroupDescription, GroupState, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading, Status
from streamgroup.monitoring.query_totals import QueryFailure
from streamgroup.text import counted


@frozen
class Assignment:
    """The owners of the group's partitions from `at` on, in the order of `partitions`; None if no member holds it."""

    at: float
    partitions: tuple[TopicPartition, ...]
    owners: tuple[str | None, ...]


@frozen
class Span:
    """A member held a partition from `start` until `end`."""

    start: float
    end: float
    owner: str


class Ownership:
    """The last `capacity` different assignments of one group, as a timeline of owners."""

    def __init__(self, capacity: int) -> None:
        self._assignments: deque[Assignment] = deque(maxlen=capacity)
        self._seen = 0.0

    def __len__(self) -> int:
        return len(self._assignments)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return self._assignments[-1].partitions if self._assignments else ()

    def add(self, at: float, partitions: tuple[TopicPartition, ...], owners: Mapping[TopicPartition, str]) -> bool:
        """Add the assignment read at `at`, and return whether it differs from the previous one."""
        last = self._assignments[-1] if self._assignments else None
        held = tuple(owners.get(tp) for tp in partitions)
        self._seen = at
        if last is not None and last.partitions == partitions:
            if last.owners == held:
                return False
            partitions = last.partitions  # one tuple serves all assignments of the same partitions
        self._assignments.append(Assignment(at, partitions, held))
        return last is not None

    def forget(self, before: float) -> None:
        """Forget the assignments that ended before that time."""
        while len(self._assignments) > 1 and self._assignments[1].at <= before:
            self._assignments.popleft()

    def resize(self, capacity: int) -> None:
        """Keep the newest `capacity` assignments from now on."""
        if capacity != self._assignments.maxlen:
            self._assignments = deque(self._assignments, maxlen=capacity)

    def spans(self, since: float = 0.0) -> dict[TopicPartition, list[Span]]:
        """Return which member held each partition from `since` on, in order of time.

        The spans of a partition do not overlap. The last one ends with the newest reading.
        """
        found: dict[TopicPartition, list[Span]] = {}
        known = list(self._assignments)
        for number, assignment in enumerate(known):
            end = known[number + 1].at if number + 1 < len(known) else self._seen
            if end < since:
                continue
            start = max(assignment.at, since)
            for tp, owner in zip(assignment.partitions, assignment.owners, strict=True):
                spans = found.setdefault(tp, [])
                if owner is None:
                    continue
                if spans and spans[-1].owner == owner and spans[-1].end >= start:
                    spans[-1] = Span(spans[-1].start, end, owner)
                else:
                    spans.append(Span(start, end, owner))
        return found


class MarkKind(StrEnum):
    """The kinds of marks. Those of the members' own events have the names of docs/log-events.md."""

    REBALANCE = "rebalance"
    """The group rebalances, or a partition has another member."""
    JOIN = "join"
    LEAVE = "leave"
    DRAIN = "drain"
    FENCE = "fence"
    REPLAY = "replay"
    SKIP = "skip"
    REPEAT = "repeat"
    DATA_LOSS = "data_loss"
    FAILURE = "failure"
    """An error has ended a query."""


_MOST_RUNS = 32
"""Runs of a group whose counters are stored. One group has fewer coordinators on one machine."""
_EVENTS = (MarkKind.FENCE, MarkKind.REPLAY, MarkKind.SKIP, MarkKind.REPEAT, MarkKind.DATA_LOSS)
"""The events that members count. Rebalances are left out: the description of the group shows them."""


@frozen
class Mark:
    """An event at `at` (seconds since 1970), of a member unless `member` is empty."""

    at: float
    kind: MarkKind
    text: str
    member: str = ""


def between(at: float, before: GroupReading, after: GroupReading, log_format: LogFormat) -> Iterator[Mark]:
    """Yield the differences of two readings of a group: members that joined or left, and a rebalance."""
    old = {member.member_id: member for member in before.description.members}
    new = {member.member_id: member for member in after.description.members}
    for name in sorted(new.keys() - old.keys()):
        yield Mark(at, MarkKind.JOIN, f"{new[name].client_id or name} joined", name)
    for name in sorted(old.keys() - new.keys()):
        yield Mark(at, MarkKind.LEAVE, f"{old[name].client_id or name} left", name)
    rebalances = after.description.is_rebalancing
    if rebalances and not before.description.is_rebalancing:
        yield Mark(at, MarkKind.REBALANCE, f"rebalance begins ({after.description.state})")
    elif not rebalances and _is_known(after.description):
        yield from _moved(at, before, after, log_format)


def _is_known(description: GroupDescription) -> bool:
    """Return whether the brokers return the assignment of each member."""
    return description.state in {GroupState.STABLE, GroupState.EMPTY}


def _moved(at: float, before: GroupReading, after: GroupReading, log_format: LogFormat) -> Iterator[Mark]:
    old, new = before.owners(), after.owners()
    if before.description.is_rebalancing:  # the brokers returned no assignment while the group rebalanced
        members = counted(len(after.description.members), "member")
        yield Mark(at, MarkKind.REBALANCE, f"assigned: {counted(len(new), 'partition')} to {members}")
        return
    moved = [tp for tp in old.keys() | new.keys() if old.get(tp) != new.get(tp)]
    if moved:
        what = log_format.name(moved[0]) if len(moved) == 1 else counted(len(moved), "partition")
        yield Mark(at, MarkKind.REBALANCE, f"{what} moved")


class MemberEvents:
    """Yields marks where the counters in the statuses of a group's members have grown."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        """By run; the run that was read last is at the end."""

    def marks(self, at: float, statuses: Iterable[Status]) -> list[Mark]:
        """Return the marks of `statuses`. The marks of a new run are at the times of its past events."""
        found: list[Mark] = []
        for status in statuses:
            run, member = str(status.get("run", "")), str(status.get("member", ""))
            before = self._counts.pop(run, {})
            counts = {"drain": int(bool(status.get("draining")))}
            trouble = status.get("trouble")
            counters: Mapping[str, Any] = trouble if isinstance(trouble, Mapping) else {}
            for kind in _EVENTS:
                given = counters.get(kind)  # a process of another release may report another form
                counter: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
                count = counter.get("count")
                counts[kind] = count if isinstance(count, int) else 0
                if counts[kind] > before.get(kind, 0):
                    reason = str(counter.get("reason") or "")
                    found.append(Mark(_time_of(counter.get("last"), at), kind, reason, member))
            if counts["drain"] and not before.get("drain"):
                found.append(Mark(at, MarkKind.DRAIN, f"{status.get('name') or member} drains", member))
            self._counts[run] = counts
        for run in list(self._counts)[:-_MOST_RUNS]:  # a reading may lack a run while its coordinator is busy
            del self._counts[run]
        return found


class QueryEnds:
    """Yields a mark for each error that has ended a query."""

    def __init__(self) -> None:
        self._known: frozenset[QueryFailure] = frozenset()
        """The failures of the last reading."""

    def marks(self, failures: Iterable[QueryFailure]) -> list[Mark]:
        """Return the marks of the failures that the last reading did not have, each at the time of its failure."""
        now = list(failures)
        before, self._known = self._known, frozenset(now)
        return [Mark(one.at, MarkKind.FAILURE, _text_of(one)) for one in now if one not in before]


def _text_of(failure: QueryFailure) -> str:
    return f"query {failure.query} has ended with {failure.error}: {failure.text}"


def _time_of(text: Any, default: float) -> float:
    """Return the time of an event, in seconds since 1970; `default` if the status has none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return default
