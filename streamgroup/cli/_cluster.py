"""The cluster that a command line names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from streamgroup.driver.logs.clusters import LogCluster, open_cluster
from streamgroup.errors import ConfigError
from streamgroup.net.cluster import Cluster
from streamgroup.options.kinds import SERVERS, ZOOKEEPER, Kind
from streamgroup.options.types import ClientOptions, ZooKeeperOptions

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

_BOOTSTRAP = click.option("-b", "--bootstrap-server", metavar="HOST:PORT", help="Brokers to begin with.")
_ZOOKEEPER = click.option(
    "-z", "--zookeeper", metavar="HOST:PORT/CHROOT", help="ZooKeeper, for Kafka 0.7 and for groups of Kafka 0.8."
)


def cluster_options(command: Command) -> Command:
    """`--bootstrap-server` and `--zookeeper`."""
    return _BOOTSTRAP(_ZOOKEEPER(command))


def client_options(
    bootstrap_server: str | None, zookeeper: str | None, client_id: str, timeout_ms: int
) -> ClientOptions:
    """What the two options name. Raises ConfigError where one is no address, UsageError where none is given."""
    if not bootstrap_server and not zookeeper:
        raise click.UsageError("give --bootstrap-server, or --zookeeper for Kafka before 0.9")
    registry = None
    if zookeeper:
        servers, chroot = _parsed("--zookeeper", ZOOKEEPER, zookeeper)
        registry = ZooKeeperOptions(servers, chroot, connection_timeout_ms=timeout_ms)
    return ClientOptions(
        _parsed("--bootstrap-server", SERVERS, bootstrap_server) if bootstrap_server else (),
        client_id=client_id,
        default_api_timeout_ms=timeout_ms,
        zookeeper=registry,
    )


def opened(bootstrap_server: str | None, zookeeper: str | None, client_id: str, timeout_ms: int) -> LogCluster:
    """The cluster that is named, in whichever dialect; nothing connects yet."""
    return open_cluster(client_options(bootstrap_server, zookeeper, client_id, timeout_ms))


def cluster_of(servers: str, client_id: str, timeout_ms: int) -> Cluster:
    """The cluster behind `--bootstrap-server`; nothing connects yet. Raises ConfigError where it is no address."""
    return Cluster(client_options(servers, None, client_id, timeout_ms))


def _parsed(option: str, kind: Kind, text: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
