"""Handlers of signals, which the code under test replaces in the process of the tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def kept_handlers() -> Iterator[None]:
    """Puts back the handlers of SIGTERM and SIGINT at the end of the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
