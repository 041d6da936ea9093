"""A run whose group the brokers coordinate reads commits and members there; without a group it asks for neither."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from streamgroup.coordinator.threads import assemble as module
from streamgroup.coordinator.threads import log_watcher as watching
from streamgroup.coordinator.threads.assemble import BrokerBackend, backend_of, ledger_of, machine_of, member_of
from streamgroup.coordinator.threads.group_thread import GroupThread
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.coordinator.threads.registry_thread import RegistryThread
from streamgroup.errors import BrokerError, ErrorCode, TransportError
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.membership import Membership
from streamgroup.group.offsets.both import DualOffsetStore, RegisteredKafkaStore
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.store import MemoryOffsetStore
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.standalone import StandaloneMember
from streamgroup.model import CommittedOffset, Dialect, GroupDescription, GroupState, TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.options.types import GroupMode, GroupOptions, GroupProtocol, OffsetsStorage
from tests.fakes.cluster import logs_of
from tests.unit.coordinator.shells import SOON, FakeInbox, source

COMMITS = {TopicPartition("t", 0): CommittedOffset(7, "metadata", 3)}
MEMBER = GroupOptions("g")
Make = Callable[[GroupOptions], BrokerBackend]


class Admin:
    """The requests to the group's coordinator, which are noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None

    def committed(self, cluster: object, group: str, until: float, in_zookeeper: bool | None) -> Any:
        self.asked.append((group, in_zookeeper))
        if self.failure is not None:
            raise self.failure
        return COMMITS

    def describe(self, cluster: object, group: str, until: float) -> GroupDescription:
        self.asked.append((group,))
        if self.failure is not None:
            raise self.failure
        return GroupDescription(group, GroupState.STABLE)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr(module, "committed", made.committed)
    monkeypatch.setattr(module, "describe_any_group", made.describe)
    return made


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a backend whose watcher runs."""
    monkeypatch.setattr(watching, "open_cluster", logs_of([10]).of)
    watchers: list[LogWatcher] = []

    def start(group: GroupOptions) -> BrokerBackend:
        options = source(group=group)
        watcher = LogWatcher(options, lambda *_: None, lambda _: None)
        watchers.append(watcher)
        watcher.start()
        rng = random.Random(1)
        member = member_of(
            options, group, ledger_of(group, "r", "l"), machine_of(options, group, rng, lambda _: False), rng=rng
        )
        return BrokerBackend(options, group, member, inbox=FakeInbox(), watcher=watcher)

    yield start
    for each in watchers:
        each.stop(SOON)


@pytest.mark.parametrize(
    ("group", "in_zookeeper"),
    [
        (MEMBER, False),
        (GroupOptions("g", mode=GroupMode.COMMIT), None),
        (GroupOptions("g", mode=GroupMode.COMMIT, offsets_storage=OffsetsStorage.ZOOKEEPER), True),
        (GroupOptions("g", mode=GroupMode.COMMIT, offsets_storage=OffsetsStorage.KAFKA), False),
    ],
    ids=["member", "wherever the brokers keep them", "in ZooKeeper", "in Kafka"],
)
def test_commits_are_fetched_from_where_the_brokers_keep_them_for_the_mode(
    group: GroupOptions, in_zookeeper: bool | None, make: Make, admin: Admin
) -> None:
    assert make(group).committed(SOON) == COMMITS
    assert admin.asked == [("g", in_zookeeper)]


def test_a_query_without_a_group_has_no_commits_and_asks_no_broker(make: Make, admin: Admin) -> None:
    assert make(GroupOptions(mode=GroupMode.OFF)).committed(SOON) == {}
    assert admin.asked == []


@pytest.mark.parametrize(
    ("protocol", "is_on", "machine"),
    [
        (GroupProtocol.CLASSIC, True, Membership),
        (GroupProtocol.CONSUMER, False, ConsumerMembership),
        (GroupProtocol.AUTO, False, Membership),
        (GroupProtocol.AUTO, True, ConsumerMembership),
    ],
)
def test_the_protocol_is_that_of_the_options_or_the_clusters(
    protocol: GroupProtocol, is_on: bool, machine: type[object], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cluster:
        def has_consumer_protocol(self, until: float) -> bool:
            return is_on

    monkeypatch.setattr(module, "kafka_of", lambda cluster, until: Cluster())
    backend = make(GroupOptions("g", protocol=protocol))
    backend.opened(Dialect.KAFKA)
    assert type(backend.member.membership) is machine


def test_the_description_is_that_of_the_own_group_and_comes_later(make: Make, admin: Admin) -> None:
    future = make(MEMBER).described(SOON)
    assert future.result(SOON) == GroupDescription("g", GroupState.STABLE)
    assert admin.asked == [("g",)]


@pytest.mark.parametrize(
    "failure",
    [TransportError("no broker answers"), BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "cannot describe group g")],
)
def test_an_error_of_the_coordinator_is_raised_where_the_answer_is_taken(
    failure: Exception, make: Make, admin: Admin
) -> None:
    admin.failure = failure
    backend = make(MEMBER)
    with pytest.raises(type(failure), match=str(failure).split(":")[0]):
        backend.committed(SOON)
    with pytest.raises(type(failure), match=str(failure).split(":")[0]):
        backend.described(SOON).result(SOON)


ZOOKEEPER = {"zookeeper.connect": "zk"}
BROKERS = {"kafka.bootstrap.servers": "b:1"}
GROUP = {"kafka.group.id": "g"}
IN_KAFKA = {"kafka.offsets.storage": "kafka"}
ONCE = {"kafka.dual.commit.enabled": "false"}
ALONE = {"group.mode": "commit"}


def watched_backend(given: Mapping[str, str]) -> tuple[Any, LogWatcher]:
    """Return the backend of a run with these options, and its watcher, which is not started."""
    options = parse_source({"subscribe": "t", **given}, streaming=True)
    assert options.group is not None
    watcher = LogWatcher(options, lambda *_: None, lambda _: None)
    ledger, rng = ledger_of(options.group, "run", "lineage"), random.Random(1)
    others: Any = {"inbox": FakeInbox(), "watcher": watcher, "is_missed": lambda _: False}
    return backend_of(options, options.group, ledger, rng=rng, **others), watcher


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
    taken, _ = watched_backend(given)
    assert type(taken.member.membership) is machine
    assert type(taken.member.store) is store
    assert type(taken.thread) is thread
