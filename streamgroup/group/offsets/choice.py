"""Which store holds the offsets of a group.

| offsets stored in | members kept by the brokers | members kept by ZooKeeper |
|---|---|---|
| memory (no group) | `MemoryOffsetStore` | |
| Kafka | `KafkaOffsetStore` | `RegisteredKafkaStore` |
| ZooKeeper | `KafkaOffsetStore`: the brokers write there (v0) | `ZooKeeperOffsetStore` |
| both | | `DualOffsetStore` |
"""

from __future__ import annotations

from streamgroup.advice import OffsetLocation, StoredIn
from streamgroup.group.offsets.both import DualOffsetStore, RegisteredKafkaStore
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.memory import MemoryOffsetStore
from streamgroup.group.offsets.store import OffsetStore
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry.nodes import GroupPaths


def store_at(location: OffsetLocation, paths: GroupPaths | None = None) -> OffsetStore:
    """Return the store of the offsets at `location`. `paths`: the nodes of a group that is registered in ZooKeeper."""
    if not location.group:
        return MemoryOffsetStore()
    if paths is None:
        return KafkaOffsetStore()
    if location.stored_in is StoredIn.ZOOKEEPER:
        return ZooKeeperOffsetStore(paths)
    return DualOffsetStore(paths) if location.stored_in is StoredIn.BOTH else RegisteredKafkaStore(paths)
