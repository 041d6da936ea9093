"""Deadlines of tests, waiting for a condition, and an action that is repeated beside a test until its block ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 30.0


def soon(seconds: float = TIMEOUT_S) -> float:
    """Return the deadline in so many seconds, as `time.monotonic()` will show it."""
    return time.monotonic() + seconds


def wait_until(condition: Callable[[], T], what: str, timeout: float = TIMEOUT_S, every: float = 0.02) -> T:
    """Check `condition` `every` so many seconds and return its first true value. Fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(every)
    return value


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
