"""Tracks the partitions that a member owns, their positions, and due commits: R5 to R9, R16, R18 and R20.

The ledger keeps partitions across assignments, and commits until they are accepted. `holdings.py` has the batch in
flight. The ledger sends nothing: `commit_due` returns the commit to send, `answered` processes its outcome.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from streamgroup.errors import SkippedBatchError
from streamgroup.group.commits import (
    FIRST_EPOCH,
    NO_GENERATION,
    NOT_FOUNDED,
    Commit,
    CommitMetadata,
    Commits,
    CommitVerdict,
)
from streamgroup.group.holdings import Held, InFlightBatch, InFlightBatches, Summary, summary_of
from streamgroup.group.start_positions import (
    Origin,
    StartPosition,
    applies_starting_offsets,
    founding_epoch,
    founding_generation,
    is_of_a_query,
    start_of,
)
from streamgroup.model import (
    INITIAL_DOCUMENT,
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    CommittedOffset,
    Document,
    OffsetRange,
    Position,
    TopicInfo,
    TopicPartition,
    is_another_topic,
)


class Ledger:
    """Decides where the owned partitions are read next, and what is committed, for one start of a query.

    All offsets are log offsets, `now` is from `time.monotonic()`.
    """

    def __init__(
        self,
        group: str,
        run: str,
        new_lineage: str,
        *,
        alone: bool = False,
        in_table: bool = False,
        in_transaction: bool = False,
    ) -> None:
        self.group = group
        self.run = run
        self._in_table = in_table
        """The offsets are in a table of a database, which the sink changes with its rows (R37)."""
        self._with_rows = in_table or in_transaction
        """The offsets change in one transaction with the rows, in a database or in Kafka (R37, R38)."""
        self._alone = alone
        """The query is not a member of a group: no other member reads its partitions or commits for them."""
        self._skipped = False
        """Whether the sink has skipped a batch since the query started (R17)."""
        self.member_id = ""
        self.generation = -1
        self._epoch = -1
        """The number by which commits identify the current generation, if it is the founding one (R7)."""
        self._by_epochs = False
        """Whether generations are epochs of this member, and not hashes of them as in an offset table."""
        self.held: dict[TopicPartition, Held] = {}
        self._summary_made: Summary | None = None
        """The summary of `held`; None after a change. Spark polls every 10 ms, usually without a change in between."""
        self._batches = InFlightBatches(group, new_lineage)
        self._founding: int | None = NOT_FOUNDED
        """The founding generation (R7). None: the group had no commits, so the first accepted commit founds it."""
        self._sunk_unheld: dict[TopicPartition, tuple[OffsetRange, InFlightBatch]] = {}
        """Ranges of a completed replay for partitions that were not owned when it completed. A query replays only the
        last batch of its checkpoint, so these are at most the partitions of one document."""
        self._unplaced = False
        self._unknown: frozenset[TopicPartition] = frozenset()
        """Owned partitions for which no commit was fetched, because the metadata did not contain their topics."""
        self.commits = Commits()

    @property
    def _summary(self) -> Summary:
        if self._summary_made is None:
            self._summary_made = summary_of(self.held)
        return self._summary_made

    def _changed(self) -> None:
        """Discard the summary. Every method that changes a partition calls this."""
        self._summary_made = None

    # --- documents ---------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> InFlightBatch | None:
        return self._batches.in_flight

    @property
    def checkpoint(self) -> Document:
        """The newest completed document, as R5 means it."""
        return self._batches.checkpoint

    @property
    def lineage(self) -> str:
        """The id that the documents of this checkpoint share (R1)."""
        return self._batches.lineage

    @property
    def started(self) -> bool:
        """Whether Spark has passed a start document. Until then it may have a batch to replay (R13)."""
        return self._batches.started

    @property
    def idle(self) -> bool:
        """Whether every document that was passed to Spark is confirmed as completed (R21)."""
        return self.in_flight is None

    def emitted(self, document: Document) -> None:
        """Record that this process planned `document` and passed it to Spark."""
        self._batches.emitted(document)
        if not document.ranges:
            # It sinks no records, so it must not prove to a later run that more has sunk than is committed (R5a).
            for held in self.held.values():
                held.gained_after = max(held.gained_after, document.sequence)

    def is_planned_here(self, document: Document) -> bool:
        """Return whether `document` is the one in flight and was planned by this process."""
        return self._batches.is_planned_here(document)

    def handed_out(self, document: Document) -> tuple[OffsetRange, ...]:
        """Return all ranges of the document in flight, planned here: Spark has called `partitions` for it."""
        return self._batches.handed_out(document)

    def replayed(
        self,
        start: Document,
        end: Document,
        ranges: tuple[OffsetRange, ...],
        seen: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Begin a replay: Spark has called `partitions` for a document of another process.

        `ranges` are the ranges that are not committed, `seen` the commits by which they were determined (R13).
        """
        self._batches.replayed(start, end, ranges, seen)

    def adopted(self, start: Document, end: Document, ranges: tuple[OffsetRange, ...]) -> None:
        """Begin a replay of `ranges`, the part of the document whose partitions are held: they count as planned here.

        So the batch must not be stored if a partition is lost meanwhile (R38).
        """
        self._batches.adopted(start, end, ranges)

    def may_store(self, ranges: Iterable[OffsetRange]) -> bool | None:
        """Return whether a batch of `ranges` is this member's to commit: no other member has committed it (R38).

        A partition that was lost and assigned again starts at the group's offset. If that is where the range begins, no
        other member has committed it meanwhile. None: the offset is not known yet. No member may store a batch of a
        topic that was created again.
        """
        lost = frozenset[TopicPartition]() if self.in_flight is None else self.in_flight.lost
        positions = {} if self.in_flight is None else self.in_flight.document.positions
        is_known = True
        for one in ranges:
            held, planned = self.held.get(one.partition), positions.get(one.partition)
            if held is None or (planned is not None and is_another_topic(planned.topic_id, held.topic_id)):
                return False
            if one.partition in lost:
                if held.position not in {None, one.start}:
                    return False
                is_known = is_known and held.position is not None
        return is_known or None

    def on_batch_done(self, document: Document, batch: int | None) -> bool:
        """Process a listener's report that `document` is completed as Spark's batch `batch`.

        Returns whether the document is in flight; the caller must then call `complete_batch`. If the document was
        completed before, only its batch id is stored (R20). Any other document has no effect.
        """
        in_flight = self.in_flight is not None and self.in_flight.is_of(document)
        if batch is not None and (in_flight or self._batches.is_proven(document)):
            self._batches.named(document, batch)
        return in_flight

    def complete_batch(self, start: Document) -> None:
        """Mark the batch that ends at `start` as completed.

        Spark has requested the next batch from there, or a listener has reported it (R15). Raises SkippedBatchError if
        the sink skipped the batch (R17).
        """
        try:
            batch = self._batches.complete(start)
        except SkippedBatchError:
            self._skipped = True
            raise
        if batch is None:
            return
        self._unplaced = False
        if batch.planned_here and start.ranges:
            self.commits.sank(batch.ranges)
        for handed in batch.planned_ranges or ():
            held = self.held.get(handed.partition)
            if held is not None and held.position is not None:
                self._sank(held, handed, batch)
                continue
            self._unplaced = True
            if not batch.planned_here:
                self._sunk_unheld[handed.partition] = (handed, batch)

    def _sank(self, held: Held, handed: OffsetRange, batch: InFlightBatch) -> None:
        """Move a position to the end of a completed range whose tasks this process has returned to Spark (R16)."""
        tp = handed.partition
        if tp in batch.lost and not self._is_stored(held, handed):
            self._judge_again(tp, held)
            return
        planned = batch.document.positions.get(tp)
        if planned is not None and is_another_topic(planned.topic_id, held.topic_id):
            return
        if held.position is None or not handed.start <= held.position <= handed.until:
            return
        if batch.planned_here or held.found_as_seen(batch.seen.get(tp)):
            held.move(handed.until, UNKNOWN_EPOCH if planned is None else planned.leader_epoch)
            self._changed()

    def _is_stored(self, held: Held, handed: OffsetRange) -> bool:
        """Return whether the sink has stored the end of `handed`, a completed range that begins at the position.

        The partition was lost and assigned again while its batch was in flight, and no other run has claimed or read it
        meanwhile: otherwise the sink's transaction would have been refused (R37, R38).
        """
        return self._with_rows and held.position == handed.start

    def _judge_again(self, tp: TopicPartition, held: Held) -> None:
        """Apply R5a to a partition that was lost and assigned again while its batch was in flight.

        R5a requires that the batch is confirmed as completed, which may come after the partition was assigned again. So
        a query without other members repeats nothing when it loses its membership briefly. Only the commit found at the
        assignment counts: a later commit is this member's own, and looks like an operator's reset.
        """
        if held.found is None or held.position != held.found.offset:
            return
        start = self._start_of(tp, held, use_starting_offsets=False)
        if start.origin is Origin.CHECKPOINT_AHEAD:
            held.place(start)
            self._changed()

    def _settle_unheld(self, tp: TopicPartition) -> None:
        """Move a partition that was assigned after the replay that read it was completed (R16)."""
        held = self.held[tp]
        if held.position is not None and tp in self._sunk_unheld:
            self._sank(held, *self._sunk_unheld.pop(tp))

    # --- partitions --------------------------------------------------------------------------------------------------

    def assigned(
        self,
        member_id: str,
        generation: int,
        partitions: Iterable[TopicPartition],
        kept: Collection[TopicPartition],
        revoked: Collection[TopicPartition] = (),
        *,
        leader_id: str = "",
        is_epoch: bool = False,
    ) -> None:
        """Store an assignment. For partitions that are not in `kept`, R5 determines the position.

        `is_epoch`: `generation` is a member's epoch, which moves while the member keeps its partitions (R39).

        `revoked` partitions (R25) are no longer planned. They stay until `give_up`, so that their batch in flight can
        be committed.
        """
        before = self.held
        still = {tp: h for tp, h in before.items() if h.position is not None and (tp in kept or tp in revoked)}
        for tp, held in still.items():
            held.leaving = tp in revoked
        self._unplaced |= any(held.dirty for tp, held in before.items() if tp not in still)
        self._unknown = frozenset()
        self.member_id, self.generation = member_id, generation
        # The table is left when Kafka deletes a group, and generations begin at 1 again. The id of a leader is unique.
        self._epoch = zlib.crc32(f"{generation} {leader_id}".encode()) if self._in_table else generation
        self._by_epochs = is_epoch and not self._in_table
        if self._by_epochs:
            self._epoch += FIRST_EPOCH
        self.held = {tp: still.get(tp) or Held(self._batches.last_sequence) for tp in partitions}
        for tp, held in self.held.items():
            held.epoch = before[tp].epoch if is_epoch and tp in kept and tp in before else self._epoch
        self.held |= {tp: held for tp, held in still.items() if held.leaving}
        self._changed()
        self.commits.interrupted(kept=bool(still))
        for tp in before.keys() - (self.held.keys() & still.keys()):
            self._batches.lose(tp)

    def lost(self) -> None:
        """Give up all partitions: the membership is lost.

        The batch planned by this process no longer moves a position (R16).
        """
        for tp in self.held:
            self._batches.lose(tp)
        self._unplaced |= self.commit_pending
        self.held = {}
        self._changed()
        self.commits.interrupted(kept=False)
        # An operator may reset a group while it has no members. A replay that was proven before must not undo that.
        self._sunk_unheld.clear()

    def abandoned(self) -> None:
        """Give up the partitions of the batch in flight: the member rejoins before that batch is completed (R22)."""
        if self.in_flight is not None:
            for planned in self.in_flight.document.ranges:
                self._batches.lose(planned.partition)
                self.held.pop(planned.partition, None)
            self._changed()

    def in_use(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether these partitions cannot be given up yet: the batch in flight reads one, or a commit waits."""
        ranges = () if self.in_flight is None else self.in_flight.ranges
        return self.commit_pending or any(r.partition in partitions for r in ranges)

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Give these partitions up (R25). The batch planned here no longer moves their positions (R16)."""
        for tp in partitions:
            self._batches.lose(tp)
            self.held.pop(tp, None)
        self._changed()

    def settling(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether a start that only this member can determine is not yet found and committed (R6, R7)."""
        if not self._batches.started:
            return False
        known = self.checkpoint.positions
        founding = self.checkpoint == INITIAL_DOCUMENT
        return any(
            held.is_own or (held.origin is None and tp.topic in topics and (founding or tp in known))
            for tp, held in self.held.items()
        )

    def offsets_wanted(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether newly assigned partitions need an OffsetFetch.

        The OffsetFetch waits until Spark has passed the checkpoint and the metadata has the ids of the topics: R5 and
        R8 compare with both. A topic that the metadata lacks delays only its own partitions: another OffsetFetch
        follows when the metadata contains it.
        """
        return self._batches.started and any(tp.topic in topics for tp in self._summary.awaiting)

    @property
    def awaits_offsets(self) -> bool:
        """Whether some partitions held still wait for an OffsetFetch."""
        return bool(self._summary.awaiting)

    def offsets_found(
        self,
        member_id: str,
        generation: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        topics: Mapping[str, TopicInfo],
        outdated: Collection[TopicPartition] = (),
    ) -> dict[TopicPartition, StartPosition]:
        """Set the positions of newly assigned partitions from all commits of the group. Return where each starts.

        The commits come from an OffsetFetch that was sent in this generation; `topics` are the topics of the metadata
        at that time, with ids. Partitions without an offset wait for `resolved`. `outdated` partitions are
        committed although they start at their commit: an offset table has it, and the group in Kafka has another (R37).
        A response to a request of another member id or generation has no effect (R18).
        """
        if (member_id, generation) != (self.member_id, self.generation):
            return {}
        # A query outside the group numbers generations from 1 in each run, so generations in commits do not count.
        is_alone = bool(commits) and self._alone
        awaiting = self._summary.awaiting
        epochs = {self.held[tp].epoch for tp in awaiting} | {self._epoch}
        found = founding_epoch if self._by_epochs else founding_generation
        foundings = {epoch: NOT_FOUNDED if is_alone else found(commits, epoch) for epoch in epochs}
        self._founding = foundings[self._epoch] if commits else None
        self.commits.seen(commits)
        newest = self._batches.newest_known
        starting = {epoch for epoch in epochs if applies_starting_offsets(newest, foundings[epoch], epoch)}
        starts = {}
        # Planning waits for partitions of the checkpoint: the next document would drop those without a position (R5).
        known = self.checkpoint.positions
        self._unknown = frozenset(tp for tp in awaiting if tp.topic not in topics and tp not in known)
        for tp in awaiting:
            if tp.topic not in topics:
                continue
            held = self.held[tp]
            held.gained_after = max(held.gained_after, self._batches.last_sequence)
            held.topic_id = topics[tp.topic].topic_id
            held.found = commits.get(tp)
            starts[tp] = self._start_of(tp, held, use_starting_offsets=held.epoch in starting)
            held.place(starts[tp])
            if tp in outdated:
                held.committed = None
            held.follows = held.found is not None and not is_of_a_query(held.found)
            self._settle_unheld(tp)
        self._changed()
        return starts

    def _start_of(self, tp: TopicPartition, held: Held, *, use_starting_offsets: bool) -> StartPosition:
        return start_of(
            tp,
            checkpoint=self.checkpoint,
            run=self.run,
            committed=held.found,
            topic_id=held.topic_id,
            use_starting_offsets=use_starting_offsets,
            alone=self._alone,
            with_rows=self._with_rows,
            begun=self._batches.begun(tp),
        )

    @property
    def unresolved(self) -> dict[TopicPartition, Origin]:
        """The partitions whose position must be looked up in the log: STARTING, EARLIEST or RECREATED."""
        return {tp: h.origin for tp, h in self.held.items() if h.origin is not None and h.is_unresolved}

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Set positions that were looked up for `generation`. They are committed before planning (R6)."""
        if generation != self.generation:
            return
        for tp, offset in offsets.items():
            held = self.held.get(tp)
            if held is not None and held.is_unresolved:
                held.move(offset)
                self._settle_unheld(tp)
        self._changed()

    def moved(self, partition: TopicPartition, offset: int) -> None:
        """Move a position as the data-loss policy decided. It is committed before the next batch is planned."""
        held = self.held.get(partition)
        if held is not None and held.position is not None:
            held.move(offset)
            self._changed()

    def vouched(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Store leader epochs of logs that were checked: these logs still contain the records that were read (R8)."""
        for tp, epoch in epochs.items():
            held = self.held.get(tp)
            if held is not None and held.position is not None and held.leader_epoch != epoch:
                held.leader_epoch = epoch
                self._changed()

    def topics_seen(self, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
        """Discard the positions of topics that have another id in refreshed metadata (R8).

        Return the partitions that are unresolved now because their topic was recreated. A partition that the new topic
        does not have, or that was revoked, is given up: there is nothing to read or to commit.
        """
        void = []
        for tp, held in tuple(self.held.items()):
            topic = topics.get(tp.topic)
            if topic is None or held.origin is None:
                continue
            if is_another_topic(held.topic_id, topic.topic_id):
                self._batches.lose(tp)
                if held.leaving or topic.partition(tp.partition) is None:
                    del self.held[tp]
                    self._changed()
                    continue
                held.found = None
                held.place(StartPosition(Origin.RECREATED))
                void.append(tp)
            if held.topic_id != topic.topic_id:
                held.topic_id = topic.topic_id
                self._changed()
        return void

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return all partitions held, sorted; the same object until a partition changes."""
        return self._summary.partitions

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return the next offset of every partition that may be planned and has a known position.

        Returns the same object until a position changes, so callers may compare by identity.
        """
        return self._summary.positions

    @property
    def settled(self) -> bool:
        """Whether the position of every partition of a known topic is known, and no commit is due or pending (R9)."""
        return not self.commit_pending and self._unknown.issuperset(self._summary.unplaced)

    # --- commits -----------------------------------------------------------------------------------------------------

    @property
    def commit_pending(self) -> bool:
        """Whether a commit is due or pending."""
        return self.commits.unfinished or self._summary.dirty

    @property
    def awaits_holding(self) -> bool:
        """Whether a completed batch has partitions that this member has lost: their next owner commits it (R5a)."""
        return self._unplaced

    @property
    def uncommitted(self) -> int:
        """The number of offsets that are completed and not committed."""
        return sum(held.ahead for held in self.held.values())

    def commit_due(self, now: float, *, everything: bool = False) -> Commit | None:
        """Return the commit to send now, or None. It has the positions of all owned partitions (R7).

        `everything`: commit at a stop whether positions have moved or not, so that the metadata names the newest
        document for which Spark called `partitions` (R29). This commit replaces a pending one.
        """
        if not self.commits.is_due(now, moved=self._summary.dirty, everything=everything):
            return None
        founding = self._founding_to_write
        offsets = {
            tp: CommittedOffset(held.position, self._metadata(tp, held, founding).text(), held.leader_epoch)
            for tp, held in sorted(self.held.items())
            if held.position is not None
        }
        if offsets:
            return self.commits.make(now, self.member_id, self._commit_generation, offsets)
        if not self.held:
            self.commits.nothing_held()
        return None

    @property
    def _commit_generation(self) -> int:
        return NO_GENERATION if self._alone else self.generation

    @property
    def _founding_to_write(self) -> int:
        """The founding generation in the next commit. The first commit names the oldest of the partitions held (R7)."""
        if self._founding is not None:
            return self._founding
        return NO_GENERATION if self._alone else min((held.epoch for held in self.held.values()), default=self._epoch)

    def _goes_before_the_checkpoint(self, tp: TopicPartition, held: Held) -> bool:
        """Return whether, after a restart, the commit of `tp` must have priority over the checkpoint.

        A query outside the group prefers its checkpoint to its own commits (R5). In two cases the checkpoint is wrong.
        If the sink skipped a batch, Spark's checkpoint contains it as completed (R17). And if the query follows an
        operator's reset, the checkpoint contains the reset only after a batch from there is completed: a stop before
        would undo the reset.
        """
        if not self._alone:
            return False
        known = self.checkpoint.positions.get(tp)
        return self._skipped or (held.follows and (known is None or known.offset != held.position))

    def _metadata(self, tp: TopicPartition, held: Held, founding: int) -> CommitMetadata:
        return CommitMetadata(
            lineage="" if self._goes_before_the_checkpoint(tp, held) else self.lineage,
            run=self.run,
            sequence=max(self._batches.proven_sequence, held.gained_after),
            asked=self._batches.asked,
            founding=founding,
            topic_id=held.topic_id,
            batch=self._batches.batch,
            in_table=self._in_table,
        )

    def stored_with_batch(self) -> dict[TopicPartition, CommittedOffset]:
        """Return what the offset table has after the batch in flight, for each partition that its tasks read (R37).

        The metadata equal those that a commit after the batch has, so a later start counts the batch as committed.
        """
        batch = self.in_flight
        if batch is None:
            return {}
        stored = {}
        founding = self._founding_to_write
        for range_ in batch.ranges:
            tp = range_.partition
            planned = batch.document.positions.get(tp)
            held = self.held.get(tp, Held(batch.document.sequence))
            metadata = replace(
                self._metadata(tp, held, founding),
                lineage=self.lineage,
                sequence=max(batch.document.sequence, held.gained_after),
                topic_id=(NO_TOPIC_ID if planned is None else planned.topic_id) or held.topic_id,
                batch=None,
            )
            epoch = UNKNOWN_EPOCH if planned is None else planned.leader_epoch
            stored[tp] = CommittedOffset(range_.until, metadata.text(), epoch)
        return stored

    def acknowledged(self, commit: Commit, partitions: Iterable[TopicPartition]) -> None:
        """Record that the group accepted these partitions of `commit`. Other partitions may be pending or rejected.

        Has no effect unless `commit` is the pending one (R18).
        """
        if not self.commits.awaits(commit):
            return
        offsets = {tp: commit.offsets[tp] for tp in partitions}
        if offsets and self._founding is None:
            written = CommitMetadata.parse(next(iter(offsets.values())).metadata)
            self._founding = NOT_FOUNDED if written is None else written.founding
        self.commits.seen(offsets)
        for tp, offset in offsets.items():
            held = self.held.get(tp)
            if held is not None:
                held.committed = offset.offset
        self._changed()

    def answered(self, commit: Commit, verdict: CommitVerdict, now: float) -> None:
        """Record the outcome of `commit`. A response to any commit but the pending one has no effect (R18)."""
        if verdict is CommitVerdict.ACCEPTED:
            self.acknowledged(commit, commit.offsets)
        if self.commits.answered(commit, verdict, now):
            self._unplaced = self._unplaced and not self.settled
