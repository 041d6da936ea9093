"""Waiting in tests: for a condition, with a deadline; and what goes on beside a test until its block ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 30.0


def wait_until(condition: Callable[[], T], what: str, timeout: float = PATIENCE_S, every: float = 0.02) -> T:
    """Wait until `condition` is true; its value. Fails with `what` at the deadline; looks `every` so many seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(every)
    return value


@contextmanager
def repeatedly(act: Callable[[], object], every: float) -> Iterator[None]:
    """Call `act` every so many seconds, from a thread that ends with the block; fails where `act` has failed."""
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
        thread.join(2 * PATIENCE_S)
    assert not thread.is_alive(), "what goes on beside the test does not end"
    assert not failed, failed
