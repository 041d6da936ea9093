"""The shared servers of tests/conftest.py: a fixture that gives several of them, and their addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server

OLD = ("kafka08", "kafka09", "kafka010", "kafka11")
"""The servers whose brokers are registered in ZooKeeper."""


def each_of(*names: str, long: Sequence[str] = ()) -> Callable[..., KafkaServer]:
    """Make a fixture that gives each of these servers in turn, by the names of their fixtures; `long` in long tests."""
    params = [*names, *(pytest.param(name, marks=pytest.mark.long) for name in long)]

    @pytest.fixture(params=params)
    def one(request: pytest.FixtureRequest) -> KafkaServer:
        server: KafkaServer = request.getfixturevalue(request.param)
        return server

    return one


def address_of(server: KafkaServer | Kafka07Server) -> tuple[str, int]:
    """Return host and port of the first broker."""
    host, port = server.bootstrap_servers.split(",")[0].rsplit(":", 1)
    return host, int(port)
