"""The history of a cluster: the history of each group, the newest reading, and errors."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from streamgroup.frozen import frozen
from streamgroup.model import TopicPartition
from streamgroup.monitoring.page.history.batches import Reading
from streamgroup.monitoring.page.history.group import GroupHistory, Limits
from streamgroup.monitoring.page.history.ownership import QueryEnds

_FIGURES = re.compile(r"\b(?:\d+ attempts?|\d+(?:\.\d+)? (?:s|ms))\b")


@frozen
class ErrorNote:
    """An error of a poll, or an error that has ended a query. It occurred `count` times, the last time at `at`."""

    at: float
    text: str
    count: int = 1


HELD_UP_S = 60.0
"""Seconds after which a last stable offset that stays below the log end is shown. Most transactions are shorter."""


@frozen
class HeldOffset:
    """A last stable offset below the log end, and the time of the first reading with it, in seconds since 1970."""

    offset: int
    since: float


class History:
    """Everything that the live page shows. Only one thread at a time may use it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.sequence = 0
        """Grows with each reading, failed or not. A page that has seen it needs no new data."""
        self.reading: Reading | None = None
        """The newest one."""
        self.groups: dict[str, GroupHistory] = {}
        self.errors: deque[ErrorNote] = deque(maxlen=self.limits.errors)
        """The errors of readings, and of parts of them."""
        self.failures: deque[ErrorNote] = deque(maxlen=self.limits.errors)
        """The errors that have ended queries. They occur once, and errors of readings repeatedly."""
        self._held: dict[TopicPartition, HeldOffset] = {}
        self._ends = QueryEnds()
        self.failed = ""
        """The error of the newest reading; empty if it succeeded."""

    def add(self, reading: Reading) -> None:
        """Add a reading. A group that no longer exists is removed. A group that could not be read stays."""
        self.sequence += 1
        self.reading, self.failed = reading, ""
        kept = {name: self.groups[name] for name in reading.unread if name in self.groups}
        partitions = sum(len(group.partitions()) for group in reading.groups)
        partitions += sum(len(group.now.partitions()) for group in kept.values() if group.now is not None)
        for group in self.groups.values():
            group.resize(self.limits, partitions)
        before, self.groups = self.groups, {}
        for group_now in reading.groups:
            group = before.get(group_now.name) or GroupHistory(self.limits, partitions)
            group.add(group_now, reading)
            self.groups[group_now.name] = group
        for name, group in kept.items():
            self.groups[name] = group
            group.miss(name, reading)
        self._held = {tp: self._held_offset(tp, offset, reading) for tp, offset in _below_end(reading)}
        for note in reading.notes:
            _add(self.errors, reading.at, note)
        for mark in self._ends.marks(reading.failures):
            _add(self.failures, mark.at, mark.text)

    def held_up(self, tp: TopicPartition) -> HeldOffset | None:
        """Return the offset at which consumers of `read_committed` have waited for HELD_UP_S; None if they do not."""
        held = self._held.get(tp)
        if held is None or self.reading is None or self.reading.at - held.since < HELD_UP_S:
            return None
        return held

    def _held_offset(self, tp: TopicPartition, offset: int, reading: Reading) -> HeldOffset:
        known = self._held.get(tp)
        return known if known is not None and known.offset == offset else HeldOffset(offset, reading.at)

    def fail(self, at: float, text: str) -> None:
        """Add the error of a failed reading. The series and marks so far stay."""
        self.sequence += 1
        self.failed = text
        _add(self.errors, at, text)


def _below_end(reading: Reading) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the partitions whose last stable offset is below the log end, with this offset."""
    for tp, offset in reading.stable.items():
        if tp in reading.log_ends and offset < reading.log_ends[tp]:
            yield tp, offset


def _add(errors: deque[ErrorNote], at: float, text: str) -> None:
    """Add an error as the newest one. An error that differs only in times and attempts increases the count."""
    for known in errors:
        if _FIGURES.sub("", known.text) == _FIGURES.sub("", text):
            errors.remove(known)
            errors.append(ErrorNote(at, text, known.count + 1))
            return
    errors.append(ErrorNote(at, text))
