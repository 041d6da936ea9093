"""A call of the run under the test's own clock."""

from __future__ import annotations

from typing import Any

from streamgroup.run.steps import Steps, Until


class Call:
    """Begins a call at `now`; `at` lets it go on as far as it can at a later time."""

    def __init__(self, steps: Steps[Any], now: float = 0.0) -> None:
        self._steps = steps
        self._wait: Until | None = None
        self._since = now
        self.is_over = False
        self.result: Any = None
        try:
            self._wait = next(steps)
        except StopIteration as done:
            self._end(done.value)
        self.at(now)

    def at(self, now: float) -> Call:
        """Let the call go on at `now`: where its condition holds, or its time has passed."""
        while self._wait is not None and (self._wait.condition(now) or now >= self._since + self._wait.seconds):
            try:
                self._wait, self._since = self._steps.send(now), now
            except StopIteration as done:
                self._end(done.value)
        return self

    def _end(self, result: Any) -> None:
        self.is_over, self.result, self._wait = True, result, None
