"""Directed scenarios of what a run decides by itself: to leave while Spark is silent (R27), to be refused (R28)."""

from __future__ import annotations

from streamgroup.coordinator.run.lifecycle import RunState
from streamgroup.group.events import Lane
from streamgroup.group.state_machine import State
from streamgroup.model import TopicPartition
from tests.fakes.consumer_group import Release
from tests.fakes.group import GroupState
from tests.sim.clock import Sleep, Steps
from tests.sim.process import Process
from tests.sim.scenarios import A0, A1, Scenario, bring_up, connected, joined, keep_down, queries, running, when
from tests.sim.settings import COOPERATIVE, RegistrySettings, Settings
from tests.sim.world import Query, World

FOREVER_S = 1e6


def _produce(world: World) -> None:
    for tp in world.logs.ends:
        world.logs.produce(tp, 5)


def _read_up_to(world: World, offset: int) -> bool:
    return all(tp in world.broker.offsets and world.broker.offsets[tp].offset >= offset for tp in (A0, A1))


def _two_members(world: World) -> Steps:
    """Each has a partition, and all is read. Return the first one's process."""
    q0, q1 = world.queries
    q0.start()
    q1.start()
    yield from when(world, lambda: joined(q0, 1)() and joined(q1, 1)())
    _produce(world)
    yield from when(world, lambda: _read_up_to(world, 5))
    return running(q0)


def _is_out(process: Process) -> bool:
    return process.run.shutdown.state is RunState.PAUSED and process.membership.state is State.LEFT


def _others_read_on(world: World, process: Process) -> Steps:
    """The first member has left; the second one reads all partitions; the first one's Spark goes on."""
    q0, q1 = world.queries
    yield from when(world, lambda: _is_out(process))
    yield from when(world, joined(q1, 2))
    _produce(world)
    yield from when(world, lambda: _read_up_to(world, 10))
    q0.driver.wake()


# -- R27 ---------------------------------------------------------------------------------------------------------------


def _a_driver_hangs(world: World) -> Steps:
    """Spark's thread hangs. The other member gets its partition and reads on; then Spark calls again."""
    process = yield from _two_members(world)
    world.queries[0].driver.hang(FOREVER_S, stopped=False)
    yield from _others_read_on(world, process)


def _a_jvm_is_stopped_during_a_batch(world: World) -> Steps:
    """The JVM is stopped while a batch is in flight, without `group.maxSilence`. The batch sinks when it goes on."""
    process = yield from _two_members(world)
    q0 = world.queries[0]
    q0.slow_s = 5.0
    _produce(world)
    yield from when(world, lambda: process.ledger.in_flight is not None)
    yield Sleep(1.0)
    q0.driver.hang(FOREVER_S, stopped=True)
    q0.slow_s = None
    yield from _others_read_on(world, process)


def _spark_calls_while_its_member_leaves(world: World) -> Steps:
    """The last commit before the member leaves is not answered; meanwhile Spark calls again."""
    (q0,) = world.queries
    q0.start()
    yield from when(world, joined(q0, 2))
    q0.slow_s = 0.1
    _produce(world)
    process = running(q0)
    yield from when(world, lambda: process.ledger.commit_pending)
    connected(process.line(Lane.COORDINATOR)).stall(30.0)
    q0.driver.hang(FOREVER_S, stopped=True)
    yield from when(world, lambda: process.run.shutdown.state is RunState.PAUSED)
    yield Sleep(0.1)
    q0.driver.wake()


# -- R28 ---------------------------------------------------------------------------------------------------------------


def _refused(query: Query, process: Process) -> bool:
    return process.failure is not None and query.process is not process


def _a_copied_checkpoint(world: World) -> Steps:
    """A second query starts on a copy of a live query's checkpoint. It is refused, and the first one reads on."""
    q0, q1 = world.queries
    q0.start()
    yield from when(world, joined(q0, 2))
    _produce(world)
    yield from when(world, lambda: _read_up_to(world, 5))
    q1.checkpoint = q0.checkpoint.copy()
    q1.start()
    process = running(q1)
    yield from when(world, lambda: _refused(q1, process))
    assert running(q0).failure is None
    yield from when(world, lambda: joined(q0, 1)() and joined(q1, 1)())
    _produce(world)


def _two_copies_start_at_once(world: World) -> Steps:
    """A query was stopped and its checkpoint copied. Both start at once under the consumer protocol, and each finds the
    other in its first description. One of them is refused, and the other one reads on, though the member of the first
    stays until Spark calls."""
    q0, q1 = world.queries
    q0.start()
    yield from when(world, joined(q0, 2))
    _produce(world)
    yield from when(world, lambda: _read_up_to(world, 5))
    keep_down(q0, q0.stop)
    yield from when(world, lambda: q0.process is None)
    q1.checkpoint = q0.checkpoint.copy()
    q1.start()
    bring_up(q0)
    runs = (running(q0), running(q1))
    yield from when(world, lambda: not any(process.run._lineages.is_clear for process in runs))
    for query in (q0, q1):
        query.driver.hang(world.settings.dead_member_s + 1.5, stopped=False)
    yield from when(world, lambda: _refused(q0, runs[0]) or _refused(q1, runs[1]))
    yield from when(world, lambda: joined(q0, 1)() and joined(q1, 1)())
    assert [process.failure is None for process in runs].count(True) == 1
    _produce(world)


def _a_predecessor_looks_alive(world: World) -> Steps:
    """A query is killed and started again before its session is over. Its predecessor is not a second query."""
    (q0,) = world.queries
    _produce(world)
    q0.start()
    yield from when(world, lambda: world.registry.offset(A0) == world.logs.behind(A0, 0, 5))
    keep_down(q0, q0.kill)
    yield Sleep(0.2)
    bring_up(q0)


def _servers_are_away_while_a_predecessor_looks_alive(world: World) -> Steps:
    """The same, and ZooKeeper finds another leader meanwhile: the predecessor's session begins anew."""
    yield from _a_predecessor_looks_alive(world)
    process = running(world.queries[0])
    yield from when(world, lambda: not process.run._lineages.is_clear)
    yield Sleep(1.0)
    world.registry.zookeeper.go_away(5.0, election=True)


def _a_member_comes_back_with_a_copy_of_its_checkpoint(world: World) -> Steps:
    """An admitted member sleeps until its session is over. It wakes while a query on a copy of its checkpoint joins:
    neither is admitted now, and one of them is refused."""
    q0, q1 = world.queries
    q1.start()
    yield from when(world, joined(q1, 2))
    _produce(world)
    yield from when(world, lambda: _read_up_to(world, 5))
    sleeper = running(q1)
    q1.pause(FOREVER_S)
    yield from when(world, lambda: world.broker.group.state is GroupState.EMPTY)
    q0.checkpoint = q1.checkpoint.copy()
    q0.start()
    copy = running(q0)
    yield from when(world, lambda: bool(world.broker.group.members))
    q1.resume()
    yield from when(world, lambda: copy.member.stable)
    sleeper.cut(1.0)  # so that it hears later of the copy, which is refused first
    q0.driver.hang(FOREVER_S, stopped=False)  # its member stays, whatever becomes of the run
    yield from when(world, lambda: _refused(q0, copy) or _refused(q1, sleeper))
    q0.driver.wake()


# -- an operator's pauses ----------------------------------------------------------------------------------------------


def _committed(world: World, tp: TopicPartition) -> int:
    return world.broker.offsets[tp].offset if tp in world.broker.offsets else -1


def _a_paused_partition_moves(world: World) -> Steps:
    """A member pauses both of its partitions. One moves to a member that joins, which reads it. The other one stays
    paused over the rebalance, until its query is killed and started again."""
    q0, q1 = world.queries
    q0.start()
    yield from when(world, joined(q0, 2))
    _produce(world)
    yield from when(world, lambda: _read_up_to(world, 5))
    process = running(q0)
    assert (yield from process.pause([A0, A1])) == ["a-0", "a-1"]
    _produce(world)
    yield Sleep(3.0)
    assert (_committed(world, A0), _committed(world, A1)) == (5, 5)
    q1.start()
    yield from when(world, lambda: joined(q0, 1)() and joined(q1, 1)())
    (stays,) = process.ledger.held
    moves = A1 if stays == A0 else A0
    yield from when(world, lambda: _committed(world, moves) >= 10)
    yield Sleep(3.0)
    assert _committed(world, stays) == 5, "a rebalance resumes nothing that stays"
    keep_down(q1, q1.kill)
    yield from when(world, joined(q0, 2))
    _produce(world)
    yield from when(world, lambda: _committed(world, moves) >= 15)
    assert _committed(world, stays) == 5, "the partition that came back is read, the other one is not"
    keep_down(q0, q0.kill)
    bring_up(q0)
    yield from when(world, lambda: _committed(world, stays) >= 15)
    bring_up(q1)


def _a_query_is_paused_and_resumed(world: World) -> Steps:
    """A member is paused whole in the middle of a batch, and joins anew meanwhile. Its batch sinks and is committed.
    It plans nothing until it is resumed."""
    q0, q1 = world.queries
    q0.start()
    yield from when(world, joined(q0, 2))
    q0.slow_s = 2.0
    _produce(world)
    process = running(q0)
    yield from when(world, lambda: process.ledger.in_flight is not None)
    yield from process.pause(None)
    q0.slow_s = None
    yield from when(world, lambda: _read_up_to(world, 5))
    q1.start()
    yield from when(world, lambda: joined(q0, 1)() and joined(q1, 1)())
    (held,) = process.ledger.held
    _produce(world)
    yield Sleep(3.0)
    assert _committed(world, held) == 5
    assert (yield from process.pause(None, is_paused=False)) == []
    yield from when(world, lambda: _read_up_to(world, 10))


def _scenario(script: object, settings: Settings, seconds: float) -> Scenario:
    return Scenario(script.__doc__ or "", settings, seconds, script)  # type: ignore[arg-type]


_TWO = queries(2)
_IN_ZOOKEEPER = Settings(queries(1), {"a": 1}, registry=RegistrySettings(brokers=1), describes_groups=True)
_TWO_CONSUMERS = Settings(_TWO, {"a": 1}, consumers=Release(), describes_groups=True)

RUN_SCENARIOS = {
    "driver-hangs": _scenario(_a_driver_hangs, Settings(_TWO, max_silence_s=8.0), 60.0),
    "jvm-stopped": _scenario(_a_jvm_is_stopped_during_a_batch, Settings(_TWO), 60.0),
    "calls-while-leaving": _scenario(_spark_calls_while_its_member_leaves, Settings(queries(1)), 40.0),
    "copied-checkpoint": _scenario(_a_copied_checkpoint, Settings(_TWO, describes_groups=True), 60.0),
    "copies-at-once": _scenario(
        _two_copies_start_at_once,
        Settings(_TWO, consumers=Release(), describes_groups=True),
        60.0,
    ),
    "comes-back": _scenario(
        _a_member_comes_back_with_a_copy_of_its_checkpoint,
        Settings(_TWO, initial_delay_s=2.0, describes_groups=True),
        60.0,
    ),
    "paused-moves": _scenario(_a_paused_partition_moves, Settings(_TWO), 60.0),
    "paused-moves-cooperative": _scenario(_a_paused_partition_moves, Settings(_TWO, strategies=COOPERATIVE), 60.0),
    "paused-query": _scenario(_a_query_is_paused_and_resumed, Settings(_TWO), 60.0),
    "predecessor": _scenario(_a_predecessor_looks_alive, _IN_ZOOKEEPER, 40.0),
    "predecessor-outage": _scenario(_servers_are_away_while_a_predecessor_looks_alive, _IN_ZOOKEEPER, 40.0),
}
