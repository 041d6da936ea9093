"""How a run stands to its group, by its options; and a group in ZooKeeper as a broker would describe it."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.group_thread import GroupThread
from streamgroup.driver.membership.modes import ledger_of
from streamgroup.driver.membership.registry_thread import RegistryThread
from streamgroup.driver.membership.seats import RegistrySeat, described_in, host_in, seat_of
from streamgroup.errors import ConfigError
from streamgroup.group.identity import Identity, encode_identity
from streamgroup.group.membership import Membership
from streamgroup.group.offsets.dual import DualOffsetStore
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.memory import MemoryOffsetStore
from streamgroup.group.offsets.registered_kafka import RegisteredKafkaStore
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.group.registry.machine import Registry
from streamgroup.group.standalone import StandaloneMember
from streamgroup.model import Dialect
from streamgroup.options.parse import parse_source
from streamgroup.run.lineage_check import find_duplicate
from streamgroup.znodes import ZNode

ZOOKEEPER = {"zookeeper.connect": "zk"}
BROKERS = {"kafka.bootstrap.servers": "b:1"}
GROUP = {"kafka.group.id": "g"}
IN_KAFKA = {"kafka.offsets.storage": "kafka"}
ONCE = {"kafka.dual.commit.enabled": "false"}
ALONE = {"group.mode": "commit"}


def seat(**given: Any) -> Any:
    options = parse_source(
        {"subscribe": "t", **{name.replace("__", "."): value for name, value in given.items()}}, streaming=True
    )
    assert options.group is not None
    watcher = LogWatcher(options, lambda *_: None, lambda _: None)
    return seat_of(
        options,
        options.group,
        ledger_of(options.group, "run", "lineage"),
        rng=random.Random(1),
        state=threading.Condition(),
        watcher=watcher,
        is_missed=lambda _: False,
        on_action=lambda _: None,
    )


@pytest.mark.parametrize(
    ("given", "machine", "store", "thread"),
    [
        (BROKERS | GROUP, Membership, KafkaOffsetStore, GroupThread),
        (ZOOKEEPER | GROUP, Registry, ZooKeeperOffsetStore, RegistryThread),
        (ZOOKEEPER | BROKERS | GROUP, Registry, ZooKeeperOffsetStore, RegistryThread),
        (ZOOKEEPER | GROUP | IN_KAFKA, Registry, DualOffsetStore, RegistryThread),
        (ZOOKEEPER | GROUP | IN_KAFKA | ONCE, Registry, RegisteredKafkaStore, RegistryThread),
        (ZOOKEEPER | GROUP | ALONE, StandaloneMember, ZooKeeperOffsetStore, RegistryThread),
        (ZOOKEEPER | GROUP | ALONE | IN_KAFKA, StandaloneMember, KafkaOffsetStore, GroupThread),
        (BROKERS | GROUP | ALONE, StandaloneMember, KafkaOffsetStore, GroupThread),
        (ZOOKEEPER, StandaloneMember, MemoryOffsetStore, GroupThread),
    ],
)
def test_who_keeps_the_group_and_its_offsets_says_what_a_run_is_made_of(
    given: dict[str, str], machine: type, store: type, thread: type
) -> None:
    taken = seat(**given)
    assert type(taken.member.membership) is machine
    assert type(taken.member.store) is store
    assert type(taken.thread) is thread


def test_a_member_calls_the_nodes_as_its_cluster_does() -> None:
    taken = seat(**ZOOKEEPER, kafka__group__id="g")
    assert isinstance(taken, RegistrySeat)
    taken.opened(Dialect.KAFKA07)
    assert isinstance(taken.member.store, ZooKeeperOffsetStore)
    assert taken.member.store._paths == GroupPaths("g", Dialect.KAFKA07)
    assert isinstance(taken.member.membership, Registry)
    assert taken.member.membership._paths == GroupPaths("g", Dialect.KAFKA07)


def test_brokers_of_0_7_keep_no_offsets() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.offsets\.storage=kafka: brokers of Kafka 0\.7 keep no offsets"):
        seat(**ZOOKEEPER, kafka__group__id="g", kafka__offsets__storage="kafka").opened(Dialect.KAFKA07)


# -- who is in the group -----------------------------------------------------------------------------------------------

PATHS = GroupPaths("g", Dialect.KAFKA)
ME, TWIN, REAL = "g_h1-1-aa", "g_h2-2-bb", "g_h3-3-cc"
MY_IDENTITY, ANOTHERS = Identity("lineage", "run-2"), Identity("lineage", "run-1", admitted=True)


def node(owner: int = 0, data: bytes = b"", children: tuple[str, ...] = ()) -> ZNode:
    return ZNode(data, 0, 1, 1, 1, owner, children)


def group(told_by: int = 2) -> dict[str, ZNode]:
    """Two of ours, of which the other tells of itself in session `told_by`, and one of another make."""
    return {
        PATHS.ids: node(children=(ME, TWIN, REAL, "g_vanished-4-dd")),
        PATHS.consumer(ME): node(1),
        PATHS.consumer(TWIN): node(2),
        PATHS.consumer(REAL): node(3),
        PATHS.member(ME): node(1, encode_identity(MY_IDENTITY)),
        PATHS.member(TWIN): node(told_by, encode_identity(ANOTHERS)),
    }


def test_a_twin_in_zookeeper_is_found_as_one_in_kafka() -> None:
    described = described_in(PATHS, group())
    assert [member.member_id for member in described.members] == [ME, TWIN, REAL]
    twin = find_duplicate(described, MY_IDENTITY, ME)
    assert twin is not None
    assert (twin.member_id, twin.client_host) == (TWIN, "h2")


def test_what_another_session_has_left_tells_nothing() -> None:
    assert find_duplicate(described_in(PATHS, group(told_by=9)), MY_IDENTITY, ME) is None
    assert described_in(PATHS, {}).members == ()


@pytest.mark.parametrize(
    ("consumer", "host"), [("g_vm-1-1795200966157-84e1c6c3", "vm-1"), ("g_c1", "c1"), ("strange", "strange")]
)
def test_the_host_is_told_by_the_consumers_id(consumer: str, host: str) -> None:
    assert host_in("g", consumer) == host
