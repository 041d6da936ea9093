"""The growth of a figure over time, pooled over processes, with a 95 % confidence interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Series = Sequence[tuple[float, float]]
"""Points (seconds, value) of one process, in the order of time."""
Floats = npt.NDArray[np.float64]

SECONDS_PER_HOUR = 3600.0
FEWEST_BINS = 3
"""Bins of a process that count: two always lie on a line."""
_FEWEST_FREEDOM = 3
_MOST_CORRELATION = 0.9
_ROUNDING = 1e-18
_NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope per hour, its 95 % confidence interval, and the bins and processes that it rests on."""

    per_hour: float
    low: float
    high: float
    bins: int
    processes: int


def trend(processes: Iterable[Series], warm_s: float, bin_s: float) -> Trend | None:
    """Return the slope that all processes share, each from a level of its own. None with too few points.

    Least squares on the medians of bins of `bin_s` seconds, without the first `warm_s` seconds of each process. An
    allocator grows in steps, so a bin resembles the one before. The interval is that of as many independent bins as
    this leaves: with a correlation r of neighbours, (1 - r) / (1 + r) of them.
    """
    all_bins = (bins(points, warm_s, bin_s) for points in processes)
    series = [(times, values) for times, values in all_bins if len(times) >= FEWEST_BINS]
    count, lives = sum(len(times) for times, _ in series), len(series)
    freedom = count - lives - 1
    if freedom < 1:
        return None
    centred = [(times - times.mean(), values - values.mean()) for times, values in series]
    spread = sum(float(times @ times) for times, _ in centred)
    slope = sum(float(times @ values) for times, values in centred) / spread
    residuals = [values - slope * times for times, values in centred]
    squares = sum(float(each @ each) for each in residuals)
    per_independent = _bins_per_independent_one(residuals, squares, count)
    variance = squares / freedom / spread * per_independent
    left = max(_FEWEST_FREEDOM, int(count / per_independent) - lives - 1)
    margin = t_quantile(left) * math.sqrt(variance)
    return Trend(slope, slope - margin, slope + margin, count, lives)


def _bins_per_independent_one(residuals: Sequence[Floats], squares: float, count: int) -> float:
    """Return (1 + r) / (1 - r) for the correlation r of neighbours.

    The estimate of r is too small by about (1 + 3 r) / n with n bins of a process, since the level and the slope are
    estimated from the same bins (Marriott and Pope, 1954). Without this correction intervals are too narrow.
    """
    if squares < _ROUNDING * count:  # a straight line
        return 1.0
    found = sum(float(each[1:] @ each[:-1]) for each in residuals) / squares
    correlation = min(_MOST_CORRELATION, max(0.0, found + (1 + 3 * found) * len(residuals) / count))
    return (1 + correlation) / (1 - correlation)


def bins(series: Series, warm_s: float, bin_s: float) -> tuple[Floats, Floats]:
    """Return the hours and the medians of a process's bins; the last bin may be shorter."""
    if not series:
        return np.empty(0), np.empty(0)
    first = series[0][0] + warm_s
    by_bin: dict[int, list[tuple[float, float]]] = {}
    for at, value in series:
        if at >= first:
            by_bin.setdefault(int((at - first) // bin_s), []).append((at, value))
    times = [float(np.mean([at for at, _ in points])) / SECONDS_PER_HOUR for points in by_bin.values()]
    values = [float(np.median([value for _, value in points])) for points in by_bin.values()]
    return np.array(times), np.array(values)


def t_quantile(freedom: int) -> float:
    """Return Student's 97.5 % quantile, by the expansion of Cornish and Fisher; the first two are exact."""
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z, n = _NORMAL, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def growth(series: Series, warm_s: float) -> float | None:
    """Return how much higher the median of the last third of a process's points is than that of the first third."""
    kept = [value for at, value in series if at >= series[0][0] + warm_s]
    third = len(kept) // 3
    if third < FEWEST_BINS:
        return None
    return float(np.median(kept[-third:]) - np.median(kept[:third]))
