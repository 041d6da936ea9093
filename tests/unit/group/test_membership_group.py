"""Whole groups: machines and a coordinator in memory come to a split, and to the next one."""

from __future__ import annotations

import pytest

from streamgroup.group import events as ev
from streamgroup.group.table import State
from tests.unit.group.fake_coordinator import Group


@pytest.mark.parametrize("version", [None, 0, 1, 2, 3, 4, 5, 6, 9])
def test_three_members_come_to_an_even_split_whatever_the_version(version: int | None) -> None:
    group = Group({"t": 6}, version)
    for name in "ABC":
        group.add(name)
    group.run(20)
    assert {m.state for m in group.machines.values()} == {State.STABLE}
    assert sorted(tp for share in group.shares().values() for tp in share) == [f"t-{p}" for p in range(6)]
    assert {len(share) for share in group.shares().values()} == {2}
    assert {(a.members, a.total, a.strategy) for a in group.assigned.values()} == {(3, 6, "streamgroup-range")}
    assert len({a.generation for a in group.assigned.values()}) == 1
    assert [a.leader for a in group.assigned.values()].count(True) == 1
    assert all(machine.lease_at is not None for machine in group.machines.values())


def test_what_a_member_leaves_goes_to_the_others() -> None:
    group = Group({"t": 6})
    for name in "AB":
        group.add(name)
    group.run(20)
    group.tell("A", ev.Stop())
    group.run(20)
    assert group.machines["A"].state is State.LEFT
    assert group.shares() == {"B": [f"t-{p}" for p in range(6)]}
    assert group.assigned["B"].members == 1
    assert len(group.assigned["B"].kept) == 3


def test_a_newcomer_waits_until_the_batch_in_flight_has_sunk() -> None:
    group = Group({"t": 4})
    group.add("A")
    group.run(5)
    group.tell("A", ev.Planned())
    group.tell("A", ev.Asked())
    group.run(1)
    group.add("B")
    group.run(10)
    assert group.machines["A"].state is State.STABLE
    assert group.machines["A"].rebalance_wanted
    assert group.machines["B"].state is State.JOINING
    group.tell("A", ev.Idle())
    group.run(1)
    assert {name: len(share) for name, share in group.shares().items()} == {"A": 2, "B": 2}
    assert ev.Joining("the group rebalances", abandoned=False) in group.log["A"]


def test_the_leader_notices_new_partitions_and_only_the_leader_rejoins_for_them() -> None:
    group = Group({"t": 2})
    for name in "AB":
        group.add(name)
    group.run(20)
    leader = next(name for name, a in group.assigned.items() if a.leader)
    follower = next(name for name, a in group.assigned.items() if not a.leader)
    group.counts["t"] = 4
    generation = group.coordinator.generation
    group.tell_topics(follower, frozenset({"t"}))
    group.run(10)
    assert group.coordinator.generation == generation
    group.tell_topics(leader, frozenset({"t"}))
    group.run(10)
    assert {name: len(share) for name, share in group.shares().items()} == {"A": 2, "B": 2}
    assert ev.Joining("partitions have changed (t: 2 -> 4)", abandoned=False) in group.log[leader]


def test_a_topic_that_appears_is_assigned() -> None:
    group = Group({})
    group.add("A", ("t",))
    group.run(5)
    assert group.shares() == {"A": []}
    assert any(isinstance(a, ev.Note) and "do not exist (yet): t" in a.text for a in group.log["A"])
    group.counts["t"] = 1
    group.tell_topics("A", frozenset({"t"}))
    group.run(5)
    assert group.shares() == {"A": ["t-0"]}


def test_a_changed_subscription_is_a_rebalance() -> None:
    group = Group({"t": 1, "u": 1})
    group.add("A", ("t",))
    group.run(5)
    group.tell("A", ev.Subscribed(("t", "u")))
    group.run(5)
    assert group.shares() == {"A": ["t-0", "u-0"]}
    assert group.assigned["A"].kept == {tp for tp in group.assigned["A"].partitions if tp.topic == "t"}


def test_members_with_unlike_topics_get_only_their_own() -> None:
    group = Group({"t": 2, "u": 2})
    group.add("A", ("t",))
    group.add("B", ("t", "u"))
    group.run(20)
    assert group.shares() == {"A": ["t-0"], "B": ["t-1", "u-0", "u-1"]}


def test_a_group_takes_the_strategy_that_all_know() -> None:
    group = Group({"t": 4})
    group.add("A")
    group.add("B", strategies=("roundrobin",))
    group.run(20)
    assert {a.strategy for a in group.assigned.values()} == {"roundrobin"}


def test_an_unknown_member_id_is_given_up_and_everything_is_gained_anew() -> None:
    group = Group({"t": 2})
    group.add("A")
    group.run(5)
    first = group.assigned["A"]
    group.coordinator.members.clear()
    group.coordinator.known_ids.clear()
    group.run(10)
    assert group.assigned["A"].member_id != first.member_id
    assert group.assigned["A"].kept == frozenset()
    assert ev.Lost("UNKNOWN_MEMBER_ID") in group.log["A"]
