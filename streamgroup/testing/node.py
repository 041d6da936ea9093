"""One process of a cluster: where it is put, and what a test may do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.processes import ServerProcess


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Where one process is put. A port of None: it does not have that role."""

    node_id: int
    port: int | None
    controller_port: int | None = None
    """Of KRaft's; a broker that registers in ZooKeeper has none, controller or not."""
    advertised_port: int | None = None
    """Where clients are sent instead of to `port`: a proxy."""
    internal_port: int | None = None
    """Where brokers behind proxies reach each other."""

    @property
    def roles(self) -> tuple[str, ...]:
        """As in `process.roles`."""
        return (("broker",) if self.port is not None else ()) + (("controller",) if self.controller_port else ())

    @property
    def name(self) -> str:
        """Of its directory and in messages."""
        return f"broker-{self.node_id}" if self.port is not None else "controller"


class KafkaNode:
    """One process of a `KafkaServer`: a broker, a controller, or both."""

    def __init__(
        self, plan: NodePlan, properties: Path, process: ServerProcess, await_vacancy: Callable[[], None]
    ) -> None:
        self.plan = plan
        self.node_id = plan.node_id
        self.port = plan.port
        self.properties = properties
        self.process = process
        self._await_vacancy = await_vacancy
        self._shown = plan.advertised_port or plan.port
        self._internal = plan.internal_port or plan.port

    @property
    def name(self) -> str:
        """`broker-0`, `controller`."""
        return self.properties.parent.name

    @property
    def address(self) -> str:
        """`host:port` for clients, of its proxy where it has one; of a controller apart, empty."""
        return "" if self._shown is None else f"{LOOPBACK}:{self._shown}"

    @property
    def direct_address(self) -> str:
        """`host:port` of a listener past its proxy."""
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

    def launch(self) -> None:
        """Start the process without waiting until it serves; first wait until its cluster would have it."""
        self._await_vacancy()
        self.process.launch()

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
        if self.alive:
            self.stop()
        self.launch()
        self.process.await_ready()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "down"
        return f"<{self.process.name} {self.address} {state}>"


def properties_text(values: Mapping[str, str]) -> str:
    """As Java reads it: backslashes doubled, line ends escaped."""
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in values.items()}
    return "".join(f"{key}={value}\n" for key, value in escaped.items())


def listeners_text(ports: Mapping[str, int | None]) -> str:
    """As in `listeners`, without those that have no port."""
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items() if port is not None)
