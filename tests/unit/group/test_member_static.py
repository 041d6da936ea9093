"""Scenarios of static members (KIP-345), eager and cooperative: restarts that cost the group nothing (R23, R24)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.group.world import COOPERATIVE, World, founded


@pytest.mark.parametrize("config", [{}, COOPERATIVE])
def test_a_static_members_restart_moves_nothing_and_rebalances_nothing(config: dict[str, Any]) -> None:
    world = World(4, **config)
    a, b = (world.query(name, instance_id=f"node-{name}") for name in "AB")
    for query in (a, b):
        query.poll()
    world.run(30)
    world.produce(10)
    for query in (a, b):
        query.batch()
        assert query.poll()
    generation, before = world.coordinator.generation, (a.held, b.held)
    world.queries.remove(b)
    again = world.query("B2", b.start, instance_id="node-B")
    world.run(20)
    assert again.poll()
    assert (world.coordinator.generation, (a.held, again.held)) == (generation, before)
    assert a.poll(), "A has noticed nothing"
    world.produce(5)
    again.batch()
    a.batch()
    assert (again.poll(), a.poll()) == (True, True)
    assert world.repeated() == []
    assert world.missing() == set()


@pytest.mark.parametrize("config", [{}, COOPERATIVE])
@pytest.mark.parametrize("version", [5, 9])
def test_a_restarted_static_leader_notices_new_partitions(version: int, config: dict[str, Any]) -> None:
    """R23: before v9 it is not even told that it leads."""
    world = World(2, **config)
    world.join_version = version
    a, b = (world.query(name, instance_id=f"node-{name}") for name in "AB")
    for query in (a, b):
        query.poll()
    world.run(30)
    assert world.coordinator.group.leader == a.membership.member_id
    world.queries.remove(a)
    again = world.query("A2", a.start, instance_id="node-A")
    world.run(10)
    again.poll()
    generation = world.coordinator.generation
    world.partitions = 4
    for query in (b, again):
        world.tell_topics(query)
        world.run(20)
    assert world.coordinator.generation > generation
    assert sorted(again.held + b.held) == [0, 1, 2, 3]


def test_two_runs_with_one_instance_id_end_with_the_older_one_fenced() -> None:
    world, a = founded(2, **COOPERATIVE, instance_id="node-1")
    assert a.poll()
    again = world.query("A2", a.start, instance_id="node-1")
    world.run(10)
    assert a.failure is not None
    assert "node-1" in str(a.failure)
    assert again.held == [0, 1]
