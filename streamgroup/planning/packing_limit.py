"""How many offsets small ranges may share in one task: learned from how long the batches of a run take."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from streamgroup.model import FetchTask

FIXED_S: Final = 0.15
"""Seconds that a batch without records takes: Spark's planning, its two logs, and the report that it has sunk."""
TASK_S: Final = 0.015
"""Seconds that one more task adds to a batch where two cores share the tasks."""
WORTH_S: Final = 0.03
"""Records that take less than this are read in one task, because one more task costs as much."""
MOST_PAUSE: Final = 1024


class PackingLimit:
    """The limit for the next batch of one run. The first batch packs nothing: each partition has a task of its own.

    The driver does not know how many cores the application has, nor how long its functions work on a record. But a
    batch cannot end before its longest task. Its duration, less the fixed costs, therefore bounds what an offset costs,
    and ranges share a task up to the offsets that take `WORTH_S` at that cost. Where only fixed costs are left, the
    limit doubles from batch to batch. Where the larger tasks then make a batch longer, the limit falls, and is not
    raised without evidence for 1, 2, 4, ... batches.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self.offsets = 0
        """The most offsets of ranges that share a task in the next batch."""
        self._began: tuple[float, int, int, bool] | None = None
        """Of the batch in flight: when Spark got it, its tasks, the offsets of the longest, whether any is packed."""
        self._pause = 0
        self._next_pause = 1

    def begin(self, tasks: Collection[FetchTask], now: float) -> None:
        """Take note that Spark has the tasks of a batch."""
        longest = max(map(len, tasks), default=0)
        packed = any(len(task.ranges) > 1 for task in tasks)
        self._began = (now, len(tasks), longest, packed) if longest else None

    def end(self, now: float) -> None:
        """Take note that the batch has sunk."""
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
