"""The committed offsets and log ends of a group's partitions: one row for each sample, the oldest is overwritten."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from streamgroup.frozen import frozen
from streamgroup.model import TopicPartition

UNKNOWN = -1
"""An unknown offset. No offset is negative."""
Offsets = NDArray[np.int64]


class OffsetSeries:
    """A ring of `capacity` samples. If a sample lacks a partition, its earlier samples are removed too."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._next = 0
        self._count = 0
        self.partitions: tuple[TopicPartition, ...] = ()
        self._times = np.zeros(capacity)
        self._committed: Offsets = np.empty((capacity, 0), np.int64)
        self._ends: Offsets = np.empty((capacity, 0), np.int64)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._times.nbytes + self._committed.nbytes + self._ends.nbytes

    def add(
        self,
        at: float,
        partitions: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """Add a sample. An offset that `committed` or `ends` lacks is UNKNOWN."""
        if tuple(partitions) != self.partitions:
            self._set_partitions(tuple(partitions))
        row = self._next
        self._times[row] = at
        self._committed[row] = [committed.get(tp, UNKNOWN) for tp in self.partitions]
        self._ends[row] = [ends.get(tp, UNKNOWN) for tp in self.partitions]
        self._next = (row + 1) % self._capacity
        self._count = min(self._count + 1, self._capacity)

    def resize(self, capacity: int) -> None:
        """Change the capacity, and keep the newest samples."""
        if capacity == self._capacity:
            return
        rows = self._rows()[-capacity:]
        kept = len(rows)
        times, committed, ends = self._times[rows], self._committed[rows], self._ends[rows]
        self._times = np.zeros(capacity)
        self._committed = np.empty((capacity, len(self.partitions)), np.int64)
        self._ends = np.empty_like(self._committed)
        self._times[:kept], self._committed[:kept], self._ends[:kept] = times, committed, ends
        self._capacity, self._count, self._next = capacity, kept, kept % capacity

    def times(self) -> NDArray[np.float64]:
        """Return the times of the samples, the oldest first."""
        return self._times[self._rows()]

    def committed(self) -> Offsets:
        """Return the committed offsets, one row for each sample, one column for each of `partitions`."""
        return self._committed[self._rows()]

    def ends(self) -> Offsets:
        """Return the log ends, in the same shape."""
        return self._ends[self._rows()]

    def newest(self, count: int) -> tuple[NDArray[np.float64], Offsets, Offsets]:
        """Return times, committed offsets and log ends of the newest `count` samples, or of all if there are fewer."""
        rows = self._rows()[-count:]
        return self._times[rows], self._committed[rows], self._ends[rows]

    def lags(self) -> Offsets:
        return lags(self.committed(), self.ends())

    def _rows(self) -> NDArray[np.intp]:
        first = self._next - self._count
        return np.arange(first, self._next, dtype=np.intp) % self._capacity

    def _set_partitions(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Change the columns. Those of new partitions are UNKNOWN so far."""
        columns = {tp: number for number, tp in enumerate(self.partitions)}
        kept = [(number, columns[tp]) for number, tp in enumerate(partitions) if tp in columns]
        to, source = [pair[0] for pair in kept], [pair[1] for pair in kept]
        for name in ("_committed", "_ends"):
            before: Offsets = getattr(self, name)
            after = np.full((self._capacity, len(partitions)), UNKNOWN, np.int64)
            after[:, to] = before[:, source]
            setattr(self, name, after)
        self.partitions = partitions


def lags(committed: Offsets, ends: Offsets) -> Offsets:
    """Return `ends - committed`, at least 0; UNKNOWN if either is.

    The ends are older than the commits, so a difference may be negative.
    """
    known = (committed != UNKNOWN) & (ends != UNKNOWN)
    return np.where(known, np.maximum(ends - committed, 0), UNKNOWN)


def advance(offsets: Offsets) -> NDArray[np.int64]:
    """Return by how much all partitions together advanced between each sample and the previous one.

    A partition counts if both samples have its offset. A step back, after a reset or for a new topic, counts as 0.
    """
    before, after = offsets[:-1], offsets[1:]
    known = (before != UNKNOWN) & (after != UNKNOWN)
    steps: NDArray[np.int64] = np.where(known, np.maximum(after - before, 0), 0).sum(axis=1)
    return steps


TREND_S = 60.0
"""Seconds of samples that a trend uses."""
_STEADY = 0.02
"""A smaller relative change of the lag counts as steady."""
_LEAST_SAMPLES = 3
_TREND_SAMPLES = 6
"""The least samples that a trend uses, if there are as many."""


@frozen
class Total:
    """A group at one time. `lag` is None if no partition's lag is known; the rates are None in the first sample."""

    at: float
    lag: int | None
    committed_per_s: float | None = None
    written_per_s: float | None = None


class LagTrend(StrEnum):
    """How the lag of a group changes."""

    RISING = "rising"
    FALLING = "falling"
    STEADY = "steady"
    UNKNOWN = "unknown"
    """Too few samples, or no partition's lag is known."""


@frozen
class Trend:
    """The direction of a lag, and its change in records for each second."""

    direction: LagTrend
    per_s: float = 0.0


def trend(totals: Sequence[Total] | deque[Total]) -> Trend:
    """Return the trend of the samples of the last TREND_S seconds, or of the last six.

    It compares the means of the first and of the last third, because a lag goes up and down with each batch.
    """
    if not totals:
        return Trend(LagTrend.UNKNOWN)
    # If the cluster is read once a minute, a minute has too few samples.
    since = min(totals[-1].at - TREND_S, totals[max(0, len(totals) - _TREND_SAMPLES)].at)
    newest = [total for total in totals if total.lag is not None and total.at >= since]
    if len(newest) < _LEAST_SAMPLES:
        return Trend(LagTrend.UNKNOWN)
    third = max(1, len(newest) // 3)
    (at_first, first), (at_last, last) = _mean(newest[:third]), _mean(newest[-third:])
    if at_last <= at_first:
        return Trend(LagTrend.UNKNOWN)
    change = last - first
    per_s = change / (at_last - at_first)
    if abs(change) <= max(1.0, _STEADY * max(first, last)):
        return Trend(LagTrend.STEADY, per_s)
    return Trend(LagTrend.RISING if change > 0 else LagTrend.FALLING, per_s)


def _mean(totals: list[Total]) -> tuple[float, float]:
    count = len(totals)
    return sum(t.at for t in totals) / count, sum(t.lag or 0 for t in totals) / count
