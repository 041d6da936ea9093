"""A real Kafka cluster on the loopback interface."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from streamgroup.errors import ConfigError
from streamgroup.testing import zookeeper
from streamgroup.testing.directories import cache_directory, file_lock, make_own, write_private
from streamgroup.testing.jars import kafka_classpath
from streamgroup.testing.java import archive_flags, archive_path, java_command, logging_jars, write_log4j2
from streamgroup.testing.metadata_mode import MetadataMode, check_data_dir, refuse_reserved
from streamgroup.testing.node import PLAINTEXT, KafkaNode, NodePlan, listeners_text, properties_text
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import brokers_known_to, leaders_known_to
from streamgroup.testing.processes import START_TIMEOUT_S, ServerProcess, ServerStartError, on_free_ports
from streamgroup.testing.proxy import Proxy
from streamgroup.testing.releases import NEWEST, Quorum, Release, release_of
from streamgroup.testing.zookeeper import ZooKeeperServer
from streamgroup.testing.zookeeper_mode import ZooKeeperMode, zookeeper_client

if TYPE_CHECKING:
    from streamgroup.testing.security.certificates import Authority, Identity
    from streamgroup.testing.security.server import ServerSecurity

JVM_FLAGS = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Small heaps that start fast; for a benchmark use `jvm_flags=("-Xmx1g",)`."""

_POLL_S = 0.05
MAIN_CLASS = "kafka.Kafka"
_EMULATOR = "streamgroup.testing.kafka07"


class KafkaServer:
    """A cluster of real brokers, as local processes on free ports of 127.0.0.1.

        with KafkaServer(brokers=3) as kafka:
            kafka.brokers[1].kill()
            kafka.brokers[1].restart()

    A single broker is a process that is also its controller. With several brokers the controller is a separate process
    (`controller`), so that any broker can be killed. Broker ids are 0, 1, ... Releases before 3 run in ZooKeeper mode
    (`zookeeper_connect`): with a ZooKeeper of their own, on `zookeeper_port` or a free port, or with the one at
    `zookeeper="host:port/chroot"`.

    `config` overrides the brokers' configuration (Kafka's names; see `kraft.defaults`). `port` is the first broker's
    port; the others follow it. A given `data_dir` is kept and can be started again. Without one the data lie in a
    temporary directory, which is removed with the server; after a failed start it is kept for its logs. `detached`
    processes outlive this one. With `proxied`, brokers advertise a `Proxy` each (`proxies`, by broker id).
    `direct_servers` bypass the proxies, as the brokers do among themselves. Brokers of 0.8 and 0.9 have one listener,
    so they use the proxies too. `racks` has each broker's `broker.rack`, by broker id.

    `security` is SSL, SASL_PLAINTEXT or SASL_SSL, with the SASL `mechanisms` PLAIN (the default), SCRAM-SHA-256,
    SCRAM-SHA-512, OAUTHBEARER and GSSAPI. Certificates and passwords are made at the start. OAUTHBEARER starts a token
    server, and GSSAPI a KDC, whose programs must be installed.
    `client_options` are the options of a client. With `mutual_tls` clients need certificates. With `acls` the super
    user `admin` may do everything, and each of `users` (`client` by default) what `security.add_acl` allows.
    `broker_identity` makes another certificate for the brokers from the server's authority. The brokers among
    themselves, and `direct_servers`, use listeners without security.
    """

    def __init__(
        self,
        version: str = NEWEST,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        port: int | None = None,
        data_dir: str | Path | None = None,
        jvm_flags: Sequence[str] = JVM_FLAGS,
        start_timeout_s: float = START_TIMEOUT_S,
        detached: bool = False,
        proxied: bool = False,
        racks: Sequence[str] = (),
        zookeeper: str | None = None,
        zookeeper_port: int | None = None,
        security: str | None = None,
        mechanisms: Sequence[str] = (),
        acls: bool = False,
        mutual_tls: bool = False,
        users: Sequence[str] | None = None,
        broker_identity: Callable[[Authority], Identity] | None = None,
    ) -> None:
        if proxied and detached:
            raise ConfigError(
                "invalid proxied=True with detached=True: the proxies are threads of this process and end with it"
            )
        if brokers < 1:
            raise ConfigError(f"invalid brokers={brokers}: at least one is needed")
        self._release = release_of(version)
        self._security = _security_of(
            self,
            self._release,
            security,
            {
                "mechanisms": mechanisms,
                "acls": acls,
                "mutual_tls": mutual_tls,
                "users": users,
                "broker_identity": broker_identity,
            },
            start_timeout_s=start_timeout_s,
            detached=detached,
        )
        self._mode = _metadata_mode_of(
            self._release,
            brokers,
            zookeeper=zookeeper,
            zookeeper_port=zookeeper_port,
            detached=detached,
            start_timeout_s=start_timeout_s,
            protocol=security or PLAINTEXT,
        )
        if racks and len(racks) != brokers:
            raise ConfigError(f"invalid racks={list(racks)!r}: expected one for each of {brokers} brokers, or none")
        self._racks = tuple(racks)
        refuse_reserved(self._mode.reserved, config or {})
        self.version = version
        self._count = brokers
        self._config = {key: _property(value) for key, value in (config or {}).items()}
        self._first_port = port
        self._given_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._jvm_flags = tuple(jvm_flags)
        self._start_timeout_s = start_timeout_s
        self._detached = detached
        self._dir: Path | None = None
        self._nodes: tuple[KafkaNode, ...] = ()
        self._proxied = proxied
        self._proxies: tuple[Proxy, ...] = ()

    @property
    def brokers(self) -> tuple[KafkaNode, ...]:
        """The brokers by id; empty before the start."""
        return tuple(node for node in self._nodes if node.port is not None)

    @property
    def controller(self) -> KafkaNode:
        """The process of the active controller; in ZooKeeper mode the elected broker.

        A single broker in KRaft mode is its own controller. After the elected broker has died another one is returned.
        """
        nodes = self._started()
        elected = self._mode.controller([node.plan for node in nodes])
        return next(node for node in nodes if node.node_id == elected)

    @property
    def zookeeper_connect(self) -> str:
        """`zookeeper.connect` of the brokers; empty in KRaft mode."""
        self._started()
        return self._mode.zookeeper_connect

    @property
    def zookeeper(self) -> ZooKeeperServer | None:
        """The ZooKeeper that was started for the brokers; None in KRaft mode or if `zookeeper=` was given."""
        self._started()
        return self._mode.server if isinstance(self._mode, ZooKeeperMode) else None

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """All processes except ZooKeeper, a separate controller first."""
        return self._nodes

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all brokers, stopped ones included."""
        self._started()
        return ",".join(broker.address for broker in self.brokers)

    @property
    def direct_servers(self) -> str:
        """`host:port,...` of all brokers without proxies and security, for a test's own clients."""
        self._started()
        return ",".join(broker.direct_address for broker in self.brokers)

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        """The proxies by broker id; empty without `proxied`."""
        return self._proxies

    @property
    def security(self) -> ServerSecurity:
        """The clients, ACLs, certificates and files of a secured server."""
        if self._security is None:
            raise ConfigError("this KafkaServer has no security: start it with security='SASL_SSL' or another protocol")
        return self._security

    @property
    def kdc(self) -> ServerProcess | None:
        """The process of the KDC; None without GSSAPI."""
        kdc = None if self._security is None else self._security.kdc
        return None if kdc is None else kdc.process

    @property
    def token_server(self) -> ServerProcess | None:
        """The process that issues the tokens of OAUTHBEARER; None without that mechanism."""
        return None if self._security is None else self._security.token_server

    @property
    def client_options(self) -> dict[str, str]:
        """The options of Spark's sources for a client: its address, and the security of the first of `users`."""
        if self._security is None:
            return {"kafka.bootstrap.servers": self.bootstrap_servers}
        return self._security.client().options

    @property
    def data_dir(self) -> Path:
        """The directory of data, configuration and logs, with a subdirectory per process."""
        self._started()
        assert self._dir is not None
        return self._dir

    def start(self) -> Self:
        """Start all processes and wait until every broker serves and knows all others.

        Raises ServerStartError with the end of the log; TransportError and ConfigError as `resolve` if it must download
        jars.
        """
        if any(node.alive for node in self._nodes):
            raise ConfigError(f"cannot start Kafka {self.version}: it runs at {self.bootstrap_servers}")
        classpath = () if self._release.emulated else kafka_classpath(self.version)
        self._dir = home = self._given_dir or Path(tempfile.mkdtemp(prefix="streamgroup-kafka-"))

        def start_nodes() -> None:
            self._nodes = tuple(self._make_nodes(home, classpath))
            for broker, proxy in zip(self.brokers, self._proxies, strict=self._proxied):
                proxy.upstream = (LOOPBACK, broker.port or 0)
            self._start_nodes()

        with contextlib.ExitStack() as on_error:
            on_error.callback(self._mode.close, keep=True)
            self._mode.open(home, classpath)
            if self._security is not None:
                on_error.callback(self._security.close)
                self._security.open(home)
                self._security.before_brokers(self._mode.zookeeper_connect)
            count = self._count if self._proxied else 0
            self._proxies = tuple(on_error.enter_context(Proxy()) for _ in range(count))
            on_free_ports(start_nodes, fixed=self._first_port is not None)
            if self._security is not None:
                with _all_killed_on_error(self._nodes):
                    self._security.after_brokers()
            on_error.pop_all()
        return self

    def stop(self) -> None:
        """Stop all processes, and remove the data unless the caller gave a `data_dir`."""
        keep = self._given_dir is not None
        for node in reversed(self._nodes):
            # Data that are removed next need no clean shutdown.
            node.stop() if keep or self._mode.needs_clean_shutdown else node.kill()
        if self._security is not None:
            self._security.close()
        self._mode.close(keep=keep)
        for proxy in self._proxies:
            proxy.stop()
        if self._dir is not None and self._given_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)

    def kill(self) -> None:
        self._each(KafkaNode.kill)

    def pause(self) -> None:
        self._each(KafkaNode.pause)

    def resume(self) -> None:
        self._each(KafkaNode.resume)

    def restart(self) -> None:
        """Restart all processes with their data and ports, after stopping the running ones."""
        for node in reversed(self._started()):
            if node.alive:
                node.stop()
        self._start_nodes()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _each(self, act: Callable[[KafkaNode], None]) -> None:
        for node in self._started():
            act(node)

    def _started(self) -> tuple[KafkaNode, ...]:
        if not self._nodes:
            raise ConfigError("this KafkaServer is not started: use it in a `with` statement, or call start()")
        return self._nodes

    def _start_nodes(self) -> None:
        """Launch all processes before waiting for any: they need each other."""
        with _all_killed_on_error(self._nodes):
            for node in self._nodes:
                node.launch()
            for node in self._nodes:
                node.process.await_ready()
            self._await_all_brokers_known()

    def _await_all_brokers_known(self) -> None:
        """Wait until each broker knows all others from the controller."""
        everybody = {broker.node_id for broker in self.brokers}
        deadline = time.monotonic() + self._start_timeout_s
        for broker in self.brokers:
            while (known := self._mode.brokers_known_to(broker.plan)) != everybody:
                if time.monotonic() >= deadline:
                    raise ServerStartError(
                        f"{broker.process.name} lists brokers {sorted(known)} after {self._start_timeout_s:.0f} s, not "
                        f"{sorted(everybody)}. The end of its log, {broker.log}:\n{broker.process.log_tail()}"
                    )
                time.sleep(_POLL_S)

    def _command(self, properties: Path, classpath: Sequence[Path]) -> list[str]:
        if self._release.emulated:
            return [sys.executable, "-m", _EMULATOR, str(properties)]
        secured = () if self._security is None else self._security.jvm_flags()
        archived = archive_flags(MAIN_CLASS, classpath)
        flags = (*self._jvm_flags, *archived, *secured, write_log4j2(properties.parent))
        return java_command(MAIN_CLASS, [str(properties)], classpath=classpath, flags=flags)

    def _serves(self, plan: NodePlan) -> bool:
        """Return whether a broker lists itself in its Metadata response.

        A separate controller does not answer Metadata. It serves when its brokers are in service.
        """
        return plan.port is None or plan.node_id in self._mode.brokers_known_to(plan)

    def _make_nodes(self, home: Path, classpath: Sequence[Path]) -> Iterator[KafkaNode]:
        secured = {} if self._security is None else self._security.broker_properties()
        plans = self._mode.plan(self._first_port, [proxy.port for proxy in self._proxies])
        for plan in plans:
            directory = home / plan.name
            directory.mkdir(parents=True, exist_ok=True)
            file = directory / "server.properties"
            config = {**secured, **self._config}
            if self._racks and plan.port is not None:
                config["broker.rack"] = self._racks[plan.node_id]
            values = self._mode.properties(plan, plans, directory, config)
            write_private(file, properties_text(values))
            process = ServerProcess(
                f"Kafka {self.version} {plan.name}",
                self._command(file, classpath),
                directory / "server.log",
                functools.partial(self._serves, plan),
                announces=self._release.announcement,
                start_timeout_s=self._start_timeout_s,
                detached=self._detached,
            )
            yield KafkaNode(plan, file, process, functools.partial(self._mode.await_vacancy, plan))


def _metadata_mode_of(
    release: Release,
    brokers: int,
    *,
    zookeeper: str | None,
    zookeeper_port: int | None,
    detached: bool,
    start_timeout_s: float,
    protocol: str,
) -> MetadataMode:
    if release.quorum is Quorum.ZOOKEEPER:
        return ZooKeeperMode(
            release,
            brokers,
            zookeeper=zookeeper,
            zookeeper_port=zookeeper_port,
            detached=detached,
            start_timeout_s=start_timeout_s,
            protocol=protocol,
        )
    for name, given in (("zookeeper", zookeeper), ("zookeeper_port", zookeeper_port)):
        if given is not None:
            raise ConfigError(f"invalid {name}={given}: Kafka {release.version} runs in KRaft mode")
    return KRaftMode(release.version, brokers, protocol)


def _security_of(
    server: KafkaServer,
    release: Release,
    security: str | None,
    arguments: Mapping[str, Any],
    *,
    start_timeout_s: float,
    detached: bool,
) -> ServerSecurity | None:
    """Return the security that the `arguments` ask for; None without any."""
    if security is None:
        given = [name for name, value in arguments.items() if value]
        if given:
            raise ConfigError(
                f"invalid {', '.join(given)} without security: add security='SASL_SSL' or another protocol"
            )
        return None
    # It imports cryptography, which costs 0.1 s.
    from streamgroup.testing.security.server import ServerSecurity  # noqa: PLC0415
    from streamgroup.testing.security.settings import settings_of  # noqa: PLC0415

    asked = {name: value for name, value in arguments.items() if name != "broker_identity"}
    return ServerSecurity(
        server,
        settings_of(release, security, **asked),
        release,
        broker_identity=arguments["broker_identity"],
        start_timeout_s=start_timeout_s,
        detached=detached,
    )


@contextlib.contextmanager
def _all_killed_on_error(nodes: Iterable[KafkaNode]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for node in nodes:
            node.kill()
        raise


def _property(value: object) -> str:
    """Return a property value in Kafka's notation: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


SEPARATE_CONTROLLER_ID = 1_000

_FORMAT_TIMEOUT_S = 60
_BOOTSTRAP = "bootstrap.checkpoint"

RESERVED = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "zookeeper.connect",
    }
)
"""Properties that KafkaServer sets itself and `config` must not contain."""


class KRaftMode:
    """The `MetadataMode` of KRaft.

    A single broker is a process that is also its controller. With several brokers the controller is a separate process,
    so that any broker can be killed. `protocol` is that of the listener for clients.
    """

    reserved = RESERVED
    zookeeper_connect = ""
    needs_clean_shutdown = False

    def __init__(self, version: str, brokers: int, protocol: str = PLAINTEXT) -> None:
        self._version = version
        self._brokers = brokers
        self._protocol = protocol
        self._bootstrap = Path()
        self._cluster_id = ""

    def open(self, home: Path, classpath: Sequence[Path]) -> None:
        """Prepare the bootstrap metadata of a new cluster, and read the cluster id."""
        self._bootstrap = bootstrap_checkpoint(self._version, classpath)
        self._cluster_id = check_data_dir(home, self._brokers, "kraft", {"cluster_id": random_id()})["cluster_id"]

    def plan(self, first_port: int | None, proxies: Sequence[int]) -> tuple[NodePlan, ...]:
        """Plan the processes, a separate controller first, if there is one."""
        apart = self._brokers if proxies or self._protocol != PLAINTEXT else 0
        controller_port, *ports = free_ports(1 + apart + self._brokers)
        internal, ports = ports[:apart], ports[apart:]
        if first_port is not None:
            ports = list(range(first_port, first_port + self._brokers))
        return plan_nodes(ports, controller_port, proxies, internal)

    def properties(
        self, node: NodePlan, nodes: Sequence[NodePlan], home: Path, config: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the properties of one node, and format its directory."""
        format_node(node, home / "data", self._cluster_id, self._bootstrap)
        return properties(node, nodes, home / "data", config, self._protocol)

    def await_vacancy(self, node: NodePlan) -> None:
        """Do nothing: the controller fences the old session of a restarting broker."""

    def brokers_known_to(self, node: NodePlan) -> frozenset[int]:
        """Return the brokers that are not fenced."""
        return brokers_known_to(LOOPBACK, node.plain_port or 0)

    def controller(self, nodes: Sequence[NodePlan]) -> int:
        return nodes[0].node_id

    def close(self, *, keep: bool) -> None:
        """Do nothing: KRaft has no processes besides the nodes."""


def plan_nodes(
    ports: Sequence[int], controller_port: int, advertised: Sequence[int] = (), internal: Sequence[int] = ()
) -> tuple[NodePlan, ...]:
    """Plan one combined process for one broker, else a separate controller, so that any broker can be killed.

    `advertised` and `internal` have a port per broker each, or are empty.
    """
    none = [None] * len(ports)
    behind = list(zip(advertised or none, internal or none, strict=True))
    if len(ports) == 1:
        return (NodePlan(0, ports[0], controller_port, *behind[0]),)
    controller = NodePlan(SEPARATE_CONTROLLER_ID, None, controller_port)
    brokers = enumerate(zip(ports, behind, strict=True))
    return (controller, *(NodePlan(node_id, port, None, *others) for node_id, (port, others) in brokers))


def defaults(brokers: int) -> dict[str, str]:
    """Defaults that make a small cluster fast and strict; `config` overrides them."""
    replicas = str(min(brokers, 3))
    return {
        # A misspelt topic is an error in a test, not a new topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": "1",
        # Records with timestamps of last year would be deleted some minutes after they were written.
        "log.retention.hours": "-1",
        "num.partitions": "1",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # Kafka waits 3 s for more members before the first generation of a group; tests would wait each time.
        "group.initial.rebalance.delay.ms": "0",
        # Since 4.3 the group coordinator assigns partitions once a second at most in a group of KIP-848.
        "group.consumer.assignment.interval.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # How long a killed broker's restart waits until the controller has given up its predecessor (Kafka: 9 s).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # By default an idle controller writes a record twice a second: 1.7 % of a core instead of 1.1 %.
        "metadata.max.idle.interval.ms": "0",
        "controlled.shutdown.enable": "true",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }


def properties(
    node: NodePlan, nodes: Sequence[NodePlan], data: Path, config: Mapping[str, str], protocol: str = PLAINTEXT
) -> dict[str, str]:
    """Return the `server.properties` of one node: the defaults, overridden by `config`, overridden by the plan.

    `protocol` is that of the listener for clients. The others are without security.
    """
    brokers = [each for each in nodes if each.port is not None]
    voters = [each for each in nodes if each.controller_port is not None]
    listeners = {protocol: node.port, "INTERNAL": node.internal_port, "CONTROLLER": node.controller_port}
    protocols = {name: protocol if name == protocol else PLAINTEXT for name in listeners}
    own = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.node_id),
        "listeners": listeners_text(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{of}" for name, of in protocols.items()),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{v.node_id}@{LOOPBACK}:{v.controller_port}" for v in voters),
        "log.dirs": str(data),
    }
    if node.port is not None:
        shown = {protocol: node.advertised_port or node.port, "INTERNAL": node.internal_port}
        own["advertised.listeners"] = listeners_text(shown)
        own["inter.broker.listener.name"] = protocol if node.internal_port is None else "INTERNAL"
    return {**defaults(len(brokers)), **config, **own}


def random_id() -> str:
    """Return a UUID as Kafka writes it: 22 characters of base64, not beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_node(node: NodePlan, data: Path, cluster_id: str, bootstrap: Path) -> None:
    """Format the data directory of one node unless it is formatted, as `kafka-storage.sh format` does."""
    meta = data / "meta.properties"
    if meta.exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(bootstrap, data / _BOOTSTRAP)
    values = {"version": "1", "cluster.id": cluster_id, "node.id": str(node.node_id), "directory.id": random_id()}
    meta.write_text(properties_text(values))


def bootstrap_checkpoint(version: str, classpath: Sequence[Path]) -> Path:
    """Return the bootstrap metadata (feature levels) of a release, which Kafka's StorageTool writes once per version.

    It does not depend on the node or cluster. Later formats copy it and save the start of a JVM.
    """
    kept = cache_directory() / f"kafka-{version}-{_BOOTSTRAP}"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".format-", dir=kept.parent) as name:
        work = Path(name)
        node = NodePlan(0, 9092, 9093)
        file = work / "server.properties"
        file.write_text(properties_text(properties(node, [node], work / "data", {})))
        arguments = ("format", "--cluster-id", random_id(), "--config", str(file))
        argv = java_command("kafka.tools.StorageTool", arguments, classpath=classpath)
        try:
            ran = subprocess.run(argv, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, cwd=work, check=False)
        except subprocess.TimeoutExpired as error:
            raise ServerStartError(f"cannot format Kafka {version} within {_FORMAT_TIMEOUT_S} s") from error
        made = work / "data" / _BOOTSTRAP
        if ran.returncode != 0 or not made.exists():
            raise ServerStartError(f"cannot format Kafka {version}:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        made.replace(kept)
    return kept


_TIMEOUT_S = 30.0


def create_topic(
    server: KafkaServer,
    name: str,
    partitions: int = 1,
    *,
    replication: int = 1,
    config: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> None:
    """Create a topic and wait until every running broker knows a leader of each partition.

    Raises ConfigError if the topic exists, if there are fewer brokers than replicas, or in KRaft mode (use the
    AdminClient of any client library); ServerStartError if a partition has no leader after `timeout_s`.
    """
    if not server.zookeeper_connect:
        raise ConfigError(f"cannot create topic {name}: Kafka {server.version} runs in KRaft mode. Use an AdminClient")
    if release_of(server.version).number < (0, 8):
        raise ConfigError(
            f"cannot create topic {name}: Kafka {server.version} creates topics only by the first produce"
        )
    ids = [broker.node_id for broker in server.brokers]
    if not 1 <= replication <= len(ids):
        raise ConfigError(f"cannot create topic {name}: {replication} replicas on {len(ids)} brokers")
    assignment = {str(p): replicas for p, replicas in enumerate(spread(ids, partitions, replication))}
    with zookeeper_client(server.zookeeper_connect) as client:
        try:
            # The controller reacts to the second node, so the configuration must exist before.
            client.ensure_path("/config/topics")
            _put(client, f"/config/topics/{name}", {"version": 1, "config": dict(config or {})})
            client.create(f"/brokers/topics/{name}", _json({"version": 1, "partitions": assignment}))
        except NodeExistsError as error:
            raise ConfigError(f"cannot create topic {name}: it exists at {server.zookeeper_connect}") from error
    _await_leaders(server, name, partitions, timeout_s)


def spread(brokers: Sequence[int], partitions: int, replication: int) -> list[list[int]]:
    """Return the replicas of each partition, round robin, the leader first."""
    return [[brokers[(p + r) % len(brokers)] for r in range(replication)] for p in range(partitions)]


def _put(client: KazooClient, path: str, value: object) -> None:
    """A topic that was deleted leaves its configuration."""
    if client.exists(path):
        client.set(path, _json(value))
    else:
        client.create(path, _json(value))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _await_leaders(server: KafkaServer, name: str, partitions: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for broker in (each for each in server.brokers if each.alive):
        while len(found := leaders_known_to(LOOPBACK, broker.plan.plain_port or 0, name)) < partitions:
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"no leaders of topic {name}: {broker.name} has those for {len(found)} of {partitions} partitions "
                    f"after {timeout_s:.0f} s. The end of its log, {broker.log}:\n{broker.process.log_tail()}"
                )
            time.sleep(_POLL_S)


_LOCK_TIMEOUT_S = 180.0


def archive_classes(version: str = NEWEST) -> None:
    """Archive the classes of this release's broker and of ZooKeeper, unless it has been done.

    Starts both once. Later starts of the same servers then take half of the CPU time. Takes some 10 s and 100 MB in
    the user's cache. Raises as `KafkaServer` and `ZooKeeperServer` do.
    """
    brokers = kafka_classpath(version)
    with _written(MAIN_CLASS, brokers) as (flags, home):
        if flags:
            KafkaServer(version, jvm_flags=(*JVM_FLAGS, *flags), data_dir=home).start().stop()
    servers = (*logging_jars(), *zookeeper.zookeeper_jars(None))
    with _written(zookeeper.MAIN_CLASS, servers) as (flags, home):
        if flags:
            zookeeper.ZooKeeperServer(jvm_flags=(*zookeeper.JVM_FLAGS, *flags), data_dir=home).start().stop()


@contextlib.contextmanager
def _written(main_class: str, classpath: Iterable[Path]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the flags of a JVM that writes the archive at its exit (none if it exists), and a data directory."""
    path = archive_path(main_class, classpath)
    make_own(path.parent.parent, 0o755)
    make_own(path.parent, 0o755)
    with file_lock(path.with_suffix(".lock"), _LOCK_TIMEOUT_S), TemporaryDirectory(dir=path.parent) as name:
        home = Path(name)
        if path.exists():
            yield (), home
            return
        new = home / "classes.jsa"
        yield (f"-XX:ArchiveClassesAtExit={new}",), home
        if new.exists():  # a Java without archives writes none, and its servers start as they did
            new.chmod(0o644)
            new.rename(path)
