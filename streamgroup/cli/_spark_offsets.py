"""The offsets with which Spark's own source goes on from a document in a checkpoint. Pure.

Spark reads in batch N what lies between the offsets of batch N-1 and those of batch N, partition by partition. A
document has the ranges of its batch instead, and only the positions of the partitions that the query held. So the
offsets of partitions that other members held come from the group's commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamgroup.errors import ConfigError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.model import CommittedOffset, Document, TopicPartition, name_some

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SparkOffsets:
    """The offsets at which Spark starts and ends the batch of a document."""

    starts: Offsets
    ends: Offsets
    notes: tuple[str, ...] = ()
    """Where the group's commits changed what the document says."""


def of_document(document: Document) -> Offsets:
    """Return the positions of a document that has sunk, as they are."""
    return {tp: position.offset for tp, position in sorted(document.positions.items())}


def after_sunk(
    document: Document, committed: Mapping[TopicPartition, CommittedOffset], topics: Collection[str]
) -> SparkOffsets:
    """Return the offsets where Spark goes on behind `document`, whose batch has sunk.

    A member of the group would follow the group's commit where it differs (R5b). It would go on at the document where
    the query itself has committed less than it sank. `topics` are those of the query.
    """
    ends, notes = of_document(document), []
    for tp, position in document.positions.items():
        commit = committed.get(tp)
        if commit is None or commit.offset == position.offset or _is_behind(document, position.offset, commit):
            continue
        ends[tp] = commit.offset
        notes.append(f"{tp}: the group has committed {commit.offset}, the checkpoint says {position.offset}")
    others = _of_others(document, committed, topics)
    if others:
        notes.append(f"of other members of the group, from its commits: {name_some(others)}")
    ends = dict(sorted((ends | others).items()))
    return SparkOffsets(ends, ends, tuple(notes))


def of_replay(
    document: Document, committed: Mapping[TopicPartition, CommittedOffset], topics: Collection[str]
) -> SparkOffsets:
    """Return the offsets with which Spark replays the batch of `document`, which has not sunk.

    The ranges are those of the document, without records that the group has committed, as in a replay by a member
    (R13). Raises ConfigError for a commit below the batch that the query has not made: Spark cannot go back behind it.
    """
    ranges = {r.partition: (r.start, r.until) for r in document.ranges}
    starts, ends, notes = {}, {}, []
    for tp, position in document.positions.items():
        start, until = ranges.get(tp, (position.offset, position.offset))
        commit = committed.get(tp)
        if commit is not None and commit.offset > start:
            notes.append(f"{tp}: the group has committed {commit.offset}, so the batch leaves out what is below")
            start, until = commit.offset, max(until, commit.offset)
        elif commit is not None and commit.offset < start and not _is_behind(document, start, commit):
            raise ConfigError(
                f"cannot rewrite the checkpoint: its newest batch starts {tp} at {start}, and the group was reset to "
                f"{commit.offset}. Spark cannot go back behind a planned batch. Let the query sink the batch first, or "
                f"set the group to {start} (streamgroup groups --reset-offsets --to-offset {start})"
            )
        starts[tp], ends[tp] = start, until
    others = _of_others(document, committed, topics)
    if others:
        notes.append(f"of other members of the group, from its commits: {name_some(others)}")
    return SparkOffsets(dict(sorted((starts | others).items())), dict(sorted((ends | others).items())), tuple(notes))


def _is_behind(document: Document, offset: int, commit: CommittedOffset) -> bool:
    """Return whether the query of `document` has sunk up to `offset` and committed less, as after a crash (R5a)."""
    metadata = CommitMetadata.parse(commit.metadata)
    return commit.offset < offset and metadata is not None and metadata.lineage == document.lineage


def _of_others(
    document: Document, committed: Mapping[TopicPartition, CommittedOffset], topics: Collection[str]
) -> Offsets:
    return {
        tp: commit.offset
        for tp, commit in sorted(committed.items())
        if tp.topic in topics and tp not in document.positions
    }


def spark_value(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the shape of Spark's connector: `{"orders": {"0": 123}}`."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested
