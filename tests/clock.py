"""A clock that only a test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Clock:
    """Seconds as `time.monotonic` returns them. Assign `now`, or sleep, to move it."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Return at once, that much later."""
        self.now += seconds

    def before(self, seconds: float, answer: Any) -> Callable[..., Any]:
        """A function that lets so much time pass whenever it is called, and returns `answer`."""

        def pass_and_answer(*_: Any, **__: Any) -> Any:
            self.sleep(seconds)
            return answer

        return pass_and_answer
