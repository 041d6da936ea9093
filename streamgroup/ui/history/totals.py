"""The total lag of a group and its rates over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

TREND_S = 60.0
"""How far back a trend looks."""
_STEADY = 0.02
"""A change of the lag by less than this part of it is none."""
_LEAST_SAMPLES = 3
_TREND_SAMPLES = 6
"""The samples that a trend looks at, at the least, where there are as many."""


@dataclass(frozen=True, slots=True)
class Total:
    """A group at one time. `lag` is None where no partition's is known; the rates are None in a first sample."""

    at: float
    lag: int | None
    committed_per_s: float | None = None
    written_per_s: float | None = None


class Direction(StrEnum):
    """How the lag of a group changes."""

    RISING = "rising"
    FALLING = "falling"
    STEADY = "steady"
    UNKNOWN = "unknown"
    """Too few samples, or no partition's lag is known."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The direction of a lag, and its change in records for each second."""

    direction: Direction
    per_s: float = 0.0


def trend(totals: Sequence[Total] | deque[Total]) -> Trend:
    """Return the trend of the newest samples, as far as TREND_S goes back, or of the last six.

    It compares the means of the first and of the last third, because a lag goes up and down with each batch.
    """
    if not totals:
        return Trend(Direction.UNKNOWN)
    # Where the cluster is read once a minute, a minute has too few samples.
    since = min(totals[-1].at - TREND_S, totals[max(0, len(totals) - _TREND_SAMPLES)].at)
    newest = [total for total in totals if total.lag is not None and total.at >= since]
    if len(newest) < _LEAST_SAMPLES:
        return Trend(Direction.UNKNOWN)
    third = max(1, len(newest) // 3)
    (at_first, first), (at_last, last) = _mean(newest[:third]), _mean(newest[-third:])
    if at_last <= at_first:
        return Trend(Direction.UNKNOWN)
    change = last - first
    per_s = change / (at_last - at_first)
    if abs(change) <= max(1.0, _STEADY * max(first, last)):
        return Trend(Direction.STEADY, per_s)
    return Trend(Direction.RISING if change > 0 else Direction.FALLING, per_s)


def _mean(totals: list[Total]) -> tuple[float, float]:
    count = len(totals)
    return sum(t.at for t in totals) / count, sum(t.lag or 0 for t in totals) / count
