"""How much the next batch of a run may take: the options' limits, the rates, and the batch duration that is wanted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from streamgroup.model import FetchTask
from streamgroup.planning.batch_sizer import BatchSizer
from streamgroup.planning.limits import smaller
from streamgroup.planning.packing_limit import PackingLimit
from streamgroup.planning.rates import Rate

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions


class Pace:
    """The limits of one run that change from batch to batch. Times are monotonic seconds.

    Trigger.Once takes everything at once, so nothing limits it.
    """

    def __init__(self, target_batch_s: float | None = None) -> None:
        self._target_s = target_batch_s
        self._sizer = BatchSizer()
        self._offsets = Rate()
        self._bytes = Rate()
        self.packing = PackingLimit()

    def limits(self, limits: LimitOptions, now: float) -> LimitOptions:
        """Return the limits of a batch planned now: each is the smallest of those that hold. Called once in a call."""
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
        """Take note of a planned batch of `offsets` offsets and `size` bytes."""
        self._offsets.spend(offsets)
        self._bytes.spend(size)

    def begin(self, tasks: Collection[FetchTask], now: float) -> None:
        """Take note that Spark has the tasks of a batch."""
        self.packing.begin(tasks, now)
        self._sizer.begin(sum(map(len, tasks)), now)

    def end(self, now: float) -> None:
        """Take note that the batch has sunk."""
        self.packing.end(now)
        if self._target_s is not None:
            self._sizer.end(self._target_s, now)
