"""The one seam between kinds of clusters: KRaft has their metadata (`kraft.py`), or ZooKeeper has (`registered.py`)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from streamgroup.errors import ConfigError
from streamgroup.testing.node import NodePlan

_NOTE = "streamgroup.json"


class MetadataMode(Protocol):
    """What differs between clusters whose metadata KRaft keeps and those that register in ZooKeeper."""

    @property
    def reserved(self) -> Collection[str]:
        """Properties that follow from where the processes are put, and so are not for `config`."""
        ...

    @property
    def zookeeper_connect(self) -> str:
        """What the brokers have as `zookeeper.connect`; empty under KRaft."""
        ...

    @property
    def needs_clean_shutdown(self) -> bool:
        """Whether brokers whose data nobody wants must end in good order all the same."""
        ...

    def open(self, home: Path, classpath: Sequence[Path]) -> None:
        """Before any node is planned: what the cluster in `home` needs, and what is known of it."""
        ...

    def plan(self, first_port: int | None, proxies: Sequence[int]) -> tuple[NodePlan, ...]:
        """Where the processes are put, on ports that are free now; `proxies` has a port per broker or is empty."""
        ...

    def properties(
        self, node: NodePlan, nodes: Sequence[NodePlan], home: Path, config: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the `server.properties` of one node, whose directory `home` is then ready for its start."""
        ...

    def await_vacancy(self, node: NodePlan) -> None:
        """Wait until the cluster would have this node, which does not run. Raises ServerStartError at a deadline."""
        ...

    def brokers_known_to(self, node: NodePlan) -> frozenset[int]:
        """Return the ids of the brokers in service as this broker knows them; empty before it serves."""
        ...

    def controller(self, nodes: Sequence[NodePlan]) -> int:
        """Return the id of the node that is the controller now."""
        ...

    def close(self, *, keep: bool) -> None:
        """After all nodes have ended; with `keep` the data are to be started again."""
        ...


def refuse_reserved(reserved: Collection[str], config: Mapping[str, object]) -> None:
    """Raise ConfigError for a key of `config` that is not for the caller."""
    refused = sorted(set(reserved) & config.keys())
    if refused:
        raise ConfigError(f"config: {', '.join(refused)}: set by KafkaServer itself; use brokers=, port=, data_dir=")


def check_data_dir(home: Path, brokers: int, kind: str, fresh: Mapping[str, str]) -> dict[str, str]:
    """What the cluster in `home` was made with: `fresh`, noted there, where it is empty.

    Raises ConfigError where the cluster there has another number of brokers or is of another kind.
    """
    note = home / _NOTE
    if not note.exists():
        home.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({**fresh, "kind": kind, "brokers": brokers}) + "\n")
        return dict(fresh)
    known = json.loads(note.read_text())
    if known["brokers"] != brokers:
        raise ConfigError(
            f"{home} holds a cluster of {known['brokers']} brokers, not {brokers}; "
            f"start it with brokers={known['brokers']} or give another data_dir"
        )
    if known.get("kind", kind) != kind:
        raise ConfigError(
            f"{home} holds a cluster whose metadata are kept by {known['kind']}, not {kind}; "
            "start it with the version that made it or give another data_dir"
        )
    return {key: str(known[key]) for key in fresh}
