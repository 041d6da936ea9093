"""A partition as its holder knows it: where it was found, where it stands, what of it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.group.positions import Origin, Start
from streamgroup.model import NO_TOPIC_ID, UNKNOWN_EPOCH, CommittedOffset, Position, TopicPartition

_OWN = {Origin.STARTING, Origin.CHECKPOINT, Origin.CHECKPOINT_AHEAD}


@dataclass(slots=True)
class Held:
    """A partition held in the current generation."""

    gained_after: int
    """The sequence of the newest document emitted when it was gained (R20)."""
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH
    """The epoch under which the position was taken, not the newest: it is taken over once the log is checked (R8)."""
    found: CommittedOffset | None = None
    """The commit found when it was gained (R16)."""
    origin: Origin | None = None
    """None until the commits were found."""
    position: int | None = None
    """The next offset to plan; None until it is known."""
    leaving: bool = False
    """It is to be given up (R25): planned no more, but what is in flight of it sinks and is committed first."""
    committed: int | None = None
    """The offset last acknowledged under this holding, or found when gaining."""

    @property
    def is_unresolved(self) -> bool:
        """Whether the log has to tell the position: the commits were found, and gave none."""
        return self.origin is not None and self.position is None

    @property
    def dirty(self) -> bool:
        """Whether the position is not the committed one."""
        return self.position is not None and self.position != self.committed

    @property
    def is_own(self) -> bool:
        """Whether its start is known to this member alone until it is committed (R6): `startingOffsets` in the founding
        generation, or the own checkpoint."""
        return self.origin in _OWN and (self.position is None or self.dirty)

    @property
    def ahead(self) -> int:
        """How many offsets have sunk beyond the committed one; 0 where either is not known."""
        return 0 if self.position is None or self.committed is None else max(0, self.position - self.committed)

    def place(self, start: Start) -> None:
        """Take the position that R5 gives."""
        self.origin = start.origin
        self.move(start.offset, start.leader_epoch)
        self.committed = None if start.commit_at_once else start.offset

    def move(self, offset: int | None, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """Stand at `offset`, taken under `leader_epoch`."""
        self.position, self.leader_epoch = offset, leader_epoch

    def found_as_seen(self, seen: CommittedOffset | None) -> bool:
        """R16, of a replay: the commit found when gaining is the one its filter saw, or a member's since."""
        found = self.found
        return found == seen or (found is not None and CommitMetadata.parse(found.metadata) is not None)


@dataclass(frozen=True, slots=True)
class Summary:
    """What all partitions held come to; `held` is walked once for it, however often the answers are asked for."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    positions: Mapping[TopicPartition, Position]
    """The next offset of every partition to plan whose position is known; sorted, and never changed."""
    awaiting: tuple[TopicPartition, ...]
    """Those whose commits were not found yet; sorted."""
    unplaced: tuple[TopicPartition, ...]
    """Those whose positions are not known yet; sorted."""
    dirty: bool
    """Whether a position is not the committed one."""


def summary_of(held: Mapping[TopicPartition, Held]) -> Summary:
    """Walk the partitions held."""
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
