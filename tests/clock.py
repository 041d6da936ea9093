"""A clock that only a test moves."""

from __future__ import annotations


class Clock:
    """Seconds as `time.monotonic` returns them. Assign `now`, or sleep, to move it."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Return at once, that much later."""
        self.now += seconds
