"""How many offsets a batch takes to last about `group.targetBatchDuration`: learned from the batches before."""

from __future__ import annotations

from typing import Final

FIRST: Final = 10_000
"""The offsets of a run's first batch."""
MOST: Final = 2**62
STEP: Final = 4
"""From one batch to the next the size changes at most by this factor."""
APART: Final = 2
"""Two batches whose sizes differ by this factor show which part of their durations is fixed."""
LEAST_SHARE: Final = 0.25
"""The share of the target that the records have at least, where the fixed part alone takes most of it or more."""
RETRY: Final = 16
"""After this many batches beyond the target, a batch of half the size shows the fixed part anew."""


class BatchSizer:
    """The size of the next batch of one run. Times are monotonic seconds.

    A batch of `n` offsets takes `fixed + n * cost` seconds. The last batch shows `cost` if `fixed` is known, and two
    batches of different sizes show `fixed`: Spark's planning and logs, the sink's start, and without a listener the
    wait for the next trigger. The next batch has the size that brings its duration to the target, within STEP.
    """

    def __init__(self) -> None:
        self.offsets = FIRST
        """The most offsets of the next batch, at least 1."""
        self._fixed_s = 0.0
        self._began: tuple[float, int] | None = None
        """When Spark got the tasks of the batch in flight, and its offsets."""
        self._last: tuple[int, float] | None = None
        """The size and the duration of a batch before, for the comparison."""
        self._too_long = 0
        """Batches beyond the target since two sizes were compared."""

    def begin(self, offsets: int, now: float) -> None:
        """Take note that Spark has the tasks of a batch of `offsets` offsets."""
        self._began = (now, offsets) if offsets else None

    def end(self, target_s: float, now: float) -> None:
        """Take note that the batch has sunk."""
        if self._began is None:
            return
        began, offsets = self._began
        self._began = None
        duration_s = max(0.0, now - began)
        self._compare(offsets, duration_s)
        if offsets < self.offsets and duration_s <= target_s:
            return  # the backlog or another limit made it small: that shows nothing about a larger one
        if duration_s > target_s:
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
        """Learn the fixed part of the duration from this batch and one of another size."""
        before, self._last = self._last, (offsets, duration_s)
        if before is None:
            return
        small, large = sorted((before, self._last))
        if large[0] >= APART * small[0]:
            cost_s = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
            self._fixed_s = max(0.0, small[1] - small[0] * cost_s)
            self._too_long = 0
