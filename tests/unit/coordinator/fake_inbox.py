"""A run's inbox that records what is left in it; a test scripts what the run wants then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from streamgroup.coordinator.run.interface import ThreadFailed
from streamgroup.coordinator.threads.group_backend import ActionExecutor
from streamgroup.group import events as ev
from tests.unit.coordinator.shells import SOON


class FakeInbox:
    """`script` gives the actions that follow from an event."""

    def __init__(self) -> None:
        self.thread: ActionExecutor | None = None
        self.changed = threading.Condition(threading.RLock())
        self.heard: list[Any] = []
        self.failures: list[Exception] = []
        """The errors that fail the query."""
        self.script: Callable[[Any], list[Any]] = lambda event: []
        self.wake_at: float | None = None

    def post(self, event: Any) -> None:
        with self.changed:
            if isinstance(event, ThreadFailed):
                self.failures.append(event.error)
            else:
                self.heard.append(event)
                if isinstance(event, ev.Tick):
                    self.wake_at = None
                self.want(*self.script(event))
            self.changed.notify_all()

    def tick(self, now: float) -> None:
        if self.wake_at is not None and now >= self.wake_at:
            self.post(ev.Tick())

    def want(self, *actions: Any) -> None:
        assert self.thread is not None
        for action in actions:
            self.thread.carry_out(action)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON
        with self.changed:
            while not condition():
                assert time.monotonic() < deadline, f"heard {self.heard}, failed by {self.failures}"
                self.changed.wait(0.005)  # what a poller or a session does notifies nobody here

    def hears(self, *events: Any) -> None:
        """All of these, in this order, and nothing else but ticks."""

        def heard() -> list[Any]:
            return [event for event in self.heard if not isinstance(event, ev.Tick)]

        self.until(lambda: len(heard()) >= len(events))
        assert heard() == list(events)
