"""The membership machine: one member of a Kafka group (JoinGroup protocol), as a table of states and what they hear.

    machine = Membership(config, random.Random())
    for action in machine.step(event, now): ...

It sends nothing, waits for nothing and reads no clock: `events.py` says what it hears and what it wants done. What an
error code means stands in `reactions.py`, when things are due in `timing.py`, the way into the group in `entry.py`. A
lost coordinator alone costs no membership: in STABLE it is found again while the partitions are held.
"""

from __future__ import annotations

from typing import Any

from streamgroup.errors import DecodeError, ErrorCode, error_of
from streamgroup.group import events as ev
from streamgroup.group import requests
from streamgroup.group.entry import DOING, Entry
from streamgroup.group.events import INFO, WARNING
from streamgroup.group.exchange import Pending, Purpose, Timer
from streamgroup.group.leading import changed_counts, counts_of, read_assignment
from streamgroup.group.reactions import Reaction, fatal_error, reaction_to, reaction_to_commit
from streamgroup.group.table import TABLE, Heard, State, name_of
from streamgroup.group.timing import (
    LEAVE_TIMEOUT_MS,
    MemberConfig,
    Random,
    gave_up_waiting,
    left_unsettled,
    rejoin_due,
    rejoin_timeout_s,
)
from streamgroup.group.userdata import AssignmentBasis
from streamgroup.model import TopicPartition
from streamgroup.wire.messages import group as m

__all__ = ["MemberConfig", "Membership", "State"]


class Membership(Entry):
    """See the module. Not for several threads; every method returns at once."""

    def __init__(self, config: MemberConfig, random: Random) -> None:
        super().__init__(config, random)
        self._basis: AssignmentBasis | None = None
        self._watches = False
        self._told_at = 0.0

    @property
    def state(self) -> State:
        """Where the member stands."""
        return self._state

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave, `""` while there is none."""
        return self._member_id

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscription, sorted; empty before `Start`."""
        return self._topics

    @property
    def generation(self) -> int:
        """The generation of the last JoinGroup answer; -1 before the first and after the membership was lost."""
        return self._generation

    @property
    def lease_at(self) -> float | None:
        """When the newest heartbeat or commit accepted in this generation was sent (R9); None before the first."""
        return self._lease_at

    @property
    def can_plan(self) -> bool:
        """Whether what is held may be planned: nothing has called it in question, or it is kept on with while the group
        rebalances (R25)."""
        return self._wanted is None if self._state is State.STABLE else self._assignment.can_plan

    @property
    def may_commit(self) -> bool:
        """Whether commits under the generation of what is held may be accepted: the broker takes them until the next
        generation begins, and a cooperative member does not give up before."""
        return self._state is State.STABLE or (
            self._assignment.stands and self._state in {State.FINDING, State.JOINING}
        )

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """What is to be given up as soon as its batch has sunk and is committed: then `Released` is due (R25)."""
        return self._assignment.leaving if self._state is State.STABLE else frozenset()

    @property
    def settling(self) -> bool:
        """Whether a rejoin waits for `Settled`."""
        return self._settling and self._state is State.STABLE

    @property
    def rebalance_wanted(self) -> bool:
        """Whether the member rejoins at the next boundary of a batch: nothing new is to be planned."""
        return self._wanted is not None

    def step(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Take one event at `now` (monotonic seconds); the actions to carry out, in order.

        Raises ValueError for an event that the table has no row for: an error of the caller's.
        """
        self._now, self._out = now, []
        self._hear(event)
        for pending in self._exchange.overdue(now):
            self._out.append(ev.Reset(pending.purpose.lane))
            self._hear(ev.Failed(pending.token, f"no answer to {pending.purpose.api.NAME} in time"))
        while (timer := self._exchange.take_due(now)) is not None:
            self._dispatch(timer)
        wake_at = self._exchange.wake_at
        return self._out if wake_at is None else [*self._out, ev.WakeAt(wake_at)]

    def _hear(self, event: ev.Event) -> None:
        if not isinstance(event, ev.Answered | ev.Failed):
            self._dispatch(type(event), event)
            return
        pending = self._exchange.take(event.token)
        if pending is not None:  # else it was asked under another generation, or given up (R18)
            self._dispatch((pending.purpose, type(event)), event, pending)

    def _dispatch(self, heard: Heard, *what: Any) -> None:
        before = self._state
        handler = _HANDLERS.get((before, heard))
        if handler is None:
            raise ValueError(f"group {self._config.group_id}: {name_of(heard)} has no place in state {before.name}")
        handler(self, *what)

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _start(self, event: ev.Start) -> None:
        self._topics, self._settles = tuple(sorted(set(event.topics))), event.settles
        self._member_id, self._coordinator = "", None  # nothing is left of an earlier membership
        self._unexpected = 0
        self._rejoin("the query starts")

    def _identified(self, event: ev.Identified) -> None:
        self._identity = event.data

    def _stop(self, event: ev.Stop) -> None:
        instance_id = self._config.instance_id
        self._give_up_requests()
        self._wanted = None
        self._pause()
        if instance_id is None and self._member_id and self._coordinator is not None:
            self._state = State.LEAVING
            build = requests.leave_group(self._config, self._member_id, "the query stops")
            self._send(Purpose.LEAVE, build, LEAVE_TIMEOUT_MS)
            return
        if instance_id is not None and self._assignment.held:
            wait = f"wait for it, {self._session_ms / 1000:g} s (session.timeout.ms) at most"
            held = f"{len(self._assignment.held)} partitions {wait}"
            self._note(INFO, f"static member {instance_id} stays in the group: {held}")
        self._left()

    def _leave_answered(self, event: ev.Answered, pending: Pending) -> None:
        response: m.LeaveGroupResponse = event.response
        codes = {response.error_code, *(member.error_code for member in response.members)}
        for code in sorted(codes - {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}):
            self._note(INFO, f"LeaveGroup was answered with {error_of(code).name}: the session expires instead")
        self._left()

    def _leave_failed(self, event: ev.Failed, pending: Pending) -> None:
        self._note(INFO, f"could not leave ({event.reason}): the session expires instead")
        self._left()

    def _left(self) -> None:
        self._forget_membership()
        self._exchange.reset()
        self._state = State.LEFT
        self._out.append(ev.Left())

    def _lost(self, reason: str) -> None:
        waited = self._wanted is not None and self._now - self._told_at >= rejoin_timeout_s(self._rebalance_ms / 1000)
        if waited and self._batch.in_flight:
            self._out.append(ev.GaveUp(self._waited()))  # the group did not wait either
        self._let_go(reason)
        self._rejoin(reason)

    # -- an assignment ------------------------------------------------------------------------------------------------

    def _sync_answered(self, event: ev.Answered, pending: Pending) -> None:
        response: m.SyncGroupResponse = event.response
        if response.error_code != ErrorCode.NONE:
            self._refused(Purpose.SYNC, response.error_code)
            return
        try:
            given, basis = read_assignment(response)
        except DecodeError as error:
            where = f"group {self._config.group_id}, generation {self._generation}"
            advice = "look for a member of another make with a broken assignor"
            self._fail(DecodeError(f"{where}: the assignment that the leader made cannot be read: {error}; {advice}"))
            return
        foreign = sorted({tp.topic for tp in given} - set(self._joined_topics))
        if foreign:
            self._note(WARNING, f"not read: topics that the leader assigned but nobody here asked for: {foreign}")
        self._assigned(tuple(sorted({tp for tp in given if tp.topic in self._joined_topics})), basis)

    def _assigned(self, partitions: tuple[TopicPartition, ...], basis: AssignmentBasis | None) -> None:
        change = self._assignment.assigned(self._member_id, self._generation, partitions)
        self._settling = self._settles and len(change.kept) < len(partitions)
        self._basis = basis
        # R23: a static member that joined without an id may have been told its predecessor's as the leader's.
        restarted = self._joined_anew and self._config.instance_id is not None
        self._watches = self._leads or (restarted and basis is not None)
        self._state, self._attempts, self._unexpected = State.STABLE, 0, 0
        self._exchange.reset()
        self._alive(self._now)
        members, total = (None, None) if basis is None else (basis.members, basis.total)
        assigned = ev.Assigned(
            self._generation,
            self._member_id,
            partitions,
            change.kept,
            self._strategy,
            self._leads,
            members,
            total,
            self._assignment.cooperative,
            change.revoked,
            0 if basis is None else basis.withheld,
        )
        self._out += [assigned, ev.NeedTopics(self._followed(), urgent=False)]
        self._heartbeat()
        if change.revoked:
            self._told_at = self._now
            self._set_rejoin_due()
        if change.withheld:
            self._want(f"the others wait for {len(change.withheld)} partitions that this member claimed and has lost")
        elif restarted and self._assignment.cooperative and assigned.withheld:
            # In a stable group its return moves nothing, and what its predecessor was to give up would stay nobody's.
            self._want(
                f"the others wait for {assigned.withheld} partitions that this member's predecessor may have held"
            )
        elif self._topics != self._joined_topics:
            self._want("the subscription has changed")

    def _followed(self) -> frozenset[str]:
        """The topics whose partitions this member counts (R23), beside its own."""
        own = frozenset(self._joined_topics)
        if not self._watches:
            return own
        return own | (frozenset() if self._basis is None else self._basis.counts.keys()) | self._group_topics()

    def _group_topics(self) -> frozenset[str]:
        return frozenset() if self._roster is None else self._roster.topics

    # -- holding it ---------------------------------------------------------------------------------------------------

    def _alive(self, sent_at: float) -> None:
        """The coordinator knew the member when it answered what was sent at `sent_at`."""
        over = sent_at + self._session_ms / 1000
        self._exchange.set(Timer.SESSION, max(over, self._exchange.at(Timer.SESSION) or over))

    def _accepted(self, sent_at: float) -> None:
        self._alive(sent_at)
        self._renew(sent_at)

    def _renew(self, sent_at: float) -> None:
        """R9: what was sent at `sent_at` was accepted under the generation of what is held."""
        self._lease_at = max(sent_at, self._lease_at if self._lease_at is not None else sent_at)

    def _session_over(self) -> None:
        self._lost(f"no heartbeat accepted for the session timeout of {self._session_ms} ms")

    def _heartbeat(self) -> None:
        self._exchange.set(Timer.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._session_ms))
        if not self._exchange.is_pending(Purpose.HEARTBEAT):
            build = requests.heartbeat(self._config, self._member_id, self._generation)
            self._send(Purpose.HEARTBEAT, build, self._config.heartbeat_timeout_ms(self._session_ms))

    def _found_again(self, event: ev.Answered, pending: Pending) -> None:
        self._find_answered(event, pending)
        if self._coordinator is not None:
            self._heartbeat()

    def _heartbeat_answered(self, event: ev.Answered, pending: Pending) -> None:
        response: m.HeartbeatResponse = event.response
        code = response.error_code
        if code == ErrorCode.NONE:
            self._attempts = 0
            self._accepted(pending.sent_at)
            return
        reaction = reaction_to(Purpose.HEARTBEAT, code)
        if reaction is Reaction.REJOIN:
            self._alive(pending.sent_at)  # the session goes on, but it proves nothing for planning (R9)
        self._told(reaction, code, DOING[Purpose.HEARTBEAT])

    def _early_heartbeat_answered(self, event: ev.Answered, pending: Pending) -> None:
        """In SYNCING: nothing is held that could be lost, and being told to rejoin is older than this generation."""
        response: m.HeartbeatResponse = event.response
        code = response.error_code
        reaction = Reaction.GO_ON if code == ErrorCode.NONE else reaction_to(Purpose.HEARTBEAT, code)
        if reaction not in {Reaction.GO_ON, Reaction.REJOIN, Reaction.RETRY}:
            self._refused(Purpose.SYNC, code)

    def _late_heartbeat_answered(self, event: ev.Answered, pending: Pending) -> None:
        """In JOINING; what a refusal means, the JoinGroup will tell."""
        if event.response.error_code == ErrorCode.NONE and self._assignment.can_plan:
            self._renew(pending.sent_at)

    def _late_commit_accepted(self, event: ev.CommitAccepted) -> None:
        if self._assignment.can_plan and self._assignment.is_of(event.member_id, event.generation):
            self._renew(event.sent_at)

    def _commit_accepted(self, event: ev.CommitAccepted) -> None:
        if (event.member_id, event.generation) == (self._member_id, self._generation):
            self._accepted(event.sent_at)

    def _commit_refused(self, event: ev.CommitRefused) -> None:
        if (event.member_id, event.generation) == (self._member_id, self._generation):
            self._told(reaction_to_commit(event.code), event.code, "commit")

    def _told(self, reaction: Reaction, code: int, doing: str) -> None:
        name = error_of(code).name
        match reaction:
            case Reaction.REJOIN:
                self._want("the group rebalances")
            case Reaction.STALE:
                self._lost(name)
            case Reaction.UNKNOWN:
                self._member_id = ""
                self._lost(name)
            case Reaction.FIND:
                self._coordinator_lost(name)
            case Reaction.FATAL:
                self._fail(fatal_error(code, doing, self._config))

    # -- rejoining at the boundary of a batch -------------------------------------------------------------------------

    def _want(self, reason: str) -> None:
        """Rejoin: at once when idle, else when what `_awaited` names is done (R21)."""
        if self._wanted is not None:
            return
        awaited = self._awaited
        if awaited is None:
            self._rejoin(reason)
            return
        self._wanted, self._told_at = reason, self._now
        self._note(INFO, f"{reason}: rejoining when {awaited}")
        self._set_rejoin_due()

    def _set_rejoin_due(self) -> None:
        wait, most = self._config.rebalance_wait_ms / 1000, self._rebalance_ms / 1000
        batch = self._batch
        is_told = batch.listened or self._settling
        due = rejoin_due(self._told_at, batch.asked_at, batch.longest_s, wait, most, listened=is_told)
        self._exchange.set(Timer.REJOIN, due)

    def _waited(self) -> str:
        flying_s, waited_s = self._batch.flying_s(self._now), self._now - self._told_at
        return gave_up_waiting(flying_s, waited_s, self._rebalance_ms, self._config.rebalance_wait_ms)

    def _waited_enough(self) -> None:
        if self._assignment.leaving or (self._batch.in_flight and not self._assignment.stands):
            self._out.append(ev.GaveUp(self._waited()))
        if self._settling:
            self._note(WARNING, left_unsettled(self._generation, self._now - self._told_at))
        if self._assignment.leaving:
            self._give_up()
        else:
            self._rejoin(self._wanted or "the group rebalances")

    def _released(self, event: ev.Released) -> None:
        if self._assignment.leaving:
            self._give_up()

    def _give_up(self) -> None:
        """R25: the others get what this member gives up by another rebalance, which its JoinGroup brings about."""
        given_up = self._assignment.give_up()
        named = ", ".join(map(str, sorted(given_up)[:3])) + (", ..." if len(given_up) > 3 else "")
        self._rejoin(f"gives up {named}", gives_up=given_up)

    def _planned(self, event: ev.Planned) -> None:
        self._batch.planned(self._now)

    def _asked(self, event: ev.Asked) -> None:
        self._batch.asked(self._now, listened=event.listened)
        if self._wanted is not None or self.revoking:
            self._set_rejoin_due()

    def _idle(self, event: ev.Idle) -> None:
        self._batch.idle(self._now)
        self._rejoin_if_idle()

    def _settled(self, event: ev.Settled) -> None:
        self._settling = False
        self._rejoin_if_idle()
        if self._wanted is not None or self.revoking:
            self._set_rejoin_due()

    # -- what the cluster and the subscription are --------------------------------------------------------------------

    def _subscribed(self, event: ev.Subscribed) -> None:
        self._topics = tuple(sorted(set(event.topics)))

    def _resubscribed(self, event: ev.Subscribed) -> None:
        self._subscribed(event)
        if self._topics != self._joined_topics:
            self._want("the subscription has changed")

    def _counted(self, event: ev.TopicsKnown) -> None:
        """R23: only the leader, or who may be it, compares; a moved leader of a partition changes no count."""
        if not self._watches:
            return
        if self._basis is None:  # it leads, but its predecessor of another make assigned: compare from here on
            if self._group_topics() <= event.asked:
                self._basis = AssignmentBasis(counts_of(self._group_topics(), event.topics), 0)
            return
        changed = changed_counts(self._basis, event.topics, event.asked)
        if changed:
            self._want(f"partitions have changed ({', '.join(changed)})")

    def _ignore(self, *_: Any) -> None:
        """Harmless in this state."""


_HANDLERS = {key: getattr(Membership, f"_{row.does}") for key, row in TABLE.items()}
