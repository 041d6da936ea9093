"""What this member holds, what is in flight, and what may be committed: R9, R15 to R18 and R20 as one pure machine.

The ledger follows the partitions from assignment to assignment, the documents from planning to proof, and the commits
from due to accepted. It sends nothing: `commit_due` says what to commit, `answered` is told what came of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamgroup.errors import ConfigError
from streamgroup.group.commit_metadata import NOT_FOUNDED, CommitMetadata
from streamgroup.group.positions import Origin, Start, applies_starting_offsets, founding_generation, start_of
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

RECOMMIT_AFTER_S = 3600.0
"""An idle member commits again hourly: brokers before 2.1 expire offsets 24 h after the commit, even of live groups."""


@dataclass(slots=True)
class Held:
    """A partition held in the current generation."""

    gained_after: int
    """The sequence of the newest document emitted when it was gained (R20)."""
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH
    found: CommittedOffset | None = None
    """The commit found when it was gained (R16)."""
    origin: Origin | None = None
    position: int | None = None
    """The next offset to plan; None until it is known."""
    committed: int | None = None
    """The offset last acknowledged under this holding."""

    @property
    def dirty(self) -> bool:
        """Whether the position is not the committed one."""
        return self.position is not None and self.position != self.committed


@dataclass(slots=True)
class Flight:
    """A document that Spark was given and that is not yet proven sunk."""

    document: Document
    planned_here: bool
    handed: tuple[OffsetRange, ...] | None = None
    """What `partitions` answered; None until it was asked."""
    seen: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    """Of a replay: the commits that its filter saw (R13)."""
    lost: set[TopicPartition] = field(default_factory=set)
    """Partitions lost since planning: their ranges move no position (R16)."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to send. Answers count only for its member id and generation (R18)."""

    number: int
    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, CommittedOffset]


class CommitVerdict(Enum):
    """What an answer to a commit means for the ledger."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    """No refusal: the same positions are committed again, after SyncGroup for those kept (27), or at once."""


class Ledger:
    """See the module. All offsets are log offsets; `now` is monotonic seconds."""

    def __init__(self, group: str, run: str, new_lineage: str) -> None:
        self.group = group
        self.run = run
        self._new_lineage = new_lineage
        self.checkpoint = INITIAL_DOCUMENT
        self.flight: Flight | None = None
        self.member_id = ""
        self.generation = -1
        self.held: dict[TopicPartition, Held] = {}
        self._sequence = 0
        self._asked = 0
        self._founding = NOT_FOUNDED
        self._awaiting: set[TopicPartition] = set()
        self._replayed: Flight | None = None
        self._commit: Commit | None = None
        self._commits_made = 0
        self._retry = False
        self._committed_at: float | None = None

    # --- documents ---------------------------------------------------------------------------------------------------

    @property
    def lineage(self) -> str:
        """The id that this checkpoint's documents share; made where the checkpoint brings none (R1)."""
        return self.checkpoint.lineage or (self.flight.document.lineage if self.flight else "") or self._new_lineage

    @property
    def idle(self) -> bool:
        """R21: every document emitted is proven sunk."""
        return self.flight is None

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest document emitted or met (R3)."""
        return max(self._sequence, self.checkpoint.sequence)

    def emitted(self, document: Document) -> None:
        """`document` was planned here and given to Spark."""
        self._sequence = document.sequence
        self.flight = Flight(document, planned_here=True)

    def is_planned_here(self, document: Document) -> bool:
        """Whether `document` is the one in flight and was planned by this process."""
        return self.flight is not None and self.flight.planned_here and self.flight.document == document

    def handed_out(self, document: Document) -> tuple[OffsetRange, ...]:
        """`partitions` is asked for a document planned here: its ranges, all of them."""
        flight = self.flight
        assert flight is not None
        flight.handed = document.ranges
        self._asked = max(self._asked, document.sequence)
        return flight.handed

    def replayed(
        self,
        start: Document,
        end: Document,
        ranges: tuple[OffsetRange, ...],
        seen: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """`partitions` is asked for a document that another process planned: `ranges` is what its filter left (R13)."""
        self.checkpoint = start
        self.flight = Flight(end, planned_here=False, handed=ranges, seen=dict(seen))
        self._sequence = max(self._sequence, end.sequence)
        self._asked = max(self._asked, end.sequence)

    def prove(self, start: Document) -> None:
        """Spark asks for the next batch from `start`: that document is proven sunk (R15).

        Raises ConfigError where the sink skipped the batch (R17).
        """
        flight = self.flight
        if flight is None or flight.document != start:
            if start.sequence >= self.checkpoint.sequence:
                self.checkpoint = start
            self._sequence = max(self._sequence, start.sequence)
            return
        if flight.planned_here and flight.document.ranges and flight.handed is None:
            raise ConfigError(_skipped(self.group, flight.document))
        self.flight = None
        self.checkpoint = start
        self._advance(flight)
        if not flight.planned_here:
            self._replayed = flight

    def _advance(self, flight: Flight) -> None:
        """R16: what moves a position is a sunk range that this process handed out, once."""
        for handed in flight.handed or ():
            held = self.held.get(handed.partition)
            if held is None or held.position is None or handed.partition in flight.lost:
                continue
            if not handed.start <= held.position <= handed.until:
                continue
            if flight.planned_here or _unchanged(held.found, flight.seen.get(handed.partition)):
                held.position = handed.until

    # --- partitions --------------------------------------------------------------------------------------------------

    def assigned(
        self,
        member_id: str,
        generation: int,
        partitions: Iterable[TopicPartition],
        kept: frozenset[TopicPartition],
    ) -> None:
        """A SyncGroup has completed. Partitions not in `kept` are gained: their position is R5's."""
        before = self.held
        self.member_id, self.generation = member_id, generation
        self.held = {
            tp: before[tp]
            if tp in kept and tp in before and before[tp].position is not None
            else Held(self.last_sequence)
            for tp in partitions
        }
        self._awaiting = {tp for tp, held in self.held.items() if held.origin is None}
        self._commit = None
        self._retry = False
        self._mark_lost(tp for tp in before if tp not in self.held or self.held[tp] is not before[tp])

    def lost(self) -> None:
        """The membership is gone: nothing is held, and what is in flight moves no position (R16)."""
        self._mark_lost(self.held)
        self.held = {}
        self._awaiting = set()
        self._commit = None
        self._retry = False

    def abandoned(self) -> None:
        """R22: the member rejoins before the batch is proven: its partitions count as gained afterwards."""
        if self.flight is not None:
            for handed in self.flight.document.ranges:
                self.flight.lost.add(handed.partition)
                self.held.pop(handed.partition, None)

    def _mark_lost(self, partitions: Iterable[TopicPartition]) -> None:
        if self.flight is not None and self.flight.planned_here:
            self.flight.lost.update(partitions)

    @property
    def offsets_wanted(self) -> bool:
        """Whether an OffsetFetch is owed to the partitions gained in this generation."""
        return bool(self._awaiting)

    def offsets_found(
        self,
        member_id: str,
        generation: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        topics: Mapping[TopicPartition, Position],
    ) -> dict[TopicPartition, Start]:
        """All commits of the group, by an OffsetFetch sent in this generation; `topics` gives ids and leader epochs.

        Returns where each gained partition starts; those without an offset wait for `resolved`. An answer to a request
        of another member id or generation changes nothing (R18).
        """
        if (member_id, generation) != (self.member_id, self.generation):
            return {}
        founding = founding_generation(self.checkpoint, commits, generation)
        self._founding = NOT_FOUNDED if founding is None else founding
        starting = applies_starting_offsets(self.checkpoint, founding, generation)
        starts = {}
        for tp in sorted(self._awaiting):
            held = self.held[tp]
            now = topics.get(tp, Position(0))
            held.topic_id, held.leader_epoch = now.topic_id, now.leader_epoch
            held.found = commits.get(tp)
            starts[tp] = start_of(
                tp,
                checkpoint=self.checkpoint,
                run=self.run,
                committed=held.found,
                topic_id=held.topic_id,
                use_starting_offsets=starting,
            )
            self._place(held, starts[tp])
        self._awaiting = set()
        if self._replayed is not None:
            self._advance(self._replayed)
            self._replayed = None
        return starts

    def _place(self, held: Held, start: Start) -> None:
        held.origin = start.origin
        held.position = start.offset
        held.committed = None if start.commit_at_once else start.offset

    @property
    def unresolved(self) -> dict[TopicPartition, Origin]:
        """Partitions whose position the log has to tell: STARTING, EARLIEST or RECREATED."""
        return {tp: h.origin for tp, h in self.held.items() if h.position is None and h.origin is not None}

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Positions that the log told, for partitions gained in `generation`; committed before planning (R6)."""
        if generation != self.generation:
            return
        for tp, offset in offsets.items():
            held = self.held.get(tp)
            if held is not None and held.position is None:
                held.position = offset

    def moved(self, partition: TopicPartition, offset: int) -> None:
        """The data-loss policy moved a position; it is committed before the next plan."""
        self.held[partition].position = offset

    def topics_seen(self, topics: Mapping[TopicPartition, Position]) -> list[TopicPartition]:
        """Metadata was refreshed: leader epochs are taken over, and a topic with another id voids its positions (R8).

        Returns the partitions that are now unresolved because their topic was recreated.
        """
        void = []
        for tp, now in topics.items():
            held = self.held.get(tp)
            if held is None or held.origin is None:
                continue
            if NO_TOPIC_ID not in (held.topic_id, now.topic_id) and held.topic_id != now.topic_id:
                self._place(held, Start(Origin.RECREATED))
                self._mark_lost([tp])
                void.append(tp)
            held.topic_id, held.leader_epoch = now.topic_id, now.leader_epoch
        return void

    def positions(self) -> dict[TopicPartition, Position]:
        """The next offset of every partition held, once all are known."""
        return {
            tp: Position(held.position, held.topic_id, held.leader_epoch)
            for tp, held in sorted(self.held.items())
            if held.position is not None
        }

    @property
    def settled(self) -> bool:
        """R9: every position is known, and no commit is due or unanswered."""
        known = not self._awaiting and all(held.position is not None for held in self.held.values())
        return known and not self.owes

    # --- commits -----------------------------------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """Whether a commit is due or unanswered."""
        return self._commit is not None or self._retry or any(held.dirty for held in self.held.values())

    def commit_due(self, now: float, *, everything: bool = False) -> Commit | None:
        """The commit to send now, or None. It carries every partition held, at its position (R7).

        `everything`: at a stop, commit whether moved or not, so that what was asked is told (R29).
        """
        if self._commit is not None:
            return None
        if self._committed_at is None:
            self._committed_at = now
        old = now - self._committed_at >= RECOMMIT_AFTER_S
        if not (everything or old or self._retry or any(held.dirty for held in self.held.values())):
            return None
        offsets = {
            tp: CommittedOffset(held.position, self._metadata(held).text(), held.leader_epoch)
            for tp, held in sorted(self.held.items())
            if held.position is not None
        }
        if not offsets:
            return None
        self._commits_made += 1
        self._committed_at = now
        self._retry = False
        self._commit = Commit(self._commits_made, self.member_id, self.generation, offsets)
        return self._commit

    def _metadata(self, held: Held) -> CommitMetadata:
        return CommitMetadata(
            lineage=self.lineage,
            run=self.run,
            sequence=max(self.checkpoint.sequence, held.gained_after),
            asked=self._asked,
            founding=self._founding,
            topic_id=held.topic_id,
        )

    def answered(self, commit: Commit, verdict: CommitVerdict) -> None:
        """What came of `commit`. An answer to anything but the commit awaited changes nothing (R18)."""
        if self._commit is None or self._commit.number != commit.number:
            return
        self._commit = None
        if verdict is CommitVerdict.RETRY:
            self._retry = True
            return
        for tp, offset in commit.offsets.items():
            held = self.held.get(tp)
            if held is not None:
                held.committed = offset.offset


def _unchanged(found: CommittedOffset | None, seen: CommittedOffset | None) -> bool:
    """R16, of a replay: the commit found when gaining is the one its filter saw, or one that a member made since."""
    return found == seen or (found is not None and CommitMetadata.parse(found.metadata) is not None)


def _skipped(group: str, document: Document) -> str:
    ranges = ", ".join(str(r) for r in document.ranges[:3]) + (", ..." if len(document.ranges) > 3 else "")
    return (
        f"group {group}: the sink skipped a batch: Spark reports document {document.sequence} ({ranges}) as done, but "
        "never asked for its data. Spark's file sink does this where the output directory has a _spark_metadata of "
        "another checkpoint; a foreachBatch function does it by not using its DataFrame. Nothing was committed for this "
        "batch. Give every checkpoint an output directory of its own, or remove the old directory, and start again with a new "
        "checkpoint: it goes on from the group's committed offsets"
    )
