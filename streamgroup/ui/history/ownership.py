"""The partitions that each member of a group has held, over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from streamgroup.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owners of the group's partitions from `at` on, in the order of `partitions`; None: no member holds it."""

    at: float
    partitions: tuple[TopicPartition, ...]
    owners: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A member held a partition from `start` until `end`."""

    start: float
    end: float
    owner: str


class Ownership:
    """The last `capacity` assignments of one group. An assignment that repeats the last one is not kept."""

    def __init__(self, capacity: int) -> None:
        self._assignments: deque[Assignment] = deque(maxlen=capacity)
        self._seen = 0.0

    def __len__(self) -> int:
        return len(self._assignments)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the newest assignment."""
        return self._assignments[-1].partitions if self._assignments else ()

    def add(self, at: float, partitions: tuple[TopicPartition, ...], owners: Mapping[TopicPartition, str]) -> bool:
        """Add what was read at `at`, and return whether it differs from the assignment before."""
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
        """Return by whom each partition was held from `since` on, in order of time.

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
