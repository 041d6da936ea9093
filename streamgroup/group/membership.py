"""The member of a Kafka group (JoinGroup protocol), as a state machine without I/O.

    machine = Membership(config, random.Random())
    for action in machine.step(event, now): ...

The table at the end of this file has a row for each event in each state. `events.py` has the events and actions,
`reactions.py` the meaning of error codes, `requests.py` the requests, `rejoining.py` the wait for the boundary of a
batch, `assignment.py` the partitions held and the leader's assignment. A member that loses the connection to its group
coordinator stays a member: in STABLE it finds the group coordinator again while it holds its partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import ClassVar

from streamgroup.backoff import Random
from streamgroup.errors import DecodeError, ErrorCode, FencedError, StreamGroupError, error_of
from streamgroup.group import events as ev
from streamgroup.group import requests
from streamgroup.group.assignment import HeldAssignment, Leadership, Overview, read_assignment, read_overview
from streamgroup.group.assignors import WEIGHTED
from streamgroup.group.events import INFO, WARNING, JoinCause
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS, Reaction, fatal_error, reaction_to, reaction_to_commit
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.state_machine import GroupMember, PendingRequest, State, Table, ignore, on, table_of
from streamgroup.group.timing import LEAVE_TIMEOUT_MS, MemberConfig
from streamgroup.kafka.wire.messages import group as m
from streamgroup.kafka.wire.messages.admin import DescribeGroupsResponse
from streamgroup.model import TopicPartition, name_some
from streamgroup.text import MOST_NAMED, counted, first_of


class Membership(GroupMember):
    """The state machine of one member of a group whose group coordinator is a broker."""

    TABLE: ClassVar[Table]

    def __init__(self, config: MemberConfig, random: Random) -> None:
        super().__init__(config, random)
        self._assignment = HeldAssignment(cooperative=config.cooperative)
        self._leadership = Leadership()
        # The last JoinGroup and its answer.
        self._join_reason = ""
        self._joined_topics: tuple[str, ...] = ()
        self._joined_anew = False
        self._strategy = ""
        self._given: tuple[TopicPartition, ...] = ()
        """The partitions in the last answer to SyncGroup."""
        self._synced_at = 0.0
        self._weighs = True
        """Whether the weight of this member has had an effect in the last generation."""
        self._rebalance_ms = config.max_poll_interval_ms

    @property
    def can_plan(self) -> bool:
        """Whether a batch of the owned partitions may be planned.

        In STABLE it may until a rebalance is announced. A cooperative member plans during the rebalance, too (R25).
        """
        return not self.rebalance_wanted if self._state is State.STABLE else self._assignment.can_plan

    @property
    def may_commit(self) -> bool:
        """Whether the group coordinator may accept commits in the generation of the owned partitions.

        It accepts them until the next generation begins. A cooperative member keeps its partitions until then.
        """
        if self._state is State.STABLE:
            return True
        return self._assignment.stands and self._state in {State.FINDING, State.JOINING}

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        """The revoked partitions, to be given up by `RevocationCompleted` once their batch is committed (R25)."""
        return self._assignment.leaving if self._state is State.STABLE else frozenset()

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _start(self, event: ev.Start) -> None:
        self._topics, self._wait.settles = tuple(sorted(set(event.topics))), event.settles
        self._member_id, self._coordinator = "", None  # an earlier membership is over
        self._unexpected = 0
        self._rejoin("the query starts", JoinCause.START)

    def _stop(self, event: ev.Stop) -> None:
        instance_id = self._config.instance_id
        self._give_up_requests()
        self._wait.end()
        self._pause()
        if instance_id is None and self._member_id and self._coordinator is not None:
            self._transition_to(State.LEAVING)
            build = requests.leave_group(self._config, self._member_id, "the query stops")
            self._send(Purpose.LEAVE, build, LEAVE_TIMEOUT_MS)
            return
        if instance_id is not None and self._assignment.held:
            wait = f"until it rejoins, for {self._session_ms / 1000:g} s (session.timeout.ms) at most"
            held = counted(len(self._assignment.held), "partition")
            self._note(INFO, f"static member {instance_id} stays in the group with {held} {wait}")
        self._left()

    def _leave_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        response: m.LeaveGroupResponse = event.response
        codes = {response.error_code, *(member.error_code for member in response.members)}
        for code in sorted(codes - {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}):
            name = error_of(code).name
            self._note(INFO, f"LeaveGroup failed with {name}: the partitions move when the member's session expires")
        self._left()

    def _fail(self, error: StreamGroupError) -> None:
        self._give_up_requests()
        self._wait.end()
        self._pause()
        if isinstance(error, FencedError):
            self._member_id = ""  # LeaveGroup would remove the member that has taken this one's place
        self._transition_to(State.FATAL)
        self._out.append(ev.Fail(error))

    # -- losing the membership ----------------------------------------------------------------------------------------

    def _lost(self, reason: str) -> None:
        waited = self.rebalance_wanted and self._wait.has_outlasted_the_group(self._now, self._rebalance_ms)
        if waited and self._wait.batch.in_flight:
            self._out.append(ev.GaveUp(self._wait.gave_up(self._now, self._rebalance_ms)))  # the group did not wait
        self._let_go(reason)
        self._rejoin(reason, JoinCause.LOST)

    def _let_go(self, reason: str) -> None:
        """Give up all partitions: the group has removed this member, or may have. None is kept (R18)."""
        self._out.append(ev.Lost(reason))
        self._forget_membership()

    def _forget_membership(self) -> None:
        self._assignment.forget()
        self._wait.end()
        self._generation, self._lease_at = -1, None
        self._forget_identity()

    def _pause(self) -> None:
        """Stop planning until the next assignment: the group may have completed a rebalance without this member."""
        self._assignment.can_plan, self._lease_at = False, None

    def _give_up_requests(self, *but: Purpose) -> None:
        """Give up pending requests: their late answers are ignored (R18).

        A pending JoinGroup would delay the next request on its connection, so that connection is reset.
        """
        if self._requests.is_pending(Purpose.JOIN, Purpose.SYNC, Purpose.DESCRIBE):
            self._out.append(ev.ResetConnection(ev.Lane.JOIN))
        self._requests.reset(*but)

    def _refused(self, purpose: Purpose, code: int) -> None:
        reaction, name = reaction_to(purpose, code), error_of(code).name
        self._unexpected += reaction is Reaction.UNEXPECTED
        if reaction is Reaction.FATAL or self._unexpected >= UNEXPECTED_ATTEMPTS:
            self._fail(fatal_error(code, purpose.doing, self._config))
        elif reaction is Reaction.FIND:
            self._coordinator_lost(name)
        else:
            was_member = self._assignment.stands
            if reaction is Reaction.UNKNOWN:
                self._member_id = ""
                was_member |= self._generation >= 0  # also a member that has given up its partitions to rejoin
            if reaction in {Reaction.UNKNOWN, Reaction.STALE} and was_member:
                self._let_go(name)
            if purpose in {Purpose.SYNC, Purpose.DESCRIBE}:
                self._rejoin(name, JoinCause.GROUP, after_backoff=True)
            else:
                self._retry_later(name)

    # -- the group coordinator------------------------------------------------------------------------------------------

    def _request_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        """Find the group coordinator again: it may have moved, or have died with its connection."""
        if pending.purpose is Purpose.JOIN:  # the group coordinator may have received it and begun a generation
            self._pause()
        self._coordinator_lost(event.reason)

    def _coordinator_gone(self, event: ev.CoordinatorGone) -> None:
        if self._coordinator is not None:
            self._coordinator_lost(event.reason)

    def _coordinator_lost(self, reason: str) -> None:
        """Find the group coordinator again after a backoff: brokers may still name the dead one for a while."""
        self._coordinator = None
        if self._state is State.SYNCING:
            self._rejoin(reason, JoinCause.COORDINATOR, after_backoff=True)
            return
        if self._state is not State.STABLE:
            self._transition_to(State.FINDING)
        self._requests.forget(Purpose.HEARTBEAT)
        self._requests.clear(Timer.HEARTBEAT)
        self._retry_later(reason)

    # -- joining ------------------------------------------------------------------------------------------------------

    def _rejoin(
        self, reason: str, cause: JoinCause, *, after_backoff: bool = False, gives_up: ev.Partitions = frozenset()
    ) -> None:
        """Join again.

        An eager member gives up all partitions now. A cooperative member keeps them and plans them, unless a request
        fails while it rejoins (R25).
        """
        keeps = self._assignment.stands and self._state is State.STABLE
        self._give_up_requests(*((Purpose.HEARTBEAT,) if keeps else ()))
        abandoned = self._wait.batch.in_flight and not self._assignment.stands
        self._out.append(ev.Joining(reason, abandoned, keeps, gives_up, cause))
        self._wait.end()
        self._leadership.rejoin()
        if keeps:
            self._assignment.can_plan = True
        else:
            self._pause()
        self._join_reason = reason
        self._transition_to(State.FINDING if self._coordinator is None else State.JOINING)
        if after_backoff:
            self._retry_later(reason)
        elif self._coordinator is None:
            self._find()
        else:
            self._join()

    def _join(self) -> None:
        self._transition_to(State.JOINING)
        self._joined_topics = self._topics
        self._joined_anew = not self._member_id
        owned, generation = self._assignment.claim()
        subscription = requests.JoinSubscription(self._topics, self._identity, tuple(owned), generation)
        build = requests.join_group(self._config, self._member_id, subscription, self._join_reason)
        self._send(Purpose.JOIN, build, self._config.join_timeout_ms)

    def _join_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
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
        self._transition_to(State.SYNCING)
        self._requests.forget(Purpose.HEARTBEAT)
        self._note_weight(is_converted=not response.leader)
        if not self._assignment.precedes(self._member_id, self._generation):
            self._pause()
        self._requests.set(Timer.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._session_ms))
        self._leadership.joined(response)
        roster = self._leadership.roster
        if roster is None or not self._leadership.is_to_assign:
            self._sync({})
            return
        for member, why in roster.unreadable.items():
            self._note(WARNING, f"cannot read the subscription of member {member}, so it gets no partitions: {why}")
        self._ask_for_topics()
        if not roster.topics:
            self._assign(ev.MetadataRefreshed({}, frozenset()))

    def _note_weight(self, *, is_converted: bool) -> None:
        """Log once that the weight has no effect, and that it has again.

        `is_converted`: a member uses the consumer protocol. Such a group has no leader.
        """
        has_effect = self._config.weight == 1 or (self._strategy == WEIGHTED and not is_converted)
        if self._weighs and not has_effect:
            why = (
                "another member uses the consumer protocol, so the group coordinator assigns the partitions"
                if is_converted
                else f"the group uses {self._strategy}, because another member does not offer {WEIGHTED}"
            )
            self._note(
                WARNING,
                f"group.member.weight={self._config.weight} has no effect: {why}. All members get equal shares",
            )
        elif has_effect and not self._weighs:
            self._note(
                INFO, f"group.member.weight={self._config.weight} has an effect again: the group uses {WEIGHTED}"
            )
        self._weighs = has_effect

    # -- leading ------------------------------------------------------------------------------------------------------

    def _ask_for_topics(self) -> None:
        self._out.append(ev.NeedTopics(self._leadership.topics, urgent=True))
        self._requests.set(Timer.TOPICS, self._now + self._config.request_timeout_ms / 1000)

    def _topics_overdue(self) -> None:
        self._note(
            WARNING,
            "this member leads the group and cannot assign partitions yet: it waits for the metadata "
            "of the group's topics",
        )
        self._ask_for_topics()

    def _assign(self, event: ev.MetadataRefreshed) -> None:
        self._leadership.see(event)
        division = self._leadership.assign(self._strategy, event)
        if division is None:
            return
        self._requests.clear(Timer.TOPICS)
        if division.missing:
            missing = first_of(division.missing, MOST_NAMED, "topic")
            self._note(WARNING, f"subscribed topics that do not exist (yet): {missing}")
        self._sync(division.assignments)

    def _sync(self, assignments: Mapping[str, bytes]) -> None:
        build = requests.sync_group(self._config, self._member_id, self._generation, self._strategy, assignments)
        self._send(Purpose.SYNC, build, self._config.join_timeout_ms)

    # -- an assignment ------------------------------------------------------------------------------------------------

    def _sync_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        response: m.SyncGroupResponse = event.response
        if response.error_code != ErrorCode.NONE:
            self._refused(Purpose.SYNC, response.error_code)
            return
        try:
            given = read_assignment(response, self._joined_topics)
        except DecodeError as error:
            self._fail(DecodeError(f"group {self._config.group_id}, generation {self._generation}: {error}"))
            return
        if given.foreign:
            foreign = f"topics that the leader assigned and this member has not subscribed to: {given.foreign}"
            self._note(WARNING, f"not read: {foreign}")
        self._given, self._synced_at = given.partitions, self._now
        if self._leadership.divided is not None:
            self._assigned(self._leadership.divided)
            return
        build, timeout_ms = requests.describe_group(self._config), self._config.request_timeout_ms
        self._send(Purpose.DESCRIBE, build, timeout_ms, optional=True)

    def _described(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        response: DescribeGroupsResponse = event.response
        code = response.groups[0].error_code if response.groups else ErrorCode.NONE
        if code and reaction_to(Purpose.DESCRIBE, code) in {Reaction.FIND, Reaction.RETRY}:
            self._refused(Purpose.DESCRIBE, code)
            return
        seen = self._leadership.seen(self._joined_topics)
        self._assigned(read_overview(response, seen, cooperative=self._assignment.cooperative))

    def _describe_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        if event.unsupported:
            self._assigned(None)
        else:
            self._request_failed(event, pending)

    def _assigned(self, overview: Overview | None) -> None:
        partitions = self._given
        change = self._assignment.assigned(self._member_id, self._generation, partitions)
        self._wait.settling = self._wait.settles and len(change.kept) < len(partitions)
        restarted = self._joined_anew and self._config.instance_id is not None
        self._leadership.assigned(overview, restarted=restarted)
        self._transition_to(State.STABLE)
        self._attempts = self._unexpected = 0
        self._requests.reset()
        self._alive(self._synced_at)
        members, total, withheld = None, None, 0
        if overview is not None:
            members, total, withheld = len(overview.members), overview.total, overview.withheld
        assigned = ev.Assigned(
            self._generation,
            self._member_id,
            partitions,
            change.kept,
            self._strategy,
            self._leadership.leads,
            members,
            total,
            self._assignment.cooperative,
            change.revoked,
            withheld,
            leader_id=self._leadership.leader_id,
        )
        followed = self._leadership.followed(frozenset(self._joined_topics))
        self._out += [assigned, ev.NeedTopics(followed, urgent=False)]
        self._heartbeat()
        if change.revoked:
            self._wait.since = self._now
        self._set_rejoin_due()
        if change.withheld:
            lost = counted(len(change.withheld), "partition")
            self._want(
                f"other members wait for {lost}, which this member had listed as owned and has lost", JoinCause.CLAIMS
            )
        elif restarted and self._assignment.cooperative and withheld:
            # Its return starts no rebalance, so no member would get partitions that its predecessor was to give up.
            theirs = counted(withheld, "partition")
            self._want(f"other members wait for {theirs} of this member's previous process", JoinCause.CLAIMS)
        elif self._topics != self._joined_topics:
            self._want("the subscription has changed", JoinCause.SUBSCRIPTION)

    # -- heartbeats and commits ---------------------------------------------------------------------------------------

    def _alive(self, sent_at: float) -> None:
        """Restart the session timer: the group coordinator knew the member when it received a request of `sent_at`."""
        over = sent_at + self._session_ms / 1000
        self._requests.set(Timer.SESSION, max(over, self._requests.at(Timer.SESSION) or over))

    def _accepted(self, sent_at: float) -> None:
        self._alive(sent_at)
        self._renew(sent_at)

    def _renew(self, sent_at: float) -> None:
        """Renew the lease (R9): the group coordinator accepted a request of `sent_at` in the generation held."""
        self._lease_at = max(sent_at, self._lease_at if self._lease_at is not None else sent_at)

    def _heartbeat(self) -> None:
        self._requests.set(Timer.HEARTBEAT, self._now + self._config.heartbeat_interval_s(self._session_ms))
        if not self._requests.is_pending(Purpose.HEARTBEAT):
            build = requests.heartbeat(self._config, self._member_id, self._generation)
            self._send(Purpose.HEARTBEAT, build, self._config.heartbeat_timeout_ms(self._session_ms))

    def _heartbeat_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        code: int = event.response.error_code
        if code == ErrorCode.NONE:
            self._attempts = 0
            self._accepted(pending.sent_at)
            return
        reaction = reaction_to(Purpose.HEARTBEAT, code)
        if reaction is Reaction.REJOIN:
            self._alive(pending.sent_at)  # the session continues, but planning needs an accepted heartbeat (R9)
        self._react(reaction, code, Purpose.HEARTBEAT.doing)

    def _early_heartbeat_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        """React in SYNCING, where no partition can be lost. An error to rejoin concerns the generation before."""
        code: int = event.response.error_code
        reaction = Reaction.GO_ON if code == ErrorCode.NONE else reaction_to(Purpose.HEARTBEAT, code)
        if reaction not in {Reaction.GO_ON, Reaction.REJOIN, Reaction.RETRY}:
            self._refused(Purpose.SYNC, code)

    def _late_heartbeat_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        """Renew the lease in JOINING. The answer to JoinGroup shows what a refused heartbeat means."""
        if event.response.error_code == ErrorCode.NONE and self._assignment.can_plan:
            self._renew(pending.sent_at)

    def _commit_accepted(self, event: ev.CommitAccepted) -> None:
        if (event.member_id, event.generation) == (self._member_id, self._generation):
            self._accepted(event.sent_at)

    def _late_commit_accepted(self, event: ev.CommitAccepted) -> None:
        if self._assignment.can_plan and self._assignment.is_of(event.member_id, event.generation):
            self._renew(event.sent_at)

    def _commit_refused(self, event: ev.CommitRefused) -> None:
        if (event.member_id, event.generation) == (self._member_id, self._generation):
            self._react(reaction_to_commit(event.code), event.code, "commit")

    def _react(self, reaction: Reaction, code: int, doing: str) -> None:
        name = error_of(code).name
        match reaction:
            case Reaction.REJOIN:
                self._want("the group rebalances", JoinCause.GROUP)
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

    def _want(self, reason: str, cause: JoinCause) -> None:
        """Rejoin now or, if necessary, at the boundary of the batch or once positions are committed (R21)."""
        if self.rebalance_wanted:
            return
        awaited = self._wait.awaited
        if awaited is None:
            self._rejoin(reason, cause)
            return
        self._wait.begin(reason, cause, self._now)
        self._note(INFO, f"{reason}: rejoining when {awaited}")
        self._set_rejoin_due()

    def _set_rejoin_due(self) -> None:
        if self.rebalance_wanted or self.revoking:
            self._requests.set(Timer.REJOIN, self._wait.due(self._rebalance_ms))

    def _rejoin_if_idle(self) -> None:
        if self._wait.reason is not None and self._wait.awaited is None:
            self._rejoin(*self._wait.why)

    def _waited_enough(self) -> None:
        if self._assignment.leaving or (self._wait.batch.in_flight and not self._assignment.stands):
            self._out.append(ev.GaveUp(self._wait.gave_up(self._now, self._rebalance_ms)))
        if self._wait.settling:
            self._note(WARNING, self._wait.left_unsettled(self._generation, self._now))
        if self._assignment.leaving:
            self._give_up_revoked()
        else:
            self._rejoin(*self._wait.why)

    def _revocation_completed(self, event: ev.RevocationCompleted) -> None:
        if self._assignment.leaving:
            self._give_up_revoked()

    def _give_up_revoked(self) -> None:
        """Give up the revoked partitions by a JoinGroup; the rebalance assigns them to other members (R25)."""
        given_up = self._assignment.give_up()
        self._rejoin(f"gives up {name_some(given_up)}", JoinCause.REVOKED, gives_up=given_up)

    def _asked(self, event: ev.Asked) -> None:
        super()._asked(event)
        self._set_rejoin_due()

    def _idle(self, event: ev.Idle) -> None:
        super()._idle(event)
        self._rejoin_if_idle()

    def _settled(self, event: ev.Settled) -> None:
        self._wait.settling = False
        self._rejoin_if_idle()
        self._set_rejoin_due()

    # -- the cluster and the subscription -----------------------------------------------------------------------------

    def _user_data_changed(self, event: ev.UserDataChanged) -> None:
        super()._user_data_changed(event)
        if event.rejoins and self._state is State.STABLE:
            self._want("all members report their query again", JoinCause.IDENTITY)

    def _subscribed(self, event: ev.Subscribed) -> None:
        super()._subscribed(event)
        if self._state is State.STABLE and self._topics != self._joined_topics:
            self._want("the subscription has changed", JoinCause.SUBSCRIPTION)

    def _seen(self, event: ev.MetadataRefreshed) -> None:
        self._leadership.see(event)

    def _counted(self, event: ev.MetadataRefreshed) -> None:
        self._leadership.see(event)
        changes = self._leadership.changes(event)
        if changes:
            self._want(f"partitions have changed ({first_of(changes, MOST_NAMED, 'topic')})", JoinCause.PARTITIONS)


_UNJOINED, _FINDING, _JOINING, _SYNCING = State.UNJOINED, State.FINDING, State.JOINING, State.SYNCING
_STABLE, _LEAVING, _LEFT, _FATAL = State.STABLE, State.LEAVING, State.LEFT, State.FATAL
_NOT_STABLE = tuple(state for state in State if state is not _STABLE)
_AGAIN = (_FINDING, _JOINING)
_IN_ALL = tuple(State)

Membership.TABLE = table_of(
    chain(
        on(ev.Start, (_UNJOINED, _LEFT), Membership._start, _FINDING),  # LEFT: it rejoins as a new member (R27)
        on(ev.UserDataChanged, _NOT_STABLE, Membership._user_data_changed),
        on(ev.UserDataChanged, (_STABLE,), Membership._user_data_changed, *_AGAIN),
        on(ev.Subscribed, (_UNJOINED, _FINDING, _JOINING, _SYNCING, _LEAVING, _LEFT), Membership._subscribed),
        on(ev.Subscribed, (_STABLE,), Membership._subscribed, *_AGAIN),
        on(ev.Stop, (_UNJOINED, _FINDING), Membership._stop, _LEFT),
        on(ev.Stop, (_JOINING, _SYNCING, _STABLE, _FATAL), Membership._stop, _LEAVING, _LEFT),
        # Joining. JoinGroup and SyncGroup have a connection of their own, so its end fails only them.
        on((Purpose.FIND, ev.RequestAnswered), (_FINDING,), Membership._found, _JOINING),
        on((Purpose.FIND, ev.RequestFailed), (_FINDING, _STABLE), Membership._find_failed),
        on(Timer.RETRY, (_FINDING, _STABLE), Membership._find),
        on((Purpose.JOIN, ev.RequestAnswered), (_JOINING,), Membership._join_answered, _SYNCING, _FINDING),
        on((Purpose.JOIN, ev.RequestFailed), (_JOINING,), Membership._request_failed, _FINDING),
        on(Timer.RETRY, (_JOINING,), Membership._join),
        on(ev.MetadataRefreshed, _AGAIN, Membership._seen),
        on(ev.MetadataRefreshed, (_SYNCING,), Membership._assign),
        on(Timer.TOPICS, (_SYNCING,), Membership._topics_overdue),
        on((Purpose.SYNC, ev.RequestAnswered), (_SYNCING,), Membership._sync_answered, _STABLE, *_AGAIN),
        on((Purpose.SYNC, ev.RequestFailed), (_SYNCING,), Membership._request_failed, _FINDING),
        on((Purpose.DESCRIBE, ev.RequestAnswered), (_SYNCING,), Membership._described, _STABLE, *_AGAIN),
        on((Purpose.DESCRIBE, ev.RequestFailed), (_SYNCING,), Membership._describe_failed, _STABLE, *_AGAIN),
        on(ev.CoordinatorGone, (_SYNCING,), Membership._coordinator_gone, _FINDING),
        # Heartbeats. In JOINING a heartbeat of the generation that is kept may be pending (R25).
        on(Timer.HEARTBEAT, (_SYNCING, _STABLE), Membership._heartbeat),
        on((Purpose.HEARTBEAT, ev.RequestAnswered), (_JOINING,), Membership._late_heartbeat_answered),
        on((Purpose.HEARTBEAT, ev.RequestAnswered), (_SYNCING,), Membership._early_heartbeat_answered, *_AGAIN),
        on((Purpose.HEARTBEAT, ev.RequestAnswered), (_STABLE,), Membership._heartbeat_answered, *_AGAIN),
        on((Purpose.HEARTBEAT, ev.RequestFailed), (_JOINING,), ignore),
        on((Purpose.HEARTBEAT, ev.RequestFailed), (_SYNCING,), Membership._request_failed, _FINDING),
        on((Purpose.HEARTBEAT, ev.RequestFailed), (_STABLE,), Membership._request_failed),
        on(Timer.SESSION, (_STABLE,), Membership._session_over, *_AGAIN),
        on(ev.CoordinatorGone, (_STABLE,), Membership._coordinator_gone),
        on((Purpose.FIND, ev.RequestAnswered), (_STABLE,), Membership._found),
        # Commits in a generation that is kept (R25) or given up (R18). JoinGroup's answer shows what a refusal means.
        on(ev.CommitAccepted, (_FINDING, _JOINING, _SYNCING), Membership._late_commit_accepted),
        on(ev.CommitAccepted, (_STABLE,), Membership._commit_accepted),
        on(ev.CommitRefused, (_STABLE,), Membership._commit_refused, *_AGAIN),
        # Spark calls at any time. A member that rejoins must know whether a batch is in flight.
        on(ev.Planned, _IN_ALL, Membership._planned),
        on(ev.Asked, _IN_ALL, Membership._asked),
        on(ev.Idle, _NOT_STABLE, Membership._idle),
        on(ev.Idle, (_STABLE,), Membership._idle, *_AGAIN),
        on(ev.RevocationCompleted, (_STABLE,), Membership._revocation_completed, *_AGAIN),
        on(ev.Settled, (_STABLE,), Membership._settled, *_AGAIN),
        on(Timer.REJOIN, (_STABLE,), Membership._waited_enough, *_AGAIN),
        on(ev.MetadataRefreshed, (_STABLE,), Membership._counted, *_AGAIN),
        on((Purpose.LEAVE, ev.RequestAnswered), (_LEAVING,), Membership._leave_answered, _LEFT),
        on((Purpose.LEAVE, ev.RequestFailed), (_LEAVING,), Membership._leave_failed, _LEFT),
    ),
    # Each step checks the timers, so `Tick` needs no method. The next assignment after a rebalance revokes partitions
    # again, so a late `RevocationCompleted` is ignored.
    ignored=(
        *(ev.Tick, ev.Stop, ev.Subscribed, ev.MetadataRefreshed, ev.CoordinatorGone),
        *(ev.CommitAccepted, ev.CommitRefused, ev.RevocationCompleted, ev.Settled),
    ),
)
