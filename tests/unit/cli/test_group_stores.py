from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from streamgroup.cli import _group_stores as module
from streamgroup.cli._group_stores import AtBrokers, InZooKeeper
from streamgroup.cli._group_tables import assigned_to
from streamgroup.model import Broker, Dialect, TopicPartition
from streamgroup.net.cluster import Cluster
from streamgroup.znodes import Subtree, ZNode
from streamgroup.zookeeper.session import Session
from tests.unit.cli.clusters import FakeCluster


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


class FakeSession:
    """A session over a tree of nodes: by path what each holds; those above them are made."""

    where = "ZooKeeper zk1:2181"

    def __init__(self, tree: Mapping[str, str]) -> None:
        paths = set(tree)
        for path in tree:
            steps = path.split("/")
            paths |= {"/".join(steps[:n]) for n in range(2, len(steps))}
        self._nodes = {
            path: ZNode(
                tree.get(path, "").encode(),
                version=0,
                czxid=1,
                mzxid=1,
                pzxid=1,
                children=tuple(
                    sorted(p.rpartition("/")[2] for p in paths if p.rpartition("/")[0] == path),
                ),
            )
            for path in paths
        }

    def look(self, subtrees: Iterable[Subtree], deadline: float) -> dict[str, ZNode]:
        assert not any(subtree.watch for subtree in subtrees), "a command looks once"
        return {
            path: node
            for path, node in self._nodes.items()
            for tree in subtrees
            if path == tree.path
            or (path.startswith(f"{tree.path}/") and path.removeprefix(tree.path).count("/") <= tree.depth)
        }


def store(dialect: Dialect, tree: Mapping[str, str]) -> InZooKeeper:
    return InZooKeeper(cast("Session", FakeSession(tree)), FakeCluster(dialect), dialect)


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
    assert [(name, g.group_state) for name, g in described.items()] == [
        ("g", "Stable"),
        ("left", "Empty"),
        ("none", "Dead"),
    ]
    one, two = described["g"].members
    assert (one.member_id, one.client_host) == ("g_h1-1700000000000-aaaaaaaa", "/h1")
    assert (assigned_to(one), assigned_to(two)) == ((orders(10000), orders(10001)), (orders(20000),))


def test_a_group_rebalances_while_a_partition_is_not_with_whom_it_falls_to() -> None:
    tree = {path: value for path, value in KAFKA07.items() if path != "/consumers/g/owners/orders/2-0"}
    assert store(Dialect.KAFKA07, tree).describe(["g"], 1.0)["g"].group_state == "PreparingRebalance"


def test_offset_nodes_are_commits_and_one_without_a_number_is_told() -> None:
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
    assert looked.unseen == "", "in ZooKeeper every group is seen"


def test_ends_are_asked_of_leaders_that_are_there() -> None:
    known = [orders(0), orders(3), TopicPartition("deleted", 0)]
    assert store(Dialect.KAFKA, {}).log_ends(known, 1.0) == {orders(0): 100}
    assert store(Dialect.KAFKA, {}).log_ends([orders(3)], 1.0) == {}


def test_brokers_tell_the_last_complete_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Brokers(FakeCluster):
        def coordinator(self, group: str, deadline: float) -> Broker:
            return Broker(7, "broker", 9092)

    monkeypatch.setattr(module.admin, "committed", lambda *args, stable: asked.append((args[1], stable)) or {})
    brokers = AtBrokers(cast("Cluster", Brokers()))
    assert brokers.committed("g", 1.0) == {}
    assert asked == [("g", False)], "without waiting for open transactions"
    assert (brokers.coordinator("g", 1.0), brokers.name_of(3)) == ("broker:9092 (7)", 3)
    assert "KIP-848" in brokers.unseen
