"""Where a gained partition starts: the rules R5 to R8 as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroup.group.commit_metadata import NOT_FOUNDED, CommitMetadata
from streamgroup.model import (
    INITIAL_DOCUMENT,
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    CommittedOffset,
    Document,
    Position,
    TopicPartition,
)
from streamgroup.wire.offsets import NO_METADATA


class Origin(Enum):
    """Where a position comes from; the letters are R5's."""

    CHECKPOINT_AHEAD = "a"
    """This query sank further than it managed to commit."""
    COMMITTED = "b"
    CHECKPOINT = "c"
    STARTING = "d"
    """`startingOffsets`, in the founding generation only (R7)."""
    EARLIEST = "new"
    """A new partition, or one whose commit has expired (R7)."""
    RECREATED = "recreated"
    """The topic has another id: positions of the old one count for nothing (R8)."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a gained partition starts; `offset` is None where the log has to tell (STARTING, EARLIEST, RECREATED)."""

    origin: Origin
    offset: int | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    """Under which the position was taken, where the document or the commit tells it."""

    @property
    def commit_at_once(self) -> bool:
        """R6: every position that is not the group's committed offset is committed before its first fetch."""
        return self.origin is not Origin.COMMITTED


def founding_generation(commits: Mapping[TopicPartition, CommittedOffset], generation: int) -> int:
    """The generation that founded the group (R7): `generation` itself where there are no commits or all of them say so.

    `commits` are all of the group's, not only those of the partitions held. Else the oldest generation that one of
    them tells, NOT_FOUNDED where none does.
    """
    if not commits:
        return generation
    metadata = [CommitMetadata.parse(commit.metadata) for commit in commits.values()]
    told = {NOT_FOUNDED if m is None else m.founding for m in metadata}
    if told == {generation}:
        return generation
    return min(told - {generation, NOT_FOUNDED}, default=NOT_FOUNDED)


def applies_starting_offsets(checkpoint: Document, founding: int, generation: int) -> bool:
    """R7: `startingOffsets` is for the founding generation of a query that starts from nothing."""
    return checkpoint == INITIAL_DOCUMENT and founding == generation


def start_of(
    partition: TopicPartition,
    *,
    checkpoint: Document,
    run: str,
    committed: CommittedOffset | None,
    topic_id: str,
    use_starting_offsets: bool,
    alone: bool = False,
    begun: Position | None = None,
) -> Start:
    """Where `partition`, just gained, starts (R5).

    `checkpoint` is the newest document proven sunk, `run` this coordinator's, `committed` what an OffsetFetch found
    that was sent after the SyncGroup of the current generation, `topic_id` the topic's id now.

    `alone`: of a query that is no member. There nobody goes on from another's commit: the checkpoint goes before those
    of all queries, exactly, as a stateful query needs it (its state is the checkpoint's, and a commit that a crash has
    prevented would repeat a batch into it). Only a commit that no query has made is followed, as a member follows it:
    an operator's reset. A commit that a broker keeps in ZooKeeper has no metadata (`NO_METADATA`) that names its
    writer. It is taken for a query's, and a reset counts only for a query without a checkpoint.

    `begun` is where a batch that is being replayed began: what the checkpoint before it does not tell. It counts where
    nothing else does (batch 0 of a query whose group has no commits, or that has no group).
    """
    metadata = CommitMetadata.parse(committed.metadata) if committed is not None else None
    position = checkpoint.positions.get(partition)
    recreated = False
    if position is not None and is_another_topic(position.topic_id, topic_id):
        position, recreated = None, True
    if metadata is not None and is_another_topic(metadata.topic_id, topic_id):
        committed, metadata, recreated = None, None, True

    if committed is not None:
        ahead = position is not None and position.offset > committed.offset
        if position is not None and ahead and metadata is not None and _proven(checkpoint, run, metadata):
            return Start(Origin.CHECKPOINT_AHEAD, position.offset, position.leader_epoch)
        if position is not None and alone and is_of_a_query(committed):
            return Start(Origin.CHECKPOINT, position.offset, position.leader_epoch)
        return Start(Origin.COMMITTED, committed.offset, committed.leader_epoch)
    if position is None and begun is not None and not is_another_topic(begun.topic_id, topic_id):
        position = begun
    if position is not None:
        return Start(Origin.CHECKPOINT, position.offset, position.leader_epoch)
    if recreated:
        return Start(Origin.RECREATED)
    return Start(Origin.STARTING if use_starting_offsets else Origin.EARLIEST)


def is_of_a_query(committed: CommittedOffset) -> bool:
    """Whether a query has made the commit, or may have, and stands by it: one whose sink skipped a batch gives no
    lineage (R17)."""
    if committed.metadata == NO_METADATA:
        return True
    metadata = CommitMetadata.parse(committed.metadata)
    return metadata is not None and metadata.lineage != ""


def is_another_topic(old: str, new: str) -> bool:
    """Whether two topic ids are known and differ: the topic was deleted and created again (R8)."""
    return NO_TOPIC_ID not in (old, new) and old != new


def _proven(checkpoint: Document, run: str, metadata: CommitMetadata) -> bool:
    """R5a: the commit is an earlier one of the process that made `checkpoint`, and `checkpoint` is known to have sunk.

    A document of this very run was proven here. One of an earlier run counts only where its partitions were asked:
    else a batch that the sink skipped (R17) would be taken for sunk after a plain restart.
    """
    same = metadata.lineage == checkpoint.lineage and metadata.run == checkpoint.run
    proven = checkpoint.run == run or metadata.asked == checkpoint.sequence
    return same and metadata.sequence < checkpoint.sequence and proven
