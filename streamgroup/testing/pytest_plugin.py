"""Fixtures for tests that need real servers.

Every pytest run of an environment with streamgroup loads this module, so expensive imports happen only in the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamgroup.testing import KafkaServer, MariaDbServer, PostgresServer, ZooKeeperServer

_OPTION = "--streamgroup-kafka-version"
_INI = "streamgroup_kafka_version"
_HELP = "Kafka version of the fixture streamgroup_kafka"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option and the ini value; the option wins."""
    parser.getgroup("streamgroup").addoption(_OPTION, default=None, metavar="VERSION", help=_HELP)
    parser.addini(_INI, _HELP, default=None)


@pytest.fixture(scope="session")
def streamgroup_kafka(pytestconfig: pytest.Config) -> Iterator[KafkaServer]:
    """A real Kafka of one broker for the whole session, one per worker under pytest-xdist."""
    from streamgroup.testing import KafkaServer  # noqa: PLC0415
    from streamgroup.testing.releases import NEWEST  # noqa: PLC0415

    version = pytestconfig.getoption(_OPTION) or pytestconfig.getini(_INI) or NEWEST
    with KafkaServer(version) as server:
        yield server


@pytest.fixture(scope="session")
def streamgroup_mariadb() -> Iterator[MariaDbServer]:
    """A real MariaDB for the whole session, one per worker under pytest-xdist."""
    from streamgroup.testing.mariadb import MariaDbServer  # noqa: PLC0415

    with MariaDbServer() as server:
        yield server


@pytest.fixture(scope="session")
def streamgroup_postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL for the whole session, one per worker under pytest-xdist."""
    from streamgroup.testing.postgres import PostgresServer  # noqa: PLC0415

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def streamgroup_zookeeper() -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper for the whole session, one per worker under pytest-xdist."""
    from streamgroup.testing import ZooKeeperServer  # noqa: PLC0415

    with ZooKeeperServer() as server:
        yield server
