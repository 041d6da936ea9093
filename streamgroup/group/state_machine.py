"""The base class of all membership state machines: transition table, states, pending requests and timers.

A machine sends nothing, waits for nothing and reads no clock. `step` handles one event and returns the actions that the
driver carries out. `events.py` has events and actions, `registry/events.py` those of groups in ZooKeeper.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from streamgroup.advice import with_remedy
from streamgroup.backoff import Random
from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.rejoining import RejoinWait
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.messages.group import coordinator_request, read_coordinator
from streamgroup.model import Broker, TopicPartition
from streamgroup.transitions import CueTable, name_of

WARN_AFTER_S = 10.0
"""If attempts fail for longer than this, they are logged as warnings, with the usual cause."""

A = TypeVar("A")
P = TypeVar("P", bound=Enum)
T = TypeVar("T", bound=Enum)


class State(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    """Not started."""
    FINDING = "finding"
    """Waits for the group coordinator, a ZooKeeper session, or the partitions. An eager member holds no partitions
    until it is STABLE."""
    JOINING = "joining"
    """JoinGroup is pending or waits for its backoff. In ZooKeeper: registers, reads the group, releases and claims."""
    SYNCING = "syncing"
    """SyncGroup of the new generation is pending, or the leader waits for metadata to assign partitions."""
    STABLE = "stable"
    """Holds an assignment."""
    LEAVING = "leaving"
    """LeaveGroup is pending, or the deletion of its nodes."""
    LEFT = "left"
    """Has left the group."""
    FATAL = "fatal"
    """The query has failed. `Stop` still leaves the group."""


MemberCue = type[Any] | tuple[Enum, type[Any]] | Enum
"""What a row is for: a class of events, the purpose of a request with the class of its answer, or a timer."""


@frozen
class MemberTransition:
    """One row of the transition table: in `state` the machine calls the method `does` for `cue`.

    The method stays in `state`, fails the query (FATAL), or enters one of the states `to`. Its arguments are the event,
    and for a response also the pending request; a method for a timer has no arguments.
    """

    state: State
    cue: MemberCue
    does: Callable[..., None]
    to: tuple[State, ...] = ()


Table = CueTable[State, MemberCue, MemberTransition]


def on(cue: MemberCue, states: Iterable[State], does: Callable[..., None], *to: State) -> Iterator[MemberTransition]:
    """Yield one row for each of `states`."""
    for state in states:
        yield MemberTransition(state, cue, does, to)


def ignore(*_: Any) -> None:
    """Ignore an event that is harmless in this state."""


def table_of(rows: Iterable[MemberTransition], *, ignored: Iterable[type[Any]] = ()) -> Table:
    """Return the rows as a table. The events of `ignored` are ignored in the states that have no row for them.

    Raises ValueError if two rows are for the same event in the same state.
    """
    named = tuple(rows)
    known = {(row.state, row.cue) for row in named}
    others = (MemberTransition(state, event, ignore) for event in ignored for state in State)
    return CueTable("member", (*named, *(row for row in others if (row.state, row.cue) not in known)))


@frozen
class PendingRequest(Generic[P]):
    """A request without a response yet. Times are `time.monotonic()` values."""

    token: int
    purpose: P
    sent_at: float
    overdue_at: float | None = None
    """When the machine gives the request up; None if the driver always answers it."""


class RequestsAndTimers(Generic[P, T]):
    """Tracks the pending requests and running timers of a state machine.

    `timers` are the kinds of timers; at most one of each runs. If several are due at the same time, `take_due` returns
    them in this order.
    """

    __slots__ = ("_kinds", "_pending", "_timers", "_tokens")

    def __init__(self, timers: type[T]) -> None:
        self._kinds = tuple(timers)
        self._tokens = itertools.count(1)
        self._pending: dict[int, PendingRequest[P]] = {}  # bounded: the driver answers each token
        self._timers: dict[T, float] = {}

    def add(self, purpose: P, now: float, overdue_at: float | None = None) -> int:
        """Record a request that is sent now; return its token."""
        token = next(self._tokens)
        self._pending[token] = PendingRequest(token, purpose, now, overdue_at)
        return token

    def take(self, token: int) -> PendingRequest[P] | None:
        """Remove and return the request with this token.

        None: the request was given up. Its response belongs to another generation, member id or session, so it is
        ignored (R18).
        """
        return self._pending.pop(token, None)

    def is_pending(self, *purposes: P) -> bool:
        return any(pending.purpose in purposes for pending in self._pending.values())

    def is_pending_beside(self, purpose: P) -> bool:
        """Return whether a request for any other purpose is pending."""
        return any(pending.purpose is not purpose for pending in self._pending.values())

    def forget(self, *purposes: P) -> None:
        self._pending = {t: pending for t, pending in self._pending.items() if pending.purpose not in purposes}

    def overdue(self, now: float) -> list[PendingRequest[P]]:
        """Return the requests that are overdue: the driver has not reported them as failed."""
        return [p for p in self._pending.values() if p.overdue_at is not None and p.overdue_at <= now]

    def set(self, timer: T, at: float) -> None:
        """Start a timer, or move it."""
        self._timers[timer] = at

    def clear(self, *timers: T) -> None:
        for timer in timers:
            self._timers.pop(timer, None)

    def at(self, timer: T) -> float | None:
        """Return when a timer is due; None if it is not running."""
        return self._timers.get(timer)

    def take_due(self, now: float) -> T | None:
        """Stop one timer that is due and return it; None if no timer is due."""
        timer = next((kind for kind in self._kinds if self._timers.get(kind, now + 1) <= now), None)
        if timer is not None:
            del self._timers[timer]
        return timer

    def reset(self, *but: P) -> None:
        """Stop all timers, and give up all requests except those for these purposes."""
        self.forget(*{pending.purpose for pending in self._pending.values()}.difference(but))
        self._timers.clear()

    @property
    def wake_at(self) -> float | None:
        """The earliest time at which a timer or a request is due; None if there is none."""
        overdue = (p.overdue_at for p in self._pending.values() if p.overdue_at is not None)
        return min([*self._timers.values(), *overdue], default=None)


class StateMachine(ABC, Generic[A, P, T]):
    """Base class of the state machines of group members, with actions `A`, requests for purposes `P` and timers `T`.

    A subclass defines `TABLE`. One thread uses a machine; no method blocks.
    """

    TABLE: ClassVar[Table]
    ANSWERS: ClassVar[tuple[type[Any], ...]] = (ev.RequestAnswered, ev.RequestFailed)
    """The events that answer a request; each has its token."""

    def __init__(self, config: MemberConfig, random: Random, timers: type[T]) -> None:
        self._config = config
        self._random = random
        self._state = State.UNJOINED
        self._requests: RequestsAndTimers[P, T] = RequestsAndTimers(timers)
        self._row: MemberTransition | None = None
        """The row of the event that is being handled."""
        self._now = 0.0
        self._out: list[Any] = []
        self._attempts = 0
        """Failed attempts since the last success."""
        self._first_failed_at = 0.0
        self._trouble = ""
        self.retries = 0
        """The number of backoffs since the member started."""
        self._topics: tuple[str, ...] = ()
        self._identity = self._lasting_identity = b""
        self._generation = -1
        self._wait = RejoinWait(config.rebalance_wait_ms, cooperative=config.cooperative)

    @property
    def state(self) -> State:
        return self._state

    @property
    def trouble(self) -> str:
        """Why the last attempt failed; empty after a success."""
        return with_remedy(self._trouble) if self._attempts else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscription, sorted; empty before `Start`."""
        return self._topics

    @property
    def generation(self) -> int:
        """The generation of the last assignment or, in a Kafka group, of the last JoinGroup; -1 before the first."""
        return self._generation

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """The revoked partitions, to be given up by `RevocationCompleted` once their batch is committed (R25)."""
        return frozenset()

    @property
    def settling(self) -> bool:
        """Whether a rejoin waits until the starting positions are committed (`Settled`)."""
        return self._wait.settling and self._state is State.STABLE

    @property
    def rebalance_wanted(self) -> bool:
        """Whether the member gives partitions up at the boundary of the batch: none may be planned until then."""
        return self._wait.reason is not None

    def step(self, event: Any, now: float) -> list[A]:
        """Handle one event at `now` (monotonic seconds). Return the actions to carry out, in order.

        Raises ValueError for an event without a row in the table for the current state: a mistake of the caller.
        """
        self._now, self._out = now, []
        if isinstance(event, self.ANSWERS):
            self._answer(event)
        else:
            self._dispatch(type(event), event)
        for pending in self._requests.overdue(now):
            self._give_up(pending)
        while (timer := self._requests.take_due(now)) is not None:
            self._dispatch(timer)
        self._after_event()
        wake_at = self._requests.wake_at
        if wake_at is not None:
            self._out.append(ev.WakeAt(wake_at))
        return self._out

    def _answer(self, event: Any) -> None:
        pending = self._requests.take(event.token)
        if pending is not None:  # None: it was given up (R18)
            self._dispatch((pending.purpose, type(event)), event, pending)

    def _give_up(self, pending: PendingRequest[P]) -> None:
        """Handle a request for which the driver has reported no response in time."""

    def _after_event(self) -> None:
        """Called after the event and the timers of a step."""

    def _dispatch(self, cue: Any, *arguments: Any) -> None:
        row = self.TABLE.get((self._state, cue))
        if row is None:
            group = self._config.group_id
            raise ValueError(f"group {group}: {name_of(cue)} has no place in state {self._state.name}")
        self._row = row
        row.does(self, *arguments)

    def _transition_to(self, state: State) -> None:
        """Enter `state`. Raises RuntimeError if the row of the event that is being handled does not name it."""
        row = self._row
        if row is None or (state not in row.to and state is not row.state and state is not State.FATAL):
            cue = "nothing" if row is None else name_of(row.cue)
            change = f"{self._state.name} -> {state.name}"
            raise RuntimeError(f"group {self._config.group_id}: {change} is not a legal transition after {cue}")
        self._state = state

    # -- events of every member ---------------------------------------------------------------------------------------

    def _user_data_changed(self, event: ev.UserDataChanged) -> None:
        self._identity = event.data
        if event.lasts:
            self._lasting_identity = event.data

    def _forget_identity(self) -> None:
        """Restore the identity that outlasts a membership."""
        self._identity = self._lasting_identity

    def _subscribed(self, event: ev.Subscribed) -> None:
        self._topics = tuple(sorted(set(event.topics)))

    def _planned(self, event: ev.Planned) -> None:
        self._wait.batch.planned(self._now)

    def _asked(self, event: ev.Asked) -> None:
        self._wait.batch.asked(self._now, listened=event.listened)

    def _idle(self, event: ev.Idle) -> None:
        self._wait.batch.idle(self._now)

    # -- the log and backoffs -----------------------------------------------------------------------------------------

    def _note(self, level: int, text: str) -> None:
        self._out.append(ev.Note(level, f"group {self._config.group_id}: {text}"))

    def _back_off(self, timer: T, doing: str, reason: str) -> None:
        """Start `timer` for the next attempt, after a backoff. Log the attempts 1, 2, 4, 8 and so on."""
        self._set_backoff(timer)
        self._trouble = reason
        if self._attempts & (self._attempts - 1) == 0:
            is_long = self._now - self._first_failed_at >= WARN_AFTER_S
            level, cause = (ev.WARNING, self.trouble) if is_long else (ev.INFO, reason)
            self._note(level, f"{doing}: {cause}; trying again (attempt {self._attempts})")

    def _set_backoff(self, timer: T) -> None:
        if not self._attempts:
            self._first_failed_at, self._trouble = self._now, ""
        self._attempts += 1
        self.retries += 1
        self._requests.set(timer, self._now + self._config.backoff_s(self._attempts, self._random))

    @abstractmethod
    def _fail(self, error: StreamGroupError) -> None:
        """End the query with `error`."""


GRACE_S = 1.0
"""The driver reports an overdue request as failed. If it does not, the machine gives the request up this much later."""


class BrokerMachine(StateMachine[ev.Action, Purpose, Timer]):
    """A state machine that sends requests to brokers, at most one for each purpose at a time."""

    @property
    def can_plan(self) -> bool:
        """Whether a batch of the owned partitions may be planned."""
        return self._state is State.STABLE

    @property
    def may_commit(self) -> bool:
        """Whether the group may accept a commit."""
        return self._state is State.STABLE

    def _send(self, purpose: Purpose, build: Callable[[int], Any], timeout_ms: int, *, optional: bool = False) -> None:
        """Send a request. It replaces a pending one for the same purpose."""
        self._requests.forget(purpose)
        token = self._requests.add(purpose, self._now, self._now + timeout_ms / 1000 + GRACE_S)
        self._out.append(ev.Send(token, purpose.lane, purpose.api, build, timeout_ms, optional))

    def _give_up(self, pending: PendingRequest[Purpose]) -> None:
        self._out.append(ev.ResetConnection(pending.purpose.lane))
        self._answer(ev.RequestFailed(pending.token, f"no response to {pending.purpose} within the timeout"))

    def _find(self, *, optional: bool = False) -> None:
        build = partial(coordinator_request, key=self._config.group_id)
        self._send(Purpose.FIND, build, self._config.request_timeout_ms, optional=optional)

    def _coordinator_in(self, event: ev.RequestAnswered) -> Broker | int:
        """Return the group coordinator that an answer to FindCoordinator names, or the error code."""
        answer = read_coordinator(event.response, event.version, self._config.group_id)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else answer


class GroupMember(BrokerMachine):
    """The common part of the members of a Kafka group, whichever protocol they use."""

    def __init__(self, config: MemberConfig, random: Random) -> None:
        super().__init__(config, random, Timer)
        self._coordinator: Broker | None = None
        self._member_id = ""
        self._session_ms = config.session_timeout_ms
        self._lease_at: float | None = None
        self._unexpected = 0
        """The number of unexpected errors of the broker since the last success."""

    @property
    def member_id(self) -> str:
        """The id by which the group coordinator knows the member, `""` while there is none."""
        return self._member_id

    @property
    def lease_at(self) -> float | None:
        """When the newest request that proves the membership was sent (R9); None before the first."""
        return self._lease_at

    def _session_over(self) -> None:
        self._lost(f"no heartbeat accepted for the session timeout of {self._session_ms} ms")

    def _found(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        answer = self._coordinator_in(event)
        if isinstance(answer, int):
            self._refused(Purpose.FIND, answer)
            return
        self._coordinator = answer
        self._out.append(ev.CoordinatorFound(answer))
        if self._state is State.STABLE:
            self._heartbeat()
        else:
            self._join()

    def _find_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        self._retry_later(event.reason)

    def _retry_later(self, reason: str) -> None:
        """Repeat the request of this state after a backoff."""
        self._back_off(Timer.RETRY, self._state.value, reason)

    def _leave_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        self._note(ev.INFO, f"cannot leave the group: {event.reason}. The member stays until its session expires")
        self._left()

    def _left(self) -> None:
        self._forget_membership()
        self._requests.reset()
        self._transition_to(State.LEFT)
        self._out.append(ev.Left())

    @abstractmethod
    def _join(self) -> None:
        """Send the request by which the member joins."""

    @abstractmethod
    def _heartbeat(self) -> None:
        """Send a heartbeat, unless one is pending."""

    @abstractmethod
    def _refused(self, purpose: Purpose, code: int) -> None:
        """React to an error code in the response to this request."""

    @abstractmethod
    def _lost(self, reason: str) -> None:
        """Give up all partitions, because the group has removed this member, or may have. Join again."""

    @abstractmethod
    def _forget_membership(self) -> None:
        """Own nothing: the membership is over."""
