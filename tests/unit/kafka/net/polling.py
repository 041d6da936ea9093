"""Waits for the events of a poller."""

from __future__ import annotations

import time

from streamgroup.kafka.net.poller import Event, Poller
from tests.waiting import TIMEOUT_S


def collect(poller: Poller, count: int, seconds: float = TIMEOUT_S) -> list[Event]:
    """Return the next `count` events, or more where they come together."""
    until = time.monotonic() + seconds
    events: list[Event] = []
    while len(events) < count:
        left = until - time.monotonic()
        assert left > 0, f"only {events}"
        events += poller.wait(left)
    return events
