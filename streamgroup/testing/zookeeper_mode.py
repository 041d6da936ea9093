"""ZooKeeper mode: brokers and topics are registered in ZooKeeper, as in every Kafka before KRaft."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from streamgroup.errors import ConfigError, TransportError
from streamgroup.testing.metadata_mode import check_data_dir
from streamgroup.testing.node import PLAINTEXT, NodePlan, listeners_text
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import accepts, answers_metadata, brokers_known_to
from streamgroup.testing.processes import ServerStartError
from streamgroup.testing.releases import Listeners, Release
from streamgroup.testing.zookeeper import ZooKeeperServer

CONNECT_TIMEOUT_S = 15.0
_POLL_S = 0.05

RESERVED = frozenset(
    {
        "brokerid",
        "hostname",
        "enable.zookeeper",
        "zk.connect",
        "broker.id",
        "host.name",
        "port",
        "advertised.host.name",
        "advertised.port",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "log.dir",
        "log.dirs",
        "zookeeper.connect",
    }
)
"""Properties that KafkaServer sets itself and `config` must not contain."""

_KAFKA07: Mapping[str, str] = {
    # Flushes, and so exposes, each message at once (default: after 500 messages or 3 s).
    "log.flush.interval": "1",
    "zk.sessiontimeout.ms": "4000",
    "zk.connectiontimeout.ms": "30000",
}

_SINCE: Sequence[tuple[tuple[int, ...], Mapping[str, str]]] = (
    (
        (0, 8),
        {
            # A misspelt topic is an error in a test, not a new topic.
            "auto.create.topics.enable": "false",
            "delete.topic.enable": "true",
            "min.insync.replicas": "1",
            "num.partitions": "1",
            "offsets.topic.num.partitions": "4",
            "controlled.shutdown.enable": "true",
            # The last broker of a cluster retries three times to move its leaderships (default: every 5 s).
            "controlled.shutdown.retry.backoff.ms": "200",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            # A restart waits until the node of the killed broker has expired (default: 6 s).
            "zookeeper.session.timeout.ms": "4000",
            "zookeeper.connection.timeout.ms": "30000",
        },
    ),
    ((0, 9), {"group.min.session.timeout.ms": "1000"}),
    (
        (0, 10),
        {
            # Records with timestamps of last year would be deleted some minutes after they were written.
            "log.retention.hours": "-1",
        },
    ),
    (
        (0, 11),
        {
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            # Kafka waits 3 s for more members before the first generation of a group; tests would wait each time.
            "group.initial.rebalance.delay.ms": "0",
        },
    ),
)
"""Defaults, by the release that introduced them, that make a small cluster fast and strict; `config` overrides them."""

_NAMES = ("broker.id", "log.dirs", "zookeeper.connect")
_NAMES07 = ("brokerid", "log.dir", "zk.connect")

_REPLICAS_SINCE: Mapping[str, tuple[int, ...]] = {
    "default.replication.factor": (0, 8),
    "offsets.topic.replication.factor": (0, 8),
    "transaction.state.log.replication.factor": (0, 11),
}


class ZooKeeperMode:
    """The `MetadataMode` of ZooKeeper, with a server of its own or the one at `zookeeper`.

    `protocol` is that of the brokers' listener for clients.
    """

    reserved = RESERVED

    def __init__(
        self,
        release: Release,
        brokers: int,
        *,
        zookeeper: str | None,
        zookeeper_port: int | None = None,
        detached: bool,
        start_timeout_s: float,
        protocol: str = PLAINTEXT,
    ) -> None:
        if zookeeper is not None and zookeeper_port is not None:
            raise ConfigError(
                f"invalid zookeeper={zookeeper} with zookeeper_port={zookeeper_port}: the port is for a new ZooKeeper"
            )
        self._release = release
        self._brokers = brokers
        self._given = zookeeper
        self._port = zookeeper_port
        self._detached = detached
        self._start_timeout_s = start_timeout_s
        self._protocol = protocol
        self.server: ZooKeeperServer | None = None

    @property
    def zookeeper_connect(self) -> str:
        """`host:port/chroot` of the given ZooKeeper, else `host:port` of its own."""
        if self._given is not None:
            return self._given
        return "" if self.server is None else self.server.connect_string

    @property
    def needs_clean_shutdown(self) -> bool:
        """True for a given ZooKeeper, which keeps the nodes of killed brokers until their sessions expire."""
        return self._given is not None

    def open(self, home: Path, classpath: Sequence[Path]) -> None:
        """Start a ZooKeeper, or create the chroot in the given one."""
        check_data_dir(home, self._brokers, "zookeeper", {})
        if self._given is not None:
            hosts, slash, chroot = self._given.partition("/")
            with zookeeper_client(hosts) as client:
                client.ensure_path(slash + chroot)
        else:
            server = ZooKeeperServer(
                port=self._port,
                data_dir=home / "zookeeper",
                detached=self._detached,
                start_timeout_s=self._start_timeout_s,
            )
            self.server = server.start()

    def plan(self, first_port: int | None, proxies: Sequence[int]) -> tuple[NodePlan, ...]:
        """Plan the processes.

        Brokers with named listeners reach each other without their proxies; older ones use them. Secured brokers reach
        each other without security.
        """
        is_secured = self._protocol != PLAINTEXT
        apart = self._brokers if is_secured or (proxies and self._release.listeners is Listeners.NAMED) else 0
        ports = list(free_ports(self._brokers + apart))
        internal, ports = ports[:apart], ports[apart:]
        if first_port is not None:
            ports = list(range(first_port, first_port + self._brokers))
        return tuple(
            NodePlan(
                node_id,
                port,
                advertised_port=proxies[node_id] if proxies else None,
                internal_port=internal[node_id] if internal else None,
            )
            for node_id, port in enumerate(ports)
        )

    def properties(
        self, node: NodePlan, nodes: Sequence[NodePlan], home: Path, config: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the properties of one broker, which creates its directories itself."""
        names = _NAMES07 if self._release.number < (0, 8) else _NAMES
        values = (str(node.node_id), str(home / "data"), self.zookeeper_connect)
        own = {**dict(zip(names, values, strict=True)), **places(node, self._release.listeners, self._protocol)}
        return {**defaults(self._release, len(nodes)), **config, **own}

    def await_vacancy(self, node: NodePlan) -> None:
        """Wait until no broker of this id is registered: since 0.9 a broker exits if its old node still exists."""
        path = f"/brokers/ids/{node.node_id}"
        deadline = time.monotonic() + self._start_timeout_s
        with zookeeper_client(self.zookeeper_connect) as client:
            while (found := node_data(client, path)) is not None:
                if time.monotonic() >= deadline:
                    raise ServerStartError(
                        f"cannot start broker {node.node_id}: it is still registered in ZooKeeper at "
                        f"{self.zookeeper_connect} after {self._start_timeout_s:.0f} s ({path}: {found!r}), by a "
                        "running broker or a live session. End it, or use another chroot"
                    )
                time.sleep(_POLL_S)

    def brokers_known_to(self, node: NodePlan) -> frozenset[int]:
        """Return the brokers that this broker knows; before 0.9 the registered ones.

        A broker of 0.8 learns of others, and of itself, with the first topic. A broker of 0.7 knows only itself.
        """
        port = node.plain_port or 0
        if self._release.number >= (0, 9):
            return brokers_known_to(LOOPBACK, port)
        serves = accepts if self._release.number < (0, 8) else answers_metadata
        if not serves(LOOPBACK, port):
            return frozenset()
        with zookeeper_client(self.zookeeper_connect) as client:
            try:
                return frozenset(map(int, client.get_children("/brokers/ids")))
            except NoNodeError:
                return frozenset()

    def controller(self, nodes: Sequence[NodePlan]) -> int:
        """Return the broker that the others have elected."""
        with zookeeper_client(self.zookeeper_connect) as client:
            found = node_data(client, "/controller")
        if found is None:
            raise ConfigError(f"no active controller among the brokers at {self.zookeeper_connect}")
        return int(json.loads(found)["brokerid"])

    def close(self, *, keep: bool) -> None:
        """Stop its own ZooKeeper, whose data are in the directory of the brokers."""
        if self.server is not None:
            self.server.stop() if keep else self.server.kill()


@contextmanager
def zookeeper_client(connect: str) -> Iterator[KazooClient]:
    """Yield a short session. Raises TransportError if ZooKeeper cannot be reached or refuses."""
    client = KazooClient(connect, timeout=10.0)
    try:
        client.start(CONNECT_TIMEOUT_S)
        yield client
    except (KazooException, KazooTimeoutError) as error:
        raise TransportError(f"cannot use ZooKeeper at {connect}: {type(error).__name__}: {error}") from error
    finally:
        client.stop()
        client.close()


def node_data(client: KazooClient, path: str) -> bytes | None:
    """Return the data of a node; None if it does not exist."""
    try:
        data: bytes = client.get(path)[0]
    except NoNodeError:
        return None
    return data


def defaults(release: Release, brokers: int) -> dict[str, str]:
    """Return the defaults for a broker of this release, which `config` overrides."""
    if release.number < (0, 8):
        return dict(_KAFKA07)
    replicas = str(min(brokers, 3))
    values = {key: value for since, group in _SINCE if release.number >= since for key, value in group.items()}
    values.update({key: replicas for key, since in _REPLICAS_SINCE.items() if release.number >= since})
    return values


def places(node: NodePlan, listeners: Listeners, protocol: str = PLAINTEXT) -> dict[str, str]:
    """Return the properties for listening and advertised addresses, in the form of the release.

    `protocol` is that of the listener for clients. The internal one is without security.
    """
    shown = node.advertised_port or node.port
    if listeners is Listeners.HOST_NAME:
        return {"hostname": LOOPBACK, "port": str(node.port), "advertised.port": str(shown)}
    if listeners is Listeners.HOST_AND_PORT:
        return {
            "host.name": LOOPBACK,
            "port": str(node.port),
            "advertised.host.name": LOOPBACK,
            "advertised.port": str(shown),
        }
    # Before listeners had names they were called by their protocols, and brokers met at that of PLAINTEXT.
    name = "INTERNAL" if listeners is Listeners.NAMED else PLAINTEXT
    internal = {} if node.internal_port is None else {name: node.internal_port}
    values = {
        "listeners": listeners_text({protocol: node.port, **internal}),
        "advertised.listeners": listeners_text({protocol: shown, **internal}),
    }
    if node.internal_port is not None and listeners is Listeners.NAMED:
        values["listener.security.protocol.map"] = f"{protocol}:{protocol},INTERNAL:PLAINTEXT"
        values["inter.broker.listener.name"] = "INTERNAL"
    return values
