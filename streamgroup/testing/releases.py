"""The Kafka releases that can be started here: one row each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamgroup.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A module as Maven and Ivy name it."""

    organisation: str
    module: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"


class Quorum(Enum):
    """Who keeps a cluster's metadata."""

    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


class Listeners(Enum):
    """How a broker is told where it listens, and where it tells others to come."""

    HOST_NAME = "hostname, port"
    """Of Kafka 0.7; only the emulated one can send clients elsewhere."""
    HOST_AND_PORT = "host.name, port"
    ONE = "listeners"
    """One per security protocol: the brokers meet where clients do."""
    NAMED = "listeners, listener.security.protocol.map"
    """KIP-103: the brokers may meet apart."""


@dataclass(frozen=True, slots=True)
class Release:
    """How one Kafka version is had and started."""

    version: str
    scala: str
    quorum: Quorum
    extra: tuple[Coordinate, ...] = ()
    """Jars that it needs on today's Java beyond its own dependencies."""
    tools_apart: bool = True
    listeners: Listeners = Listeners.NAMED
    emulated: bool = False
    """Not to be had: `testing/kafka07/` does what its brokers do."""

    @property
    def number(self) -> tuple[int, ...]:
        """For comparisons: (0, 8, 2, 2)."""
        return tuple(map(int, self.version.split(".")))

    @property
    def announcement(self) -> str:
        """What a broker logs once it has started."""
        if self.emulated:
            return "Kafka server started"
        if self.quorum is Quorum.KRAFT:
            return "Kafka Server started"
        return "started (kafka.server.KafkaServer)"

    @property
    def coordinate(self) -> Coordinate:
        """The broker's module; its dependencies bring the rest."""
        return Coordinate("org.apache.kafka", f"kafka_{self.scala}", self.version)

    @property
    def tools(self) -> Coordinate | None:
        """The module of the command line tools; None where they lie among the broker's own classes."""
        return Coordinate("org.apache.kafka", "kafka-tools", self.version) if self.tools_apart else None


def _registered(version: str, *, extra: tuple[Coordinate, ...] = (), listeners: Listeners = Listeners.NAMED) -> Release:
    """Return a release whose brokers and topics are in ZooKeeper; its tools lie among the broker's classes."""
    return Release(version, "2.11", Quorum.ZOOKEEPER, extra, tools_apart=False, listeners=listeners)


RELEASES = {
    release.version: release
    for release in (
        Release("0.7", "", Quorum.ZOOKEEPER, tools_apart=False, listeners=Listeners.HOST_NAME, emulated=True),
        _registered("0.8.2.2", listeners=Listeners.HOST_AND_PORT),
        _registered("0.9.0.1", listeners=Listeners.ONE),
        _registered("0.10.2.2", extra=(Coordinate("javax.xml.bind", "jaxb-api", "2.3.1"),)),
        _registered("1.1.1"),
        Release("3.9.1", "2.13", Quorum.KRAFT),
        Release("4.1.1", "2.13", Quorum.KRAFT),
    )
}
DEFAULT_VERSION = "4.1.1"


def release_of(version: str) -> Release:
    """Return the row of `version`. Raises ConfigError naming those that there are."""
    release = RELEASES.get(version)
    if release is None:
        raise ConfigError(f"Kafka {version} cannot be started here; these can: {', '.join(RELEASES)}")
    return release
