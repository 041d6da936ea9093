"""The way into a group: find the coordinator, join, lead where chosen, sync: half of the membership machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamgroup.errors import ErrorCode, FencedError, StreamGroupError, error_of
from streamgroup.group import events as ev
from streamgroup.group import requests
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.exchange import Exchange, Pending, Purpose, Timer
from streamgroup.group.held_assignment import HeldAssignment
from streamgroup.group.leading import Roster, divide, read_roster
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS, Reaction, fatal_error, reaction_to
from streamgroup.group.table import State
from streamgroup.group.timing import BatchClock, MemberConfig, Random
from streamgroup.model import Broker, TopicPartition
from streamgroup.wire.messages import coordinator as c
from streamgroup.wire.messages import group as m

DOING = {
    Purpose.FIND: "find its coordinator",
    Purpose.JOIN: "join",
    Purpose.SYNC: "get the assignment",
    Purpose.HEARTBEAT: "send a heartbeat",
}


class Entry:
    """What the states FINDING, JOINING and SYNCING do. `Membership` adds the rest and the table."""

    def __init__(self, config: MemberConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._state = State.UNJOINED
        self._exchange = Exchange()
        self._batch = BatchClock()
        self._assignment = HeldAssignment(cooperative=config.cooperative)
        self._now = 0.0
        self._out: list[ev.Action] = []
        self._attempts = 0
        self._unexpected = 0
        """Unexpected failures of the broker since the last assignment."""
        self._coordinator: Broker | None = None
        self._topics: tuple[str, ...] = ()
        self._identity = b""
        self._wanted: str | None = None
        """Why the member is to rejoin at the next boundary of a batch."""
        self._settles = self._settling = False
        """`_settling`: where the partitions start that the last assignment brought is being found and committed."""
        self._lease_at: float | None = None
        # The last JoinGroup, and what came of it.
        self._join_reason = ""
        self._joined_topics: tuple[str, ...] = ()
        self._joined_anew = False
        self._member_id = ""
        self._generation = -1
        self._strategy = ""
        self._session_ms = config.session_timeout_ms
        self._rebalance_ms = config.max_poll_interval_ms
        self._leads = False
        self._roster: Roster | None = None
        self._unassigned = False

    # -- what all states use ------------------------------------------------------------------------------------------

    def _send(self, purpose: Purpose, build: Callable[[int], Any], timeout_ms: int) -> None:
        self._out.append(self._exchange.send(purpose, build, timeout_ms, self._now))

    def _note(self, level: int, text: str) -> None:
        self._out.append(ev.Note(level, f"group {self._config.group_id}: {text}"))

    def _retry_later(self, reason: str) -> None:
        """What the state's RETRY does, after a backoff. Logged at the attempts 1, 2, 4, 8, ..."""
        self._attempts += 1
        self._exchange.set(Timer.RETRY, self._now + self._config.backoff_s(self._attempts, self._random))
        if self._attempts & (self._attempts - 1) == 0:
            self._note(INFO, f"{self._state.value}: {reason}; trying again (attempt {self._attempts})")

    def _refused(self, purpose: Purpose, code: int) -> None:
        """An error code of FindCoordinator, JoinGroup or SyncGroup."""
        reaction, name = reaction_to(purpose, code), error_of(code).name
        self._unexpected += reaction is Reaction.UNEXPECTED
        if reaction is Reaction.FATAL or self._unexpected >= UNEXPECTED_ATTEMPTS:
            self._fail(fatal_error(code, DOING[purpose], self._config))
        elif reaction is Reaction.FIND:
            self._coordinator_lost(name)
        else:
            if reaction is Reaction.UNKNOWN:
                self._member_id = ""
            if reaction in {Reaction.UNKNOWN, Reaction.STALE} and self._assignment.stands:
                self._let_go(name)
            if purpose is Purpose.SYNC:
                self._rejoin(name, after_backoff=True)
            else:
                self._retry_later(name)

    def _fail(self, error: StreamGroupError) -> None:
        self._give_up_requests()
        self._wanted = None
        self._pause()
        if isinstance(error, FencedError):
            self._member_id = ""  # there is nothing to leave: another has the place
        self._state = State.FATAL
        self._out.append(ev.Fail(error))

    def _give_up_requests(self, *but: Purpose) -> None:
        """Answers that come late count for nothing (R18), and nothing may queue up behind a JoinGroup that waits."""
        if self._exchange.is_pending(Purpose.JOIN, Purpose.SYNC):
            self._out.append(ev.Reset(ev.Lane.JOIN))
        self._exchange.reset(*but)

    def _let_go(self, reason: str) -> None:
        """Put out of the group, or it must be assumed: nothing is held, and nothing will be kept (R18)."""
        self._out.append(ev.Lost(reason))
        self._forget_membership()

    def _forget_membership(self) -> None:
        self._assignment.forget()
        self._generation, self._lease_at, self._wanted, self._settling = -1, None, None, False

    def _pause(self) -> None:
        """The group may have gone on without this member: what it holds is planned no more before it is assigned."""
        self._assignment.can_plan, self._lease_at = False, None

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def _find(self) -> None:
        self._send(Purpose.FIND, requests.find_coordinator(self._config.group_id), self._config.request_timeout_ms)

    def _find_answered(self, event: ev.Answered, pending: Pending) -> None:
        response: c.FindCoordinatorResponse = event.response
        answer: c.FindCoordinatorResponse | c.Coordinator = response
        if event.version >= 4:
            found = [one for one in response.coordinators if one.key == self._config.group_id]
            answer = found[0] if found else c.Coordinator(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if answer.error_code == ErrorCode.NONE:
            self._coordinator = Broker(answer.node_id, answer.host, answer.port)
            self._out.append(ev.CoordinatorFound(self._coordinator))
        else:
            self._refused(Purpose.FIND, answer.error_code)

    def _found(self, event: ev.Answered, pending: Pending) -> None:
        self._find_answered(event, pending)
        if self._coordinator is not None:
            self._join()

    def _request_failed(self, event: ev.Failed, pending: Pending) -> None:
        """A request to the coordinator has no answer: it may have moved or died with its connection."""
        if pending.purpose is Purpose.JOIN:  # it may have been heard, and be a generation by now
            self._pause()
        self._coordinator_lost(event.reason)

    def _find_failed(self, event: ev.Failed, pending: Pending) -> None:
        self._retry_later(event.reason)

    def _coordinator_gone(self, event: ev.CoordinatorGone) -> None:
        if self._coordinator is not None:
            self._coordinator_lost(event.reason)

    def _coordinator_lost(self, reason: str) -> None:
        """Find it again, after a backoff: the answer may name the dead broker for a while."""
        self._coordinator = None
        if self._state is State.SYNCING:
            self._rejoin(reason, after_backoff=True)
            return
        if self._state is not State.STABLE:
            self._state = State.FINDING
        self._exchange.forget(Purpose.HEARTBEAT)
        self._exchange.clear(Timer.HEARTBEAT)
        self._retry_later(reason)

    # -- joining ------------------------------------------------------------------------------------------------------

    def _rejoin(
        self, reason: str, *, after_backoff: bool = False, gives_up: frozenset[TopicPartition] = frozenset()
    ) -> None:
        """Join again. Eager: everything is given up and nothing is held meanwhile. Cooperative (R25): what is held is
        kept on with, as long as the way back into the group is straight."""
        keeps = self._assignment.stands and self._state is State.STABLE
        self._give_up_requests(*((Purpose.HEARTBEAT,) if keeps else ()))
        abandoned = self._batch.in_flight and not self._assignment.stands
        self._out.append(ev.Joining(reason, abandoned, keeps, gives_up))
        self._wanted = self._roster = None
        self._unassigned = self._settling = False
        if keeps:
            self._assignment.can_plan = True
        else:
            self._pause()
        self._join_reason = reason
        self._state = State.FINDING if self._coordinator is None else State.JOINING
        if after_backoff:
            self._retry_later(reason)
        elif self._coordinator is None:
            self._find()
        else:
            self._join()

    @property
    def _awaited(self) -> str | None:
        """What a rejoin waits for, in words; None where the member is idle.

        A member that rejoins before its starting positions are committed leaves them to whoever gets the partitions
        next. That one is no founder any more, and starts at the earliest offset (R7) instead of at startingOffsets. A
        cooperative member goes on with its batch, so it need not wait for that (R25).
        """
        if self._batch.in_flight and not self._assignment.cooperative:
            return "the batch in flight is done"
        return "the positions of the partitions gained are committed" if self._settling else None

    def _rejoin_if_idle(self) -> None:
        if self._wanted is not None and self._awaited is None:
            self._rejoin(self._wanted)

    def _join(self) -> None:
        self._state = State.JOINING
        self._joined_topics = self._topics
        self._joined_anew = not self._member_id
        owned, generation = self._assignment.claim()
        subscription = requests.Subscription(self._topics, self._identity, tuple(owned), generation)
        build = requests.join_group(self._config, self._member_id, subscription, self._join_reason)
        self._send(Purpose.JOIN, build, self._config.join_timeout_ms)

    def _join_answered(self, event: ev.Answered, pending: Pending) -> None:
        response: m.JoinGroupResponse = event.response
        if response.error_code == ErrorCode.NONE:
            self._joined(response, event.version)
        elif reaction_to(Purpose.JOIN, response.error_code) is Reaction.NAMED and self._joined_anew:
            self._member_id = response.member_id
            self._join()
        else:
            self._refused(Purpose.JOIN, response.error_code)

    def _joined(self, response: m.JoinGroupResponse, version: int) -> None:
        self._member_id, self._generation = response.member_id, response.generation_id
        self._session_ms = self._config.session_timeout_for(version)
        self._rebalance_ms = self._config.rebalance_timeout_for(version)
        self._strategy = response.protocol_name or ""
        if self._strategy not in self._config.strategies:
            self._fail(fatal_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"use {self._strategy!r}", self._config))
            return
        self._state = State.SYNCING
        self._exchange.forget(Purpose.HEARTBEAT)
        if not self._assignment.precedes(self._member_id, self._generation):
            self._pause()
        self._exchange.set(Timer.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._session_ms))
        self._leads = response.leader == response.member_id
        self._roster = read_roster(response.members) if self._leads else None
        self._unassigned = self._leads and not response.skip_assignment
        if not self._unassigned:
            self._sync({})
        elif self._roster is not None:
            for member, why in self._roster.unreadable.items():
                self._note(WARNING, f"the subscription of member {member} cannot be read, it gets nothing: {why}")
            self._ask_for_topics()
            if not self._roster.topics:
                self._assign(ev.TopicsKnown({}, frozenset()))

    # -- leading ------------------------------------------------------------------------------------------------------

    def _ask_for_topics(self) -> None:
        if self._roster is not None:
            self._out.append(ev.NeedTopics(self._roster.topics, urgent=True))
            self._exchange.set(Timer.TOPICS, self._now + self._config.request_timeout_ms / 1000)

    def _topics_overdue(self) -> None:
        self._note(WARNING, "this member leads and still waits for the metadata of the group's topics to assign them")
        self._ask_for_topics()

    def _assign(self, event: ev.TopicsKnown) -> None:
        if self._roster is None or not self._unassigned or not self._roster.topics <= event.asked:
            return
        self._unassigned = False
        self._exchange.clear(Timer.TOPICS)
        division = divide(self._strategy, self._roster, event.topics)
        if division.missing:
            self._note(WARNING, f"subscribed topics that do not exist (yet): {', '.join(division.missing)}")
        self._sync(division.assignments)

    def _sync(self, assignments: Mapping[str, bytes]) -> None:
        build = requests.sync_group(self._config, self._member_id, self._generation, self._strategy, assignments)
        self._send(Purpose.SYNC, build, self._config.join_timeout_ms)
