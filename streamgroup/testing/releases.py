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


@dataclass(frozen=True, slots=True)
class Release:
    """How one Kafka version is had and started."""

    version: str
    scala: str
    quorum: Quorum
    extra: tuple[Coordinate, ...] = ()
    """Jars that it needs on today's Java beyond its own dependencies."""
    tools_apart: bool = True

    @property
    def coordinate(self) -> Coordinate:
        """The broker's module; its dependencies bring the rest."""
        return Coordinate("org.apache.kafka", f"kafka_{self.scala}", self.version)

    @property
    def tools(self) -> Coordinate | None:
        """The module of the command line tools; None where they lie among the broker's own classes."""
        return Coordinate("org.apache.kafka", "kafka-tools", self.version) if self.tools_apart else None


RELEASES = {
    release.version: release
    for release in (
        Release("3.9.1", "2.13", Quorum.KRAFT),
        Release("4.1.1", "2.13", Quorum.KRAFT),
    )
}
DEFAULT_VERSION = "4.1.1"


def release_of(version: str) -> Release:
    """The row of `version`. Raises ConfigError naming those that there are."""
    release = RELEASES.get(version)
    if release is None:
        raise ConfigError(f"Kafka {version} cannot be started here; these can: {', '.join(RELEASES)}")
    return release
