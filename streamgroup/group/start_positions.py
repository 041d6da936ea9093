"""Decides where a newly assigned partition starts: the rules R5 to R8 as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamgroup.frozen import frozen
from streamgroup.group.commits import FIRST_EPOCH, NOT_FOUNDED, CommitMetadata
from streamgroup.kafka.wire.messages.offsets import NO_METADATA
from streamgroup.model import (
    INITIAL_DOCUMENT,
    UNKNOWN_EPOCH,
    CommittedOffset,
    Document,
    Position,
    TopicPartition,
    is_another_topic,
)


class Origin(Enum):
    """Where a position comes from, with the letters of R5."""

    CHECKPOINT_AHEAD = "a"
    """The checkpoint: this query has sunk records that it could not commit."""
    COMMITTED = "b"
    CHECKPOINT = "c"
    STARTING = "d"
    """`startingOffsets`, in the founding generation only (R7)."""
    EARLIEST = "new"
    """A new partition, or one whose commit has expired (R7)."""
    RECREATED = "recreated"
    """The topic was recreated with another id, so positions of the old topic are invalid (R8)."""


@frozen
class StartPosition:
    """The start of a newly assigned partition.

    `offset` is None if the log decides it (STARTING, EARLIEST, RECREATED).
    """

    origin: Origin
    offset: int | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    """The leader epoch of the position; UNKNOWN_EPOCH if the document or the commit has none."""

    @property
    def commit_at_once(self) -> bool:
        """Whether the position must be committed before its first fetch: it is not the committed offset (R6)."""
        return self.origin is not Origin.COMMITTED


def founding_generation(commits: Mapping[TopicPartition, CommittedOffset], generation: int) -> int:
    """Return the generation that founded the group (R7).

    It is `generation` if the group has no commits, or if all of them name it as the founding one. Otherwise it is the
    oldest founding generation that a commit names, NOT_FOUNDED if none names one. `commits` are all commits of the
    group, not only those of the partitions held.
    """
    foundings = {NOT_FOUNDED if named >= FIRST_EPOCH else named for named in _foundings(commits)}
    if not commits or foundings == {generation}:
        return generation
    return min(foundings - {generation, NOT_FOUNDED}, default=NOT_FOUNDED)


def founding_epoch(commits: Mapping[TopicPartition, CommittedOffset], epoch: int) -> int:
    """Return the epoch that founded the group, for a partition that its member has owned since `epoch` (R7).

    It is `epoch` if the group had no commits in it. Members have different epochs while partitions move, so the first
    commit may name a later one: the partition existed before that commit, and no member has read it. Otherwise it is
    the oldest epoch that a commit names, NOT_FOUNDED if one names none. Epochs are above `FIRST_EPOCH`.
    """
    oldest = min(_foundings(commits), default=epoch)
    if oldest < FIRST_EPOCH:
        return NOT_FOUNDED
    return epoch if oldest >= epoch else oldest


def _foundings(commits: Mapping[TopicPartition, CommittedOffset]) -> set[int]:
    metadata = [CommitMetadata.parse(commit.metadata) for commit in commits.values()]
    return {NOT_FOUNDED if m is None else m.founding for m in metadata}


def applies_starting_offsets(checkpoint: Document, founding: int, generation: int) -> bool:
    """Return whether `startingOffsets` apply: in the founding generation, to a query without a checkpoint (R7).

    `checkpoint` may be the document that Spark replays, since it has the positions where the query began to read.
    """
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
    with_rows: bool = False,
    begun: Position | None = None,
) -> StartPosition:
    """Return where the newly assigned `partition` starts (R5).

    `checkpoint` is the newest completed document, `run` the id of this start of the query, `topic_id` the topic's
    current id. `committed` is the commit that an OffsetFetch found after the SyncGroup of the current generation.

    `alone`: the query is not a member. No other query continues from its commits, so its checkpoint has priority over
    commits of queries. A stateful query depends on that: if a crash prevented a commit, the commit before it would
    repeat a batch whose effects the state already contains. Only a commit that no query has made, an operator's reset,
    has priority, as for a member. A commit that a broker stores in ZooKeeper has no metadata (`NO_METADATA`) that names
    its writer. It counts as a query's commit, so such a reset works only for a query without a checkpoint.

    `with_rows`: the commits change in one transaction with the sink's rows, in a table or in Kafka (R37, R38). So a
    checkpoint is never ahead of them, whatever it says: a replay may have left out what another query has taken over.
    And it never moves them back: that would store a batch twice.

    `begun` is where the batch that is being replayed begins; the checkpoint before it may not contain the partition. It
    is used last: in batch 0 of a query whose group has no commits, or that has no group. A query that is not a member
    and has a table uses it first: its sink may have stored the batch after an operator's reset.
    """
    metadata = CommitMetadata.parse(committed.metadata) if committed is not None else None
    position = checkpoint.positions.get(partition)
    if alone and with_rows and begun is not None:
        position = begun  # the batch before it was planned before an operator's reset, if it ends elsewhere
    recreated = False
    if position is not None and is_another_topic(position.topic_id, topic_id):
        position, recreated = None, True
    if metadata is not None and is_another_topic(metadata.topic_id, topic_id):
        committed, metadata, recreated = None, None, True

    if committed is not None:
        ahead = position is not None and position.offset > committed.offset and not with_rows
        if position is not None and ahead and metadata is not None and _proven(checkpoint, run, metadata):
            return StartPosition(Origin.CHECKPOINT_AHEAD, position.offset, position.leader_epoch)
        is_behind = with_rows and position is not None and position.offset < committed.offset
        if position is not None and alone and is_of_a_query(committed) and not is_behind:
            return StartPosition(Origin.CHECKPOINT, position.offset, position.leader_epoch)
        return StartPosition(Origin.COMMITTED, committed.offset, committed.leader_epoch)
    if position is None and begun is not None and not is_another_topic(begun.topic_id, topic_id):
        position = begun
    if position is not None:
        return StartPosition(Origin.CHECKPOINT, position.offset, position.leader_epoch)
    if recreated:
        return StartPosition(Origin.RECREATED)
    return StartPosition(Origin.STARTING if use_starting_offsets else Origin.EARLIEST)


def is_of_a_query(committed: CommittedOffset) -> bool:
    """Return whether a query has made the commit, or may have.

    A query whose sink skipped a batch commits without a lineage, so that its commit counts as a reset (R17).
    """
    if committed.metadata == NO_METADATA:
        return True
    metadata = CommitMetadata.parse(committed.metadata)
    return metadata is not None and metadata.lineage != ""


def _proven(checkpoint: Document, run: str, metadata: CommitMetadata) -> bool:
    """Return whether the batch of `checkpoint` was completed after a commit of the same process (R5a).

    A document of this process was confirmed here. A document of an earlier process counts only if Spark called
    `partitions` for it. Otherwise a batch that the sink skipped (R17) would count as completed after a restart.
    """
    same = metadata.lineage == checkpoint.lineage and metadata.run == checkpoint.run
    proven = checkpoint.run == run or metadata.asked == checkpoint.sequence
    return same and metadata.sequence < checkpoint.sequence and proven
