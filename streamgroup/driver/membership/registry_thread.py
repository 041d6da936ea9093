"""The registry's thread: carries out what the member wants done in ZooKeeper, in a session of its own.

What `group_thread.py` is to the brokers, this is to ZooKeeper. One loop: what the session tells, the member's actions,
the time. It waits for ZooKeeper's answers, and never with the lock held; when the connection is lost what is asked
fails at once, so that no wait stands between that and its being told (R36). Other threads only leave things in
`_inbox`. Where Kafka keeps the offsets, an `OffsetsThread` beside it asks the brokers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from streamgroup.driver.membership.offsets_thread import OffsetsThread
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction
from streamgroup.group.offsets.registered_kafka import AskKafka, WithdrawFromKafka
from streamgroup.group.offsets.store import Answer, NoAnswer, OffsetsCommitted, OffsetsFetched
from streamgroup.group.registry import events as zk
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.zookeeper import session as told
from streamgroup.zookeeper.errors import RefusedError, UnansweredError
from streamgroup.zookeeper.session import Session

log = logging.getLogger("streamgroup")

LONGEST_WAIT_S = 5.0
CLOSING_S = 0.5
"""How long the end of a session is waited for: else its nodes go when its time is over."""
GRACE_S = 1.0
"""What an answer may take longer than its question was worth asking: the thread tells more exactly what is missing."""
AGAIN_S = 0.1
"""When a question that the connection has failed is asked again."""

T = TypeVar("T")
Question = Callable[[Session, float], T]
"""Asks in a session, until a deadline (monotonic seconds)."""


@dataclass(frozen=True, slots=True)
class _Posted:
    """A question of another thread, and until when it is worth asking."""

    question: Question[Any]
    until: float
    answer: Future[Any]


class RegistryThread:
    """See the module; it has the interface of `GroupThread`."""

    def __init__(
        self,
        member: Member,
        state: threading.Condition,
        options: ZooKeeperOptions,
        on_action: Callable[[MemberAction], None],
    ) -> None:
        self._member = member
        self._state = state
        self._options = options
        self._on_action = on_action
        self._patience_s = options.session_timeout_ms / 1000
        """How long one answer is waited for: later the session would be over anyway. At most what is granted."""
        self.offsets: OffsetsThread | None = None
        """Asks the brokers where Kafka keeps the offsets. Given before the thread is started."""
        self._outbox: deque[MemberAction] = deque()
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._work: deque[zk.RegistryAction] = deque()
        """What waits for its turn to be asked of ZooKeeper."""
        self._questions: deque[_Posted] = deque()
        self._life = 0
        self._session = self._new_session()
        self._wanted = False
        """Whether the member wants a session."""
        self._known: int | None = None
        """The session that the member knows itself to be in."""
        self._missed_since: float | None = None
        self._stopping = False
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="streamgroup-registry", daemon=True)

    def start(self) -> None:
        """Start the thread; a question may have started it before."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread and, in order, the session."""
        self._stopping = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def carry_out(self, actions: Iterable[MemberAction]) -> None:
        """Leave actions of the member with this thread. The caller holds the lock."""
        before = len(self._outbox)
        self._outbox.extend(actions)
        if len(self._outbox) > before:
            self._inbox.put(None)

    def post(self, question: Question[T], timeout: float) -> Future[T]:
        """Leave a question. It is asked, again where the connection fails, until `timeout` seconds have passed."""
        answer: Future[T] = Future()
        self._inbox.put(_Posted(question, time.monotonic() + timeout, answer))
        self.start()
        return answer

    def ask(self, question: Question[T], timeout: float) -> T:
        """Ask and wait; raises TransportError after `timeout` seconds, or a little more."""
        try:
            return self.post(question, timeout).result(timeout + GRACE_S)
        except FutureTimeoutError:  # the thread still waits for the answer to what was asked before
            raise TransportError(f"{self._session.where} did not answer within {timeout:g} s") from None

    def answered(self, answer: Answer) -> None:
        """Leave an answer of the brokers for the member's offset store. From any thread."""
        self._inbox.put(answer)

    def fail(self, error: StreamGroupError) -> None:
        """The query cannot go on. From any thread."""
        with self._state:
            self._on_action(ev.Fail(error))
            self._state.notify_all()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except Exception as error:
            log.exception("the registry's thread has failed")
            self.fail(StreamGroupError(f"the registry's thread has failed: {error!r}"))
        finally:
            self._end()

    def _turn(self) -> None:
        """What was heard goes before what is to be done: nothing is asked in a session that is known to be over."""
        with self._state:
            self._perform()
            timeout = self._wait_for(time.monotonic())
        for each in self._heard(timeout):
            self._hear(each)
        self._tick(time.monotonic())
        if self._work:
            self._carry_out_next()
        elif self._questions:
            self._ask(self._questions.popleft())

    def _wait_for(self, now: float) -> float:
        if self._work or self._questions:
            return 0.0
        wake_at = self._member.wake_at
        until = now + LONGEST_WAIT_S if wake_at is None else min(now + LONGEST_WAIT_S, wake_at)
        return max(0.0, until - now)

    def _heard(self, timeout: float) -> list[Any]:
        """What came in, at least one thing unless the time is over."""
        heard: list[Any] = []
        try:
            heard.append(self._inbox.get(timeout=timeout) if timeout > 0 else self._inbox.get_nowait())
            while True:
                heard.append(self._inbox.get_nowait())
        except Empty:
            return heard

    def _hear(self, each: Any) -> None:
        match each:
            case (int(life), event):
                if life == self._life:
                    self._session_tells(event)
            case _Posted():
                self._questions.append(each)
            case OffsetsFetched() | OffsetsCommitted() | NoAnswer():
                self._step(each)

    def _tick(self, now: float) -> None:
        self._say_what_is_missed(now)
        with self._state:
            if self._member.wake_at is not None and now >= self._member.wake_at:
                self._step(ev.Tick())

    def _step(self, event: Any) -> None:
        """Tell the member, and take its actions."""
        with self._state:
            self._outbox += self._member.step(event, time.monotonic())
            self._perform()
            self._state.notify_all()

    def _perform(self) -> None:
        """Sort the actions: what is ZooKeeper's waits for its turn, the rest is done. The lock is held."""
        while self._outbox:
            action = self._outbox.popleft()
            match action:
                case zk.OpenSession() | zk.CloseSession() | zk.Look() | zk.Transact():
                    self._work.append(action)
                case AskKafka(request) if self.offsets is not None:
                    self.offsets.take(request)
                case WithdrawFromKafka() if self.offsets is not None:
                    self.offsets.withdraw()
                case ev.Note(level, text):
                    log.log(level, "%s", text)
                case _:
                    self._on_action(action)

    # --- the session -------------------------------------------------------------------------------------------------

    def _new_session(self) -> Session:
        """One for each time that the member joins: what an earlier one tells late is nobody's."""
        self._life += 1
        return Session(self._options, partial(self._leave, self._life))

    def _leave(self, life: int, event: told.SessionEvent) -> None:
        """From the session's threads, which must never wait, nor call ZooKeeper."""
        self._inbox.put((life, event))

    def _open_session(self) -> None:
        if not self._session.connected and self._missed_since is None:
            self._missed_since = time.monotonic()
        try:
            self._session.open()
        except StreamGroupError as error:
            self.fail(error)

    def _session_tells(self, event: told.SessionEvent) -> None:
        match event:
            case told.SessionStarted() | told.Resumed() if self._known is None:
                # The connection of a session that has begun may break before the member has heard of it.
                self._missed_since = None
                if self._wanted:
                    self._begin()
            case told.SessionEnded(session_id, reason):
                if self._known in {None, session_id}:
                    self._over(reason)
                # else it is of a session before: `connect` has begun the next one, and the member is in that
            case told.Suspended(session_id) if session_id == self._known:
                self._step(zk.Suspended("the connection is lost"))
            case told.Resumed(session_id) if session_id == self._known:
                self._step(zk.Resumed())
            case told.NodeChanged(path) if self._known is not None:
                self._step(zk.Changed(path))

    def _begin(self) -> None:
        """The member has a session, unless what is configured cannot be a registry."""
        try:
            self._session.connect(time.monotonic() + self._patience_s)
        except TransportError:
            return  # it is lost already: the next one will be told
        except StreamGroupError as error:
            self.fail(error)
            return
        self._known, granted_ms = self._session.session_id, self._session.timeout_ms
        self._patience_s = min(self._options.session_timeout_ms, granted_ms) / 1000
        self._step(zk.SessionBegan(self._known, granted_ms))

    def _over(self, reason: str) -> None:
        """Nothing that was to be asked in the session that is over may be asked in the next one."""
        known, self._known = self._known, None
        self._work = deque(a for a in self._work if isinstance(a, zk.OpenSession | zk.CloseSession))
        if known is not None:
            self._step(zk.Expired(reason))
        if self._session.refused:
            self.fail(TransportError(f"{self._session.where}: {reason}"))
        elif self._wanted:
            self._open_session()

    def _say_what_is_missed(self, now: float) -> None:
        """Once, where the first connection takes too long. It is tried on for as long as the query runs."""
        patience_s = self._options.connection_timeout_ms / 1000
        if self._missed_since is not None and now - self._missed_since > patience_s:
            self._missed_since = None
            log.warning("%s: no connection within %g s; trying on", self._session.where, patience_s)

    # --- what is asked of ZooKeeper ----------------------------------------------------------------------------------

    def _carry_out_next(self) -> None:
        deadline = time.monotonic() + self._patience_s
        match action := self._work.popleft():
            case zk.OpenSession():
                self._wanted = True
                if self._session.connected:
                    self._begin()
                else:
                    self._open_session()
            case zk.CloseSession():
                self._wanted, self._known, self._missed_since = False, None, None
                self._session.close(CLOSING_S)
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
        """All of them go out together: claims are a transaction for each partition."""
        outcomes = self._session.transact_each([(t.operations, t.ensured) for t in transactions], deadline)
        for transaction, error in zip(transactions, outcomes, strict=True):
            if error is None:
                self._step(zk.Transacted(transaction.token))
            else:
                self._not_done(transaction.token, error)

    def _not_done(self, token: int, error: StreamGroupError) -> None:
        match error:
            case RefusedError():
                self._step(zk.Refused(token, error.path, error.refusal))
            case UnansweredError():
                self._step(zk.Unanswered(token, str(error)))
            case _:
                self.fail(error)

    def _ask(self, posted: _Posted) -> None:
        """A question of another thread. Of a member's session it is asked as it is: nobody else may open another."""
        try:
            if not self._wanted:
                self._session.connect(min(posted.until, time.monotonic() + self._patience_s))
            posted.answer.set_result(posted.question(self._session, posted.until))
        except TransportError as error:
            if time.monotonic() + AGAIN_S < posted.until:
                again = threading.Timer(AGAIN_S, self._inbox.put, [posted])
                again.daemon = True
                again.start()
            else:
                posted.answer.set_exception(error)
        except Exception as error:  # whatever it is: it belongs to the one who asked
            posted.answer.set_exception(error)

    def _end(self) -> None:
        self._stopping = True
        self._session.close(CLOSING_S)
        if self.offsets is not None:
            self.offsets.close()
        for each in (*self._questions, *self._heard(0.0)):
            if isinstance(each, _Posted):
                each.answer.set_exception(TransportError("the coordinator is stopping"))
