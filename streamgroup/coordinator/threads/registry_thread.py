"""The registry thread: carries out the member's actions in ZooKeeper, in its own session.

It is the counterpart of `group_thread.py` for groups in ZooKeeper. Its loop handles events of the session, actions of
the member, and the query's timers, and passes the results to the query's inbox. When the connection is lost, pending
requests fail at once, so the member is informed without delay (R36). Other threads only put items into `_inbox`. If
Kafka stores the offsets, an `OffsetsThread` sends the requests for them to the brokers.
"""

from __future__ import annotations

import logging
import platform
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from streamgroup.coordinator.run.interface import ThreadFailed, everything
from streamgroup.coordinator.threads.assemble import member_config, member_of, standalone_of
from streamgroup.coordinator.threads.group_backend import Committed, RunInbox, Wanted
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.errors import ConfigError, ErrorCode, StreamGroupError, TransportError, error_of
from streamgroup.frozen import frozen
from streamgroup.group.commits import NO_GENERATION
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Machine, MemberAction
from streamgroup.group.offsets.both import AskKafka, WithdrawFromKafka, larger, store_at
from streamgroup.group.offsets.kafka import commit_request, commit_verdicts
from streamgroup.group.offsets.store import Answer, CommitOffsets, NoAnswer, OffsetsCommitted, OffsetsFetched, Request
from streamgroup.group.reactions import offsets_error
from streamgroup.group.registry import events as zk
from streamgroup.group.registry import work
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.nodes import GroupPaths, Incarnation, committed_in, committed_subtrees
from streamgroup.group.registry.view import describe_members, member_subtrees
from streamgroup.group.registry.work import AskedQuestion, Heard, RegistryWork
from streamgroup.kafka.cluster.admin import committed
from streamgroup.kafka.cluster.interface import Cluster, kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import Dialect, GroupDescription, TopicPartition
from streamgroup.options.types import ClientOptions, GroupOptions, OffsetsStorage, SourceOptions, ZooKeeperOptions
from streamgroup.zookeeper.client import RefusedError, UnansweredError
from streamgroup.zookeeper.session import (
    NodeChanged,
    Session,
    SessionEnded,
    SessionEvent,
    SessionResumed,
    SessionStarted,
    SessionSuspended,
)

log = logging.getLogger("streamgroup")

LONGEST_WAIT_S = 5.0
CLOSE_TIMEOUT_S = 0.5
"""How long to wait for ZooKeeper to close a session. After that its nodes vanish when the session expires."""
ANSWER_GRACE_S = 1.0
"""How long `ask` waits beyond its timeout: the thread's own error names the cause more exactly."""

T = TypeVar("T")
Question = Callable[[Session, float], T]
"""A call on the session, with its deadline in monotonic seconds."""


@frozen
class _Posted:
    """A request of another thread."""

    question: Question[Any]
    answer: Future[Any]


@frozen
class _Failed:
    """A request whose connection has failed."""

    asked: AskedQuestion[_Posted]
    error: TransportError


class RegistryThread:
    """Carries out the member's actions in ZooKeeper; an `ActionExecutor` like `GroupThread`."""

    def __init__(
        self,
        inbox: RunInbox,
        options: ZooKeeperOptions,
    ) -> None:
        self._run_inbox = inbox
        self._options = options
        self._work: RegistryWork[_Posted] = RegistryWork(options.session_timeout_ms, options.connection_timeout_ms)
        self.offsets: OffsetsThread | None = None
        """Sends requests to the brokers, if Kafka keeps the offsets. Set before the thread is started."""
        self._outbox: deque[MemberAction] = deque()
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._received: deque[Any] = deque()
        """Items of `_inbox` that wait for the loop."""
        self._session = self._new_session()
        self._stopping = False
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="streamgroup-registry", daemon=True)

    def start(self) -> None:
        """Start the thread, unless a question has started it before."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def stop(self, timeout: float) -> None:
        self._stopping = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def carry_out(self, action: MemberAction) -> None:
        self._outbox.append(action)
        self.wake()

    def wake(self) -> None:
        if threading.get_ident() != self._thread.ident:
            self._inbox.put(None)

    def post(self, question: Question[T], timeout: float) -> Future[T]:
        """Post a request. If the connection fails, it is sent again until `timeout` seconds have passed."""
        answer: Future[T] = Future()
        self._inbox.put(AskedQuestion(_Posted(question, answer), time.monotonic() + timeout))
        self.start()
        return answer

    def ask(self, question: Question[T], timeout: float) -> T:
        """Post a request and wait for its result.

        Raises TransportError at most ANSWER_GRACE_S after `timeout` seconds.
        """
        try:
            return self.post(question, timeout).result(timeout + ANSWER_GRACE_S)
        except FutureTimeoutError:  # the thread still waits for the answer to an earlier request
            raise TransportError(f"{self._session.where} did not answer within {timeout:g} s") from None

    def answered(self, answer: Answer) -> None:
        """Queue a broker's response for the member's offset store. Any thread may call it."""
        self._inbox.put(answer)

    def fail(self, error: StreamGroupError) -> None:
        """Fail the query. Any thread may call it."""
        self._run_inbox.post(ThreadFailed(error))

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn(time.monotonic())
        except Exception as error:
            log.exception("the registry's thread has failed")
            self.fail(StreamGroupError(f"the registry's thread has failed: {error!r}"))
        finally:
            self._end()

    def _turn(self, now: float) -> None:
        """Do one thing that may take long, or wait; `now` would be outdated for a second one.

        Received events come before actions: no action may run in a session that is known to have ended.
        """
        self._perform()
        self._take_inbox()
        if self._received:
            self._on_received(self._received.popleft(), now)
            return
        is_idle = self._wait_for(now) > 0
        self._tick(now)
        step = self._work.next_step(now, is_connected=self._session.connected)
        if step is not None:
            self._carry_out(step, now)
        elif is_idle:
            self._take_inbox(self._wait_for(now))

    def _wait_for(self, now: float) -> float:
        """Return the seconds until something is due if nothing is received; 0 or less if it is due now."""
        times = (now + LONGEST_WAIT_S, self._work.wake_at, self._run_inbox.wake_at)
        return min(at for at in times if at is not None) - now

    def _take_inbox(self, timeout: float = 0.0) -> None:
        """Take the items received; wait up to `timeout` seconds for the first."""
        with suppress(Empty):
            self._received.append(self._inbox.get(timeout=max(0.0, timeout)))
            while True:
                self._received.append(self._inbox.get_nowait())

    def _on_received(self, each: Any, now: float) -> None:
        match each:
            case Heard():
                self._perform()  # actions queued meanwhile belong to a session that may have ended
                is_refused = self._session.refusal is not None
                for step in self._work.hear(each, now, is_connected=self._session.connected, is_refused=is_refused):
                    self._carry_out(step, now)
            case AskedQuestion():
                self._work.ask(each)
            case _Failed(asked, error):
                if not self._work.ask_again(asked, now):
                    asked.question.answer.set_exception(error)
            case OffsetsFetched() | OffsetsCommitted() | NoAnswer():
                self._step(each)

    def _tick(self, now: float) -> None:
        if self._work.is_long_unconnected(now):
            session, timeout_s = self._session, self._options.connection_timeout_ms / 1000
            log.warning("%s: no connection within %g s%s; still trying", session.where, timeout_s, session.last_failure)
        self._run_inbox.tick(now)
        self._perform()

    def _step(self, event: Any) -> None:
        """Pass an event to the run, and perform the actions that follow."""
        self._run_inbox.post(event)
        self._perform()

    def _perform(self) -> None:
        """Queue ZooKeeper's actions and perform all others."""
        while self._outbox:
            action = self._outbox.popleft()
            match action:
                case zk.OpenSession() | zk.CloseSession() | zk.ReadSubtrees() | zk.Transact():
                    self._work.add(action)
                case AskKafka(request) if self.offsets is not None:
                    self.offsets.take(request)
                case WithdrawFromKafka() if self.offsets is not None:
                    self.offsets.withdraw()
                case _:
                    raise AssertionError(f"the registry's thread cannot carry out {action}")

    # --- the session -------------------------------------------------------------------------------------------------

    def _new_session(self) -> Session:
        """Return a session for one join."""
        return Session(self._options, partial(self._leave, self._work.life))

    def _leave(self, life: int, event: SessionEvent) -> None:
        """Queue an event. The session's threads call it; they must never wait, nor call ZooKeeper."""
        self._inbox.put(_heard(life, event))

    def _open_session(self) -> None:
        try:
            self._session.open()
        except StreamGroupError as error:
            self.fail(error)

    def _begin(self, deadline: float) -> None:
        """Give the session to the member; fail the query if the ZooKeeper servers cannot store a registry."""
        try:
            self._session.connect(deadline)
        except TransportError:
            return  # the session is lost already: an event announces the next one
        except StreamGroupError as error:
            self.fail(error)
            return
        self._step(self._work.began(self._session.session_id, self._session.timeout_ms))

    # --- steps -------------------------------------------------------------------------------------------------------

    def _carry_out(self, step: work.Step[_Posted], now: float) -> None:
        match step:
            case work.Tell(event):
                self._step(event)
            case work.Open():
                self._open_session()
            case work.Refuse():
                assert self._session.refusal is not None
                self.fail(self._session.refusal)
            case work.Begin(deadline):
                self._begin(deadline)
            case work.Close():
                self._session.close(CLOSE_TIMEOUT_S)
                self._session = self._new_session()
            case work.Read(request, deadline):
                try:
                    self._step(zk.SubtreesRead(request.token, self._session.read(request.subtrees, deadline)))
                except StreamGroupError as error:
                    self._not_done(request.token, error)
            case work.Write(transactions, deadline):
                self._write(transactions, deadline)
            case work.AnswerQuestion(asked, connects_by):
                self._answer(asked, connects_by)

    def _write(self, transactions: Sequence[zk.Transact], deadline: float) -> None:
        outcomes = self._session.transact_each([(t.operations, t.ensured) for t in transactions], deadline)
        for transaction, error in zip(transactions, outcomes, strict=True):
            if error is None:
                self._step(zk.Transacted(transaction.token))
            else:
                self._not_done(transaction.token, error)

    def _not_done(self, token: int, error: StreamGroupError) -> None:
        match error:
            case RefusedError():
                self._step(zk.RequestRefused(token, error.path, error.refusal, error.advice))
            case UnansweredError():
                self._step(zk.Unanswered(token, str(error)))
            case _:
                self.fail(error)

    def _answer(self, asked: AskedQuestion[_Posted], connects_by: float | None) -> None:
        """Carry out a posted request. An error of any type is raised in the thread that posted it."""
        posted = asked.question
        try:
            if connects_by is not None:
                self._session.connect(connects_by)
            posted.answer.set_result(posted.question(self._session, asked.until))
        except TransportError as error:
            self._received.append(_Failed(asked, error))
        except Exception as error:
            posted.answer.set_exception(error)

    def _end(self) -> None:
        self._stopping = True
        self._session.close(CLOSE_TIMEOUT_S)
        if self.offsets is not None:
            self.offsets.close()
        self._take_inbox()
        received = (each.asked if isinstance(each, _Failed) else each for each in self._received)
        for asked in (*self._work.stop(), *(each for each in received if isinstance(each, AskedQuestion))):
            asked.question.answer.set_exception(TransportError("cannot send the request: the coordinator is stopping"))


def _heard(life: int, event: SessionEvent) -> Heard:
    match event:
        case SessionStarted(session_id, timeout_ms):
            return Heard(life, session_id, zk.SessionBegan(session_id, timeout_ms))
        case SessionSuspended(session_id):
            return Heard(life, session_id, zk.Suspended("the connection is lost"))
        case SessionResumed(session_id):
            return Heard(life, session_id, zk.Resumed())
        case SessionEnded(session_id, reason):
            return Heard(life, session_id, zk.Expired(reason))
        case NodeChanged(path):
            return Heard(life, 0, zk.Changed(path))


class RegistryBackend:
    """The backend of a group that is stored in ZooKeeper. `opened` chooses the names and the format of its nodes."""

    def __init__(
        self,
        options: SourceOptions,
        group: GroupOptions,
        ledger: Ledger,
        registry: ZooKeeperOptions,
        *,
        rng: random.Random,
        inbox: RunInbox,
        watcher: LogWatcher,
        is_missed: Callable[[TopicPartition], bool],
    ) -> None:
        self._options = options
        self._group = group
        self._rng = rng
        self._watcher = watcher
        self._paths = GroupPaths(group.group_id, Dialect.KAFKA)
        machine: Machine = self._machine()
        if not group.is_member:
            machine = standalone_of(options, group, rng, is_missed, through_brokers=False, session=True)
        self.member = member_of(options, group, ledger, machine, paths=self._paths, rng=rng)
        self.thread = RegistryThread(inbox, registry)

    def _machine(self) -> RegistryMembership:
        return RegistryMembership(
            member_config(self._options, self._group), self._rng, self._paths, self._new_incarnation
        )

    def _new_incarnation(self) -> Incarnation:
        milliseconds = time.time_ns() // 1_000_000
        return Incarnation.of(self._group.group_id, platform.node(), milliseconds, self._rng.getrandbits(32))

    def opened(self, dialect: Dialect) -> None:
        """Use the cluster's names and formats of nodes from now on."""
        self._paths = GroupPaths(self._group.group_id, dialect)
        self.member.store = store_at(self._group.offset_location, self._paths)
        if self._group.is_member:
            self.member.membership = self._machine()
        if not self._in_kafka:
            return
        if dialect is Dialect.KAFKA07:
            raise ConfigError(
                "cannot use kafka.offsets.storage=kafka: brokers of Kafka 0.7 do not store offsets. Remove the option"
            )
        client, group = self._options.client, self._group.group_id
        self.thread.offsets = OffsetsThread(client, group, self.thread.answered, self.thread.fail)
        self.thread.offsets.start()

    @property
    def _in_kafka(self) -> bool:
        return self._group.offsets_storage is OffsetsStorage.KAFKA

    def committed(self, timeout: float, wanted: Wanted = everything) -> Committed:
        """Return the committed offsets from ZooKeeper or Kafka; the larger of both if the group commits to both.

        Raises DecodeError if a node of a partition that `wanted` accepts does not contain an offset.
        """
        paths, group = self._paths, self._group
        found: Committed = {}
        if self._in_kafka:
            found = self._watcher.ask(
                lambda cluster, until: committed(kafka_of(cluster, until), group.group_id, until, in_zookeeper=False),
                timeout,
            )
        if self._in_kafka and not group.dual_commit:
            return found

        def look(session: Session, until: float) -> Committed:
            return committed_in(paths, session.read(committed_subtrees(paths, None), until), wanted)

        return larger(found, self.thread.ask(look, timeout))

    def described(self, timeout: float) -> Future[GroupDescription]:
        """Describe the group from the nodes of its consumers, and from the nodes that streamgroup's members add."""
        paths = self._paths
        return self.thread.post(
            lambda session, until: describe_members(paths, session.read(member_subtrees(paths), until)), timeout
        )


# --- offsets that Kafka keeps ----------------------------------------------------------------------------------------

_OF_MEMBERS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


@frozen
class _QueuedRequest:
    request: Request
    epoch: int


class _WithdrawnError(Exception):
    """The commit was withdrawn before it was sent."""


class OffsetsThread:
    """Sends the offset requests of one query to brokers. It calls `answered` and `failed` in its own thread."""

    def __init__(
        self,
        options: ClientOptions,
        group: str,
        answered: Callable[[Answer], None],
        failed: Callable[[StreamGroupError], None],
    ) -> None:
        self._options = options
        self._group = group
        self._answered = answered
        self._failed = failed
        self._queue: SimpleQueue[_QueuedRequest | None] = SimpleQueue()
        self._epoch = 0
        self._thread = threading.Thread(target=self._run, name="streamgroup-offsets", daemon=True)

    def start(self) -> None:
        """Begin to send requests, including those that `take` has queued before."""
        self._thread.start()

    def take(self, request: Request) -> None:
        """Queue a request to the brokers, after all earlier ones."""
        self._queue.put(_QueuedRequest(request, self._epoch))

    def withdraw(self) -> None:
        """Drop the requests that were not sent yet, and a commit that waits for the lookup of the group coordinator.

        The lookup may take seconds. Meanwhile another member may claim the partitions, and the broker would not fence
        this commit.
        """
        self._epoch += 1

    def close(self) -> None:
        """End the thread after the pending request."""
        self.withdraw()
        self._queue.put(None)

    def _run(self) -> None:
        with closing(open_cluster(self._options)) as cluster:
            while (queued := self._queue.get()) is not None:
                if not self._is_withdrawn(queued):
                    self._serve(cluster, queued)

    def _is_withdrawn(self, queued: _QueuedRequest) -> bool:
        return queued.epoch != self._epoch

    def _serve(self, cluster: Cluster, queued: _QueuedRequest) -> None:
        """Send one request and pass on its response, or the error that ends the query."""
        request = queued.request
        deadline = cluster.deadline(request.timeout_ms)
        try:
            answer = self._ask(kafka_of(cluster, deadline), queued, deadline)
        except _WithdrawnError:
            return
        except TransportError as error:
            answer = NoAnswer(request.token, str(error))
        except StreamGroupError as error:
            self._failed(error)
            return
        except Exception as error:  # any defect must fail the query: the member would wait forever
            log.exception("offsets in Kafka")
            self._failed(
                StreamGroupError(f"group {self._group}: cannot fetch or commit its offsets in Kafka: {error!r}")
            )
            return
        self._answered(answer)

    def _ask(self, cluster: KafkaCluster, queued: _QueuedRequest, deadline: float) -> Answer:
        request = queued.request
        if isinstance(request, CommitOffsets):
            return self._commit(cluster, request, deadline, queued.epoch)
        return OffsetsFetched(request.token, committed(cluster, self._group, deadline, in_zookeeper=False))

    def _commit(self, cluster: KafkaCluster, request: CommitOffsets, deadline: float, epoch: int) -> OffsetsCommitted:
        """Commit without a member id: ZooKeeper keeps the members, and the brokers have no record of them."""
        shape = commit_request(replace(request, member_id="", generation=NO_GENERATION, instance_id=None))

        def build(version: int) -> OffsetCommitRequest:  # called when the connection is open, just before it is sent
            if epoch != self._epoch:
                raise _WithdrawnError
            return shape(version)

        group_coordinator = cluster.coordinator(self._group, deadline)
        _, response = cluster.call_versioned(OffsetCommitRequest, build, group_coordinator, deadline, keep_trying=False)
        verdicts = commit_verdicts(response)
        codes = dict.fromkeys(verdict.code for verdict in verdicts.values())
        of_members = next((code for code in codes if code in _OF_MEMBERS), None)
        if of_members is not None:
            raise ConfigError(_HAS_MEMBERS.format(group=self._group, name=error_of(of_members).name))
        if ErrorCode.GROUP_ID_NOT_FOUND in codes:
            raise offsets_error(ErrorCode.GROUP_ID_NOT_FOUND, "commit", self._group)
        return OffsetsCommitted(request.token, verdicts)


_HAS_MEMBERS = (
    "group {group}: a commit to Kafka was rejected ({name}): the group has members in Kafka, too, which do not "
    "coordinate with the members in ZooKeeper. Remove zookeeper.connect to join the group in Kafka, or stop the "
    "members in Kafka, or give this query its own kafka.group.id"
)
