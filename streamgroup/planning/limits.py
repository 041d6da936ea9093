"""How much a batch takes: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` with `maxTriggerDelay`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgroup.model import OffsetRange, TopicPartition


def least_wanted(min_offsets: int | None, waited_s: float | None, max_delay_s: float) -> int:
    """The fewest offsets that are worth a batch now, `waited_s` seconds after the batch before (None: there is none).

    As in Spark's own source: the first batch of a run waits for nothing, every other one until there are `min_offsets`
    or `max_delay_s` have passed.
    """
    if min_offsets is None or waited_s is None or waited_s >= max_delay_s:
        return 1
    return min_offsets


def rate_limit(backlog: Mapping[TopicPartition, OffsetRange], max_offsets: int) -> dict[TopicPartition, int]:
    """Where each partition's batch ends when all may take `max_offsets` offsets together.

    As Spark's own source does it: in proportion to the backlog, rounded down, but up where the share is below 1, so
    that a small partition beside large ones does not starve (with many such ones a batch is larger than `max_offsets`);
    never beyond the end. Computed in whole numbers: a double cannot hold every offset.
    """
    if max_offsets < 1:
        raise ValueError(f"a limit of offsets must be at least 1, not {max_offsets}")
    total = sum(map(len, backlog.values()))
    return {tp: _limited(range_, max_offsets, total) for tp, range_ in backlog.items()}


def _limited(backlog: OffsetRange, max_offsets: int, total: int) -> int:
    if not len(backlog):
        return backlog.until
    share = max(1, max_offsets * len(backlog) // total)
    return min(backlog.until, backlog.start + share)


# -- Kafka 0.7 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where a batch of Kafka 0.7 may end beside the ends of the logs: its offsets are bytes (R34)."""

    segments: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    """Where the segments of the logs start, ascending."""
    walked: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    """What walking the messages from the start of the backlog has found, ascending: the end of the first one first."""


@dataclass(frozen=True, slots=True)
class WholeMessages:
    """Limits rounded to boundaries, and the ranges whose messages have to be walked before there is one."""

    until: dict[TopicPartition, int]
    unknown: tuple[OffsetRange, ...]


def whole_messages(
    backlog: Mapping[TopicPartition, OffsetRange], limits: Mapping[TopicPartition, int], known: Boundaries
) -> WholeMessages:
    """`limits` rounded down to the last boundary known: a segment's start, else an end of a message.

    Limits are maxima, but a partition's first message is always taken, or one larger than its limit would never be.
    """
    until: dict[TopicPartition, int] = {}
    unknown = []
    for tp, range_ in backlog.items():
        limit = limits[tp]
        walked = known.walked.get(tp, ())
        segment = _last(known.segments.get(tp, ()), range_.start, limit)
        if limit >= range_.until:
            until[tp] = range_.until
        elif segment is not None:
            until[tp] = segment
        elif walked:
            until[tp] = min(range_.until, _last(walked, range_.start, limit) or walked[0])
        else:
            unknown.append(OffsetRange(tp, range_.start, limit))
    return WholeMessages(until, tuple(unknown))


def _last(boundaries: Sequence[int], after: int, limit: int) -> int | None:
    """The last of `boundaries` in `(after, limit]`."""
    index = bisect_right(boundaries, limit)
    return boundaries[index - 1] if index and boundaries[index - 1] > after else None
