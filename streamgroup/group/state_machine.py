"""One style of state machine for every kind of member: events in, actions out, by a transition table.

A machine sends nothing, waits for nothing and reads no clock. `step` takes one event and returns the actions that the
driver carries out; events and actions are in `events.py`, for ZooKeeper also in `registry/events.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from streamgroup.backoff import Random
from streamgroup.errors import StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.pending import PendingRequest, RequestsAndTimers
from streamgroup.group.rejoining import RejoinWait
from streamgroup.group.table import MemberTransition, State, Table, name_of
from streamgroup.group.timing import MemberConfig
from streamgroup.model import TopicPartition
from streamgroup.remediation import with_remedy

WARN_AFTER_S = 10.0
"""Attempts that fail for longer than this are warnings, with the usual cause."""

A = TypeVar("A")
P = TypeVar("P", bound=Enum)
T = TypeVar("T", bound=Enum)


class StateMachine(ABC, Generic[A, P, T]):
    """A machine whose actions are `A`, with requests for purposes `P` and timers `T`.

    A subclass defines `TABLE`. Not for several threads; every method returns at once.
    """

    TABLE: ClassVar[Table]
    ANSWERS: ClassVar[tuple[type[Any], ...]] = (ev.RequestAnswered, ev.RequestFailed)
    """The events that answer a request, by its token."""

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
        """The number of backoffs since the start, each before another attempt."""
        self._topics: tuple[str, ...] = ()
        self._identity = self._lasting_identity = b""
        self._generation = -1
        self._wait = RejoinWait(config.rebalance_wait_ms, cooperative=config.cooperative)

    @property
    def state(self) -> State:
        return self._state

    @property
    def trouble(self) -> str:
        """Why the last attempt failed, empty after a success."""
        return with_remedy(self._trouble) if self._attempts else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscription, sorted; empty before `Start`."""
        return self._topics

    @property
    def generation(self) -> int:
        """The generation of the last assignment, -1 before the first. A member of a Kafka group enters it earlier."""
        return self._generation

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """The partitions to give up by `RevocationCompleted` when their batch has sunk and is committed (R25)."""
        return frozenset()

    @property
    def settling(self) -> bool:
        """Whether a rejoin waits for `Settled`."""
        return self._wait.settling and self._state is State.STABLE

    @property
    def rebalance_wanted(self) -> bool:
        """Whether the member gives partitions up at the next boundary of a batch: nothing new may be planned."""
        return self._wait.reason is not None

    def step(self, event: Any, now: float) -> list[A]:
        """Handle one event at `now` (monotonic seconds). Return the actions to carry out, in order.

        Raises ValueError for an event that has no row in the table for the current state: the caller's mistake.
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
        if pending is not None:  # None: asked under another generation or session, or given up (R18)
            self._dispatch((pending.purpose, type(event)), event, pending)

    def _give_up(self, pending: PendingRequest[P]) -> None:
        """Handle a request that the driver has not reported in time."""

    def _after_event(self) -> None:
        """Do what follows from the new state of things, after the event and the timers of a step."""

    def _dispatch(self, cue: Any, *arguments: Any) -> None:
        row = self.TABLE.get((self._state, cue))
        if row is None:
            group = self._config.group_id
            raise ValueError(f"group {group}: {name_of(cue)} has no place in state {self._state.name}")
        self._row = row
        row.does(self, *arguments)

    def _transition_to(self, state: State) -> None:
        """Enter `state`. Raises RuntimeError where the row of the event that is being handled does not lead there."""
        row = self._row
        if row is None or (state not in row.to and state is not row.state and state is not State.FATAL):
            cue = "nothing" if row is None else name_of(row.cue)
            change = f"{self._state.name} -> {state.name}"
            raise RuntimeError(f"group {self._config.group_id}: {change} is not a legal transition after {cue}")
        self._state = state

    # -- events that every member handles alike -----------------------------------------------------------------------

    def _user_data_changed(self, event: ev.UserDataChanged) -> None:
        self._identity = event.data
        if event.lasts:
            self._lasting_identity = event.data

    def _forget_identity(self) -> None:
        """Take back what held for the membership that is over."""
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
        """Start `timer` for the next attempt, after a backoff. Logs the attempts 1, 2, 4, 8, ..."""
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
        """Fail the query with `error`."""
