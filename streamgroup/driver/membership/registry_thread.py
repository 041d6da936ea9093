"""The registry's thread: carries out the member's actions in ZooKeeper, in a session of its own.

It is the counterpart of `group_thread.py`. Its loop handles events of the session, actions of the member, and the
run's timers. It leaves what it receives in the run's inbox. When the connection is lost, pending requests fail at once,
so the member hears of the loss without delay (R36). Other threads only put items into `_inbox`. If Kafka keeps the
offsets, an `OffsetsThread` asks the brokers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from streamgroup.driver.membership.executor import RunInbox
from streamgroup.driver.membership.offsets_thread import OffsetsThread
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.group.member import MemberAction
from streamgroup.group.offsets.registered_kafka import AskKafka, WithdrawFromKafka
from streamgroup.group.offsets.store import Answer, NoAnswer, OffsetsCommitted, OffsetsFetched
from streamgroup.group.registry import events as zk
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.run.interface import ThreadFailed
from streamgroup.zookeeper.errors import RefusedError, UnansweredError
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
RETRY_BACKOFF_S = 0.1
"""Seconds until a question is asked again whose connection has failed."""

T = TypeVar("T")
Question = Callable[[Session, float], T]
"""A call on the session, with its deadline in monotonic seconds."""


@dataclass(frozen=True, slots=True)
class _Posted:
    """A question of another thread, with its deadline."""

    question: Question[Any]
    until: float
    answer: Future[Any]


@dataclass(frozen=True, slots=True)
class _Failed:
    """A question whose connection has failed."""

    posted: _Posted
    error: TransportError


class RegistryThread:
    """Carries out actions in ZooKeeper; an `ActionExecutor` as `GroupThread` is."""

    def __init__(
        self,
        inbox: RunInbox,
        options: ZooKeeperOptions,
    ) -> None:
        self._run_inbox = inbox
        self._options = options
        self._session_timeout_s = options.session_timeout_ms / 1000
        """Timeout of one request: later the session would have expired. At most the timeout that ZooKeeper grants."""
        self.offsets: OffsetsThread | None = None
        """Asks the brokers, if Kafka keeps the offsets. Set before the thread is started."""
        self._outbox: deque[MemberAction] = deque()
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._work: deque[zk.RegistryAction] = deque()
        """Actions that wait to be carried out in ZooKeeper."""
        self._received: deque[Any] = deque()
        """Items of `_inbox` that wait for the loop."""
        self._questions: deque[_Posted] = deque()
        self._is_questions_turn = False
        """Whether an action was carried out since the last question."""
        self._again: list[tuple[float, _Posted]] = []
        """Questions whose connection has failed, each with the time when it is asked again."""
        self._life = 0
        self._session = self._new_session()
        self._wanted = False
        """Whether the member wants a session."""
        self._known: int | None = None
        """Id of the session that the member knows of and that has not ended."""
        self._connecting_since: float | None = None
        self._stopping = False
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="streamgroup-registry", daemon=True)

    def start(self) -> None:
        """Start the thread, unless a question has started it before."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def stop(self, timeout: float) -> None:
        """Close the session in order and end the thread."""
        self._stopping = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def carry_out(self, action: MemberAction) -> None:
        """Leave an action with this thread."""
        self._outbox.append(action)
        self.wake()

    def wake(self) -> None:
        """Have the loop look at the run's timers again."""
        if threading.get_ident() != self._thread.ident:
            self._inbox.put(None)

    def post(self, question: Question[T], timeout: float) -> Future[T]:
        """Leave a question. If the connection fails, it is asked again until `timeout` seconds have passed."""
        answer: Future[T] = Future()
        self._inbox.put(_Posted(question, time.monotonic() + timeout, answer))
        self.start()
        return answer

    def ask(self, question: Question[T], timeout: float) -> T:
        """Leave a question and wait. Raises TransportError after `timeout` seconds, or ANSWER_GRACE_S later."""
        try:
            return self.post(question, timeout).result(timeout + ANSWER_GRACE_S)
        except FutureTimeoutError:  # the thread still waits for the answer to an earlier request
            raise TransportError(f"{self._session.where} did not answer within {timeout:g} s") from None

    def answered(self, answer: Answer) -> None:
        """Leave an answer of the brokers for the member's offset store. Any thread may call it."""
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
        """Do one thing that may take long, or wait: `now` would be too old for a second one.

        Received items go before actions: no action may run in a session that is known to have ended.
        """
        self._perform()
        self._take_inbox()
        if self._received:
            self._on_received(self._received.popleft(), now)
            return
        is_idle = self._wait_for(now) > 0
        self._tick(now)
        # In turn: in a group that changes all the time the member always has something to do, and no question whose
        # answer the run waits for, such as the description of the group (R28), would ever be asked.
        if self._questions and (self._is_questions_turn or not self._work):
            self._is_questions_turn = False
            self._ask(self._questions.popleft(), now)
        elif self._work:
            self._is_questions_turn = True
            self._carry_out_next(now)
        elif is_idle:
            self._take_inbox(self._wait_for(now))

    def _wait_for(self, now: float) -> float:
        """Return the seconds until something is due if nothing is received; 0 or less if it is due now."""
        times = [now + LONGEST_WAIT_S, *(at for at, _ in self._again)]
        if (wake_at := self._run_inbox.wake_at) is not None:
            times.append(wake_at)
        return min(times) - now

    def _take_inbox(self, timeout: float = 0.0) -> None:
        """Take the items received; wait up to `timeout` seconds for the first."""
        with suppress(Empty):
            self._received.append(self._inbox.get(timeout=max(0.0, timeout)))
            while True:
                self._received.append(self._inbox.get_nowait())

    def _on_received(self, each: Any, now: float) -> None:
        match each:
            case (int(life), event):
                if life == self._life:
                    self._on_session_event(event, now)
            case _Posted():
                self._questions.append(each)
            case _Failed(posted, error):
                self._ask_again(posted, error, now)
            case OffsetsFetched() | OffsetsCommitted() | NoAnswer():
                self._step(each)

    def _tick(self, now: float) -> None:
        self._warn_if_unconnected(now)
        self._questions += [posted for at, posted in self._again if at <= now]
        self._again = [(at, posted) for at, posted in self._again if at > now]
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
                case zk.OpenSession() | zk.CloseSession() | zk.Look() | zk.Transact():
                    self._work.append(action)
                case AskKafka(request) if self.offsets is not None:
                    self.offsets.take(request)
                case WithdrawFromKafka() if self.offsets is not None:
                    self.offsets.withdraw()
                case _:
                    raise AssertionError(f"the registry's thread cannot carry out {action}")

    # --- the session -------------------------------------------------------------------------------------------------

    def _new_session(self) -> Session:
        """Return a session for one join. `_life` tells its events from late events of earlier sessions."""
        self._life += 1
        return Session(self._options, partial(self._leave, self._life))

    def _leave(self, life: int, event: SessionEvent) -> None:
        """Queue an event. The session's threads call it; they must never wait, nor call ZooKeeper."""
        self._inbox.put((life, event))

    def _open_session(self, now: float) -> None:
        if not self._session.connected and self._connecting_since is None:
            self._connecting_since = now
        try:
            self._session.open()
        except StreamGroupError as error:
            self.fail(error)

    def _on_session_event(self, event: SessionEvent, now: float) -> None:
        match event:
            case SessionStarted() | SessionResumed() if self._known is None:
                # A session's connection may break and resume before the member learns that the session has started.
                self._connecting_since = None
                if self._wanted:
                    self._begin(now)
            case SessionEnded(session_id, reason):
                if self._known in {None, session_id}:
                    self._over(reason, now)
                # An event of an earlier session has no effect: `connect` has begun the next one, which the member uses.
            case SessionSuspended(session_id) if session_id == self._known:
                self._step(zk.Suspended("the connection is lost"))
            case SessionResumed(session_id) if session_id == self._known:
                self._step(zk.Resumed())
            case NodeChanged(path) if self._known is not None:
                self._step(zk.Changed(path))

    def _begin(self, now: float) -> None:
        """Give the member its session; fail the query if the servers cannot keep a registry."""
        try:
            self._session.connect(now + self._session_timeout_s)
        except TransportError:
            return  # the session is lost already: an event announces the next one
        except StreamGroupError as error:
            self.fail(error)
            return
        self._known, granted_ms = self._session.session_id, self._session.timeout_ms
        self._session_timeout_s = min(self._options.session_timeout_ms, granted_ms) / 1000
        self._step(zk.SessionBegan(self._known, granted_ms))

    def _over(self, reason: str, now: float) -> None:
        """Handle the end of the session: its queued actions must not run in the next one."""
        self._perform()  # what other threads left meanwhile is of the session that is over, too
        known, self._known = self._known, None
        self._work = deque(a for a in self._work if isinstance(a, zk.OpenSession | zk.CloseSession))
        if known is not None:
            self._step(zk.Expired(reason))
        if (refusal := self._session.refusal) is not None:
            self.fail(refusal)
        elif self._wanted:
            self._open_session(now)

    def _warn_if_unconnected(self, now: float) -> None:
        """Warn once if the first connection takes too long. The session keeps trying as long as the query runs."""
        timeout_s = self._options.connection_timeout_ms / 1000
        if self._connecting_since is not None and now - self._connecting_since > timeout_s:
            self._connecting_since = None
            failure = self._session.last_failure
            log.warning("%s: no connection within %g s%s; still trying", self._session.where, timeout_s, failure)

    # --- requests to ZooKeeper ---------------------------------------------------------------------------------------

    def _carry_out_next(self, now: float) -> None:
        deadline = now + self._session_timeout_s
        match action := self._work.popleft():
            case zk.OpenSession():
                self._wanted = True
                if self._session.connected:
                    self._begin(now)
                else:
                    self._open_session(now)
            case zk.CloseSession():
                self._wanted, self._known, self._connecting_since = False, None, None
                self._session.close(CLOSE_TIMEOUT_S)
                self._session = self._new_session()
            case zk.Look(token, subtrees):
                try:
                    self._step(zk.Looked(token, self._session.read(subtrees, deadline)))
                except StreamGroupError as error:
                    self._not_done(token, error)
            case zk.Transact():
                transactions = [action]
                while self._work and isinstance(self._work[0], zk.Transact):
                    transactions.append(self._work.popleft())  # type: ignore[arg-type]
                self._transact(transactions, deadline)

    def _transact(self, transactions: list[zk.Transact], deadline: float) -> None:
        """Send all transactions together: claims are a transaction for each partition."""
        outcomes = self._session.transact_each([(t.operations, t.ensured) for t in transactions], deadline)
        for transaction, error in zip(transactions, outcomes, strict=True):
            if error is None:
                self._step(zk.Transacted(transaction.token))
            else:
                self._not_done(transaction.token, error)

    def _not_done(self, token: int, error: StreamGroupError) -> None:
        match error:
            case RefusedError():
                self._step(zk.Refused(token, error.path, error.refusal, error.advice))
            case UnansweredError():
                self._step(zk.Unanswered(token, str(error)))
            case _:
                self.fail(error)

    def _ask(self, posted: _Posted, now: float) -> None:
        """Ask a question of another thread. While the member wants a session, only the member opens one."""
        try:
            if not self._wanted:
                self._session.connect(min(posted.until, now + self._session_timeout_s))
            posted.answer.set_result(posted.question(self._session, posted.until))
        except TransportError as error:
            self._received.append(_Failed(posted, error))
        except Exception as error:  # an error of any type is raised in the thread that asked
            posted.answer.set_exception(error)

    def _ask_again(self, posted: _Posted, error: TransportError, now: float) -> None:
        """Ask a question again after a pause, unless its time is over then."""
        if now + RETRY_BACKOFF_S < posted.until:
            self._again.append((now + RETRY_BACKOFF_S, posted))
        else:
            posted.answer.set_exception(error)

    def _end(self) -> None:
        self._stopping = True
        self._session.close(CLOSE_TIMEOUT_S)
        if self.offsets is not None:
            self.offsets.close()
        self._take_inbox()
        for each in (*self._questions, *self._received, *(posted for _, posted in self._again)):
            posted = each.posted if isinstance(each, _Failed) else each
            if isinstance(posted, _Posted):
                posted.answer.set_exception(TransportError("the coordinator is stopping"))
