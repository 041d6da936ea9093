"""A world: one cluster, one group, its queries, and what befalls them. One seed makes one world."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.options.types import GroupMode
from tests.sim import table
from tests.sim.broker import Logs, SimBroker
from tests.sim.bytelogs import Logs07
from tests.sim.checker import ENDLESS, Checker, Violation
from tests.sim.clock import Act, Endless, SimulatedClock, Sleep, Steps, Thread, Until, raise_failure
from tests.sim.lineages import Lineages, is_refusal
from tests.sim.modes import LoneChecker
from tests.sim.oldconsumer import OldConsumer
from tests.sim.process import Process, ProcessGone
from tests.sim.registry import SimRegistry
from tests.sim.settings import QuerySettings, Settings
from tests.sim.silence import Driver, missing
from tests.sim.spark import Checkpoint, Directory, micro_batches
from tests.sim.table import Connection, SimDatabase
from tests.sim.tablechecker import TableChecker, is_of_an_older_checkpoint
from tests.sim.transactionchecker import TransactionChecker, is_fenced_by_a_copy
from tests.sim.transactions import SimTransactions

if TYPE_CHECKING:
    from tests.sim.faults import Fault

Director = Callable[["World"], Steps]

CALM_S = 100.0
"""Within this, without faults, everything must have sunk and be committed."""
CALM_TASK_S = 0.05
RETENTION_EVERY_S = 1.0
RETENTION_LOOKS = 25
"""Segments of Kafka 0.7 are kept for so long after they are committed."""
POINT_S = 0.001


class Query:
    """One query over its runs: what outlives a process (checkpoint, directory), and the run that is."""

    def __init__(self, world: World, settings: QuerySettings, machine: int = 0) -> None:
        self.world = world
        self.clock = world.clock
        self.settings = settings
        self.machine = machine
        self.name = settings.name + "'" * machine
        self.instance_id = settings.instance_id
        self.chance = random.Random(f"{world.seed} {self.name}")
        self.checkpoint = Checkpoint()
        self.directory = Directory()
        self.process: Process | None = None
        self.held_down = False
        """The operator keeps it stopped."""
        self.haunted_at = -1e9
        """When the last late request of one of its processes has arrived."""
        self.armed: dict[str, Act] = {}
        """The acts for the moment when the run comes to a point."""
        self.connection: Connection | None = None
        """The connection of the sink to the database of the offset table, while a batch is stored."""
        self.loses_commit = False
        """The connection breaks with the next COMMIT, or EndTxn."""
        self.breaks_transaction = False
        """The connection breaks with the next request of a transaction."""
        self.fails_task = False
        """The next task of a transaction fails."""
        self.slow_s: float | None = None
        """A director makes its tasks take this long."""
        self._runs = 0
        self._leaves = False
        """Whether the run waits for its coordinator to leave."""
        self._threads: list[Thread] = []
        self._paused_until: float | None = None
        self._backlog: list[Act] = []
        self.resumed_at = -1e9
        """When the last pause was over."""
        self.driver = Driver(self)

    @property
    def is_paused(self) -> bool:
        return self._paused_until is not None

    @property
    def is_haunted(self) -> bool:
        return self.clock.now - self.haunted_at < 2 * self.world.settings.session_s

    def task_s(self) -> float:
        """How long a task takes. In the calm at the end backlogs are worked off in no time."""
        if self.world.calm:
            return CALM_TASK_S
        return self.slow_s or self.settings.task_s * (0.5 + self.chance.random())

    @property
    def max_offsets(self) -> int | None:
        return None if self.world.calm else self.world.logs.limit(self.settings.max_offsets)

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a run, unless there is one."""
        if self.process is not None or self.held_down:
            return
        self._runs += 1
        self.world.runs += 1
        self.clock.note(self.name, f"starts, run {self._runs}")
        self._leaves = False
        process = self.process = Process(self.world, self, f"{self.name}.{self._runs}", self.world.runs)
        self._threads = [
            Thread(
                self.clock, micro_batches(self, process), self.driver.gate, lambda error: self._ended(process, error)
            )
        ]

    def _ended(self, process: Process, error: BaseException | None) -> None:
        """Spark's thread is over: the query has failed, or AvailableNow has read all there was."""
        if isinstance(error, Violation):
            raise error
        if error is None:
            self.clock.note(self.name, "has run its batch" if self.settings.once else "has read all there was")
            # Nothing reports that the only batch of a Once has sunk: a member that takes over may repeat it.
            self.stop(finished=not process.draining and not self.settings.once)
            return
        self.clock.note(self.name, f"fails: {error}"[:200])
        if isinstance(error, ProcessGone):
            self._over(process)
            return
        self.world.checker.failed(self, error)
        skipped = self.settings.file_sink and not process.failure
        is_old = self.world.settings.in_table and is_of_an_older_checkpoint(self, error)
        is_copy = is_fenced_by_a_copy(self, error)
        if skipped or is_old or is_copy or is_refusal(error):  # as their messages say (R17, R28, R37, R38)
            self.checkpoint, self.directory = Checkpoint(), Directory()
        self.stop()

    def look(self) -> None:
        for thread in self._threads:
            thread.look()

    def gate(self, act: Act) -> None:
        """Act in this query's processes: now, or after their pause."""
        if self._paused_until is not None:
            self._backlog.append(act)
        else:
            act()

    def point(self, name: str) -> Steps:
        """Between two actions."""
        self.armed.pop(name, lambda: None)()
        yield Sleep(POINT_S)

    # -- what befalls it ----------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """SIGSTOP to all of its processes, SIGCONT later."""
        if self._paused_until is None and self.process is not None:
            self._paused_until = until = self.clock.now + seconds
            self.clock.at(until, lambda: self.resume() if self._paused_until == until else None)

    def resume(self) -> None:
        """Take the events of the pause: first those in the sockets, or first those of the threads."""
        if self._paused_until is None:
            return
        self._paused_until, self.resumed_at = None, self.clock.now
        backlog, self._backlog = self._backlog, []
        first = self.chance.choice((None, True, False))
        if first is not None:
            backlog.sort(key=lambda act: _is_of_the_sockets(act) is first)
        for act in backlog:
            self.gate(act)

    def kill(self) -> None:
        """kill -9 of the machine: JVM, coordinator process, tasks. A database may not notice it at once."""
        for thread in self._threads:
            thread.kill()
        if self.connection is not None:
            table.close(self, linger_s=self.chance.choice((0.0, self.chance.random() * table.LINGER_S)))
        if self.process is not None and self.process.sink is not None:
            self.process.sink.leave_tasks()
        if self.process is not None:
            self._over(self.process)

    def kill_coordinator(self) -> None:
        """kill -9 of the coordinator process alone: Spark goes on until it needs it."""
        process = self.process
        if process is not None and process.alive:
            self.clock.note(process.name, "killed")
            process.die()
            if self._leaves:
                self._over(process)
            elif process.calling:
                self._threads[0].fail(ProcessGone(process.name))

    def stop(self, *, finished: bool = False) -> None:
        """`query.stop()`, a failed query, or the end of the JVM: the coordinator commits and leaves (R29).

        After a run that has `finished` by itself nothing may be repeated.
        """
        process = self.process
        if process is None or process.stopped:
            return
        if not process.alive:
            self.kill()
            return
        self._leaves = True
        for thread in self._threads:
            thread.kill()
        table.close(self)
        self._threads.append(
            Thread(self.clock, process.stop(), self.gate, lambda error: self._left(process, error, finished))
        )

    def _left(self, process: Process, error: BaseException | None, finished: bool) -> None:
        if error is not None:
            raise error
        self._over(process, drained=finished)

    def drain(self, seconds: float) -> None:
        """`streamgroup.drain` (R30)."""
        process = self.process
        if process is not None and process.alive and not process.stopped and not process.draining:
            steps = self._drain(process, seconds)
            self._threads.append(Thread(self.clock, steps, self.gate, raise_failure))

    def _drain(self, process: Process, seconds: float) -> Steps:
        drained = yield from process.drain(seconds)
        if self.process is process:
            self.clock.note(self.name, f"drained: {drained}")
            for thread in self._threads:
                thread.kill()
            self._over(process, drained=drained)

    def _over(self, process: Process, *, drained: bool = False) -> None:
        """The run is over."""
        if self.process is process:
            if not drained:
                process.license()
            process.die()
            table.close(self)
            self.clock.note(self.name, "is down")
            self.process = None
            self._paused_until, self._backlog = None, []
            self.driver.forget()
            self.armed.clear()
            self.clock.after(self.world.restart_s(), self.start)


def _logs_of(settings: Settings, seed: str) -> Logs:
    registry = settings.registry
    if registry is not None and registry.dialect is Dialect.KAFKA07:
        return Logs07(settings.topics, registry.brokers, random.Random(f"{seed} messages"))
    return Logs(settings.topics, topic_ids=settings.topic_ids)


def _is_of_the_sockets(act: Act) -> bool:
    return getattr(getattr(act, "func", None), "__name__", "") == "_heard"


class World:
    """See the module."""

    def __init__(self, seed: str, settings: Settings, *, tracing: bool = False) -> None:
        self.seed = seed
        self.settings = settings
        self.chance = random.Random(f"{seed} world")
        self.clock = SimulatedClock(tracing=tracing)
        self.logs = _logs_of(settings, seed)
        mode = settings.mode
        self.checker = Checker(self.clock, self.logs)
        if settings.in_table:
            self.checker = TableChecker(self.clock, self.logs)
            self._table = SimDatabase(self.clock, self.checker)
        elif settings.in_transaction:
            self.checker = TransactionChecker(self.clock, self.logs)
            self.transactions = SimTransactions(self, self.checker)
        elif mode is not GroupMode.MEMBER:
            self.checker = LoneChecker(self.clock, self.logs, mode)
        self.lineages = Lineages(self)
        self.keeper = self._keeper(settings)
        """The broker or ZooKeeper that keeps the group and its offsets."""
        self.consumers: list[OldConsumer] = []
        """The real consumers in it."""
        if isinstance(self.keeper, SimRegistry):
            self.consumers = [OldConsumer(self, self.keeper, each) for each in self.keeper.settings.consumers]
        self.queries = [Query(self, each) for each in settings.queries]
        self.zombies: list[Query] = []
        self.runs = 0
        self.calm = False
        self._operating = False

    def _keeper(self, settings: Settings) -> SimBroker | SimRegistry:
        if settings.registry is not None:
            return SimRegistry(self, settings.registry)
        broker = SimBroker(self.clock, self.logs, self.checker, settings)
        if settings.in_transaction:
            broker.keep_with(self.transactions)
        return broker

    @property
    def broker(self) -> SimBroker:
        """Of a group that is Kafka's own."""
        assert isinstance(self.keeper, SimBroker), "this group is in ZooKeeper"
        return self.keeper

    @property
    def table(self) -> SimDatabase:
        """The database of the offset table."""
        return self._table

    @property
    def registry(self) -> SimRegistry:
        """Of a group in ZooKeeper."""
        assert isinstance(self.keeper, SimRegistry), "this group is Kafka's own"
        return self.keeper

    def restart_s(self) -> float:
        """After how long the supervisor starts a query again."""
        return 0.5 if self.calm else self.chance.choice((0.2, 1.0, 4.0, 9.0))

    def run(self, seconds: float, faults: Sequence[Fault] = (), director: Director | None = None) -> None:
        """The queries start, faults befall them, then all is calm. Raises Violation.

        A director instead starts the queries and produces the records himself.
        """
        try:
            self._run(seconds, faults, director)
        except Endless as error:
            raise Violation(ENDLESS, self.clock.now, str(error)) from error

    def _run(self, seconds: float, faults: Sequence[Fault], director: Director | None) -> None:
        if director is not None:
            Thread(self.clock, director(self), lambda act: act(), raise_failure)
        else:
            for query in self.queries:
                self.clock.after(self.chance.choice((0.0, 0.5, 8.0)), query.start)
            for consumer in self.consumers:
                self.clock.after(self.chance.choice((0.0, 0.5, 8.0)), consumer.start)
            self.clock.after(0.0, lambda: self._produce(seconds))
            if isinstance(self.logs, Logs07):
                self.clock.after(RETENTION_EVERY_S, partial(self._delete_segments, self.logs, {}))
        for fault in faults:
            self.clock.at(fault.at, lambda fault=fault: fault.befall(self))  # type: ignore[misc]
        self.clock.run_until(seconds)
        self._calm_down()
        self._come_to_rest()
        for tp in self.logs.ends:
            self.logs.produce(tp, 2)
        self._come_to_rest()
        self.checker.finish(self)

    def replace(self, query: Query, seconds: float) -> None:
        """`query` sleeps for so long, and is started on another machine meanwhile. It is not started again."""
        if query.process is None or query.held_down:
            return
        successor = Query(self, query.settings, query.machine + 1)
        # Each has its own output from now on, as each has its own checkpoint. On one checkpoint, Spark's offset log
        # refuses a batch whose number the other has used, so the sink never takes the one for the other.
        successor.checkpoint, successor.directory = query.checkpoint.copy(), Directory(set(query.directory.seen))
        self.queries[self.queries.index(query)] = successor
        self.zombies.append(query)
        query.held_down = True
        query.pause(seconds)
        self.clock.after(self.restart_s(), successor.start)

    def _produce(self, until: float) -> None:
        if self.clock.now < until:
            for tp in self.logs.ends:
                if self.chance.random() < 0.5:
                    self.logs.produce(tp, self.chance.randint(1, self.settings.produce_most))
            self.clock.after(self.settings.produce_every_s, lambda: self._produce(until))

    def _delete_segments(self, logs: Logs07, kept: Mapping[TopicPartition, deque[int]]) -> None:
        """Retention deletes old segments: what the group had committed, all the while, for `RETENTION_LOOKS` looks.

        A real consumer that was paused may commit backwards until then, and a commit below the log's start is a loss.
        """
        looks = {tp: kept.get(tp, deque(maxlen=RETENTION_LOOKS)) for tp in logs.ends}
        for tp, committed in looks.items():
            committed.append(self.checker.track(tp).committed or 0)
            if len(committed) == RETENTION_LOOKS:
                logs.delete_segment(tp, min(committed))
        self.clock.after(RETENTION_EVERY_S, partial(self._delete_segments, logs, looks))

    def _calm_down(self) -> None:
        self.clock.note("world", "no more faults")
        self.calm = True
        for zombie in self.zombies:
            zombie.kill()
        for query in self.queries:
            query.held_down = False
            query.armed.clear()
            query.resume()
            query.driver.wake()
            if query.process is not None:
                query.process.heal()
            self.clock.after(0.5, query.start)
        for consumer in self.consumers:
            consumer.held_down = False
            consumer.resume()
            consumer.heal()
            self.clock.after(0.5, consumer.start)
        self.keeper.calm_down()
        if self.settings.in_table:
            self.table.calm_down()
        if self.settings.in_transaction:
            self.transactions.calm_down()

    def _come_to_rest(self) -> None:
        end = self.clock.now + CALM_S
        while self.clock.now < end and not self._is_at_rest():
            self.clock.run_until(self.clock.now + 1.0)

    def _is_at_rest(self) -> bool:
        return self.checker.at_rest() and not missing(self) and not self.keeper.behind()

    def cut(self, tp: TopicPartition, end: int) -> None:
        """A log is lost and written anew, up to `end`."""
        self.logs.cut(tp, end)
        self.checker.cut(tp)

    def grow(self, topic: str, count: int) -> None:
        """A topic gets more partitions; in 0.7 on another broker."""
        self.logs.add_partitions(topic, count)
        self.keeper.grew(topic)

    def operate(self, offsets: dict[TopicPartition, int], ends: Sequence[str]) -> None:
        """An operator stops all queries, waits until the group is empty, resets it, starts them again."""
        if not self._operating:
            self._operating = True
            Thread(self.clock, self._reset(offsets, ends), lambda act: act(), raise_failure)

    def expire_group(self, ends: Sequence[str], offsets: Mapping[TopicPartition, int]) -> None:
        """All members stop or sleep until their group is empty. It expires, and they go on: generations begin at 1.

        An operator then sets these offsets in Kafka. Where the table has one, it counts.
        """
        if not self._operating:
            self._operating = True
            Thread(self.clock, self._expire_group(ends, offsets), lambda act: act(), raise_failure)

    def _expire_group(self, ends: Sequence[str], offsets: Mapping[TopicPartition, int]) -> Steps:
        for query, end in zip(self.queries, ends, strict=True):
            if end == "pause":
                query.pause(4.0 * self.settings.session_s)
                continue
            query.held_down = True
            {"kill": query.kill, "stop": query.stop}[end]()
        for _ in range(60):
            if self.broker.delete_group():
                known = {tp for tp, row in self.table.rows.items() if row.next_offset is not None}
                self.broker.offsets |= {tp: CommittedOffset(offsets[tp]) for tp in sorted(known & offsets.keys())}
                break
            yield Sleep(0.5)
        for query in self.queries:
            query.held_down = False
            query.start()
        self._operating = False

    def _reset(self, offsets: dict[TopicPartition, int], ends: Sequence[str]) -> Steps:
        for zombie in self.zombies:
            zombie.kill()
        for query, end in zip(self.queries, ends, strict=True):
            query.held_down = True
            {"kill": query.kill, "stop": query.stop, "drain": lambda q=query: q.drain(5.0)}[end]()  # type: ignore[misc]
        for consumer in self.consumers:
            consumer.held_down = True
            consumer.stop()
        for _ in range(60):
            down = not any(q.process for q in self.queries) and not any(c.running for c in self.consumers)
            # Retention may have moved a log's start since the fault was drawn.
            to = {tp: self.logs.record_at(tp, offset) for tp, offset in offsets.items()}
            is_locked = self.settings.in_table and bool(self.table.locks)
            if down and not is_locked and self.keeper.reset(to):
                if self.settings.in_table:
                    self.table.reset(to)
                break
            yield Sleep(0.5)
        held: list[Query | OldConsumer] = [*self.queries, *self.consumers]
        for each in held:
            each.held_down = False
            each.start()
        self._operating = False
        yield Until(lambda: True, 0)
