"""The fixtures of servers that tests share, one that gives several of them in turn, and the addresses of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import pytest

from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server

OLD = ("kafka08", "kafka09", "kafka010", "kafka11")
"""The servers whose brokers are registered in ZooKeeper."""


def serves(version: str, scope: Literal["session", "package"]) -> Callable[..., Iterator[KafkaServer]]:
    """Make the fixture of a server of this version, which starts when the first test asks for it.

    Almost every file uses the newest release. Another one serves consecutive files of one directory: to start takes 2
    to 4 s of CPU time, and to idle, with its ZooKeeper, as much every two minutes.
    """

    @pytest.fixture(scope=scope)
    def serve() -> Iterator[KafkaServer]:
        with KafkaServer(version) as server:
            yield server

    return serve


def older_servers() -> tuple[Callable[..., Iterator[KafkaServer]], ...]:
    """Make the fixtures of a directory: kafka39, kafka11, kafka010, kafka09 and kafka08."""
    return tuple(serves(version, "package") for version in ("3.9.1", "1.1.1", "0.10.2.2", "0.9.0.1", "0.8.2.2"))


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
