"""Directed scenarios: what chance brings too rarely. Each is a script over the same world, under the same checker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streamgroup.group.events import Lane
from streamgroup.group.state_machine import State
from streamgroup.model import TopicPartition
from tests.fakes.group import GroupState
from tests.sim.clock import Sleep, Steps
from tests.sim.network import Stalling
from tests.sim.process import Process
from tests.sim.settings import COOPERATIVE, QuerySettings, Settings
from tests.sim.spark import Checkpoint
from tests.sim.world import Query, World

A0, A1, A2 = (TopicPartition("a", n) for n in range(3))
_LOOK_S = 0.005


@dataclass(frozen=True)
class Scenario:
    """A script: `what` it plays, in which world, how long until all is calm."""

    what: str
    settings: Settings
    seconds: float
    script: Callable[[World], Steps]


def when(world: World, condition: Callable[[], bool], seconds: float = 60.0) -> Iterator[Sleep]:
    """Wait until it is so; a script whose world goes another way is broken."""
    end = world.clock.now + seconds
    while not condition():
        assert world.clock.now < end, "the scenario does not come about"
        yield Sleep(_LOOK_S)


def keep_down(query: Query, how: Callable[[], None]) -> None:
    query.held_down = True
    how()


def bring_up(query: Query) -> None:
    query.held_down = False
    query.start()


def running(query: Query) -> Process:
    assert query.process is not None, f"{query.name} does not run"
    return query.process


def _slow_batch_in_flight(world: World, query: Query, seconds: float) -> Steps:
    """Wait until a batch of both partitions is in flight, whose sink takes `seconds`. Return the query's process."""
    query.slow_s = seconds
    for tp in (A0, A1):
        world.logs.produce(tp, 5)
    process = running(query)
    yield from when(world, lambda: process.ledger.in_flight is not None)
    return process


def connected(line: Stalling | None) -> Stalling:
    assert line is not None, "the connection is not there"
    return line


def joined(query: Query, partitions: int) -> Callable[[], bool]:
    """Whether it is a settled member that holds so many."""

    def condition() -> bool:
        process = query.process
        return (
            process is not None
            and process.member.stable
            and len(process.ledger.held) == partitions
            and process.ledger.settled
        )

    return condition


def _committed(world: World, tp: TopicPartition, offset: int) -> Callable[[], bool]:
    return lambda: tp in world.broker.offsets and world.broker.offsets[tp].offset >= offset


def queries(count: int, **how: object) -> tuple[QuerySettings, ...]:
    return tuple(QuerySettings(f"q{n}", task_s=0.05, **how) for n in range(count))  # type: ignore[arg-type]


# -- R6 ----------------------------------------------------------------------------------------------------------------


def _founder_dies_reading_nothing(world: World) -> Steps:
    """Under `latest` a founder finds the end, reads nothing, dies; records come; another takes over."""
    q0, q1 = world.queries
    world.logs.produce(A0, 500)
    q0.start()
    yield from when(world, joined(q0, 1))
    yield Sleep(2.0)
    keep_down(q0, q0.kill)
    world.logs.produce(A0, 10)
    yield from when(world, lambda: world.broker.group.state is GroupState.EMPTY)
    q1.start()
    yield from when(world, joined(q1, 1))
    world.logs.produce(A0, 5)


def _a_third_comes_while_a_founder_looks(world: World) -> Steps:
    """Two found the group at `latest`. One has committed, the other has yet to hear of commits: a third joins."""
    q0, q1, q2 = world.queries
    for tp in (A0, A1, A2):
        world.logs.produce(tp, 500)
    q0.start()
    q1.start()
    process = running(q1)
    yield from when(world, lambda: process.member._fetching is not None)
    line = connected(process.line(Lane.COORDINATOR))
    line.stall(3.0)
    yield from when(world, lambda: bool(world.broker.offsets))
    q2.start()
    yield from when(world, lambda: all(q.process is not None and q.process.member.stable for q in world.queries))
    for tp in (A0, A1, A2):
        world.logs.produce(tp, 5)


# -- R7 ----------------------------------------------------------------------------------------------------------------


def _a_group_with_a_table_expires(world: World) -> Steps:
    """The offsets are in a table. Kafka deletes the group while its query is down, and a partition is added. A query
    without a checkpoint then joins the next group, in a generation of the same number, at `latest`."""
    (q0,) = world.queries
    world.logs.produce(A0, 500)
    q0.start()
    yield from when(world, joined(q0, 1))
    keep_down(q0, q0.kill)
    yield from when(world, world.broker.delete_group)
    q0.checkpoint = Checkpoint()
    world.grow("a", 1)
    world.logs.produce(A1, 10)
    bring_up(q0)
    yield from when(world, joined(q0, 2))
    assert running(q0).ledger.generation == 1
    world.logs.produce(A1, 5)


# -- R22 ---------------------------------------------------------------------------------------------------------------


def _another_comes_during_a_long_batch(world: World) -> Steps:
    """A batch takes longer than any before it; in the middle of it another member joins. A listener tells of it."""
    q0, q1 = world.queries
    world.logs.produce(A0, 5)
    q0.start()
    yield from when(world, _committed(world, A0, 5))
    yield from _slow_batch_in_flight(world, q0, 12.0)
    yield Sleep(8.0)
    q0.slow_s = None
    q1.start()
    yield from when(world, _committed(world, A0, 10))


# -- C3, R18 -----------------------------------------------------------------------------------------------------------


def _commit_stalls_while_its_member_rejoins(world: World) -> Steps:
    """A commit is on its way while the member, told to rejoin, waits no longer; it arrives in the next generation."""
    q0, q1 = world.queries
    world.logs.produce(A1, 5)
    q0.start()
    yield from when(world, _committed(world, A1, 5))
    q0.slow_s = 2.9
    world.logs.produce(A1, 5)
    yield from when(world, lambda: q0.process is not None and q0.process.ledger.in_flight is not None)
    process = running(q0)
    q1.start()
    yield from when(world, lambda: process.membership.rebalance_wanted)
    yield from when(world, lambda: process.ledger.idle and process.ledger.commit_pending)
    line = connected(process.line(Lane.COORDINATOR))
    line.stall(3.8)
    world.logs.produce(A1, 1)
    yield from when(world, lambda: process.membership.state is State.JOINING, 3.0)
    yield from when(world, _committed(world, A1, 11))


def _first_syncs_with_second(world: World, tp: TopicPartition) -> Steps:
    """One has read five records of each partition and committed `tp`; another joins; the first one's process, which
    waits for its SyncGroup."""
    q0, q1 = world.queries
    for each in (A0, A1):
        world.logs.produce(each, 5)
    q0.start()
    yield from when(world, _committed(world, tp, 5))
    process = running(q0)
    q1.start()
    yield from when(world, lambda: process.membership.state is State.SYNCING)
    return process


def _a_generation_is_missed(world: World) -> Steps:
    """A member's SyncGroup is never answered; in that generation another reads its old partition, and leaves."""
    q0, q1 = world.queries
    process = yield from _first_syncs_with_second(world, A1)
    line = connected(process.line(Lane.JOIN))
    line.stall(20.0, answers_only=True)
    yield from when(world, joined(q1, 1))
    world.logs.produce(A1, 5)
    yield from when(world, _committed(world, A1, 10))
    keep_down(q1, lambda: q1.drain(5.0))
    yield from when(world, lambda: world.broker.group.state is GroupState.PREPARING)
    line.break_("connection reset by peer")
    yield from when(world, joined(q0, 2))
    world.logs.produce(A1, 5)


def _an_old_answer_comes_late(world: World) -> Steps:
    """The answer to OffsetFetch is made in one generation and arrives in the next, when another has gone on.

    The member is not waited for until it has heard it: `max.poll.interval.ms` is shorter than the stall.
    """
    q0, q1 = world.queries
    for tp in (A0, A1):
        world.logs.produce(tp, 5)
    q0.start()
    yield Sleep(0.1)
    q1.start()
    process = running(q0)
    yield from when(world, lambda: process.member._fetching is not None)
    line = connected(process.line(Lane.COORDINATOR))
    line.stall(5.5, answers_only=True)
    yield from when(world, _committed(world, A1, 5))
    world.logs.add_partitions("a", 1)
    process.watcher.refresh_metadata()
    yield from when(world, lambda: process.ledger.generation == 2, 3.0)
    world.logs.produce(A1, 1)
    yield from when(world, _committed(world, A1, 6))


# -- R5, R16 -----------------------------------------------------------------------------------------------------------


def _copies_around_a_reset(world: World) -> Steps:
    """Two queries of one lineage: while the one that is further sleeps, the group is reset and the other goes on."""
    q0, q1 = world.queries
    world.logs.produce(A0, 3)
    q0.start()
    yield from when(world, _committed(world, A0, 3))
    keep_down(q0, lambda: q0.drain(5.0))
    yield from when(world, lambda: world.broker.group.state is GroupState.EMPTY)
    q1.checkpoint = q0.checkpoint.copy()
    world.logs.produce(A0, 40)
    q1.start()
    yield from when(world, _committed(world, A0, 43))
    yield Sleep(2.0)
    q1.pause(40.0)
    yield from when(world, lambda: world.broker.group.state is GroupState.EMPTY)
    world.broker.reset({A0: 10})
    bring_up(q0)
    yield from when(world, _committed(world, A0, 13))
    keep_down(q0, q0.kill)
    yield from when(world, lambda: world.broker.group.state is GroupState.EMPTY)
    q1.resume()
    yield from when(world, joined(q1, 1))


def _reset_while_a_replay_waits_to_join(world: World) -> Steps:
    """A replayed batch is proven before its member has joined; meanwhile the group is reset into that batch."""
    (q0,) = world.queries
    world.logs.produce(A0, 10)
    q0.start()
    yield from when(world, _committed(world, A0, 10))
    world.logs.produce(A0, 10)
    q0.armed["sunk"] = lambda: keep_down(q0, q0.kill)
    yield from when(world, lambda: q0.held_down and world.broker.group.state is GroupState.EMPTY)
    bring_up(q0)
    process = running(q0)
    yield from when(world, lambda: process.line(Lane.JOIN) is not None)
    line = connected(process.line(Lane.JOIN))
    line.stall(15.0)
    yield from when(world, lambda: process.ledger.checkpoint.positions.get(A0) is not None and process.ledger.idle)
    yield from when(world, lambda: process.ledger.checkpoint.positions[A0].offset == 20)
    assert world.broker.reset({A0: 15})


# -- R23 ---------------------------------------------------------------------------------------------------------------


def _static_leader_restarts_while_partitions_come(world: World) -> Steps:
    """The static leader is back before its session is over: nothing moves, and nobody else watches the topics."""
    (q0,) = world.queries
    world.logs.produce(A0, 5)
    q0.start()
    yield from when(world, _committed(world, A0, 5))
    keep_down(q0, q0.kill)
    world.logs.add_partitions("a", 1)
    yield Sleep(0.5)
    bring_up(q0)
    yield from when(world, lambda: q0.process is not None and q0.process.member.stable)


# -- R9 ----------------------------------------------------------------------------------------------------------------


def _asleep_in_sync_group(world: World) -> Steps:
    """A member sleeps while its SyncGroup is answered; the group goes on without it; it wakes with an assignment."""
    q0, q1 = world.queries
    process = yield from _first_syncs_with_second(world, A0)
    yield from when(world, lambda: world.broker.group.state is GroupState.STABLE)
    q0.pause(60.0)
    yield from when(world, joined(q1, 2))
    world.logs.produce(A0, 5)
    yield from when(world, _committed(world, A0, 10))
    q0.resume()
    yield from when(world, lambda: process.line(Lane.COORDINATOR) is not None)
    line = connected(process.line(Lane.COORDINATOR))
    line.stall(3.0, answers_only=True)
    world.logs.produce(A0, 5)


# -- R25 ---------------------------------------------------------------------------------------------------------------


def _a_static_member_restarts_before_it_has_given_up(world: World) -> Steps:
    """A cooperative static member is killed while a batch of what it is to give up is in flight; its successor is not
    told of that, and the group is stable."""
    q0, q1 = world.queries
    for tp in (A0, A1):
        world.logs.produce(tp, 5)
    q0.start()
    yield from when(world, _committed(world, A1, 5))
    process = yield from _slow_batch_in_flight(world, q0, 5.0)
    q1.start()
    yield from when(world, lambda: bool(process.membership.revoking))
    q0.kill()


# -- R8, R11 -----------------------------------------------------------------------------------------------------------


def _a_log_is_lost_between_two_runs_of_available_now(world: World) -> Steps:
    """While the query is down its log is lost, and ends below the committed position when it starts again. It has to
    say so. An operator then resets the group."""
    (q0,) = world.queries
    world.logs.produce(A0, 20)
    q0.start()
    yield from when(world, _committed(world, A0, 20))
    yield from when(world, lambda: q0.process is None)
    q0.held_down = True
    world.cut(A0, 5)
    bring_up(q0)
    process = running(q0)
    yield from when(world, lambda: world.checker.has_told(A0))
    keep_down(q0, q0.kill)
    assert process.failure is None, "the group itself is well"
    yield from when(world, lambda: world.broker.group.state is GroupState.EMPTY)
    assert world.broker.reset({A0: 0})
    bring_up(q0)
    yield from when(world, _committed(world, A0, 5))


SCENARIOS = {
    "founder-dies": Scenario(
        _founder_dies_reading_nothing.__doc__ or "",
        Settings(queries(2), {"a": 1}, starting_latest=True),
        30.0,
        _founder_dies_reading_nothing,
    ),
    "founders-and-a-third": Scenario(
        _a_third_comes_while_a_founder_looks.__doc__ or "",
        Settings(queries(3), {"a": 3}, starting_latest=True, latency_s=0.05, initial_delay_s=0.5),
        20.0,
        _a_third_comes_while_a_founder_looks,
    ),
    "expired-group": Scenario(
        _a_group_with_a_table_expires.__doc__ or "",
        Settings(queries(1), {"a": 1}, starting_latest=True, in_table=True),
        30.0,
        _a_group_with_a_table_expires,
    ),
    "long-batch": Scenario(
        _another_comes_during_a_long_batch.__doc__ or "",
        Settings(queries(2, listener=True), {"a": 2}),
        40.0,
        _another_comes_during_a_long_batch,
    ),
    "commit-stalls": Scenario(
        _commit_stalls_while_its_member_rejoins.__doc__ or "",
        Settings(queries(2, trigger_s=0.05), {"a": 2}, latency_s=0.05),
        30.0,
        _commit_stalls_while_its_member_rejoins,
    ),
    "generation-missed": Scenario(
        _a_generation_is_missed.__doc__ or "",
        Settings(queries(2), {"a": 2}, latency_s=0.05),
        30.0,
        _a_generation_is_missed,
    ),
    "old-answer": Scenario(
        _an_old_answer_comes_late.__doc__ or "",
        Settings(
            queries(2, trigger_s=0.1),
            {"a": 2},
            latency_s=0.05,
            initial_delay_s=1.0,
            session_s=10.0,
            heartbeat_s=0.5,
            max_poll_s=2.0,
            request_timeout_ms=6_000,
        ),
        20.0,
        _an_old_answer_comes_late,
    ),
    "copies-and-reset": Scenario(
        _copies_around_a_reset.__doc__ or "",
        Settings(queries(2, max_offsets=3), {"a": 1}),
        60.0,
        _copies_around_a_reset,
    ),
    "reset-into-a-replay": Scenario(
        _reset_while_a_replay_waits_to_join.__doc__ or "",
        Settings(queries(1), {"a": 1}, latency_s=0.1),
        45.0,
        _reset_while_a_replay_waits_to_join,
    ),
    "asleep": Scenario(
        _asleep_in_sync_group.__doc__ or "",
        Settings(queries(2, trigger_s=0.05), {"a": 2}, latency_s=0.05),
        40.0,
        _asleep_in_sync_group,
    ),
    "successor": Scenario(
        _a_static_member_restarts_before_it_has_given_up.__doc__ or "",
        Settings(
            tuple(QuerySettings(f"q{n}", f"s{n}", task_s=0.05) for n in range(2)),
            {"a": 2},
            strategies=COOPERATIVE,
        ),
        20.0,
        _a_static_member_restarts_before_it_has_given_up,
    ),
    "static-leader": Scenario(
        _static_leader_restarts_while_partitions_come.__doc__ or "",
        Settings((QuerySettings("q0", "s0", task_s=0.05),), {"a": 1}, join_version=8),
        20.0,
        _static_leader_restarts_while_partitions_come,
    ),
    "log-lost": Scenario(
        _a_log_is_lost_between_two_runs_of_available_now.__doc__ or "",
        Settings(queries(1, available_now=True), {"a": 1}, topic_ids=False),
        40.0,
        _a_log_is_lost_between_two_runs_of_available_now,
    ),
}
