"""Whole groups: members and a coordinator in memory come to a split, and to the next one."""

from __future__ import annotations

import pytest

from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from tests.unit.group.world import Query, World, sends


def assigned(query: Query) -> ev.Assigned:
    """The query's last assignment."""
    return [action for action in query.log if isinstance(action, ev.Assigned)][-1]


def shares(world: World) -> dict[str, list[str]]:
    return {query.name: [str(tp) for tp in assigned(query).partitions] for query in world.queries}


@pytest.mark.parametrize("version", [None, 0, 1, 2, 3, 4, 5, 6, 9])
def test_three_members_come_to_an_even_split_whatever_the_version(version: int | None) -> None:
    world = World(6)
    world.most = version
    queries = [world.query(name) for name in "ABC"]
    world.run(20)
    assert {query.membership.state for query in queries} == {State.STABLE}
    assert sorted(tp for share in shares(world).values() for tp in share) == [f"t-{p}" for p in range(6)]
    assert {len(share) for share in shares(world).values()} == {2}
    last = [assigned(query) for query in queries]
    assert {(one.members, one.total, one.strategy) for one in last} == {(3, 6, "streamgroup-range")}
    assert len({one.generation for one in last}) == 1
    assert [one.leader for one in last].count(True) == 1
    assert all(query.membership.lease_at is not None for query in queries)


def test_the_leader_notices_new_partitions_and_only_the_leader_rejoins_for_them() -> None:
    world = World(2)
    queries = [world.query(name) for name in "AB"]
    world.run(20)
    (leader,), (follower,) = ([q for q in queries if assigned(q).leader is leads] for leads in (True, False))
    world.partitions = 4
    generation, joined = world.coordinator.generation, sends(follower, JoinGroupRequest)
    world.tell_topics(follower)
    world.run(10)
    assert (world.coordinator.generation, sends(follower, JoinGroupRequest)) == (generation, joined)
    world.tell_topics(leader)
    world.run(10)
    assert {name: len(share) for name, share in shares(world).items()} == {"A": 2, "B": 2}
    joining = ev.Joining("partitions have changed (t: 2 -> 4)", abandoned=False, cause=ev.JoinCause.PARTITIONS)
    assert joining in leader.log


def test_a_topic_that_appears_is_assigned() -> None:
    world = World(0)
    query = world.query("A")
    world.run(5)
    assert shares(world) == {"A": []}
    assert any(isinstance(a, ev.Note) and "do not exist (yet): t" in a.text for a in query.log)
    world.partitions = 1
    world.tell_topics(query)
    world.run(5)
    assert shares(world) == {"A": ["t-0"]}


def test_members_with_unlike_topics_get_only_their_own() -> None:
    world = World(2)
    world.more = {"u": 2}
    world.query("A")
    world.query("B", topics=("t", "u"))
    world.run(20)
    assert shares(world) == {"A": ["t-0"], "B": ["t-1", "u-0", "u-1"]}


def test_a_group_takes_the_strategy_that_all_know() -> None:
    world = World(4)
    queries = [world.query("A"), world.query("B", strategies=("roundrobin",))]
    world.run(20)
    assert {assigned(query).strategy for query in queries} == {"roundrobin"}
