"""How a KRaft cluster is laid out on disk: properties, and the files that formatting a node leaves."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import cache_directory
from streamgroup.testing.java import java_command
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.processes import ServerStartError

SEPARATE_CONTROLLER_ID = 1_000

_FORMAT_TIMEOUT_S = 60
_BOOTSTRAP = "bootstrap.checkpoint"

OWNED = frozenset(
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
"""What follows from where the processes are put, and so is not for `config`."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One process of a cluster. A port of None: it does not have that role."""

    node_id: int
    port: int | None
    controller_port: int | None
    advertised_port: int | None = None
    """Where clients are sent instead of to `port`: a proxy. Then the brokers have a listener of their own."""
    internal_port: int | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """As in `process.roles`."""
        return (("broker",) if self.port is not None else ()) + (("controller",) if self.controller_port else ())

    @property
    def name(self) -> str:
        """Of its directory and in messages."""
        return f"broker-{self.node_id}" if self.port is not None else "controller"


def plan_nodes(
    ports: Sequence[int], controller_port: int, advertised: Sequence[int] = (), internal: Sequence[int] = ()
) -> tuple[NodePlan, ...]:
    """One process that is both for one broker; else a controller apart, so that any broker may die.

    `advertised` and `internal` are a port per broker, or both empty.
    """
    behind: Sequence[tuple[int | None, int | None]] = list(zip(advertised, internal, strict=True))
    behind = behind or [(None, None)] * len(ports)
    if len(ports) == 1:
        return (NodePlan(0, ports[0], controller_port, *behind[0]),)
    controller = NodePlan(SEPARATE_CONTROLLER_ID, None, controller_port)
    brokers = enumerate(zip(ports, behind, strict=True))
    return (controller, *(NodePlan(node_id, port, None, *others) for node_id, (port, others) in brokers))


def defaults(brokers: int) -> dict[str, str]:
    """What makes a small cluster quick and strict; `config` overrides any of it."""
    replicas = str(min(brokers, 3))
    return {
        # A misspelt topic is an error in a test, not a new topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": "1",
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
        "controlled.shutdown.enable": "true",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }


def refuse_owned(config: Mapping[str, object]) -> None:
    """Raise ConfigError for a key of OWNED."""
    refused = sorted(OWNED & config.keys())
    if refused:
        raise ConfigError(f"config: {', '.join(refused)}: set by KafkaServer itself; use brokers=, port=, data_dir=")


def properties(node: NodePlan, nodes: Sequence[NodePlan], data: Path, config: Mapping[str, str]) -> dict[str, str]:
    """The `server.properties` of one node: the defaults, over them `config`, over it what follows from the plan."""
    brokers = [each for each in nodes if each.port is not None]
    voters = [each for each in nodes if each.controller_port is not None]
    listeners = {"PLAINTEXT": node.port, "INTERNAL": node.internal_port, "CONTROLLER": node.controller_port}
    own = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.node_id),
        "listeners": _listeners(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{v.node_id}@{LOOPBACK}:{v.controller_port}" for v in voters),
        "log.dirs": str(data),
    }
    if node.port is not None:
        shown = {"PLAINTEXT": node.advertised_port or node.port, "INTERNAL": node.internal_port}
        own["advertised.listeners"] = _listeners(shown)
        own["inter.broker.listener.name"] = "PLAINTEXT" if node.internal_port is None else "INTERNAL"
    return {**defaults(len(brokers)), **config, **own}


def _listeners(ports: Mapping[str, int | None]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items() if port is not None)


def properties_text(values: Mapping[str, str]) -> str:
    """As Java reads it: backslashes doubled, line ends escaped."""
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in values.items()}
    return "".join(f"{key}={value}\n" for key, value in escaped.items())


def random_id() -> str:
    """A UUID as Kafka writes it: 22 characters of base64, not beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_node(node: NodePlan, data: Path, cluster_id: str, bootstrap: Path) -> None:
    """Format the data directory of one node, unless it is: what `kafka-storage.sh format` would leave there."""
    meta = data / "meta.properties"
    if meta.exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(bootstrap, data / _BOOTSTRAP)
    values = {"version": "1", "cluster.id": cluster_id, "node.id": str(node.node_id), "directory.id": random_id()}
    meta.write_text(properties_text(values))


def bootstrap_checkpoint(version: str, classpath: Sequence[Path]) -> Path:
    """The first metadata (feature levels) of a cluster, written by Kafka's own StorageTool once per version.

    It holds nothing of a particular node or cluster, so later formats copy it and save the start of a JVM.
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
            raise ServerStartError(f"Kafka {version}: formatting took longer than {_FORMAT_TIMEOUT_S} s") from error
        made = work / "data" / _BOOTSTRAP
        if ran.returncode != 0 or not made.exists():
            raise ServerStartError(f"Kafka {version}: formatting failed:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        made.replace(kept)
    return kept
