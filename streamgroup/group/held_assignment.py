"""The partitions that a member holds, across generations: which it keeps (R18), and which it is to give up (R25)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamgroup.model import TopicPartition

_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """How an assignment differs from the one before it."""

    kept: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    """Held until now and not assigned any more: another JoinGroup gives them up (KIP-429).

    Empty for an eager member.
    """
    withheld: frozenset[TopicPartition] = _NOTHING
    """Claimed by the JoinGroup, and neither assigned nor kept.

    The others get them once a JoinGroup claims them no more.
    """


class HeldAssignment:
    """The partitions of the last completed SyncGroup, with the member id and the generation that it was for.

    `can_plan`: the member plans and commits its partitions although the group rebalances (R25). It ends where the group
    may have gone on without this member.
    """

    __slots__ = ("can_plan", "claimed", "cooperative", "generation", "held", "leaving", "member_id")

    def __init__(self, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.forget()

    def forget(self) -> None:
        """Hold nothing: the membership is over, and nothing will be kept."""
        self.held = self.leaving = self.claimed = _NOTHING
        self.member_id, self.generation = "", -1
        self.can_plan = False

    @property
    def stands(self) -> bool:
        """Whether the partitions outlive a JoinGroup: the member is cooperative, and its membership is not over."""
        return self.cooperative and self.generation >= 0

    def is_of(self, member_id: str, generation: int) -> bool:
        """Return whether the partitions were assigned to this member id in this generation."""
        return (member_id, generation) == (self.member_id, self.generation)

    def precedes(self, member_id: str, generation: int) -> bool:
        """Return whether partitions may be kept in this generation (R18).

        The member id must be the same, and the generation of the partitions the one directly before. It is the same
        generation where the coordinator had no reason to rebalance.
        """
        return member_id == self.member_id and generation - self.generation in {0, 1}

    def claim(self) -> tuple[frozenset[TopicPartition], int]:
        """Return the partitions that JoinGroup names as owned, and their generation. An eager member names none."""
        self.claimed = self.held if self.cooperative else _NOTHING
        return self.claimed, self.generation if self.cooperative else -1

    def assigned(self, member_id: str, generation: int, partitions: Iterable[TopicPartition]) -> Change:
        """Take over a new assignment.

        Revoked partitions stay held until `give_up`, since their batch is to sink first.
        """
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
