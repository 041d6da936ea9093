"""An offset table in memory, in place of a database: it decides by the same functions (R37).

A transaction locks rows until it ends. Its changes become visible to other transactions when it commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from streamgroup.coordinator.run.interface import ClaimReplay
from streamgroup.group.offsets import table_rows
from streamgroup.group.offsets.table import ClaimRows, CommitRows, RowsClaimed, RowsCommitted
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, Judgement, StoredOffset
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition


class OffsetTableRows:
    """The rows of one group, and the records that sinks have added."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, StoredOffset] = {}
        self.records: list[OffsetRange] = []
        """In the order in which they were added."""
        self.locks: dict[TopicPartition, OpenTransaction] = {}

    def row(self, tp: TopicPartition) -> StoredOffset:
        return self.rows.get(tp, StoredOffset())

    def begin(self) -> OpenTransaction:
        return OpenTransaction(self)

    @contextmanager
    def transaction(self) -> Iterator[OpenTransaction]:
        """A transaction that is over at the end of the block: an exception rolls it back."""
        transaction = self.begin()
        try:
            yield transaction
            transaction.commit()
        finally:
            transaction.rollback()

    def answer(self, action: ClaimRows | CommitRows) -> RowsClaimed | RowsCommitted:
        """Carry out an action of the member's store."""
        if isinstance(action, ClaimRows):
            self.claim(action.claimant, action.partitions, action.found)
            return RowsClaimed(action.token, dict(self.rows))
        with self.transaction() as transaction:
            return RowsCommitted(action.token, transaction.commit_offsets(action.claims, action.offsets))

    def claim(
        self,
        claimant: Claimant,
        partitions: Collection[TopicPartition],
        found: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Claim partitions that a member has gained."""
        with self.transaction() as transaction:
            transaction.claim(claimant, partitions, found)

    def replay(self, question: ClaimReplay) -> dict[TopicPartition, StoredOffset]:
        """Claim the partitions of a replay that no other query has claimed."""
        with self.transaction() as transaction:
            return transaction.claim_replay(question)

    def store(self, group: str, parts: Collection[BatchPart]) -> bool:
        """Store a batch, as a sink's transaction does; return whether it was new. Raises as `table_rows.judge`."""
        with self.transaction() as transaction:
            is_new = transaction.judge(group, parts) is Judgement.NEW
            if is_new:
                transaction.add(part.range for part in parts)
                transaction.store(parts)
        return is_new


class OpenTransaction:
    """A transaction on the rows. Before it touches rows that another one has locked, the caller must wait."""

    def __init__(self, table: OffsetTableRows) -> None:
        self.table = table
        self.rows: dict[TopicPartition, StoredOffset] = {}
        """The uncommitted changes."""
        self.added: list[OffsetRange] = []
        self.is_committed = False

    def is_blocked(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether another transaction has locked one of these rows."""
        return any(self.table.locks.get(tp, self) is not self for tp in partitions)

    def lock(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """Lock rows until the end, in the order of their partitions, and return them."""
        locked = sorted(set(partitions))
        assert not self.is_blocked(locked), "another transaction has locked these rows"
        self.table.locks |= dict.fromkeys(locked, self)
        return {tp: self.rows.get(tp, self.table.row(tp)) for tp in locked}

    def claim(
        self,
        claimant: Claimant,
        partitions: Collection[TopicPartition],
        found: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, StoredOffset]:
        claimed = {
            tp: table_rows.after_claim(row, claimant, found.get(tp)) for tp, row in self.lock(partitions).items()
        }
        self.rows |= claimed
        return claimed

    def claim_replay(self, question: ClaimReplay) -> dict[TopicPartition, StoredOffset]:
        starts = {one.partition: CommittedOffset(one.start) for one in question.ranges}
        rows = self.lock(starts)
        mine = [tp for tp in starts if not table_rows.is_claimed_by_another_query(rows[tp], question.claimant)]
        return self.claim(question.claimant, mine, {**starts, **question.found})

    def commit_offsets(
        self, claims: Mapping[TopicPartition, StoredOffset], offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, StoredOffset | None]:
        """Commit offsets outside a batch; None for the partitions of another claim."""
        rows = self.lock(offsets)
        after = {
            tp: table_rows.after_commit(rows[tp], claims[tp].claim, claims[tp].next_offset, offset)
            for tp, offset in offsets.items()
        }
        self.rows |= {tp: row for tp, row in after.items() if row is not None}
        return after

    def judge(self, group: str, parts: Collection[BatchPart]) -> Judgement:
        """Lock the rows of a batch; whether it is new. Raises as `table_rows.judge`."""
        return table_rows.judge(group, parts, self.lock([part.range.partition for part in parts]))

    def add(self, ranges: Iterable[OffsetRange]) -> None:
        """Add the records of these ranges."""
        self.added += ranges

    def store(self, parts: Collection[BatchPart]) -> None:
        """Store the ends of the ranges of a batch."""
        rows = self.lock([part.range.partition for part in parts])
        self.rows |= {part.range.partition: table_rows.after_batch(rows[part.range.partition], part) for part in parts}

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets as an operator does."""
        for tp, row in self.lock(offsets).items():
            self.rows[tp] = replace(StoredOffset(next_offset=offsets[tp]), claim=row.claim + 1)

    def commit(self) -> None:
        """Make everything visible, and release the rows."""
        self.is_committed = True
        self.table.rows |= self.rows
        self.table.records += self.added
        self.rollback()

    def rollback(self) -> None:
        """Forget what is not committed, and release the rows."""
        self.rows, self.added = {}, []
        for tp in [tp for tp, owner in self.table.locks.items() if owner is self]:
            del self.table.locks[tp]
