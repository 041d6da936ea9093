"""The history of one group, and the limits of its size."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from streamgroup.frozen import frozen
from streamgroup.model import TopicPartition
from streamgroup.monitoring.page.history.batches import GroupBatches, GroupReading, Reading
from streamgroup.monitoring.page.history.offset_series import UNKNOWN, OffsetSeries, Total, advance, lags
from streamgroup.monitoring.page.history.ownership import Mark, MemberEvents, Ownership, QueryEnds, between


class GroupHistory:
    """The history of one group: offset series, assignment timeline and event marks.

    `now` is the newest poll that contains the group. `is_read` is False while later polls do not contain it.
    """

    def __init__(self, limits: Limits, partitions: int) -> None:
        self.offsets = OffsetSeries(limits.samples_for(partitions))
        self.ownership = Ownership(limits.assignments_for(partitions))
        self.totals: deque[Total] = deque(maxlen=limits.samples)
        self.marks: deque[Mark] = deque(maxlen=limits.marks)
        self.batches = GroupBatches(limits.runs, limits.batches)
        self.now: GroupReading | None = None
        self.is_read = False
        self._events = MemberEvents()
        self._ends = QueryEnds()

    def add(self, group: GroupReading, reading: Reading) -> None:
        """Add the part of `reading` about this group."""
        at, partitions = reading.at, tuple(group.partitions())
        if self.now is not None:
            self.marks.extend(between(at, self.now, group, reading.snapshot.log_format))
        self._add_local(group.name, reading)
        self.ownership.add(at, self._shown(group), group.owners())
        self.offsets.add(at, partitions, group.committed, reading.log_ends)
        self.ownership.forget(float(self.offsets.times()[0]))
        self.totals.append(self._total(at))
        self.now = group
        self.is_read = True

    def miss(self, name: str, reading: Reading) -> None:
        """Note a reading without the group: its lag is unknown until the next reading with it."""
        self._add_local(name, reading)
        self.is_read = False

    def _add_local(self, name: str, reading: Reading) -> None:
        """Add the events and batches that members on this machine report."""
        statuses = list(reading.statuses_of(name))
        self.marks.extend(self._events.marks(reading.at, statuses))
        self.marks.extend(self._ends.marks(reading.failures_of(name)))
        self.batches.add(statuses)

    def committed(self, tp: TopicPartition) -> int | None:
        """Return the committed offset of one partition in the newest reading; None if it is unknown."""
        return None if self.now is None or not self.is_read else self.now.committed.get(tp)

    def resize(self, limits: Limits, partitions: int) -> None:
        """Adapt the sizes to the limits if all groups together have `partitions`."""
        self.offsets.resize(limits.samples_for(partitions))
        self.ownership.resize(limits.assignments_for(partitions))

    def lag_of(self, logs: Mapping[TopicPartition, int], tp: TopicPartition) -> int | None:
        """Return the lag of one partition in the newest reading; None if it is unknown."""
        committed, end = self.committed(tp), logs.get(tp)
        return None if committed is None or end is None else max(0, end - committed)

    def _shown(self, group: GroupReading) -> tuple[TopicPartition, ...]:
        """Return the partitions of the timeline.

        A partition without a commit counts while a member holds it. The brokers return no assignment while the group
        rebalances, so the earlier partitions stay until the rebalance ends.
        """
        found = group.partitions()
        if group.description.is_rebalancing:
            return tuple(sorted({*found, *self.ownership.partitions}))
        return tuple(found)

    def _total(self, at: float) -> Total:
        """Return the newest total, with the rates since the previous sample."""
        times, committed, ends = self.offsets.newest(2)
        newest = lags(committed[-1:], ends[-1:])
        known = newest[newest != UNKNOWN]
        lag = int(known.sum()) if known.size else None
        if len(times) < 2 or times[1] <= times[0]:
            return Total(at, lag)
        seconds = float(times[1] - times[0])
        return Total(at, lag, float(np.sum(advance(committed))) / seconds, float(np.sum(advance(ends))) / seconds)


@frozen
class Limits:
    """The size limits of the history: samples per series, offsets of all series, and marks per group."""

    samples: int = 720
    """Samples of a series: an hour, at one every 5 s."""
    offsets: int = 4_000_000
    """Offsets of all groups together: groups x partitions x samples x 2, of 8 bytes each."""
    assignments: int = 100
    """Assignments in the timeline of a group."""
    owners: int = 4_000_000
    """Entries of all these assignments together: groups x partitions x assignments."""
    marks: int = 200
    batches: int = 200
    """Batches of one run of a query."""
    runs: int = 32
    """Runs of a group on this machine whose batches are stored."""
    errors: int = 50

    def samples_for(self, partitions: int) -> int:
        """Return how many samples each series has if all groups together have `partitions`.

        It is halved until all series fit, so that it seldom changes: each change copies the series.
        """
        return _halved(self.samples, 2 * partitions, self.offsets)

    def assignments_for(self, partitions: int) -> int:
        """Return how many assignments the timeline of each group keeps."""
        return _halved(self.assignments, partitions, self.owners)


def _halved(wanted: int, each: int, most: int) -> int:
    while wanted > 2 and wanted * each > most:
        wanted //= 2
    return wanted
