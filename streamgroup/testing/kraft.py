"""KRaft mode: properties of nodes, and the files that formatting a node creates."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamgroup.testing.directories import cache_directory
from streamgroup.testing.java import java_command
from streamgroup.testing.metadata_mode import check_data_dir
from streamgroup.testing.node import PLAINTEXT, NodePlan, listeners_text, properties_text
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import brokers_known_to
from streamgroup.testing.processes import ServerStartError

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
