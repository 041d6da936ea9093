"""A partition held: the commit found when it was gained, its position, and the offset that is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.group.positions import Origin, StartPosition
from streamgroup.model import NO_TOPIC_ID, UNKNOWN_EPOCH, CommittedOffset, Position, TopicPartition

_OWN = {Origin.STARTING, Origin.CHECKPOINT, Origin.CHECKPOINT_AHEAD}


@dataclass(slots=True)
class Held:
    """A partition held in the current generation."""

    gained_after: int
    """The sequence of the newest document that Spark had been given when the partition was gained (R20)."""
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH
    """The epoch under which the position was taken. A newer epoch replaces it once the log is checked (R8)."""
    found: CommittedOffset | None = None
    """The commit found when it was gained (R16)."""
    origin: Origin | None = None
    """None until the commits were found."""
    position: int | None = None
    """The next offset to plan; None until it is known."""
    follows: bool = False
    """Whether it starts at a commit that no query made: an operator's reset, or a consumer's commit (R5)."""
    leaving: bool = False
    """Whether it is to be given up (R25): it is planned no more, and its batch in flight sinks and is committed
    first."""
    committed: int | None = None
    """The offset that the group last acknowledged since it was gained, or that was found when gaining."""

    @property
    def is_unresolved(self) -> bool:
        """Whether the log decides the position: the commits were found, and gave none."""
        return self.origin is not None and self.position is None

    @property
    def dirty(self) -> bool:
        """Whether the position is not the committed one."""
        return self.position is not None and self.position != self.committed

    @property
    def is_own(self) -> bool:
        """Whether only this member knows its start until it is committed (R6).

        Such a start is `startingOffsets` in the founding generation, or the member's own checkpoint.
        """
        return self.origin in _OWN and (self.position is None or self.dirty)

    @property
    def ahead(self) -> int:
        """How many offsets have sunk beyond the committed one, 0 where either is not known."""
        return 0 if self.position is None or self.committed is None else max(0, self.position - self.committed)

    def place(self, start: StartPosition) -> None:
        """Set the position that R5 gives."""
        self.origin = start.origin
        self.move(start.offset, start.leader_epoch)
        self.committed = None if start.commit_at_once else start.offset

    def move(self, offset: int | None, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """Set the position to `offset`, taken under `leader_epoch`."""
        self.position, self.leader_epoch = offset, leader_epoch

    def found_as_seen(self, seen: CommittedOffset | None) -> bool:
        """Return whether a replay may move the position (R16).

        It may where the commit found when gaining is the one that its filter saw, or a later one of a member.
        """
        found = self.found
        return found == seen or (found is not None and CommitMetadata.parse(found.metadata) is not None)


@dataclass(frozen=True, slots=True)
class Summary:
    """The sums over all partitions held. One walk over them answers any number of calls."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    positions: Mapping[TopicPartition, Position]
    """The next offset of every partition to plan whose position is known; sorted and immutable."""
    awaiting: tuple[TopicPartition, ...]
    """The partitions whose commits were not found yet, sorted."""
    unplaced: tuple[TopicPartition, ...]
    """The partitions whose positions are not known yet, sorted."""
    dirty: bool
    """Whether a position is not the committed one."""


def summary_of(held: Mapping[TopicPartition, Held]) -> Summary:
    """Return the summary of these partitions."""
    partitions = tuple(sorted(held))
    positions: dict[TopicPartition, Position] = {}
    awaiting, unplaced = [], []
    dirty = False
    for tp in partitions:
        one = held[tp]
        dirty = dirty or one.dirty
        if one.origin is None:
            awaiting.append(tp)
        if one.position is None:
            unplaced.append(tp)
        elif not one.leaving:
            positions[tp] = Position(one.position, one.topic_id, one.leader_epoch)
    return Summary(partitions, MappingProxyType(positions), tuple(awaiting), tuple(unplaced), dirty)
