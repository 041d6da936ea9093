"""The real consumers of the simulation share as Scala's do, give up as they do, and lose nothing by themselves."""

from __future__ import annotations

import random

import pytest

from streamgroup.model import Dialect, TopicPartition
from streamgroup.znodes import Create, Delete
from tests.sim.nodes import chunk
from tests.sim.settings import ConsumerSettings, RegistrySettings, Settings
from tests.sim.world import World

A = TopicPartition("a", 0)


def world_of(seed: object, consumers: int, dialect: Dialect = Dialect.KAFKA07) -> World:
    each = tuple(ConsumerSettings(f"c{n}", ("a",)) for n in range(consumers))
    registry = RegistrySettings(dialect, 2, each)
    return World(str(seed), Settings((), {"a": 3}, registry=registry), tracing=True)


def test_the_consensus_is_that_of_two_captured_consumers() -> None:
    partitions = ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    threads = ["grp1_c1-0", "grp1_vm-1795200126907-19be2887-0", "grp1_vm-1795200126907-19be2887-1"]
    assert [chunk(partitions, threads, thread) for thread in threads] == [
        ["0-0", "0-1"],
        ["0-2", "1-0"],
        ["1-1", "1-2"],
    ]
    assert [len(chunk(list("abcdefg"), threads, thread)) for thread in threads] == [3, 2, 2]


@pytest.mark.parametrize(("dialect", "held"), [(Dialect.KAFKA07, [3, 3]), (Dialect.KAFKA, [2, 1])])
def test_two_share_and_one_takes_over_what_a_dead_one_had(dialect: Dialect, held: list[int]) -> None:
    world = world_of("two", 2, dialect)
    first, second = world.consumers
    first.start()
    second.start()
    world.clock.run_until(10.0)
    assert sorted((len(each.positions) for each in world.consumers), reverse=True) == held
    second.held_down = True
    second.kill()
    world.clock.run_until(20.0)
    assert len(first.positions) == sum(held)


def test_it_gives_up_after_four_tries_and_owns_nothing_until_the_next_change() -> None:
    world = world_of("gives up", 1)
    (consumer,) = world.consumers
    zookeeper, nodes = world.registry.zookeeper, world.registry.nodes
    zookeeper.ensure(None, nodes.owner(A).rpartition("/")[0])
    zookeeper.transact(None, [Create(nodes.owner(A), b"another")])
    consumer.start()
    world.clock.run_until(12.0)
    assert consumer.has_given_up
    assert sum("cannot rebalance" in line for line in world.clock.trace or ()) == 4
    zookeeper.transact(None, [Delete(nodes.owner(A))])
    world.clock.run_until(30.0)
    assert not consumer.positions
    zookeeper.transact(None, [Create(f"{nodes.ids}/x", b'{ "b": 1 }')])
    world.clock.run_until(31.0)
    assert len(consumer.positions) == 6


def test_whatever_befalls_them_real_consumers_lose_nothing() -> None:
    gave_up = unfenced = 0
    for seed in range(25):
        chance = random.Random(f"real consumers {seed}")
        world = world_of(seed, chance.randint(1, 3), chance.choice((Dialect.KAFKA07, Dialect.KAFKA)))
        for _ in range(6):
            _befall(world, chance)
        world.run(40.0)
        trace = "\n".join(world.clock.trace or ())
        gave_up += "gives up" in trace
        unfenced += "does not own" in trace
    assert gave_up
    assert unfenced


def _befall(world: World, chance: random.Random) -> None:
    consumer, seconds = chance.choice(world.consumers), chance.uniform(0.0, 15.0)
    zookeeper = world.registry.zookeeper
    what = chance.choice(
        (
            consumer.kill,
            consumer.stop,
            lambda: consumer.pause(seconds),
            lambda: consumer.cut(seconds),
            lambda: zookeeper.go_away(seconds, election=seconds < 7.0),
        )
    )
    world.clock.at(chance.uniform(1.0, 35.0), what)
