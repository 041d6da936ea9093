"""The coordinator process of one run: the real `Run`, and around it what the driver's threads do, simulated.

`Process` leaves events in the run's inbox, as `coordinator/coordinator.py` does, and answers its questions from the
world. The connections are `lines.py` or `registrylines.py`; where the driver's threads change, these files change with
them.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from streamgroup.backoff import Backoff
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.coordinator.run import interface as ask
from streamgroup.coordinator.run import interface as io
from streamgroup.coordinator.run.interface import RunConfig
from streamgroup.coordinator.run.machine import Run
from streamgroup.coordinator.threads.log_checks import LogChecks
from streamgroup.errors import BrokerError, ErrorCode, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.commits import FIRST_EPOCH
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.events import Lane
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Machine
from streamgroup.group.offsets.store import OffsetStore
from streamgroup.group.offsets.table import ClaimRows, CommitRows, TableOffsetStore
from streamgroup.group.offsets.table_rows import BatchPart, Claimant
from streamgroup.group.offsets.transaction import TransactionOffsetStore
from streamgroup.group.rejoining import rejoin_timeout_s
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.kafka.producer.transaction import GroupMember, TransactionalId
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    LATEST,
    CommittedOffset,
    ConfiguredOffsets,
    Document,
    FetchRange,
    FetchTask,
    OffsetRange,
    TopicPartition,
)
from streamgroup.options.types import GroupMode, LimitOptions, Subscription
from tests.sim.broker import SimBroker
from tests.sim.clock import Act, Steps, Until
from tests.sim.lines import GroupLines
from tests.sim.network import Line, Network, Stalling
from tests.sim.planner import SimEvents, SimMember, SimPlanner
from tests.sim.settings import JOIN_TIMEOUT_S, QUESTION_S, Settings
from tests.sim.silence import SparkSilence
from tests.sim.table import SimTableThread
from tests.sim.transactions import Held, SimTransactionSink, end_earlier
from tests.sim.watcher import SimWatcher

if TYPE_CHECKING:
    from tests.sim.registrylines import RegistryLines
    from tests.sim.world import Query, World

Value = Mapping[str, Any]


class ProcessGone(Exception):
    """The coordinator process is dead: Spark's call to it fails."""


class Process:
    """See the module. Its calls are generators: they yield what they wait for."""

    def __init__(self, world: World, query: Query, name: str, number: int) -> None:
        self.world = world
        self.query = query
        self.clock = world.clock
        self.name = name
        self.number = number
        """Processes are numbered in the order of their start."""
        chance = query.chance
        self.settings: Settings = world.settings
        self.alive = True
        self.calling = False
        """Whether Spark waits for an answer of this process."""
        self.last_alive_at = -1e9
        """When the newest request was sent that the coordinator answered as to a member."""
        self.died_at = -1e9
        self.network: Network = Network(world.clock, chance, world.settings.latency_s)
        is_member = world.settings.mode is GroupMode.MEMBER
        self.ledger: Ledger = Ledger(
            world.settings.group_id,
            self.name,
            f"lineage-{self.name}",
            alone=not is_member,
            in_table=world.settings.in_table,
            in_transaction=world.settings.in_transaction,
        )
        self.membership: Machine
        self.lines: GroupLines | RegistryLines
        self.membership, self.lines = world.keeper.backend(self, self.network)
        self.table = SimTableThread(self) if world.settings.in_table else None
        """The thread of the offset table."""
        self.sink: SimTransactionSink | None = None
        """The sink whose transactions commit the offsets, from its first batch on."""
        self.member = SimMember(
            self,
            self.membership,
            self.ledger,
            self._store(),
            instance_id=query.instance_id,
            session_timeout_s=world.settings.session_s,
            request_timeout_ms=world.settings.request_timeout_ms,
            backoff=Backoff(100, 1_000, chance),
        )
        self._events = SimEvents(self)
        self.watcher = SimWatcher(self)
        self.checks: LogChecks = LogChecks(cast("Any", self.watcher), world.settings.location, lambda: world.clock.now)
        self.planner = SimPlanner(self, self.watcher, self._events)
        self.run = Run(self._config(), self.member, self.watcher, self.planner, self._events)
        self.run.completion.is_announced = lambda: query.settings.listener
        self._inbox: deque[io.Event] = deque()
        self._is_stepping = False
        self._numbers = itertools.count()
        self._mail: dict[int, deque[io.CallReply | io.Raise | io.Ask]] = {}
        self.batch = -1
        """Spark's number of the newest batch that it has of this process."""
        self.licensed: set[int] = set()
        """Batches that were interrupted: each may be repeated."""
        self._assigned = ("", -1)
        self.was_replaced = False
        """Whether another process had the place of its static member when the coordinator read its last heartbeat. The
        session of the other may end while the answer is on its way."""
        self._gave_up = self._too_early = False
        self._waits_since: float | None = None
        """Since when it has something to do before it rejoins, or gives up what was revoked."""
        self._wakes_at: float | None = None
        self.silence = SparkSilence(self)
        world.lineages.processes.append(self)

    def _store(self) -> OffsetStore:
        """As `assemble.member_of`."""
        if self.settings.in_transaction:
            return TransactionOffsetStore(self.lines.store)
        if self.table is None:
            return self.lines.store
        return TableOffsetStore(self.lines.store, lambda: Claimant(self.ledger.lineage, self.ledger.run))

    def _config(self) -> RunConfig:
        settings = self.settings
        return RunConfig(
            group_id=settings.group_id,
            is_member=settings.mode is GroupMode.MEMBER,
            location=settings.location,
            subscription=Subscription(topics=tuple(sorted(settings.topics))),
            starting=ConfiguredOffsets(LATEST if settings.starting_latest else EARLIEST),
            join_timeout_s=JOIN_TIMEOUT_S,
            session_timeout_s=settings.session_s,
            dead_member_s=settings.dead_member_s,
            max_poll_s=settings.max_poll_s,
            max_silence_s=settings.max_silence_s,
            api_timeout_s=QUESTION_S,
            transaction_timeout_ms=int(settings.transaction_timeout_s * 1000),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def targets(self) -> Mapping[TopicPartition, int] | None:
        """Under AvailableNow: the ends of all partitions when the run began."""
        return self.planner.targets

    @property
    def failure(self) -> StreamGroupError | None:
        """Why the query cannot go on."""
        return self.run.failure

    @property
    def draining(self) -> bool:
        """Whether a drain was asked for."""
        return self.run.shutdown.draining

    @property
    def stopped(self) -> bool:
        """Whether its member leaves, or has left for good."""
        return self.run.shutdown.stopped

    def heard_of(self, sent_at: float, *, leaving: bool = False) -> None:
        """Note that a request sent at `sent_at` was answered as to a member; `leaving`: it is about to leave."""
        self.last_alive_at = max(self.last_alive_at, sent_at)
        if self.silence.is_overdue(sent_at, leaving=leaving):
            self.world.checker.stays_silent(self)

    @property
    def is_in_the_group(self) -> bool:
        """Whether it runs, is not about to leave, and the coordinator knows its member."""
        runs = self.alive and not self.stopped and not self.draining
        return runs and isinstance(self.world.keeper, SimBroker) and self.world.keeper.is_member(self)

    def _has_waited(self, seconds: float) -> bool:
        """Whether a rebalance, or what was revoked, has waited for this member for so long."""
        return self._waits_since is not None and self.clock.now - self._waits_since >= seconds - 1e-6

    @property
    def _least_wait_s(self) -> float:
        """How long a batch is waited for at least, since the rebalance was announced (R22)."""
        settings = self.settings
        most = rejoin_timeout_s(settings.max_poll_s)
        return most if self.query.settings.listener else min(settings.rebalance_wait_s, most)

    def license(self) -> None:
        """The batch in flight, or the one whose commit is not answered, is interrupted: it may be repeated."""
        self.licensed.add(self.batch)

    def told(self, document: Document, number: int) -> None:
        """The listener says that a batch has sunk (R15)."""
        self._mail[call := next(self._numbers)] = deque()
        self.post(io.Called(call, lambda run: run.report_completed(document, number, {})))
        del self._mail[call]

    # -- plumbing -----------------------------------------------------------------------------------------------------

    def hear(self, act: Act) -> None:
        """Something reaches this process: now, when it goes on after a pause, or never."""
        if self.alive:
            self.query.gate(partial(self._heard, act))

    def _heard(self, act: Act) -> None:
        if self.alive:
            act()
            self._changed()

    def later(self, seconds: float, act: Act) -> None:
        self.clock.after(seconds, partial(self.hear, act))

    def post(self, event: io.Event) -> None:
        """Leave an event in the inbox, as `Inbox.post`."""
        if not self.alive:  # a request was made while the process was paused, and it was killed before it went on
            return
        self._inbox.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._inbox:
                for action in self.run.step(self._inbox.popleft(), self.clock.now):
                    self._carry_out(action)
        finally:
            self._is_stepping = False
        self._changed()

    def _carry_out(self, action: io.RunAction) -> None:
        match action:
            case io.Ask(call, ask.DescribeGroup()) if self.settings.describes_groups:
                self.world.lineages.ask(self, call)
            case io.Ask(call, question) if call < 0:
                self._answer_task(call, question)
            case io.CallReply(call) | io.Raise(call) | io.Ask(call):
                if not isinstance(action, io.Ask):
                    self.silence.end_call(call)
                if call in self._mail:
                    self._mail[call].append(action)
            case io.Follow(topics):
                self.watcher.follow(topics)
            case io.RefreshMetadata():
                self.watcher.refresh_metadata()
            case ev.Note(_, text):
                self.clock.note(self.name, text)
            case ClaimRows() | CommitRows():
                assert self.table is not None
                self.table.carry_out(action)
            case _:
                self.lines.carry_out(action)

    def _changed(self) -> None:
        # A call that waits keeps the run's timers, as its thread does.
        wake_at = self.run.wake_at if self.lines.keeps_timers or self._mail else None
        if wake_at is not None and wake_at != self._wakes_at:
            self._wakes_at = wake_at
            self.clock.at(max(wake_at, self.clock.now), partial(self.hear, partial(self._wake, wake_at)))
        if not (self.membership.rebalance_wanted or self.membership.revoking):
            self._waits_since = None
        elif isinstance(self.membership, ConsumerMembership):
            # The coordinator may have asked before: the answer was lost, or this process slept.
            self._waits_since = self.membership.revoking_since
        elif self._waits_since is None:
            self._waits_since = self.clock.now
        self.lines.look()
        self.watcher.look()
        self.query.look()

    def _wake(self, due: float) -> None:
        if self._wakes_at == due:
            self._wakes_at = None
            self.post(ev.Tick())

    def answered(self, line: Line, token: int, response: Any) -> None:
        assert isinstance(self.lines, GroupLines)
        self.lines.answered(line, token, response)

    def broken(self, line: Line, reason: str) -> None:
        assert isinstance(self.lines, GroupLines)
        self.lines.broken(line, reason)

    def came_late(self) -> None:
        self.query.haunted_at = self.clock.now

    # -- what the member reports --------------------------------------------------------------------------------------

    def joins(self, action: ev.Joining) -> None:
        self.clock.note(self.name, f"joins: {action.reason}" + (" (abandons its batch)" if action.abandoned else ""))
        self._gives_up(abandoned=action.abandoned)

    def releases(self, partitions: Collection[TopicPartition]) -> None:
        self.clock.note(self.name, f"gives up {', '.join(map(str, sorted(partitions)))}")
        self._gives_up(abandoned=False)

    def _gives_up(self, *, abandoned: bool) -> None:
        if (abandoned or self._gave_up) and not self._too_early:
            self.license()
        if self._has_waited(rejoin_timeout_s(self.settings.max_poll_s)):
            self.world.checker.excuse(self)
        self._gave_up = self._too_early = False
        self.world.checker.gives_up(self)

    def gave_up(self) -> None:
        self._gave_up = True
        self._too_early = self.settings.registry is None and not self._has_waited(self._least_wait_s)

    def has_left(self) -> None:
        """Others may have its partitions until it is assigned any again."""
        self._assigned = ("", -1)

    def is_assigned(self, action: ev.Assigned) -> None:
        member_id, generation = self._assigned
        missed = not action.is_epoch and action.generation - generation not in {0, 1}
        if action.member_id != member_id or missed:
            self.license()  # a generation was missed: what was held may have been another's meanwhile
        self._assigned = (action.member_id, action.generation)
        self.world.lineages.assigned(self)
        if self.ledger.checkpoint == INITIAL_DOCUMENT:
            founding = action.generation + (FIRST_EPOCH if action.is_epoch else 0)
            self.world.checker.assigned(self, founding, action.partitions)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _answer_task(self, task: int, question: ask.Question) -> None:
        """As `QuestionAnswerer.post`: a question of a background task of the run."""
        match question:
            case ask.ListOffsets(wanted, timeout):

                def listed(cluster: Any, deadline: float) -> Mapping[TopicPartition, ListedOffset]:
                    logs = {tp: self.world.logs.range(tp) for tp in wanted}
                    return {
                        tp: ListedOffset(logs[tp].latest if at == LATEST else logs[tp].earliest)
                        for tp, at in wanted.items()
                    }

                self.watcher.post(listed, timeout).add_done_callback(partial(self._answered, task))
            case ask.DescribeGroup():  # two queries on copies of a checkpoint, which R28 cannot refuse
                failed = io.QuestionFailed(task, BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "describe"))
                self.later(2 * self.network.latency(), partial(self.post, failed))
            case _:
                raise AssertionError(question)

    def _answered(self, task: int, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is None:
            self.post(io.QuestionAnswered(task, answer.result()))
        else:
            assert isinstance(error, StreamGroupError)
            self.post(io.QuestionFailed(task, error))

    def _check(self, question: ask.CheckPositions) -> Steps:
        """As `LogChecks.ask` in its thread: ask, wait for what was asked, and ask again with the answers."""
        until = self.clock.now + question.timeout
        while True:
            self.checks.ask(question.positions, question.logs, question.limits, self.planner.targets, 0.0)
            if self.watcher.is_free or self.clock.now >= until:
                return
            yield Until(lambda: self.watcher.is_free, until - self.clock.now)

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def call(self, steps: Steps) -> Steps:
        """A call of Spark's to this process: fails where the process dies meanwhile."""
        if not self.alive:
            raise ProcessGone(self.name)
        self.calling = True
        answer = yield from steps
        self.calling = False
        return answer

    def prepare_available_now(self) -> Steps:
        """`Coordinator.prepare_available_now`: the ends of all partitions as of now (R11)."""
        yield from self._call(Run.prepare_available_now, of_spark=True)

    def latest_offset(self, start: Value, max_offsets: int | None, *, once: bool = False) -> Steps:
        """`Coordinator.latest_offset`."""
        document = from_value(start)
        planned = yield from self._call(
            lambda run: run.latest_offset(document, LimitOptions(max_offsets), once=once), of_spark=True
        )
        return start if planned is document else to_value(planned)

    def partitions(self, start: Value, end: Value) -> Steps:
        """`Coordinator.partitions`: the ranges to read."""
        first, last = from_value(start), from_value(end)
        tasks = yield from self._call(lambda run: run.partitions(first, last), of_spark=True)
        return tuple(fetched.range for task in tasks for fetched in task.ranges)

    def batch_parts(self) -> Steps:
        """The answer to `ranges` on the control channel, as `streamgroup.transaction` reads it."""
        batch = yield from self._call(lambda run: run.completion.ranges())
        ranges = [OffsetRange(TopicPartition(t, p), start, until) for t, p, start, until in batch["ranges"] or ()]
        return [
            BatchPart(one, claim, CommittedOffset(one.until, metadata, epoch))
            for one, (claim, epoch, metadata) in zip(ranges, batch["stored"], strict=True)
        ]

    def held(self) -> Steps:
        """The same, as `streamgroup.exactly_once` reads it."""
        batch = yield from self._call(lambda run: run.completion.ranges())
        known = batch["transaction"]
        ranges = tuple(OffsetRange(TopicPartition(t, p), start, until) for t, p, start, until in batch["ranges"] or ())
        return Held(
            batch["sequence"],
            ranges,
            TransactionalId(known["id"], known["timeout_ms"]),
            GroupMember(known["member"], known["generation"], known["instance"]),
            known["is_held"],
            {
                one.partition: CommittedOffset(one.until, metadata, epoch)
                for one, (epoch, metadata) in zip(ranges, known["after"], strict=True)
            },
        )

    def _call(self, request: Callable[[Run], Any], *, of_spark: bool = False) -> Steps:
        """Make a request and wait for its result, as `Inbox.call`."""
        number = next(self._numbers)
        mail = self._mail[number] = deque()
        try:
            if of_spark:
                self.silence.begin_call(number)
            self.post(io.Called(number, request))
            while True:
                yield Until(lambda: bool(mail), math.inf)
                match mail.popleft():
                    case io.CallReply(_, result):
                        return result
                    case io.Raise(_, error):
                        raise error
                    case io.Ask(_, question):
                        yield from self._answer_call(number, question)
        finally:
            del self._mail[number]

    def _answer_call(self, number: int, question: ask.Question) -> Steps:
        try:
            answer = yield from self._answer(question)
        except StreamGroupError as error:
            self.post(io.QuestionFailed(number, error))
        else:
            self.post(io.QuestionAnswered(number, answer))

    def _answer(self, question: ask.Question) -> Steps:
        """As `QuestionAnswerer.answer`: answer a question of a call."""
        answer: Any = None
        match question:
            case ask.Connect() | ask.ReadTopics():
                answer = yield from self.watcher.read_metadata(QUESTION_S)
            case ask.SnapshotEnds():
                answer = yield from self.watcher.ask(lambda cluster, deadline: dict(self.world.logs.ends), QUESTION_S)
            case ask.ListEnds(positions, timeout):
                answer = yield from self.watcher.ends(positions, timeout)
            case ask.CheckPositions():
                yield from self._check(question)
            case ask.FetchCommitted(_, wanted):
                self._events.filter = yield from self.lines.committed()
                answer = {tp: committed for tp, committed in self._events.filter.items() if wanted(tp)}
            case ask.ClaimReplay():
                assert self.table is not None
                answer = yield from self.table.claim_for_replay(question)
            case ask.EndTransaction(name):
                yield from end_earlier(self, name)
            case ask.MakeFetchTasks(_, ranges):
                answer = [FetchTask((FetchRange(range_, None),)) for range_ in ranges]
        return answer

    # -- the end -------------------------------------------------------------------------------------------------------

    def pause(self, partitions: Collection[TopicPartition] | None, *, is_paused: bool = True) -> Steps:
        """`Coordinator.pause`: the names of the partitions that are paused then."""
        chosen = None if partitions is None else frozenset(partitions)
        result = yield from self._call(lambda run: run.pause_reading(chosen, is_paused=is_paused))
        return result["paused"]

    def stop(self) -> Steps:
        """`Coordinator.stop`."""
        yield from self._call(Run.stop)

    def drain(self, seconds: float) -> Steps:
        """`Coordinator.drain`: whether nothing will be repeated."""
        result = yield from self._call(lambda run: run.drain(seconds))
        return result["drained"]

    def die(self) -> None:
        """The process is gone between two actions."""
        if self.alive:
            self.alive = False
            self.died_at = self.clock.now
            self.lines.close()
            self.watcher.close()
            if self.table is not None:
                self.table.close()

    def cut(self, seconds: float) -> None:
        """No packet comes or goes for so long."""
        self.network.cut_until = max(self.network.cut_until, self.clock.now + seconds)
        self.clock.at(self.network.cut_until, self.query.look)

    def heal(self) -> None:
        self.network.cut_until = 0.0
        self.lines.heal()

    def line(self, lane: Lane) -> Stalling | None:
        return self.lines.lines.get(lane)
