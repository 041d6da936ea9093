"""The batch in flight and the partitions that a member owns: R3, R13, R15 and R17.

A batch is in flight from planning until it is confirmed as completed. There is at most one, planned by this process or
an earlier one. `Held` is the position of one partition, `Summary` has derived values of all partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from streamgroup.errors import SkippedBatchError
from streamgroup.frozen import frozen
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.start_positions import Origin, StartPosition
from streamgroup.model import (
    INITIAL_DOCUMENT,
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    CommittedOffset,
    Document,
    OffsetRange,
    Position,
    TopicPartition,
)


@dataclass(slots=True)
class InFlightBatch:
    """A batch that was passed to Spark and is not confirmed as completed yet."""

    document: Document
    planned_here: bool
    planned_ranges: tuple[OffsetRange, ...] | None = None
    """The ranges that `partitions` returned; None until Spark called it."""
    seen: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    """For a replay: the commits whose offsets were removed from its ranges (R13)."""
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """For a replay: the offset at which the document's range of each partition begins."""
    lost: set[TopicPartition] = field(default_factory=set)
    """For a document planned by this process: the partitions lost since. Their ranges move no position (R16)."""

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges that the tasks read. Before Spark calls `partitions`: all ranges of the document."""
        return self.document.ranges if self.planned_ranges is None else self.planned_ranges

    def is_of(self, document: Document) -> bool:
        """Return whether `document` is the end of this batch.

        The offset log of Spark's own connector has positions only, so Spark passes the end of such a batch without the
        ranges that `whole_batch` added for the replay (R4).
        """
        own = self.document
        return document == own or (not own.lineage and document == replace(own, ranges=()))


class InFlightBatches:
    """Tracks the batch in flight, the newest completed document, and the checkpoint of a query."""

    def __init__(self, group: str, new_lineage: str) -> None:
        self._group = group
        self._new_lineage = new_lineage
        self._sequence = 0
        self._proven: Document | None = None
        self.checkpoint = INITIAL_DOCUMENT
        """The checkpoint as R5 means it: the newest completed document that has positions."""
        self.in_flight: InFlightBatch | None = None
        self.asked = 0
        """The sequence of the newest document for which Spark called `partitions` (R20)."""
        self._named: tuple[Document, int] | None = None

    @property
    def started(self) -> bool:
        """Whether Spark has passed a start document. Until then the checkpoint is unknown."""
        return self._proven is not None

    @property
    def lineage(self) -> str:
        """The id that the documents of this checkpoint share; a new one if the checkpoint has none (R1)."""
        flying = self.in_flight.document.lineage if self.in_flight else ""
        proven = self._proven.lineage if self._proven else ""
        return self.checkpoint.lineage or proven or flying or self._new_lineage

    @property
    def proven_sequence(self) -> int:
        return 0 if self._proven is None else self._proven.sequence

    @property
    def batch(self) -> int | None:
        """Spark's batch id of the newest completed document; None if no listener reported it (R20)."""
        return self._named[1] if self._named is not None and self._named[0] == self._proven else None

    def named(self, document: Document, batch: int) -> None:
        """Store Spark's id of a batch that a listener has reported as completed."""
        self._named = (document, batch)

    def is_proven(self, document: Document) -> bool:
        return document == self._proven

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest document that this process planned or that Spark passed (R3)."""
        return max(self._sequence, self.proven_sequence)

    def emitted(self, document: Document) -> None:
        """Record that this process planned `document` and passed it to Spark."""
        self._sequence = document.sequence
        self.in_flight = InFlightBatch(document, planned_here=True)

    def is_planned_here(self, document: Document) -> bool:
        """Return whether `document` is the one in flight and was planned by this process."""
        return self.in_flight is not None and self.in_flight.planned_here and self.in_flight.document == document

    def handed_out(self, document: Document) -> tuple[OffsetRange, ...]:
        """Return all ranges of the document in flight, planned here: Spark has called `partitions` for it."""
        batch = self.in_flight
        if batch is None or batch.document != document:
            raise ValueError(f"group {self._group}: document {document.sequence} is not in flight")
        if batch.planned_ranges is None:  # else it was adopted in part
            batch.planned_ranges = document.ranges
        self.asked = max(self.asked, document.sequence)
        return batch.planned_ranges

    def adopted(self, start: Document, end: Document, ranges: tuple[OffsetRange, ...]) -> None:
        """Begin a replay of `ranges`, which counts as planned by this process."""
        self._go_on_from(start)
        self.in_flight = InFlightBatch(end, planned_here=True, planned_ranges=ranges)
        self._sequence = max(self._sequence, end.sequence)
        self.asked = max(self.asked, end.sequence)

    def replayed(
        self,
        start: Document,
        end: Document,
        ranges: tuple[OffsetRange, ...],
        seen: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Begin a replay: Spark has called `partitions` for a document of another process.

        `ranges` are the ranges that remain after the filter of the replay (R13).
        """
        self._go_on_from(start)
        begins = {r.partition: r.start for r in end.ranges}
        self.in_flight = InFlightBatch(end, planned_here=False, planned_ranges=ranges, seen=dict(seen), begins=begins)
        self._sequence = max(self._sequence, end.sequence)
        self.asked = max(self.asked, end.sequence)

    def complete(self, start: Document) -> InFlightBatch | None:
        """Mark the batch that ends at `start` as completed, because Spark has requested the next one from there (R15).

        Returns this batch if it was in flight, otherwise None. Raises SkippedBatchError if the sink skipped the batch
        (R17).
        """
        batch = self.in_flight
        if batch is None or not batch.is_of(start):
            if start != self._proven and start.sequence >= self.checkpoint.sequence:
                self._go_on_from(start)
            return None
        if batch.planned_here and start.ranges and batch.planned_ranges is None:
            raise SkippedBatchError(_skipped(self._group, start))
        self.in_flight = None
        self._go_on_from(start, read=bool(batch.document.ranges))
        return batch

    def _go_on_from(self, start: Document, *, read: bool = False) -> None:
        """Mark `start` as completed. It becomes the checkpoint if it has more of the query's positions.

        `read`: its batch had ranges. AvailableNow makes documents without ranges while the member owns no partitions,
        or fewer than before (R10). Such a document does not replace a checkpoint with the same or more positions. After
        a restart from a document without positions, startingOffsets still apply (R7). A document that is marked as
        founded replaces the constant of R2: its query found no partition, so all partitions that appear later are new.
        """
        self._proven = start
        known, positions = self.checkpoint.positions, start.positions
        has_more = positions != known and positions.keys() >= known.keys()
        if read or start.ranges or has_more or (start.is_founded and not known):
            self.checkpoint = start

    def begun(self, partition: TopicPartition) -> Position | None:
        """Return where the replay in flight begins in `partition`; None if there is no replay or no position in it."""
        if self.in_flight is None or self.in_flight.planned_here:
            return None
        position = self.in_flight.document.positions.get(partition)
        if position is None:
            return None
        return replace(position, offset=self.in_flight.begins.get(partition, position.offset))

    @property
    def newest_known(self) -> Document:
        """The newest document in Spark's checkpoint that decides about startingOffsets, sunk or replayed (R7).

        Spark replays batch 0 from the constant of R2. The document of batch 0 has the positions of all partitions that
        the query had begun to read, or says that there were none. startingOffsets therefore no longer apply.
        """
        batch = self.in_flight
        if batch is None or batch.planned_here:
            return self.checkpoint
        return batch.document if batch.document.positions or batch.document.is_founded else self.checkpoint

    def lose(self, partition: TopicPartition) -> None:
        """Record that a partition was lost: a document planned before no longer moves its position (R16)."""
        if self.in_flight is not None and self.in_flight.planned_here:
            self.in_flight.lost.add(partition)


def _skipped(group: str, document: Document) -> str:
    ranges = ", ".join(str(r) for r in document.ranges[:3]) + (", ..." if len(document.ranges) > 3 else "")
    who = f"group {group}: " if group else ""
    goes_on = "it continues at the group's committed offsets" if group else "it starts at startingOffsets"
    return (
        f"{who}the sink skipped a batch: Spark reports document {document.sequence} ({ranges}) as completed, but "
        f"never requested its data. Spark's file sink does this if the output directory has a _spark_metadata of "
        "another checkpoint; Spark itself does it if the query needs no rows, as with limit(0). Nothing was "
        "committed for this batch. Give every checkpoint its own output directory, or remove the old directory, "
        f"and start again with a new checkpoint: {goes_on}"
    )


_OWN = {Origin.STARTING, Origin.CHECKPOINT, Origin.CHECKPOINT_AHEAD}


@dataclass(slots=True)
class Held:
    """A partition that the member owns in the current generation, with its position."""

    gained_after: int
    """The sequence of the newest document that had been passed to Spark when the partition was gained (R20)."""
    epoch: int = -1
    """The generation, as commits have it (R7), or under the consumer protocol the epoch in which it was gained."""
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH
    """The leader epoch of the position. A newer epoch replaces it once the log has been checked (R8)."""
    found: CommittedOffset | None = None
    """The commit that was found when the partition was assigned (R16)."""
    origin: Origin | None = None
    """Where the position comes from; None until the commits were found."""
    position: int | None = None
    """The next offset to plan; None until it is known."""
    follows: bool = False
    """Whether the position starts at a commit that no query made: a reset, or the commit of another consumer (R5)."""
    leaving: bool = False
    """Whether the partition was revoked (R25): it is no longer planned, and is given up once its batch is committed."""
    committed: int | None = None
    """The offset of the newest accepted commit, or of the commit found when the partition was gained."""

    @property
    def is_unresolved(self) -> bool:
        """Whether the position must be looked up in the log: there is no commit to start at."""
        return self.origin is not None and self.position is None

    @property
    def dirty(self) -> bool:
        return self.position is not None and self.position != self.committed

    @property
    def is_own(self) -> bool:
        """Whether another member could not determine this start position before it is committed (R6).

        Such a position comes from `startingOffsets` in the founding generation, or from this query's checkpoint.
        """
        return self.origin in _OWN and (self.position is None or self.dirty)

    @property
    def ahead(self) -> int:
        """The number of offsets that are completed but not committed; 0 if one of the two offsets is unknown."""
        return 0 if self.position is None or self.committed is None else max(0, self.position - self.committed)

    def place(self, start: StartPosition) -> None:
        self.origin = start.origin
        self.move(start.offset, start.leader_epoch)
        self.committed = None if start.commit_at_once else start.offset

    def move(self, offset: int | None, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        self.position, self.leader_epoch = offset, leader_epoch

    def found_as_seen(self, seen: CommittedOffset | None) -> bool:
        """Return whether a replay may move the position (R16).

        It may if the commit found at the assignment is the one that the replay has taken into account, or a later
        commit of a member.
        """
        found = self.found
        return found == seen or (found is not None and CommitMetadata.parse(found.metadata) is not None)


@frozen
class Summary:
    """Derived values of all owned partitions, computed once per change."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    positions: Mapping[TopicPartition, Position]
    """The next offset of every partition to plan whose position is known; sorted and immutable."""
    awaiting: tuple[TopicPartition, ...]
    """The partitions whose offsets were not fetched yet, sorted."""
    unplaced: tuple[TopicPartition, ...]
    """The partitions without a known position, sorted."""
    dirty: bool
    """Whether a position differs from the committed one."""


def summary_of(held: Mapping[TopicPartition, Held]) -> Summary:
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
