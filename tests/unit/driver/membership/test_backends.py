"""How a run stands to its group, by its options; and which offset store it has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.backends import backend_of
from streamgroup.driver.membership.group_thread import GroupThread
from streamgroup.driver.membership.modes import ledger_of
from streamgroup.driver.membership.registry_thread import RegistryThread
from streamgroup.group.membership import Membership
from streamgroup.group.offsets.both import DualOffsetStore, RegisteredKafkaStore
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.memory import MemoryOffsetStore
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.standalone import StandaloneMember
from streamgroup.options.parse import parse_source
from tests.unit.driver.fake_inbox import FakeInbox

ZOOKEEPER = {"zookeeper.connect": "zk"}
BROKERS = {"kafka.bootstrap.servers": "b:1"}
GROUP = {"kafka.group.id": "g"}
IN_KAFKA = {"kafka.offsets.storage": "kafka"}
ONCE = {"kafka.dual.commit.enabled": "false"}
ALONE = {"group.mode": "commit"}


def backend(**given: Any) -> Any:
    options = parse_source(
        {"subscribe": "t", **{name.replace("__", "."): value for name, value in given.items()}}, streaming=True
    )
    assert options.group is not None
    watcher = LogWatcher(options, lambda *_: None, lambda _: None)
    return backend_of(
        options,
        options.group,
        ledger_of(options.group, "run", "lineage"),
        rng=random.Random(1),
        inbox=FakeInbox(),
        watcher=watcher,
        is_missed=lambda _: False,
    )


@pytest.mark.parametrize(
    ("given", "machine", "store", "thread"),
    [
        (BROKERS | GROUP, Membership, KafkaOffsetStore, GroupThread),
        (ZOOKEEPER | GROUP, RegistryMembership, ZooKeeperOffsetStore, RegistryThread),
        (ZOOKEEPER | BROKERS | GROUP, RegistryMembership, ZooKeeperOffsetStore, RegistryThread),
        (ZOOKEEPER | GROUP | IN_KAFKA, RegistryMembership, DualOffsetStore, RegistryThread),
        (ZOOKEEPER | GROUP | IN_KAFKA | ONCE, RegistryMembership, RegisteredKafkaStore, RegistryThread),
        (ZOOKEEPER | GROUP | ALONE, StandaloneMember, ZooKeeperOffsetStore, RegistryThread),
        (ZOOKEEPER | GROUP | ALONE | IN_KAFKA, StandaloneMember, KafkaOffsetStore, GroupThread),
        (BROKERS | GROUP | ALONE, StandaloneMember, KafkaOffsetStore, GroupThread),
        (ZOOKEEPER, StandaloneMember, MemoryOffsetStore, GroupThread),
    ],
)
def test_who_keeps_the_group_and_its_offsets_says_what_a_run_is_made_of(
    given: dict[str, str], machine: type, store: type, thread: type
) -> None:
    taken = backend(**given)
    assert type(taken.member.membership) is machine
    assert type(taken.member.store) is store
    assert type(taken.thread) is thread
