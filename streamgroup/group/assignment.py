"""Assignments: made by the group's leader, read by each member, and kept across rebalances (R23, R25)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroup.errors import DecodeError
from streamgroup.group.assignor_types import NO_GENERATION, GroupMember
from streamgroup.group.assignors import ASSIGNORS, JAVAS
from streamgroup.group.events import MetadataRefreshed
from streamgroup.group.sticky import decode_user_data
from streamgroup.group.user_data import AssignmentBasis, decode_basis, encode_basis
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    each_partition,
    encode_assignment,
)
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from streamgroup.model import TopicInfo, TopicPartition


@dataclass(frozen=True, slots=True)
class Roster:
    """The members of a generation, as the JoinGroup response lists them for the leader."""

    members: Mapping[str, GroupMember]
    unreadable: Mapping[str, str]
    """The members with an invalid subscription, and why. They get no partitions."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for member in self.members.values() for topic in member.topics)


@dataclass(frozen=True, slots=True)
class Division:
    """The result of `divide`: encoded assignments by member id, and the topic counts from which they were made."""

    assignments: Mapping[str, bytes]
    basis: AssignmentBasis

    @property
    def missing(self) -> list[str]:
        return [topic for topic, count in self.basis.counts.items() if count == 0]


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
    """Return a member with its generation, which in older versions is in the user data."""
    generation = subscription.generation_id
    return GroupMember(
        subscription.topics,
        instance_id,
        owned=each_partition(subscription.owned_partitions),
        generation=decode_user_data(subscription.user_data) if generation == NO_GENERATION else generation,
        rack=subscription.rack_id,
    )


def divide(strategy: str, roster: Roster, topics: Mapping[str, TopicInfo], leader: str) -> Division:
    """Return each member's assignment under `strategy`, with the basis as user data if another member needs it.

    The basis is the number of partitions of each topic and of members. `leader` is the member id of the group's leader,
    which assigns. A subscribed topic that is not in `topics` does not exist and counts as 0 partitions.

    A consumer of KIP-848 can join a group of classic members only if no assignment has user data. Under the strategies
    of Java's consumers the basis is therefore written in two cases only. A static leader that restarts rejoins without
    a rebalance, and reads from its assignment which counts to compare with (R23). And while partitions are withheld,
    members must know that another rebalance follows (R25); no consumer of KIP-848 can join until then.
    """
    shares = ASSIGNORS[strategy](roster.members, topics)
    counts = counts_of(roster.topics, topics)
    withheld = sum(counts.values()) - sum(map(len, shares.values()))
    basis = AssignmentBasis(counts, len(roster.members), withheld)
    is_static = leader in roster.members and roster.members[leader].instance_id is not None
    user_data = encode_basis(basis) if is_static or withheld or strategy not in JAVAS else None
    assignments = {
        member: encode_assignment(ConsumerAssignment(assigned_partitions=by_topic(share), user_data=user_data))
        for member, share in shares.items()
    }
    return Division(assignments, basis)


def counts_of(names: Iterable[str], topics: Mapping[str, TopicInfo]) -> dict[str, int]:
    """Return the number of partitions of each of these topics; 0 for a topic that does not exist."""
    return {name: len(topics[name].partitions) if name in topics else 0 for name in sorted(names)}


def changed_counts(basis: AssignmentBasis, topics: Mapping[str, TopicInfo], asked: frozenset[str]) -> list[str]:
    """Return the counts that differ from the basis, as `orders: 6 -> 12`, for topics of the request (`asked`)."""
    now = counts_of(asked & basis.counts.keys(), topics)
    return [f"{name}: {basis.counts[name]} -> {count}" for name, count in now.items() if count != basis.counts[name]]


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of one member."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    foreign: list[str]
    """Assigned topics that the member has not subscribed to; their partitions are not in `partitions`."""
    basis: AssignmentBasis | None
    """The basis of the assignment; None if the leader did not write it."""


def read_assignment(response: SyncGroupResponse, subscribed: Collection[str]) -> MemberAssignment:
    """Read the assignment of a member with this subscription. Raises DecodeError if it is invalid."""
    if not response.assignment:  # the leader, another client, may have left this member out
        return MemberAssignment((), [], None)
    try:
        assignment = decode_assignment(response.assignment)
    except DecodeError as error:
        advice = "look for a member of another client with a faulty assignor"
        raise DecodeError(f"cannot read the assignment from the group's leader: {error}; {advice}") from error
    assigned = set(each_partition(assignment.assigned_partitions))
    partitions = tuple(sorted(tp for tp in assigned if tp.topic in subscribed))
    foreign = sorted({tp.topic for tp in assigned} - set(subscribed))
    return MemberAssignment(partitions, foreign, decode_basis(assignment.user_data))


class Leadership:
    """Tracks whether this member leads the group, and lets the leader assign partitions.

    The leader also rejoins when the number of partitions of a topic changes (R23).
    """

    __slots__ = ("_basis", "_divided", "_member_id", "_unassigned", "_watches", "leader_id", "leads", "roster")

    def __init__(self) -> None:
        self.leader_id = ""
        self.leads = False
        self.roster: Roster | None = None
        """The members that the JoinGroup response lists for the leader; None if this member does not lead."""
        self._unassigned = False
        self._member_id = ""
        self._divided: AssignmentBasis | None = None
        """The basis of the assignments that this member made as the leader of this generation."""
        self._basis: AssignmentBasis | None = None
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
        self._member_id, self._divided = response.member_id, None
        self.roster = read_roster(response.members) if self.leads else None
        self._unassigned = self.leads and not response.skip_assignment

    def assign(self, strategy: str, event: MetadataRefreshed) -> Division | None:
        """Return the assignment of all members; None if it is not due or the metadata lacks topics."""
        if self.roster is None or not self._unassigned or not self.roster.topics <= event.asked:
            return None
        self._unassigned = False
        division = divide(strategy, self.roster, event.topics, self._member_id)
        self._divided = division.basis
        return division

    def assigned(self, basis: AssignmentBasis | None, *, restarted: bool) -> AssignmentBasis | None:
        """Store and return the counts from which this generation was assigned; None if they are unknown.

        `basis` comes from the user data of the assignment; a leader that assigned itself needs none. `restarted`: a
        static member joined without a member id. In that case the JoinGroup response may name the member id of the
        member's previous process as the leader, so this member may lead without knowing it (R23).
        """
        self._basis = basis or self._divided
        self._watches = self.leads or (restarted and basis is not None)
        return self._basis

    def followed(self, own: frozenset[str]) -> frozenset[str]:
        """Return the topics for which this member counts partitions; `own` is its subscription."""
        if not self._watches:
            return own
        return own | (frozenset() if self._basis is None else self._basis.counts.keys()) | self.topics

    def changes(self, event: MetadataRefreshed) -> list[str]:
        """Return the topics whose number of partitions has changed since the assignment, as `orders: 6 -> 12`.

        Only the leader compares, or a member that may be the leader. A partition whose leader moves changes no count.
        """
        if not self._watches:
            return []
        if self._basis is None:  # a leader of another client assigned: compare from now on
            if self.topics <= event.asked:
                self._basis = AssignmentBasis(counts_of(self.topics, event.topics), 0)
            return []
        return changed_counts(self._basis, event.topics, event.asked)


_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
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
