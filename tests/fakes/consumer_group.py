"""A group of the consumer protocol (KIP-848) as Kafka's GroupMetadataManager keeps it: epochs, assignments, timers.

`group_coordinator.py` answers requests by it, as it does by the classic `group.Group`. Followed from the broker's
`GroupMetadataManager`, `TargetAssignmentBuilder` and `CurrentAssignmentBuilder`. All that this group keeps is in the
broker's log before an answer leaves, so a move of the coordinator loses nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroup.errors import ErrorCode as E
from streamgroup.kafka.wire.messages.admin import (
    ConsumerGroupAssignment,
    ConsumerGroupMember,
    ConsumerGroupTopicPartitions,
    DescribedConsumerGroup,
    DescribedGroup,
)
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from streamgroup.model import TopicInfo, TopicPartition
from tests.fakes.group import Clock, GroupState

LEFT_FOR_A_WHILE = -2

Partition = tuple[str, int]
"""The id of a topic and the number of a partition."""


@dataclass(eq=False, slots=True)
class ConsumerMember:
    """A member as the coordinator knows it."""

    member_id: str
    instance_id: str | None
    epoch: int = 0
    previous_epoch: int = -1
    topics: tuple[str, ...] = ()
    rebalance_s: float = 0.0
    assigned: dict[Partition, int] = field(default_factory=dict)
    """The partitions that it has, and the epoch in which it got each."""
    revoked: dict[Partition, int] = field(default_factory=dict)
    """Those that it has yet to give up."""
    deadline: float = 0.0
    revoke_round: int = 0
    """Which revocation is under way."""


@dataclass(frozen=True)
class Release:
    """The differences between the brokers' releases."""

    window: bool = True
    """Since 4.3 a commit of an earlier epoch counts for what the member had by then and still has (KIP-1251)."""
    rejoins: bool = True
    """Since 4.2 a member that the coordinator still knows may join with epoch 0 (KAFKA-19233)."""
    interval_s: float = 0.0
    """Since 4.3 the coordinator computes at most one target in this time (`group.consumer.assignment.interval.ms`)."""


class ConsumerGroup:
    """One group. `topics()` returns the topics that there are, `session_s` and `heartbeat_s` are the broker's."""

    def __init__(
        self,
        clock: Clock,
        topics: Callable[[], Mapping[str, TopicInfo]],
        *,
        session_s: float = 45.0,
        heartbeat_s: float = 5.0,
        release: Release = Release(),
    ) -> None:
        self.clock = clock
        self.members: dict[str, ConsumerMember] = {}
        self.epoch = 0
        self.target: dict[str, set[Partition]] = {}
        """The target assignment, by member."""
        self._target_epoch = 0
        """The epoch of the group that the target is of."""
        self._assigned_at = -1e9
        self._counted: set[str] = set()
        """The members that the group's epoch takes into account."""
        self._topics = topics
        self._counts: dict[str, tuple[str, int]] = {}
        self._session_s = session_s
        self._heartbeat_s = heartbeat_s
        self._release = release
        self._loads = 0
        self._fenced: set[tuple[str, int]] = set()
        """The members that were refused, each with the epoch that it sent."""

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def generation(self) -> int:
        return self.epoch

    # -- who is who ---------------------------------------------------------------------------------------------------

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None:
            static = self.static_member(instance_id)
            if static is not None and static.member_id != member_id:
                return E.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else E.UNKNOWN_MEMBER_ID

    def check(self, member_id: str, instance_id: str | None, epoch: int) -> int:
        """Why a member of this epoch is not one of the group's (any more), or 0."""
        code = self.check_member(member_id, instance_id)
        return code or (0 if epoch == self.members[member_id].epoch else E.STALE_MEMBER_EPOCH)

    def refusal_of_commit(self, member_id: str, instance_id: str | None, epoch: int) -> int:
        """Why no partition of a commit is accepted, or 0."""
        code = self.check_member(member_id, instance_id)
        if code:
            return code
        member = self.members[member_id]
        if epoch > member.epoch or (epoch < member.epoch and not self._release.window):
            return E.STALE_MEMBER_EPOCH
        return 0

    def refusal_of_partition(self, member_id: str, epoch: int, tp: TopicPartition) -> int:
        """Why an accepted commit does not count for one partition, or 0."""
        member = self.members[member_id]
        if epoch == member.epoch:
            return 0
        had = member.assigned | member.revoked
        gained = had.get((self._topics()[tp.topic].topic_id, tp.partition))
        return 0 if gained is not None and gained <= epoch else E.STALE_MEMBER_EPOCH

    def has_fenced(self, member_id: str, instance_id: str | None, epoch: int) -> bool:
        """Whether a member of this epoch has been put out, or was refused as one whose epoch is over."""
        return (member_id, epoch) in self._fenced or bool(self.check_member(member_id, instance_id))

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        owned = None if request.topic_partitions is None else _partitions(request.topic_partitions)
        if request.member_epoch < 0:
            return self._leave(request)
        if request.member_epoch == 0 and (owned or owned is None or request.rebalance_timeout_ms < 0):
            return ConsumerGroupHeartbeatResponse(error_code=E.INVALID_REQUEST)
        member = self._member_of(request, owned)
        if isinstance(member, int):
            self._fenced.add((request.member_id, request.member_epoch))
            return ConsumerGroupHeartbeatResponse(error_code=member)
        if request.rebalance_timeout_ms >= 0:
            member.rebalance_s = request.rebalance_timeout_ms / 1000
        counts = {name: (info.topic_id, len(info.partitions)) for name, info in self._topics().items()}
        names = member.topics if request.subscribed_topic_names is None else request.subscribed_topic_names
        if (names, counts) != (member.topics, self._counts) or member.member_id not in self._counted:
            member.topics, self._counts = names, counts
            self._counted.add(member.member_id)
            self.epoch += 1
        self._assign()
        before = dict(member.assigned)
        self._reconcile(member, owned)
        member.deadline = self.clock.now + self._session_s
        is_full = request.member_epoch == 0 or request.subscribed_topic_names is not None or owned is not None
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=int(self._heartbeat_s * 1000),
            assignment=_assignment(member.assigned) if is_full or member.assigned != before else None,
        )

    def _member_of(self, request: ConsumerGroupHeartbeatRequest, owned: set[Partition] | None) -> ConsumerMember | int:
        member_id, instance_id, epoch = request.member_id, request.instance_id, request.member_epoch
        static = None if instance_id is None else self.static_member(instance_id)
        if static is not None and static.member_id != member_id:
            is_free = static.epoch == LEFT_FOR_A_WHILE
            refusal = E.FENCED_INSTANCE_ID if epoch != 0 else 0 if is_free else E.UNRELEASED_INSTANCE_ID
            return refusal or self._replace(static, member_id)
        member = self.members.get(member_id)
        if member is None:
            return E.UNKNOWN_MEMBER_ID if epoch != 0 else self._add(member_id, instance_id)
        return self._refusal_of_epoch(member, epoch, owned) or member

    def _refusal_of_epoch(self, member: ConsumerMember, epoch: int, owned: set[Partition] | None) -> int:
        """Why a known member may not send this epoch, or 0."""
        if epoch == 0:
            return self._rejoins(member)
        is_lost = epoch == member.previous_epoch and owned is not None and owned <= member.assigned.keys()
        return 0 if epoch == member.epoch or (epoch < member.epoch and is_lost) else E.FENCED_MEMBER_EPOCH

    def _rejoins(self, member: ConsumerMember) -> int:
        is_repeated = member.previous_epoch == 0
        if member.epoch == LEFT_FOR_A_WHILE:
            return 0
        if member.instance_id is not None:
            return E.UNRELEASED_INSTANCE_ID
        if not self._release.rejoins and not is_repeated:
            return E.FENCED_MEMBER_EPOCH
        if not is_repeated:
            member.assigned, member.revoked, member.epoch = {}, {}, 0
        return 0

    def _add(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        member = self.members[member_id] = ConsumerMember(member_id, instance_id)
        member.deadline = self.clock.now + self._session_s
        self._watch_session(member)
        return member

    def _replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under a new id: it has what its predecessor had."""
        self.members = {member_id if each is old else each.member_id: each for each in self.members.values()}
        self.target = {member_id if each == old.member_id else each: of for each, of in self.target.items()}
        self._counted = {member_id if each == old.member_id else each for each in self._counted}
        old.member_id = member_id
        return old

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        code = self.check_member(request.member_id, request.instance_id)
        if not code:
            self.clock.note("broker", f"{request.member_id} leaves with epoch {request.member_epoch}")
            if request.member_epoch == LEFT_FOR_A_WHILE:
                self.members[request.member_id].epoch = LEFT_FOR_A_WHILE
            else:
                self.remove(request.member_id)
        return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=request.member_epoch)

    def remove(self, member_id: str) -> None:
        """A member leaves or is put out."""
        del self.members[member_id]
        self._counted.discard(member_id)
        self.epoch += 1
        self._assign()

    def alive(self, member_id: str) -> None:
        """A commit does not extend the session of such a member."""

    def _watch_session(self, member: ConsumerMember) -> None:
        load = self._loads

        def look() -> None:
            if self._loads != load or self.members.get(member.member_id) is not member:
                return
            if self.clock.now >= member.deadline:
                self.clock.note("broker", f"session of {member.member_id} expired")
                self.remove(member.member_id)
            else:
                self.clock.at(member.deadline, look)

        self.clock.at(member.deadline, look)

    # -- the target assignment ----------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Compute the target of the group's epoch if it is due: even, and as few moves as that allows."""
        if self._target_epoch == self.epoch or self.clock.now < self._assigned_at + self._release.interval_s:
            return
        self._target_epoch, self._assigned_at = self.epoch, self.clock.now
        members = sorted(self.members)
        before, self.target = self.target, {member: set() for member in members}
        for name, (topic_id, count) in sorted(self._counts.items()):
            takers = [member for member in members if name in self.members[member].topics]
            least, more = divmod(count, len(takers)) if takers else (0, 0)
            free = set(range(count))
            for n, member in enumerate(takers):
                room = least + (n < more)
                keeps = sorted(p for p in free if (topic_id, p) in before.get(member, ()))[:room]
                self.target[member] |= {(topic_id, p) for p in keeps}
                free -= set(keeps)
            for n, member in enumerate(takers):
                has = sum(1 for each, _ in self.target[member] if each == topic_id)
                for partition in sorted(free)[: max(0, least + (n < more) - has)]:
                    self.target[member].add((topic_id, partition))
                    free.discard(partition)
        shares = {member: len(of) for member, of in self.target.items()}
        self.clock.note("broker", f"epoch {self.epoch}: {shares}")

    # -- towards the target -------------------------------------------------------------------------------------------

    def _reconcile(self, member: ConsumerMember, owned: set[Partition] | None) -> None:
        if member.revoked:
            if owned is None or owned & member.revoked.keys():
                return  # it stays in its epoch until it has given them up
            member.revoked = {}
            member.revoke_round += 1
        target = self.target.get(member.member_id, set())
        if member.epoch == self._target_epoch and member.assigned.keys() == target:
            return
        to_revoke = {tp: epoch for tp, epoch in member.assigned.items() if tp not in target}
        if to_revoke and member.epoch != LEFT_FOR_A_WHILE:
            member.assigned = {tp: epoch for tp, epoch in member.assigned.items() if tp in target}
            member.revoked = to_revoke
            self._expect_revocation(member)
            return
        others = {tp for each in self.members.values() if each is not member for tp in (*each.assigned, *each.revoked)}
        kept = {tp: epoch for tp, epoch in member.assigned.items() if tp in target}
        gained = dict.fromkeys(sorted(target - kept.keys() - others), self._target_epoch)
        member.assigned = kept | gained
        if member.epoch != self._target_epoch:
            member.previous_epoch, member.epoch = member.epoch, self._target_epoch

    def _expect_revocation(self, member: ConsumerMember) -> None:
        member.revoke_round += 1
        this_round, load = member.revoke_round, self._loads

        def due() -> None:
            is_same = self._loads == load and self.members.get(member.member_id) is member
            if is_same and member.revoked and member.revoke_round == this_round:
                self.clock.note("broker", f"{member.member_id} did not give partitions up in time")
                self.remove(member.member_id)

        self.clock.after(member.rebalance_s, due)

    # -- descriptions -------------------------------------------------------------------------------------------------

    def described(self, group_id: str) -> DescribedGroup:
        """DescribeGroups does not describe such a group (KIP-1043)."""
        return DescribedGroup(group_id=group_id, group_state="Dead", error_code=E.GROUP_ID_NOT_FOUND)

    def described_consumers(self, group_id: str) -> DescribedConsumerGroup:
        names = {topic_id: name for name, (topic_id, _) in self._counts.items()}

        def partitions(of: set[Partition]) -> ConsumerGroupAssignment:
            by_id: dict[str, list[int]] = {}
            for topic_id, partition in sorted(of):
                by_id.setdefault(topic_id, []).append(partition)
            return ConsumerGroupAssignment(
                topic_partitions=tuple(
                    ConsumerGroupTopicPartitions(topic_id=i, topic_name=names[i], partitions=tuple(ps))
                    for i, ps in by_id.items()
                    if i in names
                )
            )

        members = tuple(
            ConsumerGroupMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                member_epoch=m.epoch,
                subscribed_topic_names=m.topics,
                assignment=partitions(set(m.assigned)),
                target_assignment=partitions(self.target.get(m.member_id, set())),
            )
            for m in self.members.values()
        )
        is_settled = all(m.epoch == self._target_epoch and not m.revoked for m in self.members.values())
        state = "Stable" if is_settled else "Reconciling"
        if not members:
            state = "Empty"
        elif self._target_epoch != self.epoch:
            state = "Assigning"
        return DescribedConsumerGroup(
            group_id=group_id,
            group_state=state,
            group_epoch=self.epoch,
            assignment_epoch=self._target_epoch,
            assignor_name="uniform",
            members=members,
        )

    def delete(self) -> None:
        """The group, which is empty, expires: its epochs begin at 1 again."""
        assert not self.members
        self.epoch, self.target, self._counts = 0, {}, {}
        self._target_epoch, self._assigned_at = 0, -1e9

    def reload(self, *, answer: bool, ready_at: float) -> None:
        """Another broker loads the group from its log. Each member's timers begin again."""
        self._loads += 1
        self.members = {member_id: replace(member) for member_id, member in self.members.items()}
        for member in self.members.values():
            member.deadline = ready_at + self._session_s
            self._watch_session(member)
            if member.revoked:
                self._expect_revocation(member)


def _partitions(topics: tuple[HeartbeatTopicPartitions, ...]) -> set[Partition]:
    return {(topic.topic_id, partition) for topic in topics for partition in topic.partitions}


def _assignment(assigned: Mapping[Partition, Any]) -> HeartbeatAssignment:
    by_id: dict[str, list[int]] = {}
    for topic_id, partition in sorted(assigned):
        by_id.setdefault(topic_id, []).append(partition)
    return HeartbeatAssignment(
        topic_partitions=tuple(
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in by_id.items()
        )
    )
