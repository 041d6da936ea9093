"""Limits that change from batch to batch: rates, the target duration of a batch, the packing of small ranges."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamgroup.coordinator.planning.limits import smaller
from streamgroup.model import FetchTask

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions

# -- rates ------------------------------------------------------------------------------------------------------------

BURST_S: Final = 1.0
"""A batch takes the tokens of this many seconds, or of the time since Spark's last call if that is longer."""

LEAST_WAIT_S: Final = 0.001
_ROUNDING = 1e-6
"""A fraction of a token that lacks less than this counts as a whole token: sums of times are not exact."""


class Rate:
    """The token bucket of `group.maxOffsetsPerSecond` or `group.maxBytesPerSecond`.

    Times are `time.monotonic()` values.

    A token is an offset or a byte. The option sets how many tokens are added per second, and a planned batch spends one
    for each of its offsets or bytes. Tokens accumulate between two calls of Spark, so a trigger of a minute takes a
    minute's tokens at once. They do not accumulate over several calls without a batch, for example while there is
    nothing to read. A batch may spend more tokens than available, because each partition takes at least one offset. The
    next batch then waits longer to compensate.

    In any `t` seconds after the start of the query, all batches but the last spend at most `(t + BURST_S) * rate`
    tokens.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at: float | None = None

    def available(self, rate: int, now: float) -> int:
        """Return the tokens at `now`; less than 1 if nothing may be planned. Call it once in each call of Spark."""
        elapsed_s = BURST_S if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._tokens = min(self._tokens + rate * elapsed_s, rate * max(BURST_S, elapsed_s))
        return max(0, int(self._tokens + _ROUNDING))

    def wait_s(self, rate: int) -> float:
        """Return the seconds from the last call of `available` until a token is available."""
        return max(LEAST_WAIT_S, (1 - self._tokens) / rate)

    def spend(self, tokens: int) -> None:
        """Take the tokens of a planned batch."""
        self._tokens -= tokens


# -- the duration of a batch ------------------------------------------------------------------------------------------

FIRST: Final = 10_000
"""The number of offsets of the first batch after the start of a query."""
MOST: Final = 2**62
STEP: Final = 4
"""From one batch to the next the size changes at most by this factor."""
APART: Final = 2
"""Two batches whose sizes differ by this factor show which part of their durations is fixed."""
LEAST_SHARE: Final = 0.25
"""The minimum share of the target duration for records, even if the fixed part takes most of it or more."""
TOO_LONG: Final = 1 + 1e-9
"""The share of the target beyond which a batch exceeds it: a sum of floats at the target may be rounded up."""
RETRY: Final = 16
"""After this many batches that exceed the target, one batch of half the size measures the fixed part again."""


class BatchSizer:
    """Chooses the number of offsets of the next batch, to reach `group.targetBatchDuration`.

    A batch of `n` offsets takes `fixed + n * cost` seconds. `fixed` is Spark's planning and logs, the sink's start, and
    without a listener the wait for the next trigger. It is estimated from two batches of different sizes, and `cost`
    from the last batch. The size of the next batch is the one that should take the target duration, limited to a change
    by the factor STEP. Times are `time.monotonic()` values.
    """

    def __init__(self) -> None:
        self.offsets = FIRST
        """The maximum number of offsets of the next batch, at least 1."""
        self._fixed_s = 0.0
        self._began: tuple[float, int] | None = None
        """For the batch in flight, if its tasks were made: when, and its number of offsets."""
        self._last: tuple[int, float] | None = None
        """The size and the duration of an earlier batch, for the comparison."""
        self._too_long = 0
        """Batches that exceeded the target since two sizes were compared."""

    def begin(self, offsets: int, now: float) -> None:
        """Record that Spark has the tasks of a batch of `offsets` offsets."""
        self._began = (now, offsets) if offsets else None

    def end(self, target_s: float, now: float) -> None:
        """Record that the batch is completed."""
        if self._began is None:
            return
        began, offsets = self._began
        self._began = None
        duration_s = max(0.0, now - began)
        self._compare(offsets, duration_s)
        if offsets < self.offsets and duration_s <= target_s:
            return  # the backlog or another limit made it small: that shows nothing about a larger one
        if duration_s > target_s * TOO_LONG:
            self._too_long += 1
        if self._too_long >= RETRY:
            self._too_long = 0
            self.offsets = max(1, offsets // APART)
            return
        work_s = max(target_s - self._fixed_s, target_s * LEAST_SHARE)
        spent_s = duration_s - self._fixed_s
        ideal = offsets * STEP if spent_s * STEP <= work_s else int(offsets * work_s / spent_s)
        self.offsets = max(1, offsets // STEP, min(ideal, offsets * STEP, MOST))

    def _compare(self, offsets: int, duration_s: float) -> None:
        """Estimate the fixed part of the duration from this batch and one of another size."""
        before, self._last = self._last, (offsets, duration_s)
        if before is None:
            return
        small, large = sorted((before, self._last))
        if large[0] >= APART * small[0]:
            cost_s = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
            self._fixed_s = max(0.0, small[1] - small[0] * cost_s)
            self._too_long = 0


# -- packing ----------------------------------------------------------------------------------------------------------

FIXED_S: Final = 0.15
"""Seconds that a batch without records takes: Spark's planning, its two logs, and the report that it has sunk."""
TASK_S: Final = 0.015
"""Seconds that one more task adds to a batch if two cores share the tasks."""
WORTH_S: Final = 0.03
"""Records that take less than this are read in one task, because one more task costs as much."""
MOST_PAUSE: Final = 1024


class PackingLimit:
    """Decides how many offsets of small ranges may share a task in the next batch.

    The first batch packs nothing: each partition has its own task.

    The driver cannot find out how many cores the application has, nor how long its functions work on a record. But a
    batch cannot end before its longest task. So its duration, less the fixed costs, is an upper bound for the cost of
    an offset. Ranges share a task up to the number of offsets that take `WORTH_S` seconds at that cost. If a batch
    takes no longer than the fixed costs, the limit doubles. If the larger tasks then make a batch longer, the limit is
    lowered, and is not raised without evidence for 1, 2, 4, ... batches.

    Times are `time.monotonic()` values.
    """

    def __init__(self) -> None:
        self.offsets = 0
        """The maximum number of offsets in a shared task of the next batch."""
        self._began: tuple[float, int, int, bool] | None = None
        """For the batch in flight, if its tasks were made: when, how many, offsets of the longest, whether any is
        shared."""
        self._pause = 0
        self._next_pause = 1

    def begin(self, tasks: Collection[FetchTask], now: float) -> None:
        """Record that the tasks of a batch were handed to Spark at `now`."""
        longest = max(map(len, tasks), default=0)
        packed = any(len(task.ranges) > 1 for task in tasks)
        self._began = (now, len(tasks), longest, packed) if longest else None

    def end(self, now: float) -> None:
        """Record that the batch is completed."""
        if self._began is None:
            return
        began, tasks, longest, packed = self._began
        self._began = None
        work_s = now - began - FIXED_S - tasks * TASK_S
        if work_s > 0:
            self.offsets = int(longest * WORTH_S / work_s)
            if packed and self.offsets < longest:
                self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, MOST_PAUSE)
        elif self._pause:
            self._pause -= 1
        else:
            self.offsets = max(self.offsets, 2 * longest)


class Pace:
    """Combines all limits of one query that change from batch to batch. Times are `time.monotonic()` values.

    Trigger.Once reads the entire backlog in one batch, so no limit applies to it.
    """

    def __init__(self, target_batch_s: float | None = None) -> None:
        self._target_s = target_batch_s
        self._sizer = BatchSizer()
        self._offsets = Rate()
        self._bytes = Rate()
        self.packing = PackingLimit()

    def limits(self, limits: LimitOptions, now: float) -> LimitOptions:
        """Return the limits of a batch planned now, each the smallest that applies. Call it once per call of Spark."""
        by_rate = [
            None if rate is None else bucket.available(rate, now)
            for bucket, rate in (
                (self._offsets, limits.max_offsets_per_second),
                (self._bytes, limits.max_bytes_per_second),
            )
        ]
        if 0 in by_rate:
            return replace(limits, is_spent=True)
        by_duration = None if self._target_s is None else self._sizer.offsets
        return replace(
            limits,
            max_offsets_per_trigger=smaller(limits.max_offsets_per_trigger, by_rate[0], by_duration),
            max_bytes_per_trigger=smaller(limits.max_bytes_per_trigger, by_rate[1]),
        )

    def wait_s(self, limits: LimitOptions) -> float:
        """Return the seconds from the last call of `limits` until the rates allow a batch."""
        rates = (self._offsets, limits.max_offsets_per_second), (self._bytes, limits.max_bytes_per_second)
        return max((bucket.wait_s(rate) for bucket, rate in rates if rate is not None), default=0.0)

    def planned(self, offsets: int, size: int) -> None:
        """Record a planned batch of `offsets` offsets and `size` bytes."""
        self._offsets.spend(offsets)
        self._bytes.spend(size)

    def begin(self, tasks: Collection[FetchTask], now: float) -> None:
        """Record that the tasks of a batch were handed to Spark at `now`."""
        self.packing.begin(tasks, now)
        self._sizer.begin(sum(map(len, tasks)), now)

    def end(self, now: float) -> None:
        """Record that the batch is completed."""
        self.packing.end(now)
        if self._target_s is not None:
            self._sizer.end(self._target_s, now)
