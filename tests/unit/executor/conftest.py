"""The executor is tested against the same scripted brokers as the connections."""

from collections.abc import Iterator

import pytest

from streamgroup.executor.cursor import SIZES
from streamgroup.executor.pool import POOL
from tests.fakes.broker07 import start_broker07
from tests.unit.net.conftest import broker, fresh_memory, options

__all__ = ["broker", "fresh_memory", "options", "start_broker07"]


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """Each test begins as a new worker process does."""
    SIZES.clear()
    yield
    POOL.clear()
