"""Limits a batch: `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from streamgroup.coordinator.planning.packing import UNIT
from streamgroup.frozen import frozen
from streamgroup.model import OffsetRange, TopicPartition


def min_offsets_now(min_offsets: int | None, waited_s: float | None, max_delay_s: float) -> int:
    """Return the minimum offsets of a batch that is planned `waited_s` seconds after the previous batch.

    `waited_s` is None for the first batch after the start of the query, which is never delayed. Every later batch needs
    `min_offsets` until `max_delay_s` seconds have passed, as in Spark's own Kafka source.
    """
    if min_offsets is None or waited_s is None or waited_s >= max_delay_s:
        return 1
    return min_offsets


def rate_limit(backlog: Mapping[TopicPartition, OffsetRange], max_offsets: int) -> dict[TopicPartition, int]:
    """Return the end offset of each partition if all partitions together may take `max_offsets` offsets.

    Each partition takes a share in proportion to its backlog, rounded down, as in Spark's own Kafka source. A share
    below 1 is rounded up to 1, because otherwise a small partition would starve next to large ones. With many such
    partitions the batch exceeds `max_offsets`. The end never exceeds the end of the backlog. The shares are computed
    with integers, because a double cannot represent every offset.

    Raises ValueError if `max_offsets` is below 1.
    """
    if max_offsets < 1:
        raise ValueError(f"invalid limit of {max_offsets} offsets: expected at least 1")
    total = sum(map(len, backlog.values()))
    return {tp: _limited(range_, max_offsets, total) for tp, range_ in backlog.items()}


def byte_limit(
    backlog: Mapping[TopicPartition, OffsetRange], max_bytes: int, densities: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the end offset of each partition if all partitions together may take `max_bytes` bytes.

    `densities` has the estimated bytes of UNIT offsets of each partition. Each partition takes a share of the bytes in
    proportion to the bytes of its backlog, rounded down to offsets. A share below one offset is rounded up to one,
    because otherwise a record larger than the limit would never be read. The end never exceeds the end of the backlog.

    Raises ValueError if `max_bytes` is below 1.
    """
    if max_bytes < 1:
        raise ValueError(f"invalid limit of {max_bytes} bytes: expected at least 1")
    total = sum(len(range_) * densities[tp] for tp, range_ in backlog.items())
    # A share of bytes, max_bytes * UNIT * len * density / total, is len * max_bytes * UNIT / total offsets.
    shares = {tp: len(range_) * max_bytes * UNIT // total for tp, range_ in backlog.items() if len(range_)}
    return {tp: min(range_.until, range_.start + max(1, shares.get(tp, 0))) for tp, range_ in backlog.items()}


def size_of(ranges: Iterable[OffsetRange], densities: Mapping[TopicPartition, int]) -> int:
    """Return the estimated bytes of `ranges`, rounded up. `densities` is as in `byte_limit`."""
    return -(-sum(len(range_) * densities[range_.partition] for range_ in ranges) // UNIT)


def smaller(*limits: int | None) -> int | None:
    """Return the smallest limit that is not None; None if all are None."""
    return min((limit for limit in limits if limit is not None), default=None)


def strict_limit(backlog: Mapping[TopicPartition, OffsetRange], max_offsets: int) -> dict[TopicPartition, int]:
    """Return the end offsets of the first partitions of `backlog`, which together take at most `max_offsets` offsets.

    A partition whose share would be 0 is absent.
    """
    until = {}
    for tp, range_ in sorted(backlog.items()):
        taken = min(len(range_), max_offsets)
        if taken:
            until[tp] = range_.start + taken
        max_offsets -= taken
    return until


def _limited(backlog: OffsetRange, max_offsets: int, total: int) -> int:
    if not len(backlog):
        return backlog.until
    share = max(1, max_offsets * len(backlog) // total)
    return min(backlog.until, backlog.start + share)


# -- Kafka 0.7: offsets are byte positions -----------------------------------------------------------------------------


@frozen
class Boundaries:
    """Known message boundaries of Kafka 0.7 logs: offsets at which a batch may end (R34)."""

    segment_starts: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    """The start offsets of each log's segments, ascending."""
    message_ends: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    """The ends of messages, ascending, found by a scan from the start of the backlog. The first entry is the end of the
    backlog's first message."""


@frozen
class MessageAlignedLimits:
    """The result of `whole_messages`: the end offsets of a batch, rounded to message boundaries."""

    until: dict[TopicPartition, int]
    """The end offset of each partition with a known boundary."""
    unscanned: tuple[OffsetRange, ...]
    """The ranges without a known boundary: a scan must find their message boundaries first."""


def whole_messages(
    backlog: Mapping[TopicPartition, OffsetRange], limits: Mapping[TopicPartition, int], known: Boundaries
) -> MessageAlignedLimits:
    """Round each limit down to the last known boundary: a segment's start, or else the end of a message.

    A limit is a maximum, except that a batch always takes a partition's first message. Otherwise a message larger than
    the limit would never be read.
    """
    until: dict[TopicPartition, int] = {}
    unscanned = []
    for tp, range_ in backlog.items():
        limit = limits[tp]
        ends = known.message_ends.get(tp, ())
        segment = _last(known.segment_starts.get(tp, ()), range_.start, limit)
        if limit >= range_.until:
            until[tp] = range_.until
        elif segment is not None:
            until[tp] = segment
        elif ends:
            until[tp] = min(range_.until, _last(ends, range_.start, limit) or ends[0])
        else:
            unscanned.append(OffsetRange(tp, range_.start, limit))
    return MessageAlignedLimits(until, tuple(unscanned))


def _last(boundaries: Sequence[int], after: int, limit: int) -> int | None:
    """Return the last of `boundaries` in `(after, limit]`."""
    index = bisect_right(boundaries, limit)
    return boundaries[index - 1] if index and boundaries[index - 1] > after else None
