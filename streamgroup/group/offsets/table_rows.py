"""The rows of the offset table, and what a claim, a batch or a commit may do with them (R37). Pure.

A database that is an offset store has one row for each partition of a group. `next_offset` is the first offset whose
record is not in the database yet. It changes in the transaction that adds the records, and only from the value at which
the batch starts, so no range of offsets is added twice or left out, whoever adds it. `claim` counts how often a member
has taken the partition over. A batch of an earlier claim is refused, even if no record was added since: the new
owner may be reading the same range already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from streamgroup.errors import FencedError, OffsetStoreError
from streamgroup.frozen import frozen
from streamgroup.group.commits import CommitMetadata
from streamgroup.model import UNKNOWN_EPOCH, CommittedOffset, OffsetRange, TopicPartition


@frozen
class StoredOffset:
    """One row of the offset table. `next_offset` is None until the start of the partition is known."""

    next_offset: int | None = None
    claim: int = 0
    lineage: str = ""
    """The id of the checkpoint whose query has the claim. Empty if an operator has reset the offset."""
    member: str = ""
    """The id of the run that has the claim."""
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""

    @property
    def committed(self) -> CommittedOffset | None:
        """The offset as a commit of the group; None if it is not known yet."""
        return None if self.next_offset is None else CommittedOffset(self.next_offset, self.metadata, self.leader_epoch)


@frozen
class BatchPart:
    """The range of one partition in a batch: `claim` is the claim of its reader, `after` what the row has afterwards.

    `after.offset` is the end of the range.
    """

    range: OffsetRange
    claim: int
    after: CommittedOffset


@frozen
class Claimant:
    """The owner of a claim: the id of a query's checkpoint, and the id of one start of that query."""

    lineage: str
    member: str
    is_alone: bool = False
    """Whether its query is not a member of the group, so that no other query takes partitions over from it."""


class Judgement(Enum):
    """Whether the rows of a batch must be added."""

    NEW = "new"
    """None of its ranges is in the database."""
    REPLAY = "replay"
    """All of its ranges are in the database: the batch must add nothing."""


def after_claim(row: StoredOffset, claimant: Claimant, found: CommittedOffset | None = None) -> StoredOffset:
    """Return the row after `claimant` has gained the partition.

    A row without an offset takes over `found`, the group's commit in Kafka: a group that begins to use the store goes
    on where it is. A run that gains a partition again that no other run has claimed since keeps its claim, so that its
    batch in flight is not refused.
    """
    offset = row.committed or found
    if row.claim and (row.lineage, row.member) == (claimant.lineage, claimant.member) and row.committed == offset:
        return row
    claim = replace(row, claim=row.claim + 1, lineage=claimant.lineage, member=claimant.member)
    if offset is None:
        return claim
    is_ours = row.committed is not None or CommitMetadata.parse(offset.metadata) is not None
    metadata = offset.metadata if is_ours else ""  # other clients store what they like, in any length
    return replace(claim, next_offset=offset.offset, leader_epoch=offset.leader_epoch, metadata=metadata)


def is_claimed_by_another_query(row: StoredOffset, claimant: Claimant) -> bool:
    """Return whether another query has claimed the partition last.

    That query, or its successor, reads from the row's offset. So a replay must not read the partition (R13). A query
    that is not a member reads all partitions: if its replay left one out, its checkpoint would pass the records.
    """
    return bool(row.claim and row.lineage and row.lineage != claimant.lineage and not claimant.is_alone)


def judge(group: str, parts: Iterable[BatchPart], rows: Mapping[TopicPartition, StoredOffset]) -> Judgement:
    """Return whether the rows of a batch must be added. `rows` are locked, and have all partitions of `parts`.

    Raises FencedError if a partition has another claim: its new owner adds the records. Raises OffsetStoreError if a
    batch is not a replay and a row does not have the start of its range. In both cases the batch must add nothing.
    """
    moving = [part for part in parts if len(part.range)]
    if moving and all(rows[part.range.partition].next_offset == part.range.until for part in moving):
        return Judgement.REPLAY
    for part in moving:
        row = rows[part.range.partition]
        if not row.claim:
            raise OffsetStoreError(_unknown(group, part))
        if row.claim != part.claim:
            raise FencedError(_fenced(group, part, row))
        if row.next_offset != part.range.start:
            raise OffsetStoreError(_misplaced(group, part, row))
    return Judgement.NEW


def after_batch(row: StoredOffset, part: BatchPart) -> StoredOffset:
    """Return the row after the records of `part` were added."""
    after = part.after
    return replace(row, next_offset=after.offset, leader_epoch=after.leader_epoch, metadata=after.metadata)


def after_commit(row: StoredOffset, claim: int, known: int | None, offset: CommittedOffset) -> StoredOffset | None:
    """Return the row after its owner has committed `offset` outside a batch's transaction; None if the owner is fenced.

    Such a commit sets the start of a partition, follows the data-loss policy, and repeats what the transaction of a
    batch has stored. `known` is the offset that the owner knows of the row. If the row has another one, a batch has
    been stored since, whose end the owner does not know yet: the row stays.
    """
    if row.claim != claim:
        return None
    if row.next_offset is not None and row.next_offset != known:
        return row
    return replace(row, next_offset=offset.offset, leader_epoch=offset.leader_epoch, metadata=offset.metadata)


def _unknown(group: str, part: BatchPart) -> str:
    return (
        f"group {group}: cannot store the batch with {part.range}: no query has claimed the partition in this database."
        " Nothing was stored. Open the transaction in the database that the option offsets.store names"
    )


def _fenced(group: str, part: BatchPart, row: StoredOffset) -> str:
    holder = f"run {row.member}" if row.member else "an operator, who has reset the offset"
    return (
        f"group {group}: cannot store the batch with {part.range}: the partition was claimed again by {holder} (claim "
        f"{row.claim}, the batch has {part.claim}). Nothing was stored, and the new owner reads these records. Start "
        "the query again: it leaves them out"
    )


def _misplaced(group: str, part: BatchPart, row: StoredOffset) -> str:
    at = "no offset" if row.next_offset is None else f"offset {row.next_offset}"
    return (
        f"group {group}: cannot store the batch with {part.range}: the offset table has {at} for this partition, not "
        "the start of the range. Nothing was stored. If another query stores the same group in "
        "this database, give each its own group. If the checkpoint is older than the table, start with a new one: it "
        "continues at the offsets of the table"
    )
