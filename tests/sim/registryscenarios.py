"""Directed scenarios of groups in ZooKeeper. See `scenarios.py`."""

from __future__ import annotations

from streamgroup.group.events import Lane
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.registration import RegistryTimer
from streamgroup.group.state_machine import State
from streamgroup.model import Dialect
from tests.sim.clock import Sleep, Steps
from tests.sim.oldconsumer import OldConsumer
from tests.sim.process import Process
from tests.sim.scenarios import A0, Scenario, bring_up, connected, joined, keep_down, queries, running, when
from tests.sim.settings import ConsumerSettings, RegistrySettings, Settings
from tests.sim.world import World


def _produce(world: World, count: int) -> None:
    for tp in world.logs.ends:
        world.logs.produce(tp, count)


def _committed(world: World, count: int) -> bool:
    """Whether so many records of every partition are committed."""
    return all((world.registry.offset(tp) or 0) >= max(1, world.logs.behind(tp, 0, count)) for tp in world.logs.ends)


# -- R33 ---------------------------------------------------------------------------------------------------------------


def _joins_a_long_batch(world: World) -> Steps:
    """A query and its batch of many seconds, begun just now; the real consumer, which is not running."""
    (q0,), (c0,) = world.queries, world.consumers
    _produce(world, 5)
    q0.start()
    yield from when(world, lambda: _committed(world, 5))
    q0.slow_s = 8.0
    _produce(world, 5)
    yield from when(world, lambda: running(q0).ledger.in_flight is not None)
    return c0


def _a_real_consumer_joins_a_long_batch(world: World) -> Steps:
    """It tries to claim its share for 8 s; the batch that reads it takes longer. Nothing changes afterwards."""
    consumer: OldConsumer = yield from _joins_a_long_batch(world)
    consumer.start()


def _a_real_consumer_gives_up(world: World) -> Steps:
    """The same, and the query hears late of its coming: when it releases its partitions nobody waits any more."""
    consumer: OldConsumer = yield from _joins_a_long_batch(world)
    connected(running(world.queries[0]).line(Lane.COORDINATOR)).stall(5.0)
    consumer.start()
    yield from when(world, lambda: consumer.has_given_up)


# -- R32 ---------------------------------------------------------------------------------------------------------------


def _a_real_consumer_goes_on_after_a_reset(world: World) -> Steps:
    """A query stops, its last batch sunk and not committed. The group is reset to before that batch, a real consumer
    reads a part of it and leaves; the query is started again, with its checkpoint."""
    (q0,), (c0,) = world.queries, world.consumers
    world.logs.produce(A0, 10)
    q0.start()
    yield from when(world, lambda: _committed(world, 10))
    q0.armed["done"] = lambda: keep_down(q0, q0.stop)
    world.logs.produce(A0, 20)
    yield from when(world, lambda: q0.held_down and world.registry.is_empty)
    assert world.registry.offset(A0) == world.logs.behind(A0, 0, 10)
    assert world.registry.reset({A0: world.logs.behind(A0, 0, 2)})
    c0.start()
    yield from when(world, lambda: _committed(world, 3))
    c0.held_down = True
    c0.stop()
    yield from when(world, lambda: not c0.running)
    assert (world.registry.offset(A0) or 0) < world.logs.behind(A0, 0, 20)
    bring_up(q0)
    yield from when(world, joined(q0, 1))


def _next_heartbeat(process: Process) -> float:
    """Seconds until it is due."""
    assert isinstance(process.membership, RegistryMembership)
    due = process.membership._requests.at(RegistryTimer.HEARTBEAT)
    return 1e9 if due is None else due - process.clock.now


# -- R31 ---------------------------------------------------------------------------------------------------------------


def _a_commit_waits_while_its_session_expires(world: World) -> Steps:
    """A member is cut off while its batch sinks; before it has noticed that, it wants to commit. Its session expires,
    another takes over and reads the same batch; then it can reach ZooKeeper again."""
    q0, q1 = world.queries
    _produce(world, 5)
    q0.start()
    yield from when(world, lambda: _committed(world, 5))
    q1.start()
    yield from when(world, joined(q0, 1))
    yield from when(world, joined(q1, 1))
    q0.slow_s = 0.5
    process = running(q0)
    yield from when(world, lambda: 0.2 < _next_heartbeat(process) < 0.25)
    _produce(world, 5)
    yield from when(world, lambda: _next_heartbeat(process) < 0.05)
    assert not process.ledger.idle
    process.cut(12.0)  # its thread waits for the answer to the heartbeat then
    q1.slow_s = 20.0
    yield from when(world, joined(q1, 2))


def _a_member_leaves_before_it_has_looked_at_what_it_released(world: World) -> Steps:
    """A member sleeps when it has just released a partition, and is stopped as it wakes; the other has claimed it by
    then, and its batch is in flight."""
    q0, q1 = world.queries
    _produce(world, 5)
    q0.start()
    yield from when(world, lambda: _committed(world, 5))
    q1.slow_s = 4.0
    q1.start()
    yield from when(world, lambda: _owned(world) < 2 and running(q0).membership.state is State.JOINING)
    q0.pause(3.0)
    yield from when(world, joined(q1, 1))
    _produce(world, 5)
    yield from when(world, lambda: running(q1).ledger.in_flight is not None)
    keep_down(q0, q0.stop)


def _owned(world: World) -> int:
    """How many partitions have an owner node."""
    return sum(world.registry.zookeeper.exists(world.registry.nodes.owner(tp)) for tp in world.logs.ends)


# -- sessions ----------------------------------------------------------------------------------------------------------


def _the_servers_are_gone_as_soon_as_a_session_has_begun(world: World) -> Steps:
    """The connection of a new session breaks before its process has looked at it; the servers find another leader for
    longer than a process waits for one thing, and the session goes on."""
    (q0,) = world.queries
    _produce(world, 5)
    q0.start()
    yield from when(world, lambda: running(q0).line(Lane.COORDINATOR) is not None)
    world.registry.zookeeper.go_away(10.0, election=True)
    connected(running(q0).line(Lane.COORDINATOR)).break_("connection reset by peer")


def _many_partitions_far_away(world: World) -> Steps:
    """A round trip takes a fifth of a second, a request may take four: forty partitions' offsets are looked at and
    written, though nobody has ever committed one."""
    (q0,) = world.queries
    _produce(world, 5)
    q0.start()
    yield from when(world, lambda: _committed(world, 5))


# -- the order of claiming ---------------------------------------------------------------------------------------------


def _another_waits_for_the_batch_of_the_first(world: World) -> Steps:
    """A member comes while another's batch of a few seconds is in flight: what it gets is read and committed first."""
    q0, q1 = world.queries
    _produce(world, 5)
    q0.start()
    yield from when(world, lambda: _committed(world, 5))
    q0.slow_s = 1.5
    _produce(world, 5)
    yield from when(world, lambda: running(q0).ledger.in_flight is not None)
    q1.start()
    yield from when(world, joined(q1, 1))
    yield Sleep(1.0)
    _produce(world, 5)


_REAL = (ConsumerSettings("c0", ("a",), autocommit_s=0.3, chunk=2),)
_ALONE, _WITH_REAL = RegistrySettings(brokers=1), RegistrySettings(brokers=1, consumers=_REAL)

REGISTRY_SCENARIOS = {
    "waiting-consumer": Scenario(
        _a_real_consumer_joins_a_long_batch.__doc__ or "",
        Settings(queries(1), {"a": 2}, rebalance_wait_s=15.0, registry=_WITH_REAL),
        40.0,
        _a_real_consumer_joins_a_long_batch,
    ),
    "consumer-gives-up": Scenario(
        _a_real_consumer_gives_up.__doc__ or "",
        Settings(queries(1), {"a": 2}, rebalance_wait_s=15.0, registry=_WITH_REAL),
        40.0,
        _a_real_consumer_gives_up,
    ),
    "consumer-after-reset": Scenario(
        _a_real_consumer_goes_on_after_a_reset.__doc__ or "",
        Settings(queries(1), {"a": 1}, registry=_WITH_REAL),
        40.0,
        _a_real_consumer_goes_on_after_a_reset,
    ),
    "commit-waits": Scenario(
        _a_commit_waits_while_its_session_expires.__doc__ or "",
        Settings(queries(2, trigger_s=0.05), {"a": 2}, registry=_ALONE),
        60.0,
        _a_commit_waits_while_its_session_expires,
    ),
    "leaves-while-releasing": Scenario(
        _a_member_leaves_before_it_has_looked_at_what_it_released.__doc__ or "",
        Settings(queries(2), {"a": 2}, registry=_ALONE),
        40.0,
        _a_member_leaves_before_it_has_looked_at_what_it_released,
    ),
    "suspended-at-once": Scenario(
        _the_servers_are_gone_as_soon_as_a_session_has_begun.__doc__ or "",
        Settings(queries(1), {"a": 1}, registry=_ALONE),
        20.0,
        _the_servers_are_gone_as_soon_as_a_session_has_begun,
    ),
    "many-partitions": Scenario(
        _many_partitions_far_away.__doc__ or "",
        Settings(queries(1), {"a": 40}, latency_s=0.1, registry=RegistrySettings(Dialect.KAFKA)),
        20.0,
        _many_partitions_far_away,
    ),
    "waits-for-a-batch": Scenario(
        _another_waits_for_the_batch_of_the_first.__doc__ or "",
        Settings(queries(2), {"a": 2}, registry=_ALONE),
        40.0,
        _another_waits_for_the_batch_of_the_first,
    ),
}
