"""An offset table in memory, in place of a database: it decides by the same functions (R37)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroup.coordinator.run.interface import ClaimReplay
from streamgroup.group.offsets import table_rows
from streamgroup.group.offsets.table import ClaimRows, CommitRows, RowsClaimed, RowsCommitted
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, Judgement, StoredOffset
from streamgroup.model import CommittedOffset, TopicPartition


class OffsetTableRows:
    """The rows of one group."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, StoredOffset] = {}

    def answer(self, action: ClaimRows | CommitRows) -> RowsClaimed | RowsCommitted:
        """Carry out an action of the member's store."""
        if isinstance(action, ClaimRows):
            self.claim(action.claimant, action.partitions, action.found)
            return RowsClaimed(action.token, dict(self.rows))
        after = {
            tp: table_rows.after_commit(self._row(tp), action.claims[tp].claim, action.claims[tp].next_offset, offset)
            for tp, offset in action.offsets.items()
        }
        self.rows |= {tp: row for tp, row in after.items() if row is not None}
        return RowsCommitted(action.token, after)

    def replay(self, question: ClaimReplay) -> dict[TopicPartition, StoredOffset]:
        """Claim the partitions of a replay that no other query has claimed."""
        starts = {one.partition: CommittedOffset(one.start) for one in question.ranges}
        mine = [tp for tp in starts if not table_rows.is_claimed_by_another_query(self._row(tp), question.claimant)]
        return self.claim(question.claimant, mine, {**starts, **question.found})

    def claim(
        self,
        claimant: Claimant,
        partitions: Collection[TopicPartition],
        found: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, StoredOffset]:
        claimed = {tp: table_rows.after_claim(self._row(tp), claimant, found.get(tp)) for tp in partitions}
        self.rows |= claimed
        return claimed

    def store(self, group: str, parts: Collection[BatchPart]) -> bool:
        """Store a batch, as a sink's transaction does; return whether it was new. Raises as `table_rows.judge`."""
        is_new = table_rows.judge(
            group, parts, {part.range.partition: self._row(part.range.partition) for part in parts}
        )
        if is_new is Judgement.NEW:
            for part in parts:
                self.rows[part.range.partition] = table_rows.after_batch(self._row(part.range.partition), part)
        return is_new is Judgement.NEW

    def _row(self, tp: TopicPartition) -> StoredOffset:
        return self.rows.get(tp, StoredOffset())
