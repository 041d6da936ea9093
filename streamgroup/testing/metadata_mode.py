"""The interface of the two metadata modes: KRaft mode (`kafka.py`) and ZooKeeper mode (`zookeeper_mode.py`)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from streamgroup.errors import ConfigError
from streamgroup.testing.node import NodePlan

_NOTE = "streamgroup.json"


class MetadataMode(Protocol):
    """The operations that differ between KRaft mode and ZooKeeper mode."""

    @property
    def reserved(self) -> Collection[str]:
        """Properties that KafkaServer sets itself and `config` must not contain."""

    @property
    def zookeeper_connect(self) -> str:
        """`zookeeper.connect` of the brokers; empty in KRaft mode."""

    @property
    def needs_clean_shutdown(self) -> bool:
        """True if brokers need a clean shutdown even if their data are removed."""

    def open(self, home: Path, classpath: Sequence[Path]) -> None:
        """Prepare the cluster in `home` before its nodes are planned."""

    def plan(self, first_port: int | None, proxies: Sequence[int]) -> tuple[NodePlan, ...]:
        """Plan the processes on free ports. `proxies` has a port per broker or is empty."""

    def properties(
        self, node: NodePlan, nodes: Sequence[NodePlan], home: Path, config: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the `server.properties` of one node, and prepare its directory `home` for the start."""

    def await_vacancy(self, node: NodePlan) -> None:
        """Wait until the stopped `node` may join the cluster. Raises ServerStartError after the start timeout."""

    def brokers_known_to(self, node: NodePlan) -> frozenset[int]:
        """Return the ids of the brokers that this broker knows; empty before it serves."""

    def controller(self, nodes: Sequence[NodePlan]) -> int:
        """Return the id of the active controller."""

    def close(self, *, keep: bool) -> None:
        """Clean up after all nodes have stopped; `keep` means that the data will be started again."""


def refuse_reserved(reserved: Collection[str], config: Mapping[str, object]) -> None:
    """Raise ConfigError if `config` has a reserved property."""
    refused = sorted(set(reserved) & config.keys())
    if refused:
        raise ConfigError(
            f"invalid config {', '.join(refused)}: KafkaServer sets it itself. Use brokers=, port= or data_dir="
        )


def check_data_dir(home: Path, brokers: int, kind: str, fresh: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded settings of the cluster in `home`; record `fresh` if it is new.

    Raises ConfigError if the cluster there has another number of brokers or another metadata mode.
    """
    note = home / _NOTE
    if not note.exists():
        home.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({**fresh, "kind": kind, "brokers": brokers}) + "\n")
        return dict(fresh)
    known = json.loads(note.read_text())
    if known["brokers"] != brokers:
        raise ConfigError(
            f"cannot start {brokers} brokers in {home}: its cluster has {known['brokers']}. "
            f"Start it with brokers={known['brokers']} or give another data_dir"
        )
    if known.get("kind", kind) != kind:
        raise ConfigError(
            f"cannot start a cluster of {kind} in {home}: its cluster was created with {known['kind']}. "
            "Start it with the version that made it or give another data_dir"
        )
    return {key: str(known[key]) for key in fresh}
