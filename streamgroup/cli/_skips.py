"""Which offsets a skip gives up, from a checkpoint's newest document and the group's commits. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamgroup.errors import ConfigError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.model import CommittedOffset, Document, OffsetRange, TopicPartition, name_some

Commits = Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class Skip:
    """The offsets of one partition that are given up. The group's next committed offset is the end of the range."""

    group: str
    range: OffsetRange


def plan_skips(
    document: Document,
    committed: Commits,
    partitions: Collection[TopicPartition],
    to_offset: int | None,
    *,
    is_sunk: bool,
) -> list[Skip]:
    """Return what to give up of `partitions`, or of the whole batch where none is named.

    If the newest batch has not sunk, it is replayed (R13) less what the group has committed, so a commit at the end of
    its range skips it, and one within the range skips the first part. A member that starts later goes on at the commit
    (R5). If the batch has sunk, only `to_offset` says how far to skip.

    Raises ConfigError for a partition that the batch does not have, an offset that skips nothing, and a commit that an
    operator has set back behind the batch: a skip would also pass over what was to be read again.
    """
    planned = {} if is_sunk else {range_.partition: range_ for range_ in document.ranges}
    chosen = sorted(partitions) if partitions else sorted(planned)
    known = document.positions if to_offset is not None else planned
    if strange := [tp for tp in chosen if tp not in known]:
        raise ConfigError(
            f"cannot skip {name_some(strange)}: the newest batch of the checkpoint "
            + ("does not have it" if to_offset is not None else "has no range of it that has not sunk")
            + f". It has {name_some(known) or 'none'}"
        )
    skips = []
    for tp in chosen:
        position = document.positions[tp].offset
        start = planned[tp].start if tp in planned else position
        until = planned[tp].until if to_offset is None else to_offset
        begin = _begin(document, tp, start, committed.get(tp), is_sunk=is_sunk)
        if until > begin:
            skips.append(Skip(document.group, OffsetRange(tp, begin, until)))
        elif to_offset is not None:
            raise ConfigError(
                f"cannot skip {tp} to offset {to_offset}: group {document.group!r} goes on at {begin}, which is not "
                "before it. To read records again, reset the group: streamgroup groups --reset-offsets"
            )
    return skips


def _begin(document: Document, tp: TopicPartition, start: int, commit: CommittedOffset | None, *, is_sunk: bool) -> int:
    """Return the first offset of `tp` that the query would read next. Raises ConfigError; see `plan_skips`."""
    if commit is None or commit.offset == start:
        return start
    if commit.offset > start:
        return commit.offset
    metadata = CommitMetadata.parse(commit.metadata)
    if metadata is not None and metadata.lineage == document.lineage:
        return start  # the query has sunk up to there, and ended before its commit (R5a)
    batch = "the newest batch ends" if is_sunk else "the batch that has not sunk begins"
    raise ConfigError(
        f"cannot skip records of {tp}: group {document.group!r} stands at {commit.offset}, and {batch} at {start}, "
        "because the group was reset or another member has read behind it. Set the group to the offset that you want: "
        "streamgroup groups --reset-offsets --to-offset"
    )
