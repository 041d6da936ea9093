"""The member of a Kafka group under the consumer protocol (KIP-848), as a state machine without I/O.

The group coordinator assigns the partitions, and no member waits for another one. Each answer to a heartbeat may change
the member's epoch and its assignment. If it takes partitions away, the member plans them no more, completes and commits
their batch, and then reports in a heartbeat that it has given them up (R39). `membership.py` has the classic protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import ClassVar

from streamgroup.backoff import Random
from streamgroup.errors import ErrorCode, FencedError, StreamGroupError, error_of
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group import requests
from streamgroup.group.events import INFO, WARNING, JoinCause
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS, Reaction, fatal_error, reaction_to, reaction_to_commit
from streamgroup.group.rejoining import rejoin_timeout_s
from streamgroup.group.requests import LEAVES, LEAVES_FOR_A_WHILE, OwnedPartitions, Purpose, Timer
from streamgroup.group.state_machine import GroupMember, PendingRequest, State, Table, ignore, on, table_of
from streamgroup.group.timing import LEAVE_TIMEOUT_MS, MemberConfig
from streamgroup.group.user_data import decode_identity, member_id_of
from streamgroup.kafka.wire.messages import group as m
from streamgroup.kafka.wire.messages.admin import ConsumerGroupDescribeResponse, DescribedConsumerGroup
from streamgroup.model import TopicPartition
from streamgroup.text import counted

TOPICS_AFTER_S = 1.0
"""Seconds until the metadata is read again for an assigned topic whose id it lacks."""
_NOTHING: frozenset[TopicPartition] = frozenset()


@frozen
class _Reported:
    """The topics and partitions that the member reported in its last accepted heartbeat."""

    topics: tuple[str, ...]
    owned: OwnedPartitions | None
    """None: a new assignment has not been acknowledged yet."""


class ConsumerMembership(GroupMember):
    """The state machine of one member of a group under the consumer protocol."""

    TABLE: ClassVar[Table]

    def __init__(self, config: MemberConfig, random: Random) -> None:
        super().__init__(config, random)
        self._epoch = 0
        self._was_member = False
        """Whether the group coordinator may still know an earlier membership of this member id."""
        self._refused_since: float | None = None
        """Since when another member holds the `group.instance.id`."""
        self._accepted_before: float | None = None
        """When the accepted heartbeat before the newest one was sent."""
        self._interval_s = 0.0
        self._names: dict[str, str] = {}
        """The name of each topic by its id."""
        self._given: Mapping[str, tuple[int, ...]] = {}
        """The newest assignment: the partitions by topic id."""
        self._held: dict[TopicPartition, str] = {}
        """The partitions that this member owns, with their topic ids. Includes the partitions of `_leaving`."""
        self._leaving = _NOTHING
        self._postponed = _NOTHING
        """Partitions that the newest assignment lacks and that are kept until the start positions are committed."""
        self._reported: _Reported | None = None
        """None: the next heartbeat has all fields."""
        self._reporting: _Reported | None = None
        """The topics and partitions in the pending heartbeat."""
        self._is_stale = False
        """Whether a commit of the current epoch was refused (STALE_MEMBER_EPOCH)."""
        self._undescribed = 0
        """The number of descriptions in a row without this member."""
        self._outdated = 0
        """The number of descriptions in a row with a target that is older than the group."""
        self._first_seen = 0
        """The group epoch in the first of them. A target of this epoch or a later one was made with this member."""
        self._may_describe = True
        self._withheld: int | None = None
        """The number of partitions that the group will assign to this member later; None: not described yet."""

    @property
    def revoking(self) -> frozenset[TopicPartition]:
        return self._leaving | self._postponed if self._state is State.STABLE else _NOTHING

    @property
    def revoking_since(self) -> float:
        """When the coordinator may have asked for the partitions of `revoking`, at the earliest."""
        return self._wait.since

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _start(self, event: ev.Start) -> None:
        self._topics, self._wait.settles = tuple(sorted(set(event.topics))), event.settles
        self._member_id = self._member_id or member_id_of(decode_identity(self._identity), self._random)
        self._coordinator = None
        self._unexpected, self._undescribed, self._refused_since = 0, 0, None
        if self._config.weight != 1:
            self._note(
                WARNING,
                f"group.member.weight={self._config.weight} has no effect: under the consumer protocol the group "
                "coordinator assigns the partitions",
            )
        self._rejoin("the query starts", JoinCause.START)

    def _stop(self, event: ev.Stop) -> None:
        self._requests.reset()
        self._wait.end()
        if self._coordinator is None or self._state is State.FINDING:
            self._left()
            return
        self._transition_to(State.LEAVING)
        instance_id = self._config.instance_id
        if instance_id is not None and self._held:
            held = counted(len(self._held), "partition")
            until = "until it rejoins or its session expires (group.consumer.session.timeout.ms of the broker)"
            self._note(INFO, f"static member {instance_id} stays in the group with {held} {until}")
        self._leave()

    def _leave(self) -> None:
        epoch = LEAVES if self._config.instance_id is None else LEAVES_FOR_A_WHILE
        build = requests.consumer_leave(self._config, self._member_id, epoch)
        self._send(Purpose.CONSUMER_LEAVE, build, LEAVE_TIMEOUT_MS, optional=True)

    def _leave_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        code: int = event.response.error_code
        self._was_member &= code not in _LEFT_NOTHING
        if code not in _LEFT_NOTHING:
            name = error_of(code).name
            self._note(INFO, f"cannot leave the group: {name}. The partitions move when the member's session expires")
        self._left()

    def _fail(self, error: StreamGroupError, *, refuses_protocol: bool = False) -> None:
        self._requests.reset()
        self._wait.end()
        self._lease_at = None
        if isinstance(error, FencedError):
            self._coordinator = None  # a heartbeat that leaves would remove the member that has taken this one's place
        self._transition_to(State.FATAL)
        self._out.append(ev.Fail(error, refuses_protocol))

    # -- losing the membership ----------------------------------------------------------------------------------------

    def _lost(self, reason: str) -> None:
        """Give up all partitions, because the group has removed this member, or may have. Join again."""
        outlasted = self._leaving and self._wait.has_outlasted_the_group(self._now, self._config.max_poll_interval_ms)
        if outlasted and self._wait.batch.in_flight:
            self._out.append(ev.GaveUp(self._wait.gave_up(self._now, self._config.max_poll_interval_ms)))
        self._out.append(ev.Lost(reason))
        self._forget_membership()
        self._rejoin(reason, JoinCause.LOST)

    def _forget_membership(self) -> None:
        self._wait.end()
        self._given, self._held, self._is_stale = {}, {}, False
        self._leaving = self._postponed = _NOTHING
        self._epoch, self._generation = 0, -1
        self._lease_at = self._accepted_before = None
        self._reported = self._withheld = None
        self._forget_identity()

    # -- the group coordinator ----------------------------------------------------------------------------------------

    def _request_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        self._was_member |= pending.purpose is Purpose.CONSUMER_JOIN  # the group coordinator may have accepted it
        self._coordinator_lost(event.reason)

    def _coordinator_gone(self, event: ev.CoordinatorGone) -> None:
        if self._coordinator is not None:
            self._was_member |= self._requests.is_pending(Purpose.CONSUMER_JOIN)
            self._coordinator_lost(event.reason)

    def _coordinator_lost(self, reason: str) -> None:
        """Find the group coordinator again after a backoff. A stable member keeps its partitions meanwhile."""
        self._coordinator = self._reported = None
        if self._state is not State.STABLE:
            self._transition_to(State.FINDING)
        self._requests.forget(_BEATS, _JOINS, _LEAVE, _DESCRIBES)
        self._requests.clear(Timer.HEARTBEAT)
        self._retry_later(reason)

    def _refused(self, purpose: Purpose, code: int, message: str | None = None) -> None:
        reaction, name = reaction_to(purpose, code), error_of(code).name
        self._unexpected += reaction is Reaction.UNEXPECTED
        self._reported = None
        if reaction is Reaction.FATAL or self._unexpected >= UNEXPECTED_ATTEMPTS:
            refuses_protocol = purpose is Purpose.CONSUMER_JOIN and code in _OF_THE_PROTOCOL
            error = fatal_error(code, purpose.doing, self._config, message or "")
            self._fail(error, refuses_protocol=refuses_protocol)
        elif reaction is Reaction.FIND:
            self._coordinator_lost(name)
        elif purpose is Purpose.CONSUMER_HEARTBEAT:
            if reaction in {Reaction.STALE, Reaction.UNKNOWN}:
                self._lost(name)  # else the next heartbeat follows anyway, until the session times out
        elif purpose is Purpose.CONSUMER_JOIN and self._was_member and code in _OF_AN_EARLIER_MEMBERSHIP:
            # Kafka 4.0 and 4.1 refuse to let a fenced member join while they know it (KAFKA-19233).
            self._was_member = False
            self._leave()
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self._retry_later(f"{name}: another process holds group.instance.id {self._config.instance_id!r}")
        else:
            self._retry_later(name)

    # -- joining ------------------------------------------------------------------------------------------------------

    def _rejoin(self, reason: str, cause: JoinCause) -> None:
        self._requests.reset()
        self._out.append(ev.Joining(reason, self._wait.batch.in_flight, cause=cause))
        self._wait.end()
        self._transition_to(State.FINDING if self._coordinator is None else State.JOINING)
        if self._coordinator is None:
            self._find()
        else:
            self._join()

    def _join(self) -> None:
        self._transition_to(State.JOINING)
        self._reported, self._outdated = None, 0
        self._send_heartbeat(Purpose.CONSUMER_JOIN)

    def _join_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        response: m.ConsumerGroupHeartbeatResponse = event.response
        if response.error_code == ErrorCode.NONE:
            self._was_member, self._refused_since = True, None
            self._transition_to(State.STABLE)
            self._requests.clear(Timer.RETRY)
            self._take(response, pending.sent_at)
        elif response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self._wait_for_the_instance(response)
        else:
            self._refused(Purpose.CONSUMER_JOIN, response.error_code, response.error_message)

    def _wait_for_the_instance(self, response: m.ConsumerGroupHeartbeatResponse) -> None:
        """Wait until the session of a static member's ended process expires. A running one never leaves."""
        if self._was_member:  # this process may hold the place: the answer to its join was lost
            self._refused_since = None
            self._refused(Purpose.CONSUMER_JOIN, response.error_code)
            return
        if self._refused_since is None:
            self._refused_since = self._now
            self._note(WARNING, _UNRELEASED.format(instance=self._config.instance_id))
        if self._now - self._refused_since > self._config.dead_member_s:
            code, message = response.error_code, response.error_message
            self._fail(fatal_error(code, Purpose.CONSUMER_JOIN.doing, self._config, message or ""))
        else:
            self._refused(Purpose.CONSUMER_JOIN, response.error_code)

    def _earlier_membership_ended(
        self, event: ev.RequestAnswered | ev.RequestFailed, pending: PendingRequest[Purpose]
    ) -> None:
        self._retry_later("the group still has an earlier membership of this member")

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def _now_reported(self) -> _Reported:
        return _Reported(self._topics, frozenset((topic_id, tp.partition) for tp, topic_id in self._held.items()))

    def _heartbeat(self) -> None:
        self._requests.set(Timer.HEARTBEAT, self._now + self._interval_s)
        if self._coordinator is not None and not self._requests.is_pending(Purpose.CONSUMER_HEARTBEAT):
            self._send_heartbeat(Purpose.CONSUMER_HEARTBEAT)

    def _send_heartbeat(self, purpose: Purpose) -> None:
        # The answer that assigned the withheld partitions may have been lost: after a connection broke, the coordinator
        # may still read a request from it. It repeats an unchanged assignment only if a heartbeat has all fields.
        known = None if self._withheld else self._reported
        self._reporting = self._now_reported()
        build = requests.consumer_heartbeat(
            self._config,
            self._member_id,
            self._epoch,
            topics=None if known is not None and known.topics == self._topics else self._topics,
            owned=None if known is not None and known.owned == self._reporting.owned else self._reporting.owned,
            everything=known is None,
        )
        self._send(purpose, build, self._config.heartbeat_timeout_ms(self._session_ms))

    def _heartbeat_answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        response: m.ConsumerGroupHeartbeatResponse = event.response
        if response.error_code == ErrorCode.NONE:
            self._take(response, pending.sent_at)
        else:
            self._refused(Purpose.CONSUMER_HEARTBEAT, response.error_code, response.error_message)

    def _take(self, response: m.ConsumerGroupHeartbeatResponse, sent_at: float) -> None:
        """Take the epoch and the assignment of an accepted heartbeat."""
        self._attempts = self._unexpected = 0
        self._reported = self._reporting
        self._interval_s = min(response.heartbeat_interval_ms, self._session_ms / 3) / 1000
        self._requests.set(Timer.HEARTBEAT, max(self._now, sent_at + self._interval_s))
        self._requests.set(Timer.SESSION, sent_at + self._session_ms / 1000)
        self._accepted_before, self._lease_at = self._lease_at, sent_at
        given = self._given if response.assignment is None else dict(_partitions_by_id(response.assignment))
        if self._is_stale or (response.member_epoch, given) != (self._generation, self._given):
            is_new = given != self._given
            self._epoch, self._given, self._is_stale = response.member_epoch, given, False
            self._reconcile()
            if is_new and not self.revoking and self._reported is not None:
                # The coordinator waits for this also if the member has given the partitions up before by itself.
                self._reported = replace(self._reported, owned=None)
        if self._withheld != 0:
            self._describe()
        if self._now_reported() != self._reported:
            self._heartbeat()

    # -- the assignment -----------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Own what the newest assignment has, as far as the names of the topics are known.

        A topic that was created again has another id, so its partitions are not kept. Partitions that the assignment
        lacks are revoked. If a start position is not committed yet, they are kept until it is: only this member can
        determine it, and the epoch stays while the coordinator waits for a revocation (R6, R39).
        """
        before = self._held
        target = {
            TopicPartition(self._names[topic_id], partition): topic_id
            for topic_id, partitions in self._given.items()
            if topic_id in self._names
            for partition in partitions
        }
        if before.keys() - target.keys() and not self.revoking:
            # The coordinator may have asked for them in an answer that was lost, at the earliest after that heartbeat.
            self._wait.since = self._now if self._accepted_before is None else self._accepted_before
        missing = frozenset(before.keys() - target.keys() - self._leaving)
        self._postponed = missing if self._wait.settling else _NOTHING
        target |= {tp: before[tp] for tp in self._postponed}
        self._leaving = frozenset(before.keys() - target.keys())
        kept = frozenset(tp for tp, topic_id in target.items() if before.get(tp) == topic_id)
        self._held = target | {tp: before[tp] for tp in self._leaving}
        self._wait.settling = self._wait.settles and (self._wait.settling or len(kept) < len(target))
        self._generation, self._withheld = self._epoch, None
        self._out.append(
            ev.Assigned(
                self._epoch,
                self._member_id,
                tuple(sorted(target)),
                kept,
                self._config.remote_assignor or "",
                leader=False,
                members=None,
                total=None,
                cooperative=True,
                revoked=self._leaving,
                withheld=1,
                leader_id=self._member_id,
                is_epoch=True,
            )
        )
        self._set_due()
        self._ask_for_topics()

    def _ask_for_topics(self) -> None:
        """Read the metadata until it has the names of all assigned topics."""
        if self._given.keys() <= self._names.keys():
            self._requests.clear(Timer.TOPICS)
        else:
            self._out.append(ev.NeedTopics(frozenset(self._topics), urgent=True))
            self._requests.set(Timer.TOPICS, self._now + TOPICS_AFTER_S)

    def _set_due(self) -> None:
        if self._leaving or self._postponed:
            self._requests.set(
                Timer.REJOIN, self._wait.since + rejoin_timeout_s(self._config.max_poll_interval_ms / 1000)
            )
        else:
            self._requests.clear(Timer.REJOIN)

    def _waited_enough(self) -> None:
        """Give revoked partitions up, before the group coordinator removes the member for them (R22)."""
        if self._postponed:
            self._note(WARNING, self._wait.left_unsettled(self._generation, self._now))
            self._wait.settling = False
            self._reconcile()
        if self._wait.batch.in_flight:
            self._out.append(ev.GaveUp(self._wait.gave_up(self._now, self._config.max_poll_interval_ms)))
        self._give_up_revoked()

    def _revocation_completed(self, event: ev.RevocationCompleted) -> None:
        if self._leaving:
            self._give_up_revoked()

    def _give_up_revoked(self) -> None:
        given_up, self._leaving = self._leaving, _NOTHING
        self._held = {tp: topic_id for tp, topic_id in self._held.items() if tp not in given_up}
        self._out.append(ev.Released(given_up))
        self._set_due()
        self._heartbeat()

    def _settled(self, event: ev.Settled) -> None:
        if self._is_stale:  # the commit of the start positions was refused, and follows in the next epoch
            return
        self._wait.settling = False
        if self._postponed:
            self._reconcile()
            self._describe()
        self._set_due()

    # -- the target of the group --------------------------------------------------------------------------------------

    def _describe(self) -> None:
        """Ask what the group will assign to this member. `AvailableNow` waits until it is owned (R11)."""
        if self._coordinator is None or self._requests.is_pending(Purpose.CONSUMER_DESCRIBE):
            return
        build = requests.consumer_describe(self._config)
        self._send(Purpose.CONSUMER_DESCRIBE, build, self._config.request_timeout_ms, optional=True)

    def _described(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        response: ConsumerGroupDescribeResponse = event.response
        group = response.groups[0] if response.groups else None
        if group is None or group.error_code in _NOT_DESCRIBED:
            if self._may_describe and group is not None:
                self._may_describe = False
                why = f"{error_of(group.error_code).name}: the query needs DESCRIBE for the group and for its topics"
                self._note(INFO, _CANNOT_DESCRIBE.format(why=why))
            self._will_get(0)
            return
        mine = next((each for each in group.members if each.member_id == self._member_id), None)
        if group.error_code or mine is None:
            self._cannot_describe(error_of(group.error_code).name if group.error_code else "this member is missing")
        elif mine.member_epoch == self._epoch and self._is_made_with_this_member(group):
            target = {
                TopicPartition(topic.topic_name, partition)
                for topic in mine.target_assignment.topic_partitions
                for partition in topic.partitions
            }
            self._undescribed = 0
            self._will_get(len(target - self._held.keys()))

    def _is_made_with_this_member(self, group: DescribedConsumerGroup) -> bool:
        """Return whether the coordinator has computed the target assignment for the group with this member.

        If short queries join and leave, the target assignment may always be older than the group epoch. After
        `UNEXPECTED_ATTEMPTS` such descriptions, a target assignment computed since the first of them is accepted.
        """
        if group.group_epoch == group.assignment_epoch:
            self._outdated = 0
            return True
        if not self._outdated:
            self._first_seen = group.group_epoch
        self._outdated += 1
        return self._outdated > UNEXPECTED_ATTEMPTS and group.assignment_epoch >= self._first_seen

    def _cannot_describe(self, why: str) -> None:
        """Ask again with the next heartbeat, but not for ever: `AvailableNow` would never end."""
        self._undescribed += 1
        if self._undescribed >= UNEXPECTED_ATTEMPTS:
            self._note(WARNING, _CANNOT_DESCRIBE.format(why=why))
            self._undescribed = 0
            self._will_get(0)

    def _describe_failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        if event.unsupported:
            self._will_get(0)

    def _will_get(self, withheld: int) -> None:
        if withheld != self._withheld:
            self._withheld = withheld
            self._out.append(ev.Withheld(withheld))

    # -- commits ------------------------------------------------------------------------------------------------------

    def _commit_refused(self, event: ev.CommitRefused) -> None:
        if (event.member_id, event.generation) != (self._member_id, self._generation):
            return
        reaction, name = reaction_to_commit(event.code), error_of(event.code).name
        match reaction:
            case Reaction.FIND:
                self._coordinator_lost(name)
            case Reaction.FATAL:
                self._fail(fatal_error(event.code, "commit", self._config, ""))
            case Reaction.STALE | Reaction.REJOIN if event.code in _OF_ANOTHER_EPOCH:
                # The answer to the next heartbeat has the new epoch. The commit is repeated in it. A heartbeat of the
                # epoch before is accepted only if it names the partitions owned.
                self._is_stale, self._reported = True, None
                self._set_backoff(Timer.COMMIT)
            case Reaction.STALE | Reaction.UNKNOWN:
                self._lost(name)

    # -- the cluster and the subscription -----------------------------------------------------------------------------

    def _subscribed(self, event: ev.Subscribed) -> None:
        super()._subscribed(event)
        if self._state is State.STABLE and self._reported is not None and self._reported.topics != self._topics:
            self._heartbeat()

    def _see(self, event: ev.MetadataRefreshed) -> None:
        self._names = {id_: name for id_, name in self._names.items() if name not in event.topics}
        self._names |= {topic.topic_id: name for name, topic in event.topics.items()}

    def _metadata_refreshed(self, event: ev.MetadataRefreshed) -> None:
        known = self._given.keys() & self._names.keys()
        self._see(event)
        if self._given.keys() & self._names.keys() != known:
            self._reconcile()
            self._heartbeat()


def _partitions_by_id(assignment: m.HeartbeatAssignment) -> Iterator[tuple[str, tuple[int, ...]]]:
    for topic in assignment.topic_partitions:
        yield topic.topic_id, tuple(sorted(topic.partitions))


_OF_AN_EARLIER_MEMBERSHIP = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID}
_OF_THE_PROTOCOL = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
_OF_ANOTHER_EPOCH = {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS}
_LEFT_NOTHING = {
    *(ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND),
    ErrorCode.FENCED_INSTANCE_ID,  # another process holds the place of this one
}
_NOT_DESCRIBED = {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}

_CANNOT_DESCRIBE = (
    "cannot describe the group: {why}. AvailableNow and Once end without waiting for partitions that other members "
    "have yet to give up"
)
_UNRELEASED = (
    "another process holds group.instance.id {instance!r} (UNRELEASED_INSTANCE_ID): a process of this query that was "
    "killed, or a second query with this id. Under the consumer protocol its place is free when its session expires "
    "(group.consumer.session.timeout.ms of the broker, 45 s by default). Waiting for that"
)

_UNJOINED, _FINDING, _JOINING = State.UNJOINED, State.FINDING, State.JOINING
_STABLE, _LEAVING, _LEFT, _FATAL = State.STABLE, State.LEAVING, State.LEFT, State.FATAL
_AGAIN = (_FINDING, _JOINING)
_IN_ALL = tuple(State)
_BEATS, _JOINS = Purpose.CONSUMER_HEARTBEAT, Purpose.CONSUMER_JOIN
_LEAVE, _DESCRIBES = Purpose.CONSUMER_LEAVE, Purpose.CONSUMER_DESCRIBE

ConsumerMembership.TABLE = table_of(
    chain(
        on(ev.Start, (_UNJOINED, _LEFT), ConsumerMembership._start, _FINDING),
        on(ev.UserDataChanged, _IN_ALL, ConsumerMembership._user_data_changed),
        on(ev.Subscribed, (_UNJOINED, *_AGAIN, _STABLE, _LEAVING, _LEFT), ConsumerMembership._subscribed),
        on(ev.Stop, (_UNJOINED, _FINDING), ConsumerMembership._stop, _LEFT),
        on(ev.Stop, (_JOINING, _STABLE, _FATAL), ConsumerMembership._stop, _LEAVING, _LEFT),
        on((Purpose.FIND, ev.RequestAnswered), (_FINDING,), ConsumerMembership._found, _JOINING),
        on((Purpose.FIND, ev.RequestAnswered), (_STABLE,), ConsumerMembership._found),
        on((Purpose.FIND, ev.RequestFailed), (_FINDING, _STABLE), ConsumerMembership._find_failed),
        on(Timer.RETRY, (_FINDING, _STABLE), ConsumerMembership._find),
        on(Timer.RETRY, (_JOINING,), ConsumerMembership._join),
        on((_JOINS, ev.RequestAnswered), (_JOINING,), ConsumerMembership._join_answered, _STABLE, _FINDING),
        on((_JOINS, ev.RequestFailed), (_JOINING,), ConsumerMembership._request_failed, _FINDING),
        on((_LEAVE, ev.RequestAnswered), (_JOINING,), ConsumerMembership._earlier_membership_ended),
        on((_LEAVE, ev.RequestFailed), (_JOINING,), ConsumerMembership._earlier_membership_ended),
        on(ev.CoordinatorGone, (_JOINING,), ConsumerMembership._coordinator_gone, _FINDING),
        on(ev.MetadataRefreshed, (_UNJOINED, *_AGAIN), ConsumerMembership._see),
        on(Timer.HEARTBEAT, (_STABLE,), ConsumerMembership._heartbeat),
        on(Timer.COMMIT, (_STABLE,), ConsumerMembership._heartbeat),
        on((_BEATS, ev.RequestAnswered), (_STABLE,), ConsumerMembership._heartbeat_answered, *_AGAIN),
        on((_BEATS, ev.RequestFailed), (_STABLE,), ConsumerMembership._request_failed),
        on((_DESCRIBES, ev.RequestAnswered), (_STABLE,), ConsumerMembership._described),
        on((_DESCRIBES, ev.RequestFailed), (_STABLE,), ConsumerMembership._describe_failed),
        on(Timer.SESSION, (_STABLE,), ConsumerMembership._session_over, *_AGAIN),
        on(Timer.TOPICS, (_STABLE,), ConsumerMembership._ask_for_topics),
        on(ev.CoordinatorGone, (_STABLE,), ConsumerMembership._coordinator_gone),
        on(ev.CommitRefused, (_STABLE,), ConsumerMembership._commit_refused, *_AGAIN),
        on(ev.MetadataRefreshed, (_STABLE,), ConsumerMembership._metadata_refreshed),
        on(ev.Planned, _IN_ALL, ConsumerMembership._planned),
        on(ev.Asked, _IN_ALL, ConsumerMembership._asked),
        on(ev.Idle, _IN_ALL, ConsumerMembership._idle),
        on(ev.RevocationCompleted, (_STABLE,), ConsumerMembership._revocation_completed),
        on(ev.Settled, (_STABLE,), ConsumerMembership._settled),
        on(Timer.REJOIN, (_STABLE,), ConsumerMembership._waited_enough),
        on((_LEAVE, ev.RequestAnswered), (_LEAVING,), ConsumerMembership._leave_answered, _LEFT),
        on((_LEAVE, ev.RequestFailed), (_LEAVING,), ConsumerMembership._leave_failed, _LEFT),
        on(ev.CommitAccepted, _IN_ALL, ignore),  # it does not extend the session of such a member
    ),
    ignored=(
        *(ev.Tick, ev.Stop, ev.Subscribed, ev.MetadataRefreshed, ev.CoordinatorGone),
        *(ev.CommitRefused, ev.RevocationCompleted, ev.Settled),
    ),
)
