"""One process of a cluster: its ports, and the operations of a test on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from streamgroup.frozen import frozen
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.processes import ServerProcess

PLAINTEXT = "PLAINTEXT"
"""The security protocol without security."""


@frozen
class NodePlan:
    """The id and ports of one process. A port of None means that it does not have that role."""

    node_id: int
    port: int | None
    controller_port: int | None = None
    """The port of a KRaft controller; None for brokers in ZooKeeper mode."""
    advertised_port: int | None = None
    """The port of the proxy that clients connect to instead of `port`."""
    internal_port: int | None = None
    """The port without proxy and security at which brokers reach each other; None if they use `port`."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The value of `process.roles`."""
        return (("broker",) if self.port is not None else ()) + (("controller",) if self.controller_port else ())

    @property
    def plain_port(self) -> int | None:
        """The port of a listener without proxy and security."""
        return self.port if self.internal_port is None else self.internal_port

    @property
    def name(self) -> str:
        """The name of its directory, also used in messages."""
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

    @property
    def name(self) -> str:
        """The name of the process, such as `broker-0` or `controller`."""
        return self.properties.parent.name

    @property
    def address(self) -> str:
        """`host:port` for clients, that of the proxy if there is one; empty for a separate controller."""
        return "" if self._shown is None else f"{LOOPBACK}:{self._shown}"

    @property
    def direct_address(self) -> str:
        """`host:port` of a listener without proxy and security."""
        return "" if self.plan.plain_port is None else f"{LOOPBACK}:{self.plan.plain_port}"

    @property
    def pid(self) -> int | None:
        """The id of its process; None before the first start."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """True if its process exists (it may be paused)."""
        return self.process.alive

    @property
    def log(self) -> Path:
        return self.process.log

    def launch(self) -> None:
        """Start the process without waiting until it serves, as soon as it may join its cluster."""
        self._await_vacancy()
        self.process.launch()

    def kill(self) -> None:
        """Kill the process (SIGKILL), as a crash does. Data and port stay."""
        self.process.kill()

    def pause(self) -> None:
        """Pause the process (SIGSTOP). Its connections stay open and nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        self.process.resume()

    def stop(self) -> None:
        """Stop the process (SIGTERM). A broker moves its leaderships away first."""
        self.process.stop()

    def restart(self) -> None:
        """Restart the process with its data and port, and wait until it serves. A running process is stopped first."""
        if self.alive:
            self.stop()
        self.launch()
        self.process.await_ready()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "down"
        return f"<{self.process.name} {self.address} {state}>"


def properties_text(values: Mapping[str, str]) -> str:
    """Return `values` as a properties file: backslashes are doubled, line ends escaped."""
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in values.items()}
    return "".join(f"{key}={value}\n" for key, value in escaped.items())


def listeners_text(ports: Mapping[str, int | None]) -> str:
    """Return the value of `listeners` for the ports that are set."""
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items() if port is not None)
