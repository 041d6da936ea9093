"""The cluster that a command line names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

from streamgroup.cluster.interface import Cluster, open_cluster
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import ConfigError
from streamgroup.options.kinds import SECRET, SERVERS, TEXT, ZOOKEEPER, Kind
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ClientOptions, ZooKeeperOptions

Command = TypeVar("Command", bound=Callable[..., Any])

_FOR = "for brokers that register in ZooKeeper, and for groups of old consumers, whatever the broker"
EITHER = f"--bootstrap-server, or --zookeeper {_FOR}"
"""What a command needs that looks at a cluster."""
_OPTIONS = (
    click.option("-b", "--bootstrap-server", metavar="HOST:PORT", help="Brokers to begin with."),
    click.option("-z", "--zookeeper", metavar="HOST:PORT/CHROOT", help=f"ZooKeeper, {_FOR}."),
    click.option("--zookeeper-username", metavar="NAME", help="Whom to be in ZooKeeper, by digest authentication."),
    click.option(
        "--zookeeper-password",
        metavar="PASSWORD",
        help="Better a reference, env:NAME or file:PATH: others on this machine see what a command is given.",
    ),
)


@dataclass(frozen=True, slots=True)
class Where:
    """What a command line tells of the cluster."""

    bootstrap_server: str | None = None
    zookeeper: str | None = None
    username: str | None = None
    password: Secret | None = None


def cluster_options(command: Command) -> Command:
    """The options that name the cluster; `command` has them as `where`."""

    @functools.wraps(command)
    def with_cluster(
        *args: Any,
        bootstrap_server: str | None,
        zookeeper: str | None,
        zookeeper_username: str | None,
        zookeeper_password: str | None,
        **others: Any,
    ) -> Any:
        username = _parsed("--zookeeper-username", TEXT, zookeeper_username)
        password = _parsed("--zookeeper-password", SECRET, zookeeper_password)
        return command(*args, where=Where(bootstrap_server, zookeeper, username, password), **others)

    told = cast("Command", with_cluster)
    for option in reversed(_OPTIONS):
        told = option(told)
    return told


def client_options(where: Where, client_id: str, timeout_ms: int) -> ClientOptions:
    """What is named. Raises ConfigError where something is no address, UsageError where something is missing."""
    if not where.bootstrap_server and not where.zookeeper:
        raise click.UsageError(f"give {EITHER}")
    return ClientOptions(
        _parsed("--bootstrap-server", SERVERS, where.bootstrap_server or None) or (),
        client_id=client_id,
        default_api_timeout_ms=timeout_ms,
        zookeeper=_registry(where, timeout_ms),
    )


def _registry(where: Where, timeout_ms: int) -> ZooKeeperOptions | None:
    if (where.username is None) != (where.password is None):
        raise click.UsageError("--zookeeper-username and --zookeeper-password belong together")
    if not where.zookeeper:
        if where.username is not None:
            raise click.UsageError("--zookeeper-username and --zookeeper-password need --zookeeper")
        return None
    servers, chroot = _parsed("--zookeeper", ZOOKEEPER, where.zookeeper)
    return ZooKeeperOptions(
        servers,
        chroot,
        connection_timeout_ms=timeout_ms,
        username=where.username or "",
        password=where.password,
    )


def opened(where: Where, client_id: str, timeout_ms: int) -> Cluster:
    """The cluster that is named, in whichever dialect; nothing connects yet."""
    return open_cluster(client_options(where, client_id, timeout_ms))


def cluster_of(servers: str, client_id: str, timeout_ms: int) -> KafkaCluster:
    """The cluster behind `--bootstrap-server`; nothing connects yet. Raises ConfigError where it is no address."""
    return KafkaCluster(client_options(Where(servers), client_id, timeout_ms))


def _parsed(option: str, kind: Kind, text: str | None) -> Any:
    """None where the option is not given."""
    if text is None:
        return None
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
