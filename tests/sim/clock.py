"""Simulated time: a heap of what happens when, threads as generators, the trace. Nothing sleeps."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

Act = Callable[[], None]
Gate = Callable[[Act], None]

MOST_AT_ONCE = 10_000
"""Events at one instant, and waits of one thread that are over at once, before a world counts as endless. No seed and
no scenario has needed 100."""


class Endless(BaseException):
    """Simulated time stands still. Not an Exception: a query would take it for an error of its own and start again."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """A simulated thread yields this to go on so many seconds later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Until:
    """A simulated thread yields this to go on when `condition` holds, or after `seconds`."""

    condition: Callable[[], bool]
    seconds: float


Steps = Generator[Sleep | Until, None, Any]
"""The code of a simulated thread: a generator that yields its waits."""


class SimulatedClock:
    """The clock of one world. Acts that are due at one time happen in the order in which they were asked for."""

    def __init__(self, *, tracing: bool = False) -> None:
        self.now = 0.0
        self.events = 0
        self.trace: list[str] | None = [] if tracing else None
        self._heap: list[tuple[float, int, Act]] = []
        self._asked = 0
        self._at_once = 0
        """How many events there were at this instant."""

    def at(self, time: float, act: Act) -> None:
        """`act` happens at `time`, now at the earliest."""
        self._asked += 1
        heapq.heappush(self._heap, (max(time, self.now), self._asked, act))

    def after(self, seconds: float, act: Act) -> None:
        """`act` happens so many seconds from now."""
        self.at(self.now + seconds, act)

    def run_until(self, time: float) -> None:
        """Let the time go on to `time`. Raises Endless where something repeats without letting time go by."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            due, _, act = heapq.heappop(heap)
            self._at_once = self._at_once + 1 if due == self.now else 1
            if self._at_once > MOST_AT_ONCE:
                raise Endless(f"more than {MOST_AT_ONCE} events at this instant, the last of them {act!r}")
            self.now = due
            self.events += 1
            act()
        self.now = max(self.now, time)

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:9.3f}  {who:<12} {what}")


class Thread:
    """A simulated thread: goes on when what it waits for is there, through the gate of whoever may be paused or dead.

    `done` is called with the exception that ended it, None at its regular end. `look` is to be called whenever a
    condition that it may wait for has changed.
    """

    def __init__(
        self, clock: SimulatedClock, steps: Steps, gate: Gate, done: Callable[[BaseException | None], None]
    ) -> None:
        self._clock = clock
        self._steps = steps
        self._gate = gate
        self._done = done
        self._wait = 0
        self._condition: Callable[[], bool] | None = None
        self.over = False
        clock.after(0, lambda: gate(self._advance))

    def look(self) -> None:
        """Go on if the condition waited for has come true."""
        if self._condition is not None and self._condition():
            self._condition = None
            self._resume_after(0.0)

    def kill(self) -> None:
        """The thread is gone, wherever it was."""
        self.over = True
        self._condition = None

    def fail(self, error: BaseException) -> None:
        """Raise `error` where the thread waits."""
        if self.over:
            return
        self._wait += 1
        self._condition = None
        self._clock.after(0, lambda: self._gate(lambda: self._advance(error)))

    def _resume_after(self, seconds: float) -> None:
        self._wait += 1
        wait = self._wait
        self._clock.after(seconds, lambda: self._gate(lambda: self._due(wait)) if wait == self._wait else None)

    def _due(self, wait: int) -> None:
        if wait == self._wait:
            self._condition = None
            self._advance()

    def _advance(self, error: BaseException | None = None) -> None:
        for _ in range(MOST_AT_ONCE):
            if self.over:
                return
            try:
                wait = self._steps.throw(error) if error is not None else next(self._steps)
            except StopIteration:
                self.over = True
                self._done(None)
                return
            except Exception as failure:
                self.over = True
                self._done(failure)
                return
            error = None
            if isinstance(wait, Until):
                if wait.condition():
                    continue
                self._condition = wait.condition
            self._resume_after(wait.seconds)
            return
        raise Endless(f"more than {MOST_AT_ONCE} waits of {self._steps!r} were over at once")


def raise_failure(error: BaseException | None) -> None:
    """End the world with the error of a thread."""
    if error is not None:
        raise error
