"""A real Kafka on the loopback."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from streamgroup.errors import ConfigError
from streamgroup.testing import kraft
from streamgroup.testing.jars import resolve
from streamgroup.testing.java import java_command, logging_jars
from streamgroup.testing.logs import write_log4j2
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import brokers_known_to
from streamgroup.testing.processes import START_TIMEOUT_S, ServerProcess, ServerStartError, on_free_ports
from streamgroup.testing.proxy import Proxy
from streamgroup.testing.releases import DEFAULT_VERSION, release_of

JVM_FLAGS = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Small and quick to start; for a benchmark take `jvm_flags=("-Xmx1g",)`."""

_POLL_S = 0.05
_OWN_LOGGING = ("slf4j-api", "log4j", "slf4j-log4j", "slf4j-reload4j", "reload4j")
_MAIN_CLASS = "kafka.Kafka"
_ANNOUNCEMENT = "Kafka Server started"
_NOTE = "streamgroup.json"


def kafka_classpath(version: str) -> tuple[Path, ...]:
    """The jars of a Kafka version, resolved if they are not in the cache, with PySpark's logging instead of its own."""
    release = release_of(version)
    jars: list[Path] = []
    for coordinate in (release.coordinate, *release.extra):
        jars.extend(resolve(coordinate.organisation, coordinate.module, coordinate.revision))
    return (*logging_jars(), *(jar for jar in jars if not jar.name.startswith(_OWN_LOGGING)))


def java_tool(version: str, main_class: str, *arguments: str, jvm_flags: Sequence[str] = ("-Xmx256m",)) -> list[str]:
    """The argv of one of Kafka's own tools, for `subprocess`.

    For instance `org.apache.kafka.tools.consumer.ConsoleConsumer` and
    `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`, which the shell scripts of a Kafka start too.
    """
    tools = release_of(version).tools
    # Alone: of its dependencies the tools that talk to brokers need none that the broker does not have.
    own = () if tools is None else resolve(tools.organisation, tools.module, tools.revision, transitive=False)
    flags = (*jvm_flags, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return java_command(main_class, arguments, classpath=(*kafka_classpath(version), *own), flags=flags)


class KafkaNode:
    """One process of a `KafkaServer`: a broker, a controller, or both."""

    def __init__(self, plan: kraft.NodePlan, properties: Path, process: ServerProcess) -> None:
        self.node_id = plan.node_id
        self.port = plan.port
        self.properties = properties
        self.process = process
        self._shown = plan.advertised_port or plan.port
        self._internal = plan.internal_port or plan.port

    @property
    def address(self) -> str:
        """`host:port` for clients, of its proxy where it has one; of a controller apart, empty."""
        return "" if self._shown is None else f"{LOOPBACK}:{self._shown}"

    @property
    def direct_address(self) -> str:
        """`host:port` of the listener that the brokers use among themselves: past its proxy."""
        return "" if self._internal is None else f"{LOOPBACK}:{self._internal}"

    @property
    def pid(self) -> int | None:
        """The id of its process; None before the first start."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether its process exists (it may be paused)."""
        return self.process.alive

    @property
    def log(self) -> Path:
        """Where it logs."""
        return self.process.log

    def kill(self) -> None:
        """SIGKILL: a crash. Data and port stay."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT, after `pause`."""
        self.process.resume()

    def stop(self) -> None:
        """SIGTERM: hands its partitions over first."""
        self.process.stop()

    def restart(self) -> None:
        """Start it again with its data on its port, and wait until it serves; stop it first if it runs."""
        self.process.restart()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "down"
        return f"<{self.process.name} {self.address} {state}>"


class KafkaServer:
    """A cluster of real brokers, as local processes on free ports of 127.0.0.1.

        with KafkaServer(brokers=3) as kafka:
            kafka.brokers[1].kill()
            kafka.brokers[1].restart()

    One broker is a process that is its own controller. Several have their controller in a process apart
    (`controller`), so that any of them may be killed. Broker ids are 0, 1, ...

    `config` overrides the brokers' configuration (Kafka's names; see `kraft.defaults`). `port` fixes the first
    broker's port, the next ones follow it. A `data_dir` is kept and may be started again; without one everything lies
    in a temporary directory that goes with the server (unless its start failed, when it is kept for its logs).
    With `detached` the processes outlive this one. With `proxied` clients reach each broker through a `Proxy` of its
    own (`proxies`, by broker id), since that is what the brokers advertise. What begins at `direct_servers` goes past
    the proxies, as the brokers do among themselves.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        port: int | None = None,
        data_dir: str | Path | None = None,
        jvm_flags: Sequence[str] = JVM_FLAGS,
        start_timeout_s: float = START_TIMEOUT_S,
        detached: bool = False,
        proxied: bool = False,
    ) -> None:
        if proxied and detached:
            raise ConfigError(
                "proxied=True with detached=True: the proxies are threads of this process and end with it"
            )
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: at least one is needed")
        release_of(version)
        kraft.refuse_owned(config or {})
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
        """The process that holds the metadata: the broker itself where there is one."""
        return self._started()[0]

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """All processes, the controller first."""
        return self._nodes

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all brokers, dead ones too."""
        self._started()
        return ",".join(broker.address for broker in self.brokers)

    @property
    def direct_servers(self) -> str:
        """`host:port,...` of all brokers, past their proxies: for what a test itself writes and asks."""
        self._started()
        return ",".join(broker.direct_address for broker in self.brokers)

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        """The proxies by broker id; empty without `proxied`."""
        return self._proxies

    @property
    def data_dir(self) -> Path:
        """Where data, configuration and logs lie, a directory per process."""
        self._started()
        assert self._dir is not None
        return self._dir

    def start(self) -> Self:
        """Start all processes and wait until every broker serves and knows all others.

        Raises ServerStartError with the end of the log, TransportError and ConfigError of `resolve` where the jars
        are not there yet.
        """
        if any(node.alive for node in self._nodes):
            raise ConfigError(f"Kafka {self.version} at {self.bootstrap_servers} runs already")
        classpath = kafka_classpath(self.version)
        bootstrap = kraft.bootstrap_checkpoint(self.version, classpath)
        self._dir = home = self._given_dir or Path(tempfile.mkdtemp(prefix="streamgroup-kafka-"))
        cluster_id = self._cluster_id(home)

        def start_nodes() -> None:
            self._nodes = tuple(self._make_nodes(home, cluster_id, classpath, bootstrap))
            for broker, proxy in zip(self.brokers, self._proxies, strict=self._proxied):
                proxy.upstream = (LOOPBACK, broker.port or 0)
            self._start_nodes()

        with contextlib.ExitStack() as on_error:
            count = self._count if self._proxied else 0
            self._proxies = tuple(on_error.enter_context(Proxy()) for _ in range(count))
            on_free_ports(start_nodes, fixed=self._first_port is not None)
            on_error.pop_all()
        return self

    def stop(self) -> None:
        """End all processes; without a `data_dir` of the caller's own, remove everything."""
        for node in reversed(self._nodes):
            # What is thrown away needs no good order.
            node.stop() if self._given_dir else node.kill()
        for proxy in self._proxies:
            proxy.stop()
        if self._dir is not None and self._given_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)

    def kill(self) -> None:
        """`kill()` every process."""
        self._each(KafkaNode.kill)

    def pause(self) -> None:
        """`pause()` every process."""
        self._each(KafkaNode.pause)

    def resume(self) -> None:
        """`resume()` every process."""
        self._each(KafkaNode.resume)

    def restart(self) -> None:
        """Start all processes again with their data on their ports; stop those first that run."""
        for node in reversed(self._started()):
            if node.alive:
                node.stop()
        self._start_nodes()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _each(self, act: Callable[[KafkaNode], None]) -> None:
        for node in self._started():
            act(node)

    def _started(self) -> tuple[KafkaNode, ...]:
        if not self._nodes:
            raise ConfigError("this KafkaServer was not started: use it in a `with` statement, or call start()")
        return self._nodes

    def _start_nodes(self) -> None:
        """Launch all, then wait for all: they need each other."""
        with _all_killed_on_error(self._nodes):
            for node in self._nodes:
                node.process.launch()
            for node in self._nodes:
                node.process.await_ready()
            self._await_acquaintance()

    def _await_acquaintance(self) -> None:
        """Wait until each broker has heard from the controller that all are in service."""
        everybody = {broker.node_id for broker in self.brokers}
        deadline = time.monotonic() + self._start_timeout_s
        for broker in self.brokers:
            while (known := brokers_known_to(LOOPBACK, broker.port or 0)) != everybody:
                if time.monotonic() >= deadline:
                    raise ServerStartError(
                        f"{broker.process.name} knows brokers {sorted(known)} after {self._start_timeout_s:.0f} s, not "
                        f"{sorted(everybody)}. The end of its log, {broker.log}:\n{broker.process.log_tail()}"
                    )
                time.sleep(_POLL_S)

    def _cluster_id(self, directory: Path) -> str:
        """Of the cluster in `directory`, made anew where it is empty."""
        note = directory / _NOTE
        if note.exists():
            known = json.loads(note.read_text())
            if known["brokers"] != self._count:
                raise ConfigError(
                    f"{directory} holds a cluster of {known['brokers']} brokers, not {self._count}; "
                    f"start it with brokers={known['brokers']} or give another data_dir"
                )
            return str(known["cluster_id"])
        directory.mkdir(parents=True, exist_ok=True)
        cluster_id = kraft.random_id()
        note.write_text(json.dumps({"cluster_id": cluster_id, "brokers": self._count}) + "\n")
        return cluster_id

    def _make_nodes(
        self, directory: Path, cluster_id: str, classpath: Iterable[Path], bootstrap: Path
    ) -> Iterator[KafkaNode]:
        proxies = [proxy.port for proxy in self._proxies]
        controller_port, *ports = free_ports(1 + len(proxies) + self._count)
        internal, ports = ports[: len(proxies)], ports[len(proxies) :]
        if self._first_port is not None:
            ports = list(range(self._first_port, self._first_port + self._count))
        plans = kraft.plan_nodes(ports, controller_port, proxies, internal)
        for plan in plans:
            home = directory / plan.name
            kraft.format_node(plan, home / "data", cluster_id, bootstrap)
            file = home / "server.properties"
            file.write_text(kraft.properties_text(kraft.properties(plan, plans, home / "data", self._config)))
            flags = (*self._jvm_flags, write_log4j2(home))
            process = ServerProcess(
                f"Kafka {self.version} {plan.name}",
                java_command(_MAIN_CLASS, [str(file)], classpath=classpath, flags=flags),
                home / "server.log",
                _readiness(plan),
                announces=_ANNOUNCEMENT,
                start_timeout_s=self._start_timeout_s,
                detached=self._detached,
            )
            yield KafkaNode(plan, file, process)


def _readiness(plan: kraft.NodePlan) -> Callable[[], bool]:
    """A broker serves when it answers and lists itself: KRaft lists only brokers that are not fenced.

    A controller apart speaks no Metadata; that it works shows when its brokers are in service.
    """
    port = plan.port
    if port is None:
        return lambda: True
    return lambda: plan.node_id in brokers_known_to(LOOPBACK, port)


@contextlib.contextmanager
def _all_killed_on_error(nodes: Iterable[KafkaNode]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for node in nodes:
            node.kill()
        raise


def _property(value: object) -> str:
    """As Kafka writes it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
