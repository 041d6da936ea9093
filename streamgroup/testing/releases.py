"""The Kafka releases that this package can start, one row each."""

from __future__ import annotations

from enum import Enum

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen


@frozen
class Coordinate:
    """A module as Maven and Ivy name it."""

    organisation: str
    module: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"


class Quorum(Enum):
    """The system that keeps a cluster's metadata."""

    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


class Listeners(Enum):
    """The properties that configure where a broker listens and which address it advertises."""

    HOST_NAME = "hostname, port"
    """Kafka 0.7; only the emulator can advertise another port."""
    HOST_AND_PORT = "host.name, port"
    ONE = "listeners"
    """One listener per security protocol, which brokers and clients share."""
    NAMED = "listeners, listener.security.protocol.map"
    """Named listeners (KIP-103): brokers may use one of their own."""


@frozen
class Release:
    """The jars and properties of one Kafka release."""

    version: str
    scala: str
    quorum: Quorum
    extra: tuple[Coordinate, ...] = ()
    """Jars that it needs on a current Java beyond its own dependencies."""
    tools_apart: bool = True
    listeners: Listeners = Listeners.NAMED
    emulated: bool = False
    """Emulated by `testing/kafka07/`: no registry has its jars."""

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers for comparisons, such as (0, 8, 2, 2)."""
        return tuple(map(int, self.version.split(".")))

    @property
    def announcement(self) -> str:
        """The log line of a started broker."""
        if self.emulated:
            return "Kafka server started"
        if self.quorum is Quorum.KRAFT:
            return "Kafka Server started"
        return "started (kafka.server.KafkaServer)"

    @property
    def coordinate(self) -> Coordinate:
        """The module of the broker, which depends on all others."""
        return Coordinate("org.apache.kafka", f"kafka_{self.scala}", self.version)

    @property
    def tools(self) -> Coordinate | None:
        """The module of the command line tools; None if the broker's jars contain them."""
        return Coordinate("org.apache.kafka", "kafka-tools", self.version) if self.tools_apart else None


def _registered(version: str, *, extra: tuple[Coordinate, ...] = (), listeners: Listeners = Listeners.NAMED) -> Release:
    """Return a release in ZooKeeper mode, whose broker jars contain the tools."""
    return Release(version, "2.11", Quorum.ZOOKEEPER, extra, tools_apart=False, listeners=listeners)


RELEASES = {
    release.version: release
    for release in (
        Release("0.7", "", Quorum.ZOOKEEPER, tools_apart=False, listeners=Listeners.HOST_NAME, emulated=True),
        _registered("0.8.2.2", listeners=Listeners.HOST_AND_PORT),
        _registered("0.9.0.1", listeners=Listeners.ONE),
        _registered("0.10.2.2", extra=(Coordinate("javax.xml.bind", "jaxb-api", "2.3.1"),)),
        _registered("1.1.1"),
        Release("2.8.2", "2.13", Quorum.ZOOKEEPER, tools_apart=False),
        Release("3.6.2", "2.13", Quorum.KRAFT),
        Release("3.9.1", "2.13", Quorum.KRAFT),
        Release("4.0.1", "2.13", Quorum.KRAFT),
        Release("4.1.1", "2.13", Quorum.KRAFT),
        Release("4.2.1", "2.13", Quorum.KRAFT),
        Release("4.3.1", "2.13", Quorum.KRAFT),
    )
}
NEWEST = next(reversed(RELEASES))
"""The release that `KafkaServer` starts by default."""


def release_of(version: str) -> Release:
    """Return the row of `version`. Raises ConfigError with the available ones."""
    release = RELEASES.get(version)
    if release is None:
        raise ConfigError(f"unsupported Kafka {version}: available are {', '.join(RELEASES)}")
    return release
