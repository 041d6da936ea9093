"""The part of a member in the whole group: it assigns the partitions as leader, and follows their number (R23)."""

from __future__ import annotations

from streamgroup.group.events import TopicsKnown
from streamgroup.group.leading import Division, Roster, changed_counts, counts_of, divide, read_roster
from streamgroup.group.userdata import AssignmentBasis
from streamgroup.wire.messages.group import JoinGroupResponse


class Leadership:
    """Whether this member leads the group, what it knows of the other members, and which topics it follows."""

    __slots__ = ("_basis", "_unassigned", "_watches", "leads", "roster")

    def __init__(self) -> None:
        self.leads = False
        self.roster: Roster | None = None
        """The members as JoinGroup told them to the leader; None where this member does not lead."""
        self._unassigned = False
        self._basis: AssignmentBasis | None = None
        self._watches = False

    @property
    def topics(self) -> frozenset[str]:
        """The topics of all members, as far as this member knows them."""
        return frozenset() if self.roster is None else self.roster.topics

    @property
    def is_to_assign(self) -> bool:
        """Whether this member leads and has not assigned the partitions of this generation yet."""
        return self._unassigned

    def rejoin(self) -> None:
        """Forget the members: the next JoinGroup tells them anew."""
        self.roster, self._unassigned = None, False

    def joined(self, response: JoinGroupResponse) -> None:
        """Take from JoinGroup's answer whether this member leads, and the members of the group."""
        self.leads = response.leader == response.member_id
        self.roster = read_roster(response.members) if self.leads else None
        self._unassigned = self.leads and not response.skip_assignment

    def assign(self, strategy: str, event: TopicsKnown) -> Division | None:
        """Return everybody's assignment. None: it is not due, or the metadata of some topics is still missing."""
        if self.roster is None or not self._unassigned or not self.roster.topics <= event.asked:
            return None
        self._unassigned = False
        return divide(strategy, self.roster, event.topics)

    def assigned(self, basis: AssignmentBasis | None, *, restarted: bool) -> None:
        """Note what the assignment of this generation was computed from.

        `restarted`: a static member joined without a member id. JoinGroup's answer may have named its predecessor's id
        as the leader's, so it may be the leader without knowing (R23).
        """
        self._basis = basis
        self._watches = self.leads or (restarted and basis is not None)

    def followed(self, own: frozenset[str]) -> frozenset[str]:
        """Return the topics whose partitions this member counts; `own` is its subscription."""
        if not self._watches:
            return own
        return own | (frozenset() if self._basis is None else self._basis.counts.keys()) | self.topics

    def changes(self, event: TopicsKnown) -> list[str]:
        """Return the topics whose number of partitions has changed since the assignment, as `orders: 6 -> 12`.

        Only the leader compares, or a member that may be the leader. A partition whose leader moves changes no count.
        """
        if not self._watches:
            return []
        if self._basis is None:  # the assignment is of a predecessor of another make: compare from here on
            if self.topics <= event.asked:
                self._basis = AssignmentBasis(counts_of(self.topics, event.topics), 0)
            return []
        return changed_counts(self._basis, event.topics, event.asked)
