"""The registry's thread of a process: carries the member's actions out in one session with ZooKeeper.

The real `RegistryWork` decides what is done when, and what an event of the session means. As in
`registry_thread.py`, a replay's filter is read here. Requests to brokers that keep the offsets: `offsets.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.advice import StoredIn
from streamgroup.coordinator.run import interface as io
from streamgroup.coordinator.threads.registry_thread import CLOSE_TIMEOUT_S
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.events import Lane
from streamgroup.group.member import MemberAction
from streamgroup.group.offsets import both
from streamgroup.group.offsets.both import AskKafka, WithdrawFromKafka, store_at
from streamgroup.group.offsets.store import (
    Answer,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    Request,
)
from streamgroup.group.registry import events as rv
from streamgroup.group.registry import work as steps
from streamgroup.group.registry.nodes import GroupPaths, committed_in, committed_subtrees
from streamgroup.group.registry.view import describe_members, member_subtrees
from streamgroup.group.registry.work import AskedQuestion, Heard, RegistryWork, SessionEvent
from streamgroup.group.state_machine import State
from streamgroup.kafka.cluster.admin import committed
from streamgroup.kafka.cluster.interface import Cluster, kafka_of
from streamgroup.model import CommittedOffset, GroupDescription, TopicPartition
from streamgroup.znodes import Subtree, ZNode
from tests.sim.clock import Steps, Thread, Until, raise_failure
from tests.sim.network import Network
from tests.sim.offsets import BrokerCalls, OffsetsBroker, SimOffsetsThread
from tests.sim.settings import GROUP_ID, QUESTION_S
from tests.sim.zkclient import Client, Wire
from tests.sim.zksession import SimSession, Unanswered
from tests.sim.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.sim.process import Process

HOP_S = 0.02
"""From kazoo's threads to this one, at most."""
FOREVER_S = 1e9


@dataclass(eq=False)
class _Posted:
    """A question of another thread: what do these nodes hold?"""

    subtrees: tuple[Subtree, ...]
    answered: Callable[[Mapping[str, ZNode] | None], None]
    """Called with the nodes, or with None when the time is over."""


class ObservedStore(OffsetStore):
    """The real store of a process, which lets others hear of what is asked of it and of what it answers."""

    def __init__(self, store: OffsetStore, asked: Callable[[str, Request], None], answered: Callable[[Answer], None]):
        self._store = store
        self._asked = asked
        self._answered = answered

    @property
    def is_the_groups(self) -> bool:
        return self._store.is_the_groups

    @property
    def wake_at(self) -> float | None:
        return self._store.wake_at

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        self._asked("OffsetFetch", request)
        return self._store.fetch(request, now)

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        self._asked("OffsetCommit", request)
        return self._store.commit(request, now)

    def follow(self, action: object) -> Outcome:
        return self._store.follow(action)

    def takes(self, event: object) -> bool:
        return self._store.takes(event)

    def hear(self, event: object, now: float) -> Outcome:
        outcome = self._store.hear(event, now)
        for answer in outcome.answers:
            self._answered(answer)
        return outcome


class RegistryLines:
    """See the module; it has the interface of `GroupLines`."""

    def __init__(
        self,
        process: Process,
        network: Network,
        zookeeper: SimZooKeeper,
        paths: GroupPaths,
        brokers: OffsetsBroker | None,
    ) -> None:
        self.fragile: set[Lane] = set()
        """Where it is not empty the connection breaks soon after the next request."""
        self.keeps_timers = False
        """The thread looks at the time itself, when it does not wait for ZooKeeper."""
        self._process = process
        self._network = network
        self._clock = network.clock
        self._zookeeper = zookeeper
        self._paths = paths
        self._location = process.settings.location
        self.store = ObservedStore(store_at(self._location, paths), self._asked, self._told)
        self._made_at: dict[int, float] = {}
        """When the member made its requests to the store, by token."""
        self.offsets: SimOffsetsThread | None = None
        """The thread that asks the brokers, if Kafka keeps the offsets."""
        self.watcher: BrokerCalls | None = None
        """The calls of the logs' watcher to these brokers."""
        self._offsets_thread: Thread | None = None
        if brokers is not None:
            self._open_brokers(brokers)
        self._outbox: deque[MemberAction] = deque()
        self._inbox: deque[Any] = deque()
        session_ms = int(process.settings.session_s * 1000)
        self._work: RegistryWork[_Posted] = RegistryWork(session_ms, session_ms)
        self._session_ms = session_ms
        self._told_at = 0.0
        self._session = self._new_session()
        self._thread: Thread | None = None

    def _open_brokers(self, brokers: OffsetsBroker) -> None:
        """As `RegistryBackend.opened`."""
        process = self._process
        calls, self.watcher = (BrokerCalls(process, self._network, brokers) for _ in range(2))
        offsets = SimOffsetsThread(calls, self._made_at.__getitem__, self._answered, self._fail)
        steps = offsets.steps(self._clock)
        self.offsets = offsets
        self._offsets_thread = Thread(self._clock, steps, process.hear, raise_failure)

    def _fail(self, error: StreamGroupError) -> None:
        self._process.post(io.ThreadFailed(error))

    def _answered(self, answer: Answer) -> None:
        """Of the brokers, for this thread."""
        self._inbox.append(answer)
        self._process.later(0.0, self.look)

    def _asked(self, what: str, request: Request) -> None:
        self._made_at[request.token] = self._clock.now
        self._befall(what)

    def _told(self, answer: Answer) -> None:
        if isinstance(answer, OffsetsFetched) and answer.refusal is None:
            self._process.world.checker.told(self._process, nothing=not answer.offsets)

    # -- what others use ----------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client | None:
        return self._session.client

    @property
    def lines(self) -> dict[Lane, Wire]:
        """The one connection, whatever goes over it."""
        wire = self.client.wire if self.client is not None else None
        return {} if wire is None else dict.fromkeys(Lane, wire)

    def carry_out(self, action: MemberAction) -> None:
        self._outbox.append(action)
        self._start()

    def committed(self) -> Steps:
        """As `RegistryBackend.committed`: asked of the brokers, of ZooKeeper in this process's session, or of both.

        Waits as long as a replay does.
        """
        found: Mapping[TopicPartition, CommittedOffset] = {}
        if self.watcher is not None:
            found = yield from self.watcher.run(_committed_in_kafka, self._clock.now + QUESTION_S)
        if self._location.stored_in is StoredIn.KAFKA:
            return found
        answers: list[Mapping[str, ZNode] | None] = []
        self._ask(self._clock.now + QUESTION_S, committed_subtrees(self._paths, None), answers.append)
        yield Until(lambda: bool(answers), FOREVER_S)
        if answers[0] is None:
            raise TransportError(f"ZooKeeper did not answer within {QUESTION_S} s")
        return both.larger(found, committed_in(self._paths, answers[0]))

    def describe(self, until: float, answered: Callable[[GroupDescription | None], None]) -> None:
        """Describe the members by their nodes (R28); None: ZooKeeper does not answer in time."""

        def read(nodes: Mapping[str, ZNode] | None) -> None:
            answered(None if nodes is None else describe_members(self._paths, nodes))

        self._ask(until, member_subtrees(self._paths), read)

    def _ask(
        self, until: float, subtrees: tuple[Subtree, ...], answered: Callable[[Mapping[str, ZNode] | None], None]
    ) -> None:
        """As `RegistryThread.post`."""
        self._inbox.append(AskedQuestion(_Posted(subtrees, answered), until))
        self._start()
        self.look()

    def look(self) -> None:
        """Something has changed."""
        for thread in (self._thread, self._offsets_thread):
            if thread is not None:
                thread.look()

    def heal(self) -> None:
        """Nothing stalls any more."""
        for line in self.lines.values():
            line.heal()
        for calls in self.calls:
            calls.heal()

    @property
    def calls(self) -> Sequence[BrokerCalls]:
        """The connections to the brokers that keep the offsets."""
        return [] if self.offsets is None or self.watcher is None else [self.offsets.calls, self.watcher]

    def close(self) -> None:
        """The process is gone: what it has registered stays until its session is over."""
        for thread in (self._thread, self._offsets_thread):
            if thread is not None:
                thread.kill()
        for calls in self.calls:
            calls.close()
        self._session.die()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(self._clock, self._run(), self._process.hear, raise_failure)

    @property
    def _due(self) -> float:
        times = (self._process.run.wake_at, self._work.wake_at)
        return min((at for at in times if at is not None), default=FOREVER_S)

    def _is_busy(self, due: float) -> bool:
        return bool(self._inbox or self._outbox or self._work.has_work) or self._due != due

    def _run(self) -> Steps:
        """As `RegistryThread._turn`: events that are received go before actions."""
        while True:
            self._sort()
            if self._inbox:
                yield from self._hear(self._inbox.popleft())
                continue
            self._tick()
            step = self._work.next_step(self._clock.now, is_connected=self._session.connected)
            if step is not None:
                yield from self._carry_out(step)
            else:
                due = self._due
                yield Until(partial(self._is_busy, due), max(0.0, due - self._clock.now))

    def _tick(self) -> None:
        wake_at = self._process.run.wake_at
        if wake_at is not None and self._clock.now >= wake_at:
            self._step(ev.Tick())

    def _hear(self, each: Any) -> Steps:
        match each:
            case Heard():
                is_connected = self._session.connected
                for step in self._work.hear(each, self._clock.now, is_connected=is_connected, is_refused=False):
                    yield from self._carry_out(step)
            case AskedQuestion():
                self._work.ask(each)
            case OffsetsFetched() | OffsetsCommitted() | NoAnswer():
                self._step(each)

    def _step(self, event: Any) -> None:
        self._process.post(event)
        self._sort()

    def _sort(self) -> None:
        """As `_perform`: what is to be done in ZooKeeper waits for its turn, the brokers are asked at once."""
        while self._outbox:
            match action := self._outbox.popleft():
                case AskKafka(request) if self.offsets is not None:
                    self.offsets.take(request)
                    self.look()
                case WithdrawFromKafka() if self.offsets is not None:
                    self.offsets.withdraw()
                case rv.OpenSession() | rv.CloseSession() | rv.ReadSubtrees() | rv.Transact():
                    self._work.add(action)
                case _:
                    raise AssertionError(f"the registry's thread cannot carry out {action}")

    # -- the session --------------------------------------------------------------------------------------------------

    def _new_session(self) -> SimSession:
        tell = partial(self._leave, self._work.life)
        return SimSession(self._process, self._network, self._zookeeper, tell)

    def _leave(self, life: int, session_id: int, event: SessionEvent) -> None:
        """From kazoo's threads."""
        heard = Heard(life, session_id, event)
        self._told_at = max(self._told_at, self._clock.now + HOP_S * self._network.chance())
        self._clock.at(self._told_at, partial(self._process.hear, partial(self._inbox.append, heard)))

    # -- steps --------------------------------------------------------------------------------------------------------

    def _carry_out(self, step: steps.Step[_Posted]) -> Steps:
        match step:
            case steps.Tell(event):
                self._step(event)
            case steps.Open():
                self._session.open()
            case steps.Begin(deadline):
                with suppress(Unanswered):
                    yield from self._session.connect(deadline)
                    self._step(self._work.began(self._session.session_id, self._session_ms))
            case steps.Close():
                yield from self._session.close(CLOSE_TIMEOUT_S)
                self._session = self._new_session()
            case steps.Read(request, deadline):
                yield from self._read(request, deadline)
            case steps.Write(transactions, deadline):
                yield from self._transact(transactions, deadline)
            case steps.AnswerQuestion(asked, connects_by):
                yield from self._answer(asked, connects_by)

    @property
    def _is_leaving(self) -> bool:
        """Whether the member leaves. It is LEFT once that is overdue; the thread still sends what was queued before."""
        return self._process.membership.state in {State.LEAVING, State.LEFT}

    def _read(self, action: rv.ReadSubtrees, deadline: float) -> Steps:
        self._befall("ReadSubtrees")
        sent_at, leaving = self._clock.now, self._is_leaving
        event: rv.SubtreesRead | rv.Unanswered
        try:
            nodes = yield from self._session.read(action.subtrees, deadline)
        except Unanswered as reason:
            event = rv.Unanswered(action.token, str(reason))
        else:
            event = rv.SubtreesRead(action.token, nodes)
            if any(node.owner == self._session.session_id for node in nodes.values()):
                self._process.heard_of(sent_at, leaving=leaving)
        self._step(event)

    def _transact(self, transactions: Sequence[rv.Transact], deadline: float) -> Steps:
        self._befall("Transact")
        sent_at, leaving = self._clock.now, self._is_leaving
        outcomes = yield from self._session.transact_each(transactions, deadline)
        for transaction, outcome in zip(transactions, outcomes, strict=True):
            if outcome is None:
                self._process.heard_of(sent_at, leaving=leaving)
                self._step(rv.Transacted(transaction.token))
            elif isinstance(outcome, Unanswered):
                self._step(rv.Unanswered(transaction.token, str(outcome)))
            else:
                self._step(rv.RequestRefused(transaction.token, *outcome))

    def _answer(self, asked: AskedQuestion[_Posted], connects_by: float | None) -> Steps:
        posted = asked.question
        nodes = None
        try:
            if connects_by is not None:
                yield from self._session.connect(connects_by)
            nodes = yield from self._session.read(posted.subtrees, asked.until)
        except Unanswered:
            if self._work.ask_again(asked, self._clock.now):
                return
        posted.answered(nodes)
        self._process.query.look()

    # -- faults -------------------------------------------------------------------------------------------------------

    def _befall(self, what: str) -> None:
        """Let the faults happen that wait for a request: a connection that breaks, a process that is killed."""
        if self.fragile and self.client is not None:
            self.fragile.clear()
            self.client.fragile = True
        befalls = self._process.query.armed.pop(what, None)
        if befalls is not None:
            self._clock.after(4 * self._network.latency() * self._network.chance(), befalls)


def _committed_in_kafka(cluster: Cluster) -> Mapping[TopicPartition, CommittedOffset]:
    return committed(kafka_of(cluster, FOREVER_S), GROUP_ID, FOREVER_S, in_zookeeper=False)
