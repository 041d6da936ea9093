"""Deadlines of tests, waiting for a condition, and an action that is repeated beside a test until its block ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 30.0
_PAUSE_PER_CHECK = 3.0
"""The pause after a check of a condition, as a multiple of the time that the check took."""
_LONGEST_PAUSE_S = 0.25


def soon(seconds: float = TIMEOUT_S) -> float:
    """Return the deadline in so many seconds, as `time.monotonic()` will show it."""
    return time.monotonic() + seconds


def wait_until(condition: Callable[[], T], what: str, timeout: float = TIMEOUT_S, every: float = 0.02) -> T:
    """Check `condition` `every` so many seconds and return its first true value. Fail with `what` at the deadline.

    A condition that takes long is checked less often, so that the servers and queries which it waits for have the CPU.
    """
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        assert now < deadline, f"not within {timeout:.0f} s: {what}"
        pause = max(every, min(_LONGEST_PAUSE_S, _PAUSE_PER_CHECK * (now - began)))
        time.sleep(min(pause, max(every, deadline - now)))


@contextmanager
def repeatedly(act: Callable[[], object], every: float) -> Iterator[None]:
    """Call `act` every so many seconds, from a thread that ends with the block. Fail if `act` has failed."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not over.wait(every):
                act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=f"repeatedly-{act!r}"[:60])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2 * TIMEOUT_S)
    assert not thread.is_alive(), "the repeated action does not end"
    assert not failed, failed
