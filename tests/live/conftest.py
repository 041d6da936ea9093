"""Fixtures of tests with real brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamgroup.executor.pools import POOL
from streamgroup.executor.write.producer import PRODUCERS
from streamgroup.kafka.net.handshake import RELEASE_MEMORY
from tests.servers import older_servers

kafka39, kafka11, kafka010, kafka09, kafka08 = older_servers()


@pytest.fixture
def fresh_process() -> Iterator[None]:
    """Begin as a new worker process does, without the releases, connections and producers of earlier tests."""
    RELEASE_MEMORY.clear()
    yield
    POOL.clear()
    PRODUCERS.clear()
