"""The clock of a producer in a task, which shares one thread with what makes the rows."""

from __future__ import annotations

import time
from collections.abc import Callable


class TaskClock:
    """Monotonic seconds, without those in which the task waited for its rows.

    Meanwhile nobody could send a batch or read an answer. If that time counted, `request.timeout.ms` would end
    connections whose answers have arrived, and `delivery.timeout.ms` would fail a task whose rows come slowly.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_out = 0.0
        self._paused_at: float | None = None

    def __call__(self) -> float:
        """Return the time."""
        return (self._clock() if self._paused_at is None else self._paused_at) - self._left_out

    def pause(self) -> None:
        """Stop the clock, if it runs."""
        if self._paused_at is None:
            self._paused_at = self._clock()

    def resume(self) -> None:
        """Let the clock go on where it was stopped."""
        if self._paused_at is not None:
            self._left_out += self._clock() - self._paused_at
            self._paused_at = None
