"""Resolves start and end offsets as Spark does for `startingOffsets`, `endingOffsets` and related options.

There are two pure steps with ListOffsets between them, and one more if a timestamp is later than the last record::

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
    """Says what a `ConfiguredOffsets` sets: the start of a stream, or the start or the end of a batch read.

    The three kinds of options accept different special numbers for the earliest and the latest offset.
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
        """Return, in parentheses, the special numbers that the option accepts besides offsets; "" for timestamps."""
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
    """Return what to request from ListOffsets by partition: EARLIEST, LATEST or a timestamp in ms; none for an offset.

    Raises ConfigError if `configured` lists offsets by partition and lacks one of `partitions`. As with Spark's own
    source, it must list all partitions that are read. A group member only needs the partitions that it owns.
    """
    _refuse_unlisted(configured, partitions, bound)
    asked = {tp: _wanted(configured, tp) for tp in partitions}
    return {tp: what for tp, what in asked.items() if what < 0 or _by_time(configured, tp)}


def fallbacks(configured: ConfiguredOffsets, listed: Listed) -> dict[TopicPartition, int]:
    """Return LATEST for each partition that has no record as late as its timestamp.

    Raises ConfigError for these partitions unless `configured` lets them start at their log end.
    """
    unmatched = sorted(tp for tp, (offset, _) in listed.items() if offset == NO_OFFSET and _by_time(configured, tp))
    if unmatched and not configured.no_match_is_latest:
        cases = name_some(unmatched, lambda tp: f"{tp} at timestamp {_wanted(configured, tp)}")
        raise ConfigError(
            f"cannot find a starting offset by timestamp: no record is that late: {cases}. Set an "
            f"earlier timestamp, or startingOffsetsByTimestampStrategy=latest to start such partitions at the log end"
        )
    return dict.fromkeys(unmatched, LATEST)


def resolve(
    configured: ConfiguredOffsets,
    partitions: Collection[TopicPartition],
    listed: Listed,
    *,
    bound: RangeBound = RangeBound.STREAM_START,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition, from `configured` and the responses of ListOffsets.

    Raises ConfigError if `configured` lacks a partition or a timestamp has no match, and ValueError if the response to
    one of the `lookups` is missing.
    """
    asked = lookups(configured, partitions, bound=bound)
    if unanswered := sorted(tp for tp in asked if tp not in listed):
        raise ValueError(f"ListOffsets returned no offset for {', '.join(map(str, unanswered))}")
    offsets = {tp: listed[tp][0] if tp in asked else _wanted(configured, tp) for tp in partitions}
    if unmatched := {tp: listed[tp] for tp in asked if offsets[tp] < 0}:
        fallbacks(configured, unmatched)
        raise ValueError(
            f"ListOffsets returned no log end for {', '.join(map(str, sorted(unmatched)))}, whose "
            f"timestamp has no match"
        )
    return offsets


def unread(configured: ConfiguredOffsets, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions, sorted, that `configured` lists although they are not in `partitions`.

    Spark allows none.
    """
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
    """Raise ConfigError if a configured start is above the configured end, as Spark's own source does.

    Timestamps by partition are compared as timestamps, since both may resolve to the same offset. Whether the earliest
    or the latest offset is above or below the other bound depends on the content of the log: see `within`.
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
    """Return the ranges `[start, end)` of a batch read, sorted.

    A partition is absent if its end is not above its start.
    """
    return [OffsetRange(tp, starts[tp], ends[tp]) for tp in sorted(starts) if tp in ends and starts[tp] < ends[tp]]


def within(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogRange]
) -> tuple[list[OffsetRange], list[str]]:
    """Return the parts of `ranges(starts, ends)` that the logs contain, and descriptions of the missing parts.

    A start above the log end is described, too: its records are lost, or have not been written. An end below the log
    start is described if it is above the start.
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
            f"invalid {bound.option(configured)}: it lists {what} by partition, but lacks {name_some(unlisted)}. "
            f"List all partitions of all topics that are read{bound.hint(configured)}"
        )
