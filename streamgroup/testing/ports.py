"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from pathlib import Path

from streamgroup.errors import ConfigError, TransportError
from streamgroup.testing.jars import resolve
from streamgroup.testing.java import java_command, logging_jars
from streamgroup.testing.releases import Coordinate, release_of

LOOPBACK = "127.0.0.1"

_PORTS = range(12_000, 32_000)
"""Below the ephemeral port ranges of Linux, macOS and Windows: no outgoing connection takes the port of a stopped
server."""

_ATTEMPTS = 1_000


def free_ports(count: int) -> tuple[int, ...]:
    """Return `count` different ports without a listener. Raises TransportError if there are too few."""
    rng = random.SystemRandom()
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                return tuple(ports)
            port = rng.choice(_PORTS)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    raise TransportError(
        f"cannot find {count} free ports on {LOOPBACK} in {_ATTEMPTS} attempts. Stop servers that are left over"
    )


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes. Raises ConnectionError if the stream ends before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data


_OWN_LOGGING = ("slf4j-api", "log4j", "slf4j-log4j", "slf4j-reload4j", "reload4j")


def kafka_classpath(version: str) -> tuple[Path, ...]:
    """Return the jars of a Kafka version, downloaded if they are not cached, with PySpark's logging jars."""
    release = release_of(version)
    if release.emulated:
        raise ConfigError(f"no jars of Kafka {version}: it is emulated in Python, without tools")
    jars = list(_jars(release.coordinate))
    for extra in release.extra:
        jars.extend(_jars(extra, transitive=False))
    return (*logging_jars(), *(jar for jar in jars if not jar.name.startswith(_OWN_LOGGING)))


def java_tool(version: str, main_class: str, *arguments: str, jvm_flags: Sequence[str] = ("-Xmx256m",)) -> list[str]:
    """Return the argv of one of Kafka's own tools, for `subprocess`.

    For instance `org.apache.kafka.tools.consumer.ConsoleConsumer` and
    `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`, which Kafka's shell scripts start too. Before 3.x they
    are `kafka.tools.ConsoleConsumer`, `kafka.admin.ConsumerGroupCommand` and so on.
    """
    tools = release_of(version).tools
    # Without its dependencies: the tools that call brokers need only those of the broker.
    own = () if tools is None else _jars(tools, transitive=False)
    flags = (*jvm_flags, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return java_command(main_class, arguments, classpath=(*kafka_classpath(version), *own), flags=flags)


def _jars(of: Coordinate, *, transitive: bool = True) -> tuple[Path, ...]:
    return resolve(of.organisation, of.module, of.revision, transitive=transitive)
