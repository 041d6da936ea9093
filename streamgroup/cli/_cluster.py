"""The options of a command line that name a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from streamgroup.cli._click import CONNECTION, option
from streamgroup.cli._properties import without_prefix
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster.interface import Cluster, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options.kinds import SECRET, SERVERS, TEXT, ZOOKEEPER, ValueKind
from streamgroup.options.parse import kafka_properties, parse_client
from streamgroup.options.rows import PREFIX
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ClientOptions, ZooKeeperOptions
from streamgroup.options.zookeeper import CONNECT
from streamgroup.options.zookeeper import PREFIX as ZOOKEEPER_PREFIX

_STORE = f"{PREFIX}offsets.store"
"""The beginning of the options of an offset table, with the prefix that all properties of a file get."""
PORT = 9092
"""The port of a broker if the command line names none."""
Command = TypeVar("Command", bound=Callable[..., Any])

_FOR = "for Kafka before 0.9 and for groups of old consumers"
EITHER = f"--bootstrap-server, or --zookeeper {_FOR}"
"""A command needs one of these options."""
_BROKERS = option(
    CONNECTION,
    "-b",
    "--bootstrap-server",
    metavar="HOST[:PORT]",
    help="One or more brokers, separated by commas. The default port is 9092.",
)
_COMMAND_CONFIG = option(
    CONNECTION,
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Properties of the connection (TLS, SASL), one NAME=VALUE in a line. A file for Kafka's own tools works.",
)
_USER = (
    option(CONNECTION, "--zookeeper-username", metavar="NAME", help="User for ZooKeeper's digest authentication."),
    option(
        CONNECTION,
        "--zookeeper-password",
        metavar="PASSWORD",
        help="Password of that user. Other users of this machine can see it, unless it is env:NAME or file:PATH.",
    ),
)


@frozen
class ClusterAddress:
    """The cluster as a command line names it."""

    bootstrap_server: str | None = None
    zookeeper: str | None = None
    username: str | None = None
    password: Secret | None = None
    command_config: Path | None = None

    def properties(self) -> dict[str, str]:
        """Return the properties of the file, Kafka's with their prefix, and the command line's options of ZooKeeper.

        Without `--zookeeper` the file's properties of ZooKeeper have no effect. Raises ConfigError.
        """
        given = {name: value for name, value in self._of_file().items() if not name.startswith(_STORE)}
        if not self.zookeeper:
            return {name: value for name, value in given.items() if not name.startswith(ZOOKEEPER_PREFIX)}
        given[CONNECT] = self.zookeeper
        if self.username is not None and self.password is not None:
            given[f"{ZOOKEEPER_PREFIX}username"] = self.username
            given[f"{ZOOKEEPER_PREFIX}password"] = self.password.value
        return given

    def store_properties(self) -> dict[str, str]:
        """Return the options `offsets.store...` of the file. Raises ConfigError."""
        return {name.removeprefix(PREFIX): value for name, value in self._of_file().items() if name.startswith(_STORE)}

    def _of_file(self) -> dict[str, str]:
        if self.command_config is None:
            return {}
        try:
            return kafka_properties(self.command_config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the file of --command-config, {self.command_config}: {error}") from None


def cluster_options(command: Command) -> Command:
    """Add the options that name a cluster to `command`, which gets them as `where`."""
    return _with_cluster(command, "-z", "--zookeeper")


def cluster_options_without_z(command: Command) -> Command:
    """Add the same options to a command whose `-z` is kcat's: a codec."""
    return _with_cluster(command, "--zookeeper")


def broker_options(command: Command) -> Command:
    """Add the options that name a cluster by its brokers to `command`, which gets them as `where`."""

    @functools.wraps(command)
    def with_brokers(*args: Any, bootstrap_server: str | None, command_config: Path | None, **others: Any) -> Any:
        brokers = None if bootstrap_server is None else with_ports(bootstrap_server)
        return command(*args, where=ClusterAddress(brokers, command_config=command_config), **others)

    return cast("Command", _BROKERS(_COMMAND_CONFIG(with_brokers)))


def with_ports(servers: str) -> str:
    """Return `servers` with port 9092 for each host without a port, as in kcat."""
    return ",".join(_with_port(server.strip()) for server in servers.split(","))


def _with_port(server: str) -> str:
    host = server.rpartition("]")[2] if server.startswith("[") else server  # the address of IPv6 has colons
    return server if not server or ":" in host else f"{server}:{PORT}"


def _with_cluster(command: Command, *zookeeper_names: str) -> Command:
    zookeeper_option = option(
        CONNECTION,
        *zookeeper_names,
        metavar="HOST:PORT[/CHROOT]",
        help=f"One or more ZooKeeper servers, separated by commas, {_FOR}.",
    )

    @functools.wraps(command)
    def with_cluster(
        *args: Any,
        bootstrap_server: str | None,
        zookeeper: str | None,
        zookeeper_username: str | None,
        zookeeper_password: str | None,
        command_config: Path | None,
        **others: Any,
    ) -> Any:
        username = _parsed("--zookeeper-username", TEXT, zookeeper_username)
        password = _parsed("--zookeeper-password", SECRET, zookeeper_password)
        brokers = None if bootstrap_server is None else with_ports(bootstrap_server)
        return command(*args, where=ClusterAddress(brokers, zookeeper, username, password, command_config), **others)

    decorated = cast("Command", with_cluster)
    for add in reversed((_BROKERS, zookeeper_option, _COMMAND_CONFIG, *_USER)):
        decorated = add(decorated)
    return decorated


def client_options(where: ClusterAddress, client_id: str, timeout_ms: int) -> ClientOptions:
    """Return the client options for the cluster, after warnings on standard error. Raises as `parsed_client`."""
    client, notes = parsed_client(where, client_id, timeout_ms)
    for note in notes:
        click.echo(without_prefix(note), err=True)
    return client


def parsed_client(where: ClusterAddress, client_id: str, timeout_ms: int) -> tuple[ClientOptions, tuple[str, ...]]:
    """Return the client options for the cluster, and warnings.

    Raises ConfigError for an invalid value, and UsageError if an option is missing.
    """
    if not where.bootstrap_server and not where.zookeeper:
        raise click.UsageError(f"name the cluster with {EITHER}")
    _check_registry(where)
    client, notes = parse_client({"kafka.client.id": client_id, **where.properties()})
    options = replace(
        client,
        bootstrap_servers=_parsed("--bootstrap-server", SERVERS, where.bootstrap_server or None) or (),
        default_api_timeout_ms=timeout_ms,
        zookeeper=with_timeout(client.zookeeper, timeout_ms),
    )
    return options, notes


def with_timeout(registry: ZooKeeperOptions | None, timeout_ms: int) -> ZooKeeperOptions | None:
    """Return the options of ZooKeeper with the command's timeout for the first connection."""
    return None if registry is None else replace(registry, connection_timeout_ms=timeout_ms)


def _check_registry(where: ClusterAddress) -> None:
    if (where.username is None) != (where.password is None):
        raise click.UsageError("--zookeeper-username and --zookeeper-password require each other")
    if not where.zookeeper:
        if where.username is not None:
            raise click.UsageError("--zookeeper-username and --zookeeper-password require --zookeeper")
        return
    _parsed("--zookeeper", ZOOKEEPER, where.zookeeper)


def opened(where: ClusterAddress, client_id: str, timeout_ms: int) -> Cluster:
    """Return the cluster that the command line names. It connects at its first request."""
    return open_cluster(client_options(where, client_id, timeout_ms))


def cluster_of(servers: str, client_id: str, timeout_ms: int) -> KafkaCluster:
    """Return the cluster of `--bootstrap-server`, which connects at its first request.

    Raises ConfigError for an invalid address.
    """
    return KafkaCluster(client_options(ClusterAddress(servers), client_id, timeout_ms))


def _parsed(option: str, kind: ValueKind, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"invalid value for {option}: {error}") from None
