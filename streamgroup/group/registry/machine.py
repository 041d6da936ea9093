"""The membership of one query in a group that ZooKeeper keeps, as the consumers of Kafka 0.7 and 0.8 do it.

A `Machine` (group/member.py) beside `Membership` and `StandaloneMember`: pure, events in, actions out
(`events.py` here and in `group/`). This file is about the session and about what is heard when; what a registered
member does is in `claims.py`.

| state | means |
|---|---|
| FINDING | started, without a session: ZooKeeper is being connected to, or the last session has expired |
| JOINING | has a session: registers, looks, releases and claims; what was held is not planned |
| STABLE | holds what it owns; claims what becomes free, waits for the boundary of a batch to release |
| LEAVING | deletes its nodes |

R36: without a connection nothing is planned, whatever the state, and after it has come back not before the own node
was seen. The session itself, and with it what is held, may outlive that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.asking import Ask, Asked, Due
from streamgroup.group.registry.claims import Claims, in_transactions
from streamgroup.group.registry.entry import Action
from streamgroup.group.registry.formats import Incarnation
from streamgroup.group.registry.view import View
from streamgroup.group.table import State
from streamgroup.group.timing import LEAVE_TIMEOUT_MS
from streamgroup.model import TopicPartition
from streamgroup.znodes import Delete, Refusal

Event = ev.Event | zk.RegistryEvent

_PUT_OUT = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
}


class Registry(Claims):
    """See the module. Not for several threads; every method returns at once.

    Of `config` the group's id and the times count; its session timeout is what ZooKeeper is asked for.
    `new_incarnation` is asked once a session, and where an id turns out to be taken.
    """

    @property
    def state(self) -> State:
        """Where the member stands."""
        return self._state

    @property
    def member_id(self) -> str:
        """The consumer id of this session, `""` before the first."""
        return self._me.consumer_id

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscription, sorted; empty before `Start`."""
        return tuple(sorted(self._topics))

    @property
    def generation(self) -> int:
        """That of the last assignment, -1 before the first: a zxid, far beyond an int32 (see `claims.py`)."""
        return self._generation

    @property
    def view(self) -> View | None:
        """The group as it was last looked at: who is in it (R28), what is owned by whom."""
        return self._view

    @property
    def lease_at(self) -> float | None:
        """When the newest transaction that the own node has let pass, or the newest commit accepted, was sent (R9)."""
        if self._lease_at is None or not (self._connected and self._proven):
            return None
        # Who asks counts the session that was configured from here: what was granted may be over sooner.
        return self._lease_at - (self._config.session_timeout_ms - self._session_ms) / 1000

    @property
    def can_plan(self) -> bool:
        """Whether what is held may be planned."""
        return self._state is State.STABLE and self._wanted is None and self._connected and self._proven

    @property
    def may_commit(self) -> bool:
        """Whether a commit may be accepted. Not while partitions are released: the fence would let it pass (R31)."""
        return self._state is State.STABLE and self._connected

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """Never anything: see `rebalance_wanted`."""
        return frozenset()

    @property
    def settling(self) -> bool:
        """Whether what falls to others is released after `Settled` only."""
        return self._settling and self._state is State.STABLE

    @property
    def rebalance_wanted(self) -> bool:
        """Whether something is to be given up at the next boundary of a batch: nothing new is to be planned."""
        return self._wanted is not None

    def step(self, event: Event, now: float) -> list[Action]:
        """Take one event at `now` (monotonic seconds); the actions to carry out, in order.

        Raises ValueError for a second `Start`: an error of the caller's.
        """
        self._now, self._out = now, []
        self._hear(event)
        while (due := self._asking.take_due(now)) is not None:
            getattr(self, f"_{_DUE[due]}")()
        self._go_on()
        wake_at = self._asking.wake_at
        return self._out if wake_at is None else [*self._out, ev.WakeAt(wake_at)]

    def _hear(self, event: Event) -> None:
        if not isinstance(event, zk.Looked | zk.Transacted | zk.Refused | zk.Unanswered):
            does = TABLE.get((self._state, type(event)))
            if does is None:
                group, what = self._config.group_id, type(event).__name__
                raise ValueError(f"group {group}: {what} has no place in state {self._state.name}")
            getattr(self, f"_{does}")(event)
            return
        asked = self._asking.take(event.token)
        if asked is not None:  # else it was asked in an earlier session, or given up (R18)
            getattr(self, f"_{ANSWERS[asked.ask, type(event)]}")(event, asked)

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _start(self, event: ev.Start) -> None:
        self._topics, self._settles = frozenset(event.topics), event.settles
        self._state = State.FINDING
        self._out.append(zk.OpenSession())

    def _stop(self, event: ev.Stop) -> None:
        self._wanted, self._lease_at = None, None
        present = self._registered is not None and self._connected
        self._asking.reset()
        if not present:
            self._left()
            return
        self._state = State.LEAVING
        owned = [Delete(self._paths.owner(tp)) for tp, owner in sorted(self._owners.items()) if self._is_mine(owner)]
        for some in in_transactions(owned):
            self._out.append(self._asking.transact(Ask.LEAVE, (self._fence, *some), self._now))
        name = self._me.consumer_id
        nodes = (Delete(self._paths.consumer(name)), Delete(self._paths.member(name)))
        self._out.append(self._asking.transact(Ask.LEAVE, nodes, self._now))
        self._asking.set(Due.LEAVE, self._now + LEAVE_TIMEOUT_MS / 1000)

    def _stop_unstarted(self, event: ev.Stop) -> None:
        self._state = State.LEFT
        self._out.append(ev.Left())

    def _leave_answered(self, event: Event, asked: Asked) -> None:
        """Whatever the answer is: the end of the session deletes what is left."""
        if not self._asking.is_pending(Ask.LEAVE):
            self._left()

    def _left(self, event: object = None) -> None:
        self._forget_session()
        self._state = State.LEFT
        self._out += [zk.CloseSession(), ev.Left()]

    # -- the session --------------------------------------------------------------------------------------------------

    def _began(self, event: zk.SessionBegan) -> None:
        if self._session is not None:
            self._expired(zk.Expired("there is a new session"))
        self._session, self._connected = event.session_id, True
        asked_ms = self._config.session_timeout_ms
        self._session_ms = min(asked_ms, event.timeout_ms)
        if event.timeout_ms < asked_ms:
            self._note_once(WARNING, _GRANTED.format(asked=asked_ms, granted=event.timeout_ms))
        self._enter("the query starts" if self._generation < 0 else "a new session in ZooKeeper")

    def _enter(self, reason: str) -> None:
        self._rejoin(reason)
        self._asking.set(Due.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._session_ms))

    def _expired(self, event: zk.Expired) -> None:
        self._lose(event.reason)
        self._forget_session()
        self._state = State.FINDING

    def _gone(self, reason: str) -> None:
        self._lose(reason)
        self._asking.reset()
        self._forget_registration()
        self._enter(reason)
        self._attempts += 1
        self._asking.set(Due.RETRY, self._now + self._config.backoff_s(self._attempts, self._random))

    def _lose(self, reason: str) -> None:
        """All partitions are gone, or must be assumed so."""
        if self._assigned:
            self._out.append(ev.Lost(reason))
        self._held = self._kept = frozenset()
        self._withheld, self._assigned, self._wanted = 0, False, None

    def _forget_session(self) -> None:
        self._asking.reset()
        self._session, self._connected = None, False
        self._claimed_topics.clear()
        self._held = self._kept = frozenset()
        self._withheld, self._assigned, self._wanted = 0, False, None
        self._forget_registration()

    def _forget_registration(self) -> None:
        self._me = Incarnation("", 0)
        self._registered = self._told = self._view = self._lease_at = None
        self._shares, self._owners = {}, {}
        self._proven = self._unconfirmed = self._view_stale = self._owners_stale = False

    def _suspended(self, event: zk.Suspended) -> None:
        """R36. What is out is answered by `Unanswered`."""
        if self._connected:
            self._note(WARNING, f"no connection to ZooKeeper ({event.reason}): nothing is planned until it is back")
        self._connected = self._proven = False
        self._lease_at = None
        self._asking.clear(Due.HEARTBEAT, Due.POKE, Due.RETRY, Due.PARTIAL)

    def _resumed(self, event: zk.Resumed) -> None:
        """The watches may have missed anything."""
        if self._session is None:
            return
        self._connected = self._view_stale = True
        self._note(INFO, "connected to ZooKeeper again, in the same session")
        self._heartbeat()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _registered_now(self, event: zk.Transacted, asked: Asked) -> None:
        self._registered, self._told = self._registering
        self._view_stale = True
        self._prove(asked)

    def _register_refused(self, event: zk.Refused, asked: Asked) -> None:
        if event.refusal is Refusal.NODE_EXISTS:
            self._note(WARNING, f"{event.path} is there already, of another session: registering under another id")
            self._me = Incarnation("", 0)
            self._view = None
            self._look_later("its id is taken")
        else:
            self._refused(event, asked)

    def _swept(self, event: zk.Transacted, asked: Asked) -> None:
        self._view_stale = True
        self._prove(asked)

    def _carried_out(self, event: zk.Transacted, asked: Asked) -> None:
        self._prove(asked)

    def _claim_refused(self, event: zk.Refused, asked: Asked) -> None:
        """Another was quicker: the look at the owners will tell who. Any other refusal is not of this kind."""
        if event.refusal is not Refusal.NODE_EXISTS:
            self._refused(event, asked)

    def _refused(self, event: zk.Refused, asked: Asked) -> None:
        self._refused_for(event.path, event.refusal, asked.ask)

    def _unanswered(self, event: zk.Unanswered, asked: Asked) -> None:
        """It may or may not have been carried out: only a look tells."""
        if asked.ask in {Ask.REGISTER, Ask.RENEW, Ask.IDENTIFY}:
            self._registered = self._told = self._view = None
        self._look_later(f"could not {asked.ask.value}: {event.reason}")

    def _heartbeat_accepted(self, event: zk.Transacted, asked: Asked) -> None:
        self._prove(asked)
        self._proven = True

    # -- what it is told ----------------------------------------------------------------------------------------------

    def _changed(self, event: zk.Changed) -> None:
        if event.path.startswith(self._paths.owners()):
            self._owners_stale = True
        else:
            self._view_stale = True

    def _identified(self, event: ev.Identified) -> None:
        self._identity = event.data

    def _subscribed(self, event: ev.Subscribed) -> None:
        self._topics = frozenset(event.topics)

    def _planned(self, event: ev.Planned) -> None:
        self._batch.planned(self._now)

    def _asked(self, event: ev.Asked) -> None:
        self._batch.asked(self._now, listened=event.listened)

    def _idle(self, event: ev.Idle) -> None:
        self._batch.idle(self._now)

    def _settled(self, event: ev.Settled) -> None:
        self._settling = False

    def _commit_accepted(self, event: ev.CommitAccepted) -> None:
        if (event.member_id, event.generation) == (self._me.consumer_id, self._generation):
            self._lease_at = max(event.sent_at, self._lease_at or event.sent_at)

    def _commit_refused(self, event: ev.CommitRefused) -> None:
        ours = (event.member_id, event.generation) == (self._me.consumer_id, self._generation)
        if ours and event.code in _PUT_OUT:
            self._gone("a commit was refused: its registration, or a partition that it held, is no longer its own")

    # -- its own time -------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self._asking.set(Due.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._session_ms))
        if self._registered is not None and not self._asking.is_pending(Ask.HEARTBEAT):
            self._out.append(self._asking.transact(Ask.HEARTBEAT, (self._fence,), self._now))

    def _waited_for_owners(self) -> None:
        self._waited = True

    def _ignore(self, *_: Any) -> None:
        """Harmless here, or `_go_on` does what there is to do."""


_GRANTED = (
    "zookeeper.session.timeout.ms={asked} is more than ZooKeeper grants: a session lasts {granted} ms, and planning "
    "goes by that. Ask for no more, or raise maxSessionTimeout at the servers (20 ticks, unless it is configured)"
)

_FREE = (State.UNJOINED, State.LEFT)
_IN = (State.FINDING, State.JOINING, State.STABLE)
_HELD = (State.JOINING, State.STABLE)
_ROWS: tuple[tuple[type[Any], dict[tuple[State, ...], str]], ...] = (
    (ev.Start, {_FREE: "start"}),
    (ev.Stop, {(State.UNJOINED,): "stop_unstarted", (*_IN, State.FATAL): "stop"}),
    (ev.Identified, {tuple(State): "identified"}),
    (ev.Subscribed, {(State.UNJOINED, *_IN): "subscribed"}),
    # Spark's calls come when they come: one that has left may come back, and must know whether a batch is in flight.
    (ev.Planned, {tuple(State): "planned"}),
    (ev.Asked, {tuple(State): "asked"}),
    (ev.Idle, {tuple(State): "idle"}),
    (ev.Settled, {(State.STABLE,): "settled"}),
    (ev.CommitAccepted, {(State.STABLE,): "commit_accepted"}),
    (ev.CommitRefused, {(State.STABLE,): "commit_refused"}),
    # The registry tells itself what topics and brokers there are, and no broker coordinates.
    *((event, {}) for event in (ev.Tick, ev.TopicsKnown, ev.CoordinatorGone, ev.Released, ev.Answered, ev.Failed)),
    (zk.SessionBegan, {_IN: "began"}),
    (zk.Suspended, {_IN: "suspended", (State.LEAVING,): "left"}),
    (zk.Resumed, {_IN: "resumed"}),
    (zk.Expired, {_IN: "expired", (State.LEAVING,): "left"}),
    (zk.Changed, {_HELD: "changed"}),
)


def _table() -> Iterator[tuple[tuple[State, type[Any]], str]]:
    for event, rows in _ROWS:
        listed = {state: does for states, does in rows.items() for state in states}
        for state in State:
            if event is not ev.Start or state in listed:
                yield (state, event), listed.get(state, "ignore")


TABLE = dict(_table())
"""In which state what is heard, and the method that does something about it."""

_LOOKS = {
    Ask.LOOK: "looked",
    Ask.CONFIRM: "owners_seen",
    Ask.NEIGHBOURS: "neighbours_seen",
}
_WRITES = {
    Ask.REGISTER: ("registered_now", "register_refused"),
    Ask.RENEW: ("registered_now", "refused"),
    Ask.IDENTIFY: ("registered_now", "refused"),
    Ask.SWEEP: ("swept", "refused"),
    Ask.RELEASE: ("carried_out", "refused"),
    Ask.CLAIM: ("carried_out", "claim_refused"),
    Ask.HEARTBEAT: ("heartbeat_accepted", "refused"),
}

ANSWERS: dict[tuple[Ask, type[Any]], str] = {
    **{(ask, zk.Looked): does for ask, does in _LOOKS.items()},
    **{(ask, zk.Unanswered): "unanswered" for ask in (*_LOOKS, *_WRITES)},
    **{(ask, zk.Refused): "refused" for ask in _LOOKS},  # what may not be read
    (Ask.HEARTBEAT, zk.Unanswered): "ignore",
    **{(ask, zk.Transacted): done for ask, (done, _) in _WRITES.items()},
    **{(ask, zk.Refused): refused for ask, (_, refused) in _WRITES.items()},
    **{(Ask.LEAVE, answer): "leave_answered" for answer in (zk.Transacted, zk.Refused, zk.Unanswered)},
}
"""What is done about an answer."""

_DUE: dict[Due, str] = {
    Due.LEAVE: "left",
    Due.REJOIN: "waited_enough",
    Due.RETRY: "ignore",
    Due.PARTIAL: "waited_for_owners",
    Due.POKE: "poke_due",
    Due.HEARTBEAT: "heartbeat",
}
