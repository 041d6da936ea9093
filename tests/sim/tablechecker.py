"""The checker for worlds with an offset table (R37): no record may be lost or added twice.

It sees each commit of the database, and counts the records that sinks have added. To check the column `claim`, it keeps
its own record of the process that claimed each row last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from streamgroup.errors import ClaimLostError, FencedError, OffsetStoreError
from streamgroup.group.commits import NOT_FOUNDED
from streamgroup.group.offsets.table_rows import StoredOffset
from streamgroup.model import CommittedOffset, Document, OffsetRange, TopicPartition
from tests.sim.checker import DUPLICATE, ENDED_EARLY, FAILED, LOST, SKIPPED, STUCK, UNFENCED, UNSTORED, Checker, Track
from tests.sim.clock import SimulatedClock
from tests.sim.table import DatabaseAway, NotStored

if TYPE_CHECKING:
    from tests.sim.broker import Logs
    from tests.sim.process import Process
    from tests.sim.world import Query, World

Rows = Mapping[TopicPartition, StoredOffset]


def is_of_an_older_checkpoint(query: Query, error: BaseException) -> bool:
    """Whether a query that is not a member replays a batch, and the table is beyond the start of a range: another run
    has stored it, and more, or an operator has reset the group into it or other partitions to before it. Such a query
    replays all of a batch, and needs a new checkpoint."""
    if not isinstance(error, OffsetStoreError) or query.process is None or query.world.settings.is_member:
        return False
    batch, rows = query.process.ledger.in_flight, query.world.table.rows
    return batch is not None and any(
        range_.start < (rows[range_.partition].next_offset or 0) for range_ in batch.ranges
    )


class TableChecker(Checker):
    """Holds queries to the table. The group's commits in Kafka follow it, and may be deleted."""

    def __init__(self, clock: SimulatedClock, logs: Logs) -> None:
        super().__init__(clock, logs)
        self._next: dict[TopicPartition, int] = {}
        """Where the next record belongs: the start of the partition, and as many as sinks have added since."""
        self._reader: dict[TopicPartition, Process | None] = {}
        """Whose claim has read the row last; None: an operator has reset it since."""
        self._overtaken: set[tuple[TopicPartition, Process | None]] = set()
        """The processes that claimed a row before another process claimed it. Their older requests may still arrive."""
        self._refused: set[Process] = set()
        """The processes to which the table has refused a commit, because another process has claimed the row."""

    # -- commits of the database --------------------------------------------------------------------------------------

    def changed(
        self,
        process: Process | None,
        before: Rows,
        rows: Rows,
        added: Sequence[OffsetRange],
        claimed: Collection[TopicPartition],
    ) -> None:
        """A transaction of `process` has committed: it has `claimed` rows, or `added` records, or offsets alone."""
        moved = {tp: row for tp, row in rows.items() if row != before.get(tp)}
        name = process.name if process is not None else "operator"
        if self._clock.trace is not None:
            text = ", ".join(f"{tp}: {row.next_offset} (claim {row.claim})" for tp, row in moved.items())
            self._clock.note("database", f"commits of {name}: {text or 'nothing'}; adds {list(map(str, added))}")
        self._overtaken |= {(tp, reader) for tp in claimed if (reader := self._reader.get(tp)) is not process}
        self._reader |= dict.fromkeys(claimed, process)
        for range_ in added:
            self._add(name, process, range_)
        for tp, row in moved.items():
            if tp not in claimed and self._reader.get(tp) is not process:
                raise self._violated(
                    UNFENCED, f"{name} stores an offset of {tp}, and {self._reader_of(tp)} has read the row since"
                )
            if row.next_offset is not None and tp not in self._next:
                self._begin(process, tp, row.next_offset)
        for tp in sorted({*moved, *(range_.partition for range_ in added)}):
            at = rows[tp].next_offset if tp in rows else None
            if at != self._next.get(tp):
                raise self._violated(
                    UNSTORED, f"{name} leaves {tp} at {at} in the table, with the records below {self._next.get(tp)}"
                )

    def refused(self, process: Process, partitions: Collection[TopicPartition]) -> None:
        """The table has refused offsets of `process` outside the transaction of a batch. The query ends."""
        for tp in partitions:
            if (tp, process) not in self._overtaken:
                raise self._violated(UNFENCED, f"{tp} is refused, and {process.name} alone has read the row")
            self._refused.add(process)

    def _add(self, name: str, process: Process | None, range_: OffsetRange) -> None:
        tp = range_.partition
        at = self._next.get(tp, 0)
        if range_.start != at:
            word = DUPLICATE if range_.start < at else LOST
            raise self._violated(word, f"{name} adds {range_}, and the records below {at} are in the database")
        if self._reader.get(tp) is not process:
            raise self._violated(UNFENCED, f"{name} adds {range_}, and {self._reader_of(tp)} has read the row since")
        self.track(tp).mark(range_.start, range_.until)
        self._next[tp] = range_.until

    def _reader_of(self, tp: TopicPartition) -> str:
        reader = self._reader.get(tp)
        return "an operator" if reader is None else reader.name

    def _begin(self, process: Process | None, tp: TopicPartition, offset: int) -> None:
        """The start of a partition is in the table: licensed if `process` has looked it up as `startingOffsets`."""
        self._next[tp] = offset
        if process is not None:
            self._start(self.track(tp), process, offset)
            if self._founding is None:
                self._founding = process.ledger.generation

    # -- plans --------------------------------------------------------------------------------------------------------

    def planned(self, process: Process, document: Document) -> None:
        super().planned(process, document)
        self._check_starts(f"{process.name} plans", process, document.ranges)

    def _is_zombie(self, process: Process) -> bool:
        """Also return True if another process has claimed its rows since: the database refuses its batch."""
        return super()._is_zombie(process) or any(
            self._reader.get(tp) is not process for tp in process.ledger.positions()
        )

    def replayed(
        self, process: Process, ranges: Sequence[OffsetRange], seen: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        if not process.settings.is_member:
            return  # the document whole, for its state; the sink finds out what it has
        self._check_starts(f"{process.name} replays", process, ranges)

    def _check_starts(self, what: str, process: Process, ranges: Sequence[OffsetRange]) -> None:
        """Check that the process that claimed a row last starts at its offset. The database refuses other processes."""
        for range_ in ranges:
            at = self._next.get(range_.partition)
            if self._reader.get(range_.partition) is process and range_.start != at:
                word = DUPLICATE if at is not None and range_.start < at else SKIPPED
                raise self._violated(word, f"{what} {range_}, and the table has {at}")

    def filtered(self, process: Process, seen: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Kafka's commits do not count."""

    # -- the group in Kafka -------------------------------------------------------------------------------------------

    def committed(
        self,
        process: Process,
        member_id: str,
        generation: int,
        offsets: Mapping[TopicPartition, int],
        founding: int | None = None,
    ) -> None:
        """Kafka fences no query that is not a member: a late commit of its last run may undo one of the next run.

        The table is not changed, and the next commit sets the group's offsets again.
        """
        if process.settings.is_member or all(self._reader.get(tp) is process for tp in offsets):
            super().committed(process, member_id, generation, offsets, founding)
            return
        self._note_commit(f"{process.name}, late", offsets)
        for tp, offset in offsets.items():
            self._check_sunk(process.name, tp, offset)
            self.track(tp).committed = None

    def group_deleted(self) -> None:
        """The group and its commits are gone: generations begin at 1 again. The table stays, so nothing is founded."""
        self._clock.note("checker", "the group is deleted")
        if self._founding is not None:
            self._founding = NOT_FOUNDED
        self._founders.clear()
        for tp in self._logs.ends:
            track = self.track(tp)
            track.committed, track.owner = None, None
            if tp in self._next:  # else whoever has looked up its start may store it still
                track.starts.clear()

    def reset(self, tp: TopicPartition, was: CommittedOffset | None, offset: int) -> None:
        super().reset(tp, was, offset)
        self._next[tp] = offset

    def _check_owner(self, tp: TopicPartition, track: Track, member_id: str, generation: int) -> None:
        if member_id:
            super()._check_owner(tp, track, member_id, generation)

    # -- errors -------------------------------------------------------------------------------------------------------

    def failed(self, query: Query, error: BaseException) -> None:
        if isinstance(error, DatabaseAway):
            return
        if isinstance(error, NotStored):
            if error.transaction is not None and error.transaction.is_committed:
                raise self._violated(FAILED, f"{query.name} fails, and its batch is stored: {error}")
            return
        if isinstance(error, ClaimLostError) and query.process in self._refused:
            return
        is_of_a_batch = isinstance(error, FencedError) and not isinstance(error, ClaimLostError)
        if is_of_a_batch and query.process is not None and self._is_fenced(query.process):
            return
        if is_of_an_older_checkpoint(query, error):
            return
        if isinstance(error, OffsetStoreError):
            raise self._violated(UNFENCED, f"{query.name}: a row has moved under its claim: {error}")
        super().failed(query, error)

    def _is_fenced(self, process: Process) -> bool:
        """Return whether another process has claimed a row since. The process may have claimed it again."""
        batch = process.ledger.in_flight
        reads = [] if batch is None else [range_.partition for range_ in batch.ranges]
        return any(
            self._reader.get(tp) is not process or (tp, process) in self._overtaken
            for tp in (*reads, *process.ledger.held)
        )

    def ended(self, process: Process) -> None:
        """AvailableNow ends: the table must have what there was at its start. The commit to Kafka follows."""
        for tp in process.ledger.positions():
            at, target = self._next.get(tp, 0), min(self._logs.ends[tp], (process.targets or {}).get(tp, 0))
            if at < target:
                raise self._violated(ENDED_EARLY, f"{process.name} ends with {tp} at {at}, to be read to {target}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self, world: World) -> None:
        super().finish(world)
        for tp, end in self._logs.ends.items():
            if world.table.row(tp).next_offset != end:
                raise self._violated(STUCK, f"{tp}: the table has {world.table.row(tp).next_offset} of {end}")
