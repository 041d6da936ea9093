"""A run whose group ZooKeeper keeps reads commits and members in its nodes, as its cluster names them, and in Kafka."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from streamgroup.driver.logs import watcher as watching
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership import offsets_thread, registry_thread
from streamgroup.driver.membership import registry_backend as module
from streamgroup.driver.membership.modes import ledger_of
from streamgroup.driver.membership.registry_backend import RegistryBackend
from streamgroup.errors import ConfigError, DecodeError
from streamgroup.group import events as ev
from streamgroup.group.offsets.store import CommitOffsets
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.znodes import Create, Subtree, ZNode
from tests.fakes.cluster import logs_of
from tests.fakes.nodes import NodeTree
from tests.unit.driver.fake_inbox import FakeInbox
from tests.unit.driver.membership.test_backends import ALONE, GROUP, IN_KAFKA, ONCE, ZOOKEEPER, backend
from tests.unit.driver.membership.test_registry_thread import FakeSession
from tests.unit.driver.shells import SOON

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Make = Callable[..., RegistryBackend]


class NodesSession(FakeSession):
    """Reads these nodes."""

    nodes: Mapping[str, str]
    """Set by each test."""

    def read(self, subtrees: Iterable[Subtree], deadline: float) -> dict[str, ZNode]:
        asked = list(subtrees)
        super().read(asked, deadline)
        return NodeTree.of(self.nodes).read(asked)


class InKafka:
    """The commits that the brokers keep, and the requests for them."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, CommittedOffset] = {}
        self.asked: list[tuple[str, bool | None]] = []

    def committed(
        self, cluster: object, group: str, until: float, in_zookeeper: bool | None
    ) -> dict[TopicPartition, CommittedOffset]:
        self.asked.append((group, in_zookeeper))
        return self.commits


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InKafka:
    made = InKafka()
    monkeypatch.setattr(module, "committed", made.committed)
    return made


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a backend with running threads, of a ZooKeeper with these nodes."""
    logs = logs_of([10])
    monkeypatch.setattr(watching, "open_cluster", logs.of)
    monkeypatch.setattr(offsets_thread, "open_cluster", logs.of)
    monkeypatch.setattr(registry_thread, "Session", NodesSession)
    FakeSession.made.clear()
    running: list[tuple[RegistryBackend, LogWatcher]] = []

    def start(nodes: Mapping[str, str], *given: Mapping[str, str], dialect: Dialect = Dialect.KAFKA) -> RegistryBackend:
        monkeypatch.setattr(NodesSession, "nodes", nodes, raising=False)
        merged = {"subscribe": "t", **ZOOKEEPER, **GROUP}
        for each in given:
            merged |= each
        options = parse_source(merged, streaming=True)
        assert options.group is not None
        assert options.client.zookeeper is not None
        watcher = LogWatcher(options, lambda *_: None, lambda _: None)
        watcher.start()
        taken = RegistryBackend(
            options,
            options.group,
            ledger_of(options.group, "run", "lineage"),
            options.client.zookeeper,
            rng=random.Random(1),
            inbox=FakeInbox(),
            watcher=watcher,
            is_missed=lambda _: False,
        )
        running.append((taken, watcher))
        taken.opened(dialect)
        return taken

    yield start
    for taken, watcher in running:
        taken.thread.stop(SOON)
        watcher.stop(SOON)


def test_a_member_calls_the_nodes_as_its_cluster_does() -> None:
    taken = backend(**ZOOKEEPER, kafka__group__id="g")
    assert isinstance(taken, RegistryBackend)
    taken.opened(Dialect.KAFKA07)
    assert isinstance(taken.member.store, ZooKeeperOffsetStore)
    commit = CommitOffsets(1, "g", "m", 1, {TopicPartition("t", 10_002): CommittedOffset(5)}, 1_000)
    (read,) = taken.member.store.commit(commit, 0.0).actions
    assert read.subtrees[0].path == "/consumers/g/offsets/t/1-2"
    membership = taken.member.membership
    assert isinstance(membership, RegistryMembership)
    membership.step(ev.Start(("t",)), 0.0)
    (register,) = (each for each in membership.step(zk.SessionBegan(1, 6_000), 0.0) if isinstance(each, zk.Transact))
    assert b'{ "t": 1 }' in [each.data for each in register.operations if isinstance(each, Create)]


def test_brokers_of_0_7_keep_no_offsets() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.offsets\.storage=kafka: brokers of Kafka 0\.7 keep no offsets"):
        backend(**ZOOKEEPER, kafka__group__id="g", kafka__offsets__storage="kafka").opened(Dialect.KAFKA07)


@pytest.mark.parametrize(("dialect", "name", "number"), [(Dialect.KAFKA, "2", 2), (Dialect.KAFKA07, "1-2", 10_002)])
def test_commits_are_read_in_the_nodes_as_the_cluster_names_its_partitions(
    dialect: Dialect, name: str, number: int, make: Make, kafka: InKafka
) -> None:
    nodes = {f"/consumers/g/offsets/t/{name}": "7", "/consumers/another/offsets/t/0": "9"}
    found = make(nodes, dialect=dialect).committed(SOON)
    assert found == {TopicPartition("t", number): CommittedOffset(7)}
    assert kafka.asked == []


def test_a_group_without_nodes_has_no_commits_and_no_members(make: Make) -> None:
    taken = make({})
    assert taken.committed(SOON) == {}
    assert taken.described(SOON).result(SOON).members == ()


def test_a_node_that_does_not_hold_an_offset_is_an_error_only_if_its_partition_is_wanted(make: Make) -> None:
    taken = make({"/consumers/g/offsets/t/0": "7", "/consumers/g/offsets/t/1": "nine"})
    assert taken.committed(SOON, lambda tp: tp == P0) == {P0: CommittedOffset(7)}
    with pytest.raises(DecodeError, match=r"/consumers/g/offsets/t/1"):
        taken.committed(SOON)


@pytest.mark.parametrize(
    ("given", "found"), [((IN_KAFKA,), {P0: 7, P1: 6}), ((IN_KAFKA, ONCE), {P0: 5, P1: 6})], ids=["both", "Kafka only"]
)
def test_of_a_group_that_commits_to_both_the_larger_offset_counts_and_kafka_alone_without_dual_commits(
    given: tuple[dict[str, str], ...], found: dict[TopicPartition, int], make: Make, kafka: InKafka
) -> None:
    kafka.commits = {P0: CommittedOffset(5), P1: CommittedOffset(6)}
    taken = make({"/consumers/g/offsets/t/0": "7", "/consumers/g/offsets/t/1": "4"}, *given)
    assert {tp: commit.offset for tp, commit in taken.committed(SOON).items()} == found
    assert kafka.asked == [("g", False)]


def test_members_are_the_consumers_with_what_our_own_tell_of_themselves(make: Make) -> None:
    one, two = "g_h1-1700000000000-aaaaaaaa", "g_h2-1700000000000-bbbbbbbb"
    nodes = {
        f"/consumers/g/ids/{one}": "{}",
        f"/consumers/g/ids/{two}": "{}",
        f"/consumers/g/streamgroup-members/{one}": "lineage",
    }
    members = make(nodes).described(SOON).result(SOON).members
    assert [(each.member_id, each.host, each.user_data) for each in members] == [
        (one, "h1", b"lineage"),
        (two, "h2", b""),
    ]


def test_an_error_of_the_session_is_an_error_of_the_call(make: Make) -> None:
    taken = make({})
    FakeSession.made[-1].fails = ConfigError("zookeeper.connect: the chroot does not exist")
    with pytest.raises(ConfigError, match="the chroot does not exist"):
        taken.committed(SOON)


def test_a_query_that_is_not_a_member_keeps_its_place_outside_of_the_group_when_the_brokers_are_known(
    make: Make,
) -> None:
    """It commits in a session of its own, but registers no consumer."""
    taken = make({"/consumers/g/offsets/t/0": "7"}, ALONE)
    assert not isinstance(taken.member.membership, RegistryMembership)
    assert taken.committed(SOON) == {P0: CommittedOffset(7)}
