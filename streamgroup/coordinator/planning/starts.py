"""Resolves start and end offsets by Spark's semantics of `startingOffsets`, `endingOffsets` and related options.

Two pure steps with ListOffsets between them, and one more if a timestamp is later than the last record::

    listed = list_offsets(lookups(configured, partitions))
    listed |= list_offsets(fallbacks(configured, listed))
    starts = resolve(configured, partitions, listed)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, LogRange, OffsetRange, TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

Listed = Mapping[TopicPartition, tuple[int, int]]
"""Answers of ListOffsets: partition -> (offset, timestamp in ms); the offset is -1 if no record is that late."""

NO_OFFSET = -1


class RangeBound(Enum):
    """The bound that a `ConfiguredOffsets` sets: where a stream starts, or where a batch read starts or ends.

    Their options take different numbers for the earliest and the latest offset.
    """

    STREAM_START = "stream start"
    BATCH_START = "batch start"
    BATCH_END = "batch end"

    def option(self, configured: ConfiguredOffsets) -> str:
        name = "ending" if self is RangeBound.BATCH_END else "starting"
        if configured.timestamp is not None:
            return f"{name}Timestamp"
        return f"{name}OffsetsByTimestamp" if configured.timestamps else f"{name}Offsets"

    def hint(self, configured: ConfiguredOffsets) -> str:
        """Return the numbers that this option takes besides offsets, in parentheses; nothing for timestamps."""
        if configured.timestamps:
            return ""
        meanings = {
            RangeBound.STREAM_START: f"{EARLIEST} is the earliest offset, {LATEST} the latest",
            RangeBound.BATCH_START: f"{EARLIEST} is the earliest offset",
            RangeBound.BATCH_END: f"{LATEST} is the latest offset",
        }
        return f" ({meanings[self]})"


def lookups(
    configured: ConfiguredOffsets,
    partitions: Collection[TopicPartition],
    *,
    bound: RangeBound = RangeBound.STREAM_START,
) -> dict[TopicPartition, int]:
    """Return the requests for ListOffsets: EARLIEST, LATEST or a timestamp in ms, none for an explicit offset.

    Raises ConfigError if `configured` goes by partition and does not list one of `partitions`. As with Spark's own
    source, it must list all partitions that are read. A member of a group only needs the partitions that it holds.
    """
    _refuse_unlisted(configured, partitions, bound)
    asked = {tp: _wanted(configured, tp) for tp in partitions}
    return {tp: what for tp, what in asked.items() if what < 0 or _by_time(configured, tp)}


def fallbacks(configured: ConfiguredOffsets, listed: Listed) -> dict[TopicPartition, int]:
    """Return the partitions that have no record as late as their timestamp, to be asked for LATEST.

    Raises ConfigError for them unless `configured` lets them start at their end.
    """
    unmatched = sorted(tp for tp, (offset, _) in listed.items() if offset == NO_OFFSET and _by_time(configured, tp))
    if unmatched and not configured.no_match_is_latest:
        cases = name_some(unmatched, lambda tp: f"{tp} at timestamp {_wanted(configured, tp)}")
        raise ConfigError(
            f"no record is as late as the starting timestamp: {cases}. Give an earlier one, or "
            "startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
        )
    return dict.fromkeys(unmatched, LATEST)


def resolve(
    configured: ConfiguredOffsets,
    partitions: Collection[TopicPartition],
    listed: Listed,
    *,
    bound: RangeBound = RangeBound.STREAM_START,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition, from `configured` and the answers of ListOffsets.

    Raises ConfigError if `configured` does not list a partition or a timestamp has no match, and ValueError if an
    answer to one of the `lookups` is missing.
    """
    asked = lookups(configured, partitions, bound=bound)
    if unanswered := sorted(tp for tp in asked if tp not in listed):
        raise ValueError(f"no offset was listed for {', '.join(map(str, unanswered))}")
    offsets = {tp: listed[tp][0] if tp in asked else _wanted(configured, tp) for tp in partitions}
    if unmatched := {tp: listed[tp] for tp in asked if offsets[tp] < 0}:
        fallbacks(configured, unmatched)
        raise ValueError(f"no end was listed for {', '.join(map(str, sorted(unmatched)))}, which has no match")
    return offsets


def unread(configured: ConfiguredOffsets, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that only `configured` lists, not `partitions`, sorted. Spark's own source allows none."""
    return (
        []
        if configured.timestamp is not None
        else sorted({*configured.timestamps, *configured.offsets}.difference(partitions))
    )


def refuse_crossed(
    starting: ConfiguredOffsets,
    ending: ConfiguredOffsets,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Raise ConfigError if a given start is above the given end, as Spark's own source does.

    Timestamps by partition are compared themselves, since both may mean the same offset. Whether the earliest or the
    latest offset is beyond the other bound depends on what the log holds: see `within`.
    """
    crossed = [
        f"{tp} starts at offset {start} and ends at {ends[tp]}"
        for tp, start in sorted(starts.items())
        if start > ends[tp] and _wanted(starting, tp) != EARLIEST and _wanted(ending, tp) != LATEST
    ]
    crossed += [
        f"{tp} starts at timestamp {starting.timestamps[tp]} and ends at {ending.timestamps[tp]}"
        for tp in sorted(starts)
        if starts[tp] <= ends[tp] and starting.timestamps.get(tp, 0) > ending.timestamps.get(tp, math.inf)
    ]
    if crossed:
        first, last = RangeBound.BATCH_START.option(starting), RangeBound.BATCH_END.option(ending)
        partitions = first_of(crossed, MOST_NAMED, "partition", "; ")
        raise ConfigError(
            f"{first} is above {last}: {partitions}. Give an earlier start or a later end; a partition with "
            "nothing to read has the same start and end"
        )


def ranges(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the ranges of a batch read, sorted: `[start, end)`, none if the end is not above the start."""
    return [OffsetRange(tp, starts[tp], ends[tp]) for tp in sorted(starts) if tp in ends and starts[tp] < ends[tp]]


def within(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogRange]
) -> tuple[list[OffsetRange], list[str]]:
    """Return the part of `ranges(starts, ends)` that the logs hold, and descriptions of the rest.

    A start beyond the end of its log is described, too: its records are gone, or have not been written. An end below
    the beginning of its log is described if the start is above it.
    """
    kept: list[OffsetRange] = []
    lost = []
    for tp, start in sorted(starts.items()):
        holds = f"the log holds [{logs[tp].earliest}, {logs[tp].latest})"
        if start > logs[tp].latest:
            lost.append(f"{tp} from offset {start}: {holds}")
        elif start > ends.get(tp, start) and ends[tp] < logs[tp].earliest:
            lost.append(f"{tp} up to offset {ends[tp]}: {holds}")
    for wanted in ranges(starts, ends):
        log = logs[wanted.partition]
        if wanted.start > log.latest:
            continue
        if wanted.start < log.earliest or wanted.until > log.latest:
            lost.append(f"{wanted}: the log holds [{log.earliest}, {log.latest})")
        low, high = max(log.earliest, wanted.start), min(log.latest, wanted.until)
        if low < high:
            kept.append(OffsetRange(wanted.partition, low, high))
    return kept, lost


def _by_time(configured: ConfiguredOffsets, tp: TopicPartition) -> bool:
    return configured.timestamp is not None or tp in configured.timestamps


def _wanted(configured: ConfiguredOffsets, tp: TopicPartition) -> int:
    if configured.timestamp is not None:
        return configured.timestamp
    if tp in configured.timestamps:
        return configured.timestamps[tp]
    return configured.offsets.get(tp, configured.default)


def _refuse_unlisted(configured: ConfiguredOffsets, partitions: Iterable[TopicPartition], bound: RangeBound) -> None:
    if configured.timestamp is not None or not (configured.timestamps or configured.offsets):
        return
    # The default does not apply: a user who lists offsets means these, and a forgotten partition would start anywhere.
    unlisted = sorted(tp for tp in partitions if tp not in configured.timestamps and tp not in configured.offsets)
    if unlisted:
        what = "timestamps" if configured.timestamps else "offsets"
        raise ConfigError(
            f"{bound.option(configured)} lists {what} by partition, and lacks {name_some(unlisted)}: list all "
            f"partitions of all topics that are read{bound.hint(configured)}"
        )
