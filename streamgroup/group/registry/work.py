"""Decides the next step of the thread that owns a member's ZooKeeper session.

`RegistryWork` is pure. It queues the member's actions, the requests of other threads and the events of the session. Its
caller carries out one step at a time, and reports the result:

    for step in work.hear(heard, now, ...): ...               # events go first: no action may run in an ended session
    step = work.next_step(now, ...)                           # None: there is nothing to do
    event = work.began(session_id, timeout_ms)                # after Begin
    work.ask_again(asked, now)                                # after an Answer whose connection has failed

A member has one session at a time. When a session ends, it opens another. `life` counts the joins, because events of
sessions of an earlier join may still arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from streamgroup.frozen import frozen
from streamgroup.group.registry import events as zk

Q = TypeVar("Q")

RETRY_BACKOFF_S = 0.1
"""Seconds until a request is repeated after its connection has failed."""

SessionEvent = zk.SessionBegan | zk.Suspended | zk.Resumed | zk.Expired | zk.Changed


@frozen
class Heard:
    """An event of a session, with the number of the join. The session id does not matter for `Changed`."""

    life: int
    session_id: int
    event: SessionEvent


@frozen
class AskedQuestion(Generic[Q]):
    """A request of another thread, with its deadline."""

    question: Q
    until: float


# -- steps ------------------------------------------------------------------------------------------------------------


@frozen
class Tell:
    """Step: pass an event to the query's `Run`."""

    event: zk.RegistryEvent


@frozen
class Open:
    """Step: begin to connect, without waiting."""


@frozen
class Refuse:
    """Step: fail the query, because the session has ended for a reason that retrying does not resolve."""


@frozen
class Begin:
    """Step: wait until the session is connected, call `began`, and pass its event to the query's `Run`.

    If the session is lost first, do nothing: an event announces the next one.
    """

    deadline: float


@frozen
class Close:
    """Step: close the session. The next join opens a new one."""


@frozen
class Read:
    """Step: read nodes in the session."""

    request: zk.ReadSubtrees
    deadline: float


@frozen
class Write:
    """Step: send these transactions together. Claims are one transaction for each partition."""

    transactions: tuple[zk.Transact, ...]
    deadline: float


@frozen
class AnswerQuestion(Generic[Q]):
    """Step: carry out a request of another thread. If `connects_by` is set, connect first, until that time."""

    asked: AskedQuestion[Q]
    connects_by: float | None


Step = Tell | Open | Refuse | Begin | Close | Read | Write | AnswerQuestion[Q]


class RegistryWork(Generic[Q]):
    """The queue of actions, requests and session events of one member. Times are `time.monotonic()` values.

    `Q` is the caller's type of a request.
    """

    __slots__ = (
        "_again",
        "_connecting_since",
        "_connection_timeout_s",
        "_is_questions_turn",
        "_is_wanted",
        "_known",
        "_questions",
        "_request_timeout_s",
        "_session_timeout_ms",
        "_work",
        "life",
    )

    def __init__(self, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._request_timeout_s = session_timeout_ms / 1000
        """The timeout of one request: the session timeout, at most the one that ZooKeeper grants."""
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._work: deque[zk.RegistryAction] = deque()
        self._questions: deque[AskedQuestion[Q]] = deque()
        self._is_questions_turn = False
        """Whether an action was carried out since the last request of another thread."""
        self._again: list[tuple[float, AskedQuestion[Q]]] = []
        """Requests whose connection has failed, each with the time of the next attempt."""
        self.life = 1
        self._is_wanted = False
        """Whether the member wants a session."""
        self._known: int | None = None
        """The id of the member's current session."""
        self._connecting_since: float | None = None

    # -- input --------------------------------------------------------------------------------------------------------

    def add(self, action: zk.RegistryAction) -> None:
        self._work.append(action)

    def ask(self, asked: AskedQuestion[Q]) -> None:
        self._questions.append(asked)

    def ask_again(self, asked: AskedQuestion[Q], now: float) -> bool:
        """Repeat a request after a pause. Return False if its deadline has passed by then."""
        at = now + RETRY_BACKOFF_S
        if at >= asked.until:
            return False
        self._again.append((at, asked))
        return True

    def began(self, session_id: int, granted_ms: int) -> zk.SessionBegan:
        """Record that the session is connected, with the granted timeout. Return the event for the query's `Run`."""
        self._known = session_id
        self._request_timeout_s = min(self._session_timeout_ms, granted_ms) / 1000
        return zk.SessionBegan(session_id, granted_ms)

    def hear(self, heard: Heard, now: float, *, is_connected: bool, is_refused: bool) -> Sequence[Step[Q]]:
        """Process an event of the session. Return the steps to carry out now, in order.

        `is_refused`: the servers have refused the newest session, and retrying will not help.
        """
        if heard.life != self.life:
            return ()
        match heard.event:
            case zk.SessionBegan() | zk.Resumed() if self._known is None:
                # The connection may be lost and resumed before the member knows that the session has started.
                self._connecting_since = None
                return (self._begin(now),) if self._is_wanted else ()
            case zk.Expired() as event if self._known in {None, heard.session_id}:
                return self._over(event, now, is_connected=is_connected, is_refused=is_refused)
            case zk.Suspended() | zk.Resumed() as event if heard.session_id == self._known:
                return (Tell(event),)
            case zk.Changed() as event if self._known is not None:
                return (Tell(event),)
        # Ignore an event of an earlier session: the member uses the next one, which `connect` has started.
        return ()

    def _over(self, event: zk.Expired, now: float, *, is_connected: bool, is_refused: bool) -> Sequence[Step[Q]]:
        """Handle the end of the session: its queued actions must not run in the next one."""
        told: tuple[Step[Q], ...] = () if self._known is None else (Tell(event),)
        self._known = None
        self._work = deque(each for each in self._work if isinstance(each, zk.OpenSession | zk.CloseSession))
        if is_refused:
            return (*told, Refuse())
        return (*told, self._open(now, is_connected=is_connected)) if self._is_wanted else told

    # -- what to do next ----------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When the next request is repeated."""
        return min((at for at, _ in self._again), default=None)

    @property
    def has_work(self) -> bool:
        return bool(self._work or self._questions)

    def next_step(self, now: float, *, is_connected: bool) -> Step[Q] | None:
        """Return the next step; None if there is none.

        Actions and requests of other threads take turns. In a group that changes constantly the member always has
        actions, which must not block requests that the query waits for, such as the description of the group (R28).
        """
        self._questions += [asked for at, asked in self._again if at <= now]
        self._again = [(at, asked) for at, asked in self._again if at > now]
        if self._questions and (self._is_questions_turn or not self._work):
            self._is_questions_turn = False
            return self._answer(self._questions.popleft(), now)
        if self._work:
            self._is_questions_turn = True
            return self._carry_out(self._work.popleft(), now, is_connected=is_connected)
        return None

    def _answer(self, asked: AskedQuestion[Q], now: float) -> AnswerQuestion[Q]:
        """Return the step. It connects only if the member does not want a session: else the member opens one."""
        return AnswerQuestion(asked, None if self._is_wanted else min(asked.until, now + self._request_timeout_s))

    def _carry_out(self, action: zk.RegistryAction, now: float, *, is_connected: bool) -> Step[Q]:
        match action:
            case zk.OpenSession():
                self._is_wanted = True
                return self._begin(now) if is_connected else self._open(now, is_connected=False)
            case zk.CloseSession():
                self._is_wanted, self._known, self._connecting_since = False, None, None
                self.life += 1
                return Close()
            case zk.ReadSubtrees():
                return Read(action, now + self._request_timeout_s)
            case zk.Transact():
                transactions = [action]
                while self._work and isinstance(self._work[0], zk.Transact):
                    transactions.append(self._work.popleft())  # type: ignore[arg-type]
                return Write(tuple(transactions), now + self._request_timeout_s)

    def _begin(self, now: float) -> Begin:
        return Begin(now + self._request_timeout_s)

    def _open(self, now: float, *, is_connected: bool) -> Open:
        if self._connecting_since is None and not is_connected:
            self._connecting_since = now
        return Open()

    def is_long_unconnected(self, now: float) -> bool:
        """Return, once, that connecting takes longer than the connection timeout. The session keeps trying."""
        since = self._connecting_since
        is_long = since is not None and now - since > self._connection_timeout_s
        if is_long:
            self._connecting_since = None
        return is_long

    def stop(self) -> list[AskedQuestion[Q]]:
        """Return the requests that will not be carried out."""
        left = [*self._questions, *(asked for _, asked in self._again)]
        self._questions.clear()
        self._again.clear()
        return left
