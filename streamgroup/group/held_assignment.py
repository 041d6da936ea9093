"""What a member holds as the group sees it, across generations: what it keeps (R18), what it is to give up (R25)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamgroup.model import TopicPartition

_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """How an assignment differs from what was held before it."""

    kept: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    """Held until now and not assigned any more: to be given up by another JoinGroup (KIP-429). None if eager."""
    withheld: frozenset[TopicPartition] = _NOTHING
    """Claimed by the JoinGroup, neither assigned nor kept: the others get it once a JoinGroup claims it no more."""


class HeldAssignment:
    """What is held under a completed SyncGroup, and as whom.

    `can_plan`: the group rebalances, and what is held is planned and committed all the same (R25). It ends where nobody
    knows any more whether the group has gone on without this member.
    """

    __slots__ = ("can_plan", "claimed", "cooperative", "generation", "held", "leaving", "member_id")

    def __init__(self, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.forget()

    def forget(self) -> None:
        """The membership is over: nothing is held, and nothing will be kept."""
        self.held = self.leaving = self.claimed = _NOTHING
        self.member_id, self.generation = "", -1
        self.can_plan = False

    @property
    def stands(self) -> bool:
        """Whether what is held outlives a JoinGroup: cooperative, and a membership that is not over."""
        return self.cooperative and self.generation >= 0

    def is_of(self, member_id: str, generation: int) -> bool:
        """Whether what is held was assigned to this member id in this generation."""
        return (member_id, generation) == (self.member_id, self.generation)

    def precedes(self, member_id: str, generation: int) -> bool:
        """R18: whether what is held may be kept in this generation: it is the one directly before, or the same one (the
        coordinator had no reason to rebalance), and the member id is the same."""
        return member_id == self.member_id and generation - self.generation in {0, 1}

    def claim(self) -> tuple[frozenset[TopicPartition], int]:
        """What a JoinGroup tells that this member owns, and the generation that it got it in: nothing if eager."""
        self.claimed = self.held if self.cooperative else _NOTHING
        return self.claimed, self.generation if self.cooperative else -1

    def assigned(self, member_id: str, generation: int, partitions: Iterable[TopicPartition]) -> Change:
        """A SyncGroup has completed. What is to be given up stays held until `give_up`: its batch is to sink first."""
        given = frozenset(partitions)
        before = self.held if self.precedes(member_id, generation) else _NOTHING
        self.leaving = before - given if self.cooperative else _NOTHING
        self.held = given | self.leaving
        self.member_id, self.generation, self.can_plan = member_id, generation, False
        return Change(given & before, self.leaving, self.claimed - self.held)

    def give_up(self) -> frozenset[TopicPartition]:
        """What was to be given up is held no more; returns it."""
        given_up, self.leaving = self.leaving, _NOTHING
        self.held -= given_up
        return given_up
