from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from streamgroup.advice import Operation, refusal
from streamgroup.cli import _group_stores as module
from streamgroup.cli._group_stores import (
    AtBrokers,
    ChangeRefusedError,
    InZooKeeper,
    delete_group,
    delete_offsets,
    set_offsets,
)
from streamgroup.errors import BrokerError, ErrorCode, TransportError, UnsupportedVersionError
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.kafka.cluster import admin
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import (
    EARLIEST,
    LATEST,
    Broker,
    ClusterSnapshot,
    CommittedOffset,
    Dialect,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    TopicPartition,
)
from streamgroup.znodes import Create, Refusal, Subtree, ZNode
from streamgroup.znodes import Operation as NodeOperation
from streamgroup.zookeeper.client import RefusedError
from streamgroup.zookeeper.session import Session
from tests.fakes.cluster import FakeCluster, Logs
from tests.fakes.nodes import NodeTree, Refused
from tests.unit.cli.shown import orders, orders_cluster


def store(dialect: Dialect, tree: Mapping[str, str], *, more: Collection[str] = ()) -> InZooKeeper:
    return InZooKeeper(cast("Session", FakeSession(tree)), orders_cluster(dialect, more), dialect)


KAFKA07 = {
    "/brokers/ids/1": "one-1:one:9092",
    "/brokers/ids/2": "two-1:two:9093",
    "/brokers/topics/orders/1": "2",
    "/brokers/topics/orders/2": "1",
    "/consumers/g/ids/g_h1-1700000000000-aaaaaaaa": '{ "orders": 1 }',
    "/consumers/g/ids/g_h2-1700000000000-bbbbbbbb": '{ "orders": 1 }',
    "/consumers/g/owners/orders/1-0": "g_h1-1700000000000-aaaaaaaa-0",
    "/consumers/g/owners/orders/1-1": "g_h1-1700000000000-aaaaaaaa-0",
    "/consumers/g/owners/orders/2-0": "g_h2-1700000000000-bbbbbbbb-0",
    "/consumers/g/offsets/orders/1-0": "90",
    "/consumers/g/offsets/orders/2-0": "nine",
    "/consumers/left/offsets/orders/1-1": "7",
}


def test_groups_of_zookeeper_are_those_below_consumers() -> None:
    assert sorted(store(Dialect.KAFKA07, KAFKA07).list_groups(1.0)) == ["g", "left"]
    assert store(Dialect.KAFKA07, {"/brokers/ids/1": "one-1:one:9092"}).list_groups(1.0) == {}


def test_consumers_are_members_with_what_they_own() -> None:
    described = store(Dialect.KAFKA07, KAFKA07).describe(["g", "left", "none"], 1.0)
    assert [(name, g.state) for name, g in described.items()] == [("g", "Stable"), ("left", "Empty"), ("none", "Dead")]
    one, two = described["g"].members
    assert (one.member_id, one.host) == ("g_h1-1700000000000-aaaaaaaa", "/h1")
    assert (one.assigned, two.assigned) == ((orders(10000), orders(10001)), (orders(20000),))


def test_a_group_rebalances_while_a_partition_is_not_with_whom_it_falls_to() -> None:
    tree = {path: value for path, value in KAFKA07.items() if path != "/consumers/g/owners/orders/2-0"}
    assert store(Dialect.KAFKA07, tree).describe(["g"], 1.0)["g"].state == "PreparingRebalance"


def test_offset_nodes_are_commits_and_one_without_a_number_is_reported() -> None:
    looked = store(Dialect.KAFKA07, KAFKA07)
    assert {tp: c.offset for tp, c in looked.committed("g", 1.0).items()} == {orders(10000): 90}
    (note,) = looked.notes
    assert "/consumers/g/offsets/orders/2-0" in note
    assert "nine" in note


def test_partitions_of_kafka_08_are_plain_numbers() -> None:
    looked = store(
        Dialect.KAFKA,
        {"/brokers/topics/orders": '{"version":1,"partitions":{"0":[1]}}', "/consumers/g/offsets/orders/0": "5"},
    )
    assert {tp: c.offset for tp, c in looked.committed("g", 1.0).items()} == {orders(0): 5}
    assert (looked.name_of(3), store(Dialect.KAFKA07, {}).name_of(10002)) == (3, "1-2")
    assert looked.coordinator("g", 1.0) == "ZooKeeper zk1:2181"


def test_ends_of_a_topic_that_the_user_may_not_describe_are_left_out_and_reported() -> None:
    class Guarded(FakeCluster):
        def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
            if topics is not None and "secret" in topics:
                raise refusal(29, "cannot describe topic 'secret'", Operation.DESCRIBE, "secret")
            return super().snapshot(topics, deadline, refresh)

    looked = AtBrokers(cast("KafkaCluster", Guarded(orders_cluster().logs)))
    assert looked.log_ends([orders(0), TopicPartition("secret", 0)], 1.0) == {orders(0): 100}
    (note,) = looked.notes
    assert "no lag for topics that this user is not authorized to describe" in note
    assert "--operation Describe --topic secret" in note


def test_brokers_tell_the_last_complete_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Brokers(FakeCluster):
        def coordinator(self, group: str, deadline: float) -> Broker:
            return Broker(7, "broker", 9092)

    monkeypatch.setattr(module.admin, "committed", lambda *args, stable: asked.append((args[1], stable)) or {})
    brokers = AtBrokers(cast("KafkaCluster", Brokers(Logs())))
    assert brokers.committed("g", 1.0) == {}
    assert asked == [("g", False)], "without waiting for open transactions"
    assert (brokers.coordinator("g", 1.0), brokers.name_of(3)) == ("broker:9092 (7)", 3)


@pytest.mark.parametrize(
    ("commits", "state"), [({orders(0): CommittedOffset(3)}, "Empty"), ({}, "Dead")], ids=["commits", "no commits"]
)
def test_a_group_that_09_calls_dead_is_empty_where_it_has_committed(
    monkeypatch: pytest.MonkeyPatch, commits: Mapping[TopicPartition, CommittedOffset], state: str
) -> None:
    told = {name: GroupDescription(name, was) for name, was in (("g", "Dead"), ("h", "Stable"))}
    monkeypatch.setattr(module.admin, "describe_groups", lambda *_: told)
    monkeypatch.setattr(module.admin, "listing_of", lambda *_: None)
    monkeypatch.setattr(module.admin, "committed", lambda *_, stable: commits)
    described = AtBrokers(cast("KafkaCluster", orders_cluster())).describe(["g", "h"], 1.0)
    assert {name: group.state for name, group in described.items()} == {"g": state, "h": "Stable"}


# -- offsets that a group of ZooKeeper keeps in Kafka ------------------------------------------------------------------

KAFKA08 = {
    "/brokers/topics/orders": '{"version":1,"partitions":{"0":[1],"1":[1],"2":[2]}}',
    "/consumers/g/offsets/orders/0": "5",
    "/consumers/g/offsets/orders/1": "50",
    "/consumers/h/offsets/orders/0": "7",
}
OFFSETS_TOPIC = "__consumer_offsets"
IN_KAFKA = {orders(0): CommittedOffset(90), orders(1): CommittedOffset(10), orders(2): CommittedOffset(3)}


class Coordinator:
    """In place of `admin.committed`: what the brokers answer, and what they were asked."""

    def __init__(self, answer: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.answer: Mapping[TopicPartition, CommittedOffset] | Exception = answer
        self.asked: list[tuple[str, float]] = []

    def __call__(
        self, cluster: object, group: str, deadline: float, *, stable: bool, in_zookeeper: bool
    ) -> Mapping[TopicPartition, CommittedOffset]:
        assert (stable, in_zookeeper) == (False, False)
        self.asked.append((group, deadline))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator(IN_KAFKA)
    monkeypatch.setattr(module.admin, "committed", made)
    return made


def offsets_of(looked: InZooKeeper, group: str, deadline: float = 1.0) -> dict[int, int]:
    return {tp.partition: commit.offset for tp, commit in looked.committed(group, deadline).items()}


@pytest.mark.usefixtures("coordinator")
def test_of_offsets_in_both_places_the_larger_counts_partition_by_partition() -> None:
    looked = store(Dialect.KAFKA, KAFKA08, more=[OFFSETS_TOPIC])
    assert (offsets_of(looked, "g"), looked.notes) == ({0: 90, 1: 50, 2: 3}, [])


def test_brokers_without_their_topic_of_offsets_are_not_asked_as_that_would_make_it(coordinator: Coordinator) -> None:
    assert offsets_of(store(Dialect.KAFKA, KAFKA08), "g") == {0: 5, 1: 50}
    assert offsets_of(store(Dialect.KAFKA07, KAFKA07, more=[OFFSETS_TOPIC]), "g") == {10000: 90}
    assert coordinator.asked == []


def test_brokers_that_cannot_keep_offsets_leave_those_of_zookeeper_without_a_word(coordinator: Coordinator) -> None:
    coordinator.answer = UnsupportedVersionError("no FindCoordinator")
    looked = store(Dialect.KAFKA, KAFKA08, more=[OFFSETS_TOPIC])
    assert (offsets_of(looked, "g"), looked.notes) == ({0: 5, 1: 50}, [])


def test_brokers_that_do_not_answer_are_reported_once_and_leave_time_for_the_rest(coordinator: Coordinator) -> None:
    coordinator.answer = TransportError("the coordinator is away")
    looked = store(Dialect.KAFKA, KAFKA08, more=[OFFSETS_TOPIC])
    deadline = time.monotonic() + 60
    assert offsets_of(looked, "g", deadline) == {0: 5, 1: 50}
    assert offsets_of(looked, "h", deadline) == {0: 7}
    ((group, until),) = coordinator.asked
    assert group == "g"
    assert deadline - until == pytest.approx(30, abs=5), "the ends of the logs are still to be asked for"
    (note,) = looked.notes
    assert all(part in note for part in ("'g'", "only those in ZooKeeper", "the coordinator is away"))


def test_a_group_whose_offsets_brokers_refuse_is_reported_and_the_others_are_asked(coordinator: Coordinator) -> None:
    coordinator.answer = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'g'")
    looked = store(Dialect.KAFKA, KAFKA08, more=[OFFSETS_TOPIC])
    assert offsets_of(looked, "g") == {0: 5, 1: 50}
    coordinator.answer = {orders(0): CommittedOffset(8)}
    assert offsets_of(looked, "h") == {0: 8}
    (note,) = looked.notes
    assert "GROUP_AUTHORIZATION_FAILED" in note


# -- changes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "state", "members"),
    [
        (None, "Dead", 0),
        (GroupListing("g", "share", "Stable", "share"), "Stable", None),
        (GroupListing("g", "consumer", "Empty"), "Empty", 0),
        (GroupListing("g", "consumer"), "Unknown", None),
        (GroupListing("g", "consumer", "Stable", "consumer"), "Stable", None),
    ],
)
def test_a_group_that_brokers_do_not_describe_has_the_state_of_their_list(
    monkeypatch: pytest.MonkeyPatch, listed: GroupListing | None, state: str, members: int | None
) -> None:
    """It is Dead to DescribeGroups: a reset must not take it for one without members."""

    def unsupported(*_: Any) -> GroupDescription:
        raise UnsupportedVersionError("ConsumerGroupDescribe needs Kafka 4.0")

    monkeypatch.setattr(module.admin, "describe_groups", lambda *_: {"g": GroupDescription("g", "Dead")})
    monkeypatch.setattr(module.admin, "describe_consumer_group", unsupported)
    monkeypatch.setattr(module.admin, "listing_of", lambda *_: listed)
    monkeypatch.setattr(module.admin, "committed", lambda *_, stable: {})
    brokers = AtBrokers(cast("KafkaCluster", orders_cluster()))
    described = brokers.describe(["g"], 1.0)["g"]
    assert (described.state, described.member_count) == (state, members)
    assert [note[:42] for note in brokers.notes] == ["cannot show the members of group 'g': it i"] * (members is None)


def test_a_group_of_kip_848_has_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    member = MemberDescription("m", assigned=(orders(0),))
    found = GroupDescription("g", "Reconciling", "consumer", "uniform", (member,))
    monkeypatch.setattr(module.admin, "describe_groups", lambda *_: {"g": GroupDescription("g", "Dead")})
    monkeypatch.setattr(module.admin, "describe_consumer_group", lambda *_: found)
    monkeypatch.setattr(module.admin, "listing_of", lambda *_: GroupListing("g", "consumer", "Stable", "consumer"))
    brokers = AtBrokers(cast("KafkaCluster", orders_cluster()))
    assert (brokers.describe(["g"], 1.0), brokers.notes) == ({"g": found}, [])


@pytest.mark.parametrize("state", ["Stable", "Empty"])
@pytest.mark.parametrize("kind", ["share", "streams"])
def test_a_group_of_another_kind_is_named_as_such(monkeypatch: pytest.MonkeyPatch, kind: str, state: str) -> None:
    monkeypatch.setattr(module.admin, "describe_groups", lambda *_: {"g": GroupDescription("g", "Dead")})
    monkeypatch.setattr(module.admin, "describe_consumer_group", None)
    monkeypatch.setattr(module.admin, "listing_of", lambda *_: GroupListing("g", kind, state, kind))
    brokers = AtBrokers(cast("KafkaCluster", orders_cluster()))
    group = brokers.describe(["g"], 1.0)["g"]
    assert (group.state, group.other_kind) == (state, kind)
    (note,) = brokers.notes
    assert f"it is a {kind} group, not a group of consumers. To show them, use kafka-{kind}-groups.sh" in note


@dataclass
class Changes:
    """In place of the changes at brokers and in ZooKeeper: what was asked for."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    error: Exception | None = None

    def of(self, name: str) -> Callable[..., Any]:
        def change(_: object, *arguments: Any) -> Any:
            *what, _deadline = arguments
            self.asked.append((name, *what))
            if name.startswith("broker") and self.error is not None:
                raise self.error
            return dict.fromkeys(what[1]) if name == "broker offsets" else None

        return change


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    made = Changes()
    monkeypatch.setattr(module, "kafka_of", lambda cluster, deadline: cluster)
    monkeypatch.setattr(module.admin, "committed", Coordinator({orders(1): CommittedOffset(90)}))
    for owner, name, function in (
        (module.changes, "broker commit", "commit_as_admin"),
        (module.changes, "broker group", "delete_group"),
        (module.changes, "broker offsets", "delete_offsets"),
        (module, "nodes", "set_offsets"),
        (module, "nodes group", "delete_group"),
        (module, "nodes offsets", "delete_offsets"),
    ):
        monkeypatch.setattr(owner, function, made.of(name))
    return made


PATHS = GroupPaths("g", Dialect.KAFKA)


def test_a_reset_in_zookeeper_is_made_at_the_brokers_too_where_they_keep_an_offset(changes: Changes) -> None:
    """The larger of both counts, so a reset to a smaller offset in one place alone would have no effect."""
    changed = store(Dialect.KAFKA, KAFKA08, more=[OFFSETS_TOPIC])
    changed.set_offsets("g", {orders(0): 1, orders(1): 2}, 1.0)
    assert changes.asked == [("nodes", PATHS, {orders(0): 1, orders(1): 2}), ("broker commit", "g", {orders(1): 2})]


def test_brokers_that_keep_nothing_of_a_group_in_zookeeper_get_no_commit(changes: Changes) -> None:
    changed = store(Dialect.KAFKA, KAFKA08)
    changed.set_offsets("g", {orders(1): 2}, 1.0)
    changed.delete_group("g", 1.0)
    assert changed.delete_offsets("g", [orders(1)], 1.0) == {orders(1): None}
    assert {name for name, *_ in changes.asked} == {"nodes", "nodes group", "nodes offsets"}


def test_deletions_in_zookeeper_are_made_at_the_brokers_too_and_what_old_ones_keep_is_reported(
    changes: Changes,
) -> None:
    changed = store(Dialect.KAFKA, KAFKA08, more=[OFFSETS_TOPIC])
    for changes.error in (None, UnsupportedVersionError("no DeleteGroups")):
        changes.asked.clear()
        changed.delete_group("g", 1.0)
        assert changed.delete_offsets("g", [orders(0), orders(1)], 1.0) == {orders(0): None, orders(1): None}
        assert changes.asked == [
            ("nodes group", PATHS),
            ("broker group", "g"),
            ("nodes offsets", PATHS, [orders(0), orders(1)]),
            ("broker offsets", "g", {orders(1)}),
        ]
        assert len(changed.notes) == (0 if changes.error is None else 2)
    assert all("the brokers still keep offsets of group 'g'" in note for note in changed.notes)


def test_every_offset_of_kafka_08_can_be_read_from_and_ends_are_asked_of_leaders_that_are_there() -> None:
    looked = store(Dialect.KAFKA, KAFKA08)
    assert looked.starts_message(orders(0), 17, 1.0)
    assert looked.offsets_at({orders(0): EARLIEST, orders(1): LATEST}, 1.0) == {orders(0): 10, orders(1): 100}
    assert (looked.offsets_at({}, 1.0), looked.offsets_once({}, 1.0)) == ({}, {})
    assert looked.partitions(["orders", "absent"], 1.0) == {"orders": (0, 1, 2, 3)}
    assert looked.log_ends([orders(0), orders(3), TopicPartition("deleted", 0)], 1.0) == {orders(0): 100}
    assert looked.log_ends([orders(3)], 1.0) == {}


def test_offsets_of_leaders_that_answer_are_listed_once_and_a_note_says_why_others_are_not() -> None:
    cluster = orders_cluster()
    cluster.logs.slow.add(orders(1))
    looked = InZooKeeper(cast("Session", FakeSession(KAFKA08)), cluster, Dialect.KAFKA)
    assert looked.offsets_once({orders(0): EARLIEST, orders(1): EARLIEST}, 1.0) == {orders(0): 10}
    assert looked.notes == ["cannot read the offsets of some logs: orders-1: its leader is late"]


def test_a_page_lists_the_groups_once_for_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[int] = []

    def once(*_: object, epoch: int, **__: object) -> tuple[dict[str, GroupListing], list[str]]:
        lists.append(epoch)
        return {"g": GroupListing("g", "consumer")}, ["broker 2 does not answer"]

    monkeypatch.setattr(admin, "list_groups_once", once)
    monkeypatch.setattr(admin, "listing_of", lambda *_: pytest.fail("listed again"))
    monkeypatch.setattr(admin, "committed", lambda *_, **__: {orders(0): CommittedOffset(1)})
    monkeypatch.setattr(
        admin, "describe_groups", lambda _, names, __: {name: GroupDescription(name, GroupState.DEAD) for name in names}
    )
    looked = AtBrokers(cast("KafkaCluster", orders_cluster()))
    assert looked.list_groups_once(1.0) == {"g": GroupListing("g", "consumer")}
    assert looked.notes == ["there may be further groups: broker 2 does not answer"]
    described = looked.describe(["g", "left"], 1.0)
    assert (described["g"].state, described["left"].state) == (GroupState.UNKNOWN, GroupState.EMPTY)
    looked.list_groups_once(1.0)
    assert lists[0] < lists[1], "a late answer to the first list is not taken for the second"


GROUP = {
    "/consumers/g/ids/": "",
    "/consumers/g/offsets/orders/0": "5",
    "/consumers/g/offsets/orders/1": "6",
    "/consumers/g/streamgroup/orders/0": "{}",
    "/consumers/g/streamgroup-members": "",
    "/consumers/h/offsets/orders/0": "7",
}


def session(fake: FakeSession) -> Session:
    return cast("Session", fake)


def registers(tree: NodeTree) -> None:
    if "/consumers/g/ids" not in tree:
        tree.transact([Create("/consumers/g/ids")])
    tree.transact([Create("/consumers/g/ids/g_host-1-a", ephemeral=True)], 7)


def test_offsets_are_written_where_consumers_look_for_them() -> None:
    fake = FakeSession(GROUP)
    set_offsets(session(fake), PATHS, {orders(0): 50, orders(2): 60}, 1.0)
    found = [fake.data(f"/consumers/g/offsets/orders/{number}") for number in range(3)]
    assert found == [b"50", b"6", b"60"]
    assert fake.data("/consumers/g/streamgroup/orders/0") == b"{}", "it counts no more, as the offset is another (R32)"
    fake = FakeSession({"/consumers/h": ""})
    set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0)
    assert fake.data("/consumers/g/offsets/orders/0") == b"50", "a group that does not exist gets its nodes"
    assert "/consumers/g/ids" not in fake.paths()


@pytest.mark.parametrize("values", [GROUP, {"/consumers/g/offsets/orders/0": "5"}], ids=["ids", "no ids"])
@pytest.mark.parametrize(
    "change",
    [
        lambda fake: set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0),
        lambda fake: delete_offsets(session(fake), PATHS, [orders(0)], 1.0),
        lambda fake: delete_group(session(fake), PATHS, 1.0),
    ],
    ids=["set", "delete offsets", "delete group"],
)
def test_a_consumer_that_registers_meanwhile_keeps_its_offsets(
    change: Callable[[FakeSession], None], values: Mapping[str, str]
) -> None:
    fake = FakeSession(values, registers)
    with pytest.raises(ChangeRefusedError, match="cannot change group 'g' in ZooKeeper zk1:2181: a consumer"):
        change(fake)
    assert fake.data("/consumers/g/offsets/orders/0") == b"5"


def test_an_offset_that_somebody_writes_meanwhile_is_not_overwritten() -> None:
    path = "/consumers/g/offsets/orders/0"
    fake = FakeSession(GROUP, lambda tree: tree.transact([tree.write(path, "9")]))
    with pytest.raises(ChangeRefusedError, match=f"another client has written {path}"):
        set_offsets(session(fake), PATHS, {orders(0): 50}, 1.0)
    assert fake.data(path) == b"9"


def test_a_right_that_is_missing_is_reported_with_the_advice() -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("/consumers/g/offsets/orders/0", Refusal.NO_AUTH, FakeSession.where)

    with pytest.raises(RefusedError, match="the node's access control list forbids the operation"):
        set_offsets(session(FakeSession(GROUP, refuse)), PATHS, {orders(0): 50}, 1.0)


def test_deleted_offsets_go_with_our_metadata() -> None:
    fake = FakeSession(GROUP)
    delete_offsets(session(fake), PATHS, [orders(0), orders(7)], 1.0)
    gone = {"/consumers/g/ids", "/consumers/g/offsets/orders/0", "/consumers/g/streamgroup/orders/0"}
    assert FakeSession(GROUP).paths() - fake.paths() == gone


def test_a_deleted_group_leaves_nothing_and_the_others_alone() -> None:
    fake = FakeSession(GROUP)
    delete_group(session(fake), PATHS, 1.0)
    assert {path for path in fake.paths() if path.startswith("/consumers/g")} == set()
    assert fake.data("/consumers/h/offsets/orders/0") == b"7"


def test_many_offsets_are_written_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_OPERATIONS", 2)
    fake = FakeSession(GROUP)
    set_offsets(session(fake), PATHS, {orders(number): 50 for number in range(5)}, 1.0)
    assert {fake.data(f"/consumers/g/offsets/orders/{number}") for number in range(5)} == {b"50"}
    assert fake.transactions == 3
    delete_group(session(fake), PATHS, 1.0)
    assert "/consumers/g" not in fake.paths()


class FakeSession:
    """A session over a tree of nodes. `before` runs between the read and the first transaction."""

    where = "ZooKeeper zk1:2181"

    def __init__(self, values: Mapping[str, str], before: Callable[[NodeTree], object] = lambda _: None) -> None:
        self.tree = NodeTree.of({path.rstrip("/"): value for path, value in values.items()})
        self.before = before
        self.transactions = 0

    def read(self, subtrees: Collection[Subtree], deadline: float) -> dict[str, ZNode]:
        assert not any(subtree.watch for subtree in subtrees), "a command looks once"
        return self.tree.read(subtrees)

    def transact(self, operations: Sequence[NodeOperation], ensured: Iterable[str], deadline: float) -> None:
        if not self.transactions:
            self.before(self.tree)
        self.transactions += 1
        for path in ensured:
            steps = path.split("/")
            for depth in range(2, len(steps) + 1):
                if (above := "/".join(steps[:depth])) not in self.tree:
                    self.tree.transact([Create(above)])
        try:
            self.tree.transact(operations)
        except Refused as refused:
            raise RefusedError(refused.path, refused.refusal, self.where, operations) from None

    def paths(self) -> set[str]:
        return set(self.tree.read([Subtree("/consumers", 9, watch=False)]))

    def data(self, path: str) -> bytes:
        node = self.tree.get(path)
        assert node is not None
        return node.data
