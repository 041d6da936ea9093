"""Assignments: made by the group's leader, read by each member, and kept across rebalances (R23, R25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from streamgroup.errors import DecodeError
from streamgroup.frozen import frozen
from streamgroup.group.assignor_types import NO_GENERATION, GroupMember
from streamgroup.group.assignors import ASSIGNORS
from streamgroup.group.events import MetadataRefreshed
from streamgroup.group.sticky import decode_user_data
from streamgroup.group.user_data import decode_identity
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    each_partition,
    encode_assignment,
)
from streamgroup.kafka.wire.messages.admin import DescribeGroupsResponse
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from streamgroup.model import GroupState, TopicInfo, TopicPartition


@frozen
class Roster:
    """The members of a generation, as the JoinGroup response lists them for the leader."""

    members: Mapping[str, GroupMember]
    unreadable: Mapping[str, str]
    """The members with an invalid subscription, and why. They get no partitions."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for member in self.members.values() for topic in member.topics)


@frozen
class Overview:
    """The assignments of all members of a generation, in numbers."""

    counts: Mapping[str, int]
    """The number of partitions by topic."""
    members: frozenset[str]
    """The member ids."""
    withheld: int = 0
    """The number of partitions that have no owner until their former owners give them up (R25)."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@frozen
class Division:
    """The result of `divide`: encoded assignments by member id, and their numbers."""

    assignments: Mapping[str, bytes]
    overview: Overview

    @property
    def missing(self) -> list[str]:
        return [topic for topic, count in self.overview.counts.items() if count == 0]


def read_roster(members: Iterable[JoinGroupResponseMember]) -> Roster:
    """Decode the subscription of each member. An invalid one is not an error: only that member gets no partitions."""
    read: dict[str, GroupMember] = {}
    unreadable: dict[str, str] = {}
    for member in members:
        try:
            read[member.member_id] = _member(decode_subscription(member.metadata), member.group_instance_id)
        except DecodeError as error:
            unreadable[member.member_id] = str(error)
            read[member.member_id] = GroupMember((), member.group_instance_id)
    return Roster(read, unreadable)


def _member(subscription: ConsumerSubscription, instance_id: str | None) -> GroupMember:
    """Return a member with its generation, which in older versions is in the user data, and with its weight."""
    generation = subscription.generation_id
    identity = decode_identity(subscription.user_data)
    return GroupMember(
        subscription.topics,
        instance_id,
        owned=each_partition(subscription.owned_partitions),
        generation=decode_user_data(subscription.user_data) if generation == NO_GENERATION else generation,
        rack=subscription.rack_id,
        weight=1 if identity is None else identity.weight,
    )


def divide(strategy: str, roster: Roster, topics: Mapping[str, TopicInfo]) -> Division:
    """Return each member's assignment under `strategy`.

    A subscribed topic that is not in `topics` does not exist and counts as 0 partitions. The assignments have no user
    data: a broker converts a group to the protocol of KIP-848 only if no assignment has any.
    """
    shares = ASSIGNORS[strategy](roster.members, topics)
    counts = counts_of(roster.topics, topics)
    withheld = sum(counts.values()) - sum(map(len, shares.values()))
    assignments = {
        member: encode_assignment(ConsumerAssignment(assigned_partitions=by_topic(share)))
        for member, share in shares.items()
    }
    return Division(assignments, Overview(counts, frozenset(roster.members), withheld))


def read_overview(response: DescribeGroupsResponse, seen: Mapping[str, int], *, cooperative: bool) -> Overview | None:
    """Read the overview of a generation from the description of its group; None if the group is not stable.

    `seen` are the numbers of partitions of this member's topics in the metadata. Under a cooperative strategy a
    partition of them without an owner is withheld. A broker hides the assignments of a group that rebalances, and of a
    group with consumers of KIP-848.
    """
    group = response.groups[0] if response.groups else None
    if group is None or group.error_code or group.group_state != GroupState.STABLE:
        return None
    counts: Counter[str] = Counter()
    for member in group.members:
        with suppress(DecodeError):
            counts.update(dict.fromkeys(decode_subscription(member.member_metadata).topics, 0))
        if member.member_assignment:
            try:
                assignment = decode_assignment(member.member_assignment)
            except DecodeError:  # of another client
                return None
            counts.update(tp.topic for tp in each_partition(assignment.assigned_partitions))
    withheld = {topic: seen[topic] - counts[topic] for topic in seen if cooperative and seen[topic] > counts[topic]}
    counts.update(withheld)
    return Overview(counts, frozenset(member.member_id for member in group.members), sum(withheld.values()))


def counts_of(names: Iterable[str], topics: Mapping[str, TopicInfo]) -> dict[str, int]:
    """Return the number of partitions of each of these topics; 0 for a topic that does not exist."""
    return {name: len(topics[name].partitions) if name in topics else 0 for name in sorted(names)}


def changed_counts(counts: Mapping[str, int], topics: Mapping[str, TopicInfo], asked: frozenset[str]) -> list[str]:
    """Return the counts that have changed, as `orders: 6 -> 12`, for topics of the request (`asked`)."""
    now = counts_of(asked & counts.keys(), topics)
    return [f"{name}: {counts[name]} -> {count}" for name, count in now.items() if count != counts[name]]


@frozen
class MemberAssignment:
    """The assignment of one member."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    foreign: list[str]
    """Assigned topics that the member has not subscribed to; their partitions are not in `partitions`."""


def read_assignment(response: SyncGroupResponse, subscribed: Collection[str]) -> MemberAssignment:
    """Read the assignment of a member with this subscription. Raises DecodeError if it is invalid."""
    if not response.assignment:  # the leader, another client, may have left this member out
        return MemberAssignment((), [])
    try:
        assignment = decode_assignment(response.assignment)
    except DecodeError as error:
        advice = "look for a member of another client with a faulty assignor"
        raise DecodeError(f"cannot read the assignment from the group's leader: {error}; {advice}") from error
    assigned = set(each_partition(assignment.assigned_partitions))
    partitions = tuple(sorted(tp for tp in assigned if tp.topic in subscribed))
    foreign = sorted({tp.topic for tp in assigned} - set(subscribed))
    return MemberAssignment(partitions, foreign)


class Leadership:
    """Tracks whether this member leads the group, and lets the leader assign partitions.

    The leader also rejoins when the number of partitions of a topic changes (R23).
    """

    __slots__ = ("_counts", "_seen", "_unassigned", "_watches", "divided", "leader_id", "leads", "roster")

    def __init__(self) -> None:
        self.leader_id = ""
        self.leads = False
        self.roster: Roster | None = None
        """The members that the JoinGroup response lists for the leader; None if this member does not lead."""
        self.divided: Overview | None = None
        """The assignments that this member made as the leader of this generation; None if it made none."""
        self._unassigned = False
        self._counts: Mapping[str, int] | None = None
        """By topic the number of partitions from which this generation was assigned; None if it is unknown."""
        self._seen: dict[str, TopicInfo | None] = {}
        """The topics in the newest metadata; None for one that does not exist."""
        self._watches = False

    @property
    def topics(self) -> frozenset[str]:
        """The topics of all members; empty if this member does not lead."""
        return frozenset() if self.roster is None else self.roster.topics

    @property
    def is_to_assign(self) -> bool:
        """Whether this member leads and has not assigned the partitions of this generation yet."""
        return self._unassigned

    def rejoin(self) -> None:
        """Forget the members: the next JoinGroup response lists them again."""
        self.roster, self._unassigned = None, False

    def joined(self, response: JoinGroupResponse) -> None:
        """Read from the JoinGroup response whether this member leads, and the members of the group."""
        self.leader_id = response.leader
        self.leads = response.leader == response.member_id
        self.divided = None
        self.roster = read_roster(response.members) if self.leads else None
        self._unassigned = self.leads and not response.skip_assignment

    def assign(self, strategy: str, event: MetadataRefreshed) -> Division | None:
        """Return the assignment of all members; None if it is not due or the metadata lacks topics."""
        if self.roster is None or not self._unassigned or not self.roster.topics <= event.asked:
            return None
        self._unassigned = False
        division = divide(strategy, self.roster, event.topics)
        self.divided = division.overview
        return division

    def seen(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each of these topics in the newest metadata."""
        known = {name: self._seen[name] for name in names if name in self._seen}
        return {name: 0 if topic is None else len(topic.partitions) for name, topic in known.items()}

    def assigned(self, overview: Overview | None, *, restarted: bool) -> None:
        """Store the counts of this generation. `overview` is None if they are unknown.

        `restarted`: a static member joined without a member id. In that case the JoinGroup response may name the member
        id of the member's previous process as the leader. So this member may lead without knowing it, unless the leader
        is in the group (R23).
        """
        self._counts = None if overview is None else overview.counts
        self._watches = self.leads or (restarted and overview is not None and self.leader_id not in overview.members)

    def followed(self, own: frozenset[str]) -> frozenset[str]:
        """Return the topics for which this member counts partitions; `own` is its subscription."""
        if not self._watches:
            return own
        return own | (frozenset() if self._counts is None else self._counts.keys()) | self.topics

    def see(self, event: MetadataRefreshed) -> None:
        """Store new metadata. It may be only of some topics."""
        self._seen |= dict.fromkeys(event.asked)
        self._seen |= event.topics

    def changes(self, event: MetadataRefreshed) -> list[str]:
        """Return the topics whose number of partitions has changed since the assignment, as `orders: 6 -> 12`.

        Only the leader compares, or a member that may be the leader. A partition whose leader moves changes no count.
        """
        if not self._watches:
            return []
        if self._counts is None:  # another client assigned, and the group is not described: compare from now on
            if self.topics <= event.asked:
                self._counts = counts_of(self.topics, event.topics)
            return []
        return changed_counts(self._counts, event.topics, event.asked)


_NOTHING: frozenset[TopicPartition] = frozenset()


@frozen
class Change:
    """The difference between an assignment and the one before it."""

    kept: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    """Held until now and not assigned any more: another JoinGroup gives them up (KIP-429). Cooperative members only."""
    withheld: frozenset[TopicPartition] = _NOTHING
    """Claimed by the JoinGroup, and neither assigned nor kept. They are assigned once no JoinGroup claims them."""


class HeldAssignment:
    """The partitions assigned by the last completed SyncGroup, with their member id and generation.

    `can_plan`: the member plans and commits these partitions during a rebalance (R25). It is False once the group may
    have completed a rebalance without this member.
    """

    __slots__ = ("can_plan", "claimed", "cooperative", "generation", "held", "leaving", "member_id")

    def __init__(self, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.forget()

    def forget(self) -> None:
        """Own no partitions: the membership is over, and no partition is kept."""
        self.held = self.leaving = self.claimed = _NOTHING
        self.member_id, self.generation = "", -1
        self.can_plan = False

    @property
    def stands(self) -> bool:
        """Whether partitions are kept during a JoinGroup: the member is cooperative and has a generation."""
        return self.cooperative and self.generation >= 0

    def is_of(self, member_id: str, generation: int) -> bool:
        """Return whether the partitions were assigned to this member id in this generation."""
        return (member_id, generation) == (self.member_id, self.generation)

    def precedes(self, member_id: str, generation: int) -> bool:
        """Return whether partitions may be kept in this generation (R18).

        The member id must be the same, and the partitions must be of the generation directly before. They are of the
        same generation if the group coordinator had no reason to rebalance.
        """
        return member_id == self.member_id and generation - self.generation in {0, 1}

    def claim(self) -> tuple[frozenset[TopicPartition], int]:
        """Return the partitions to list as owned in JoinGroup, and their generation; empty for an eager member."""
        self.claimed = self.held if self.cooperative else _NOTHING
        return self.claimed, self.generation if self.cooperative else -1

    def assigned(self, member_id: str, generation: int, partitions: Iterable[TopicPartition]) -> Change:
        """Store a new assignment. Revoked partitions stay until `give_up`, so that their batch can be completed."""
        given = frozenset(partitions)
        before = self.held if self.precedes(member_id, generation) else _NOTHING
        self.leaving = before - given if self.cooperative else _NOTHING
        self.held = given | self.leaving
        self.member_id, self.generation, self.can_plan = member_id, generation, False
        return Change(given & before, self.leaving, self.claimed - self.held)

    def give_up(self) -> frozenset[TopicPartition]:
        """Give up the revoked partitions and return them."""
        given_up, self.leaving = self.leaving, _NOTHING
        self.held -= given_up
        return given_up
