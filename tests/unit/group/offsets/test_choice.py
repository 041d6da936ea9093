"""Which store holds the offsets of a group, by where they are stored and who keeps its members."""

from __future__ import annotations

import pytest

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.group.offsets.both import DualOffsetStore, RegisteredKafkaStore
from streamgroup.group.offsets.choice import store_at
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.memory import MemoryOffsetStore
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.model import Dialect

PATHS = GroupPaths("g", Dialect.KAFKA)


def test_without_a_group_the_offsets_are_in_memory() -> None:
    assert isinstance(store_at(NO_LOCATION), MemoryOffsetStore)


@pytest.mark.parametrize("stored_in", StoredIn)
def test_brokers_that_keep_the_members_are_asked_for_the_offsets(stored_in: StoredIn) -> None:
    assert isinstance(store_at(OffsetLocation("g", stored_in)), KafkaOffsetStore)


@pytest.mark.parametrize(
    ("stored_in", "store"),
    [
        (StoredIn.ZOOKEEPER, ZooKeeperOffsetStore),
        (StoredIn.KAFKA, RegisteredKafkaStore),
        (StoredIn.BOTH, DualOffsetStore),
    ],
)
def test_where_zookeeper_keeps_the_members_it_is_asked_first(stored_in: StoredIn, store: type) -> None:
    assert type(store_at(OffsetLocation("g", stored_in), PATHS)) is store
