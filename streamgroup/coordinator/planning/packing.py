"""Makes the tasks that read ranges of offsets: splits large ranges, packs small ranges; also estimates record sizes.

Ranges are split as in Spark's KafkaOffsetRangeCalculator. Spark has no packing. A task costs Spark about 30 ms, as much
as tens of thousands of cheap records, so a task for each nearly empty partition would make small batches slow. The
caller limits packing (`PackingLimit`), because the work on a record may take longer than a task costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappush, heapreplace
from itertools import pairwise
from typing import Final

from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat
from streamgroup.model import NO_LEADER, FetchRange, FetchTask, OffsetRange, TopicPartition

SMALL: Final = {KAFKA_LOG: 20_000, KAFKA07_LOG: 2 * 1024 * 1024}
"""A range of up to this many offsets is small: at some 1 us a record it takes less time than a task costs.

If an offset is a byte, records of about 100 bytes are assumed.
"""
MOST_SMALL_TASKS: Final = 512
"""Maximum number of tasks for small ranges: more tasks than the application has cores would only add cost."""

Segments = Mapping[TopicPartition, Sequence[int]]


def pack(
    ranges: Sequence[FetchRange],
    log_format: LogFormat = KAFKA_LOG,
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    packed_offsets: int = 0,
    segments: Segments | None = None,
) -> list[FetchTask]:
    """Return the tasks of a batch. Together they read exactly `ranges`; the order of `ranges` does not matter.

    Empty ranges are dropped. No task is larger than `max_records_per_partition`. There are at least `min_partitions`
    tasks, as far as rounding allows; without both options there are never more tasks than partitions. Small ranges that
    are not split share a task of up to `packed_offsets` offsets, ranges of one leader first. If there are more than
    `MOST_SMALL_TASKS` small ranges, they share that many tasks, or fewer if `packed_offsets` allows it. A shared task
    is never larger than `SMALL`. The longest task comes first, so that it is not started last.

    If not every offset is a boundary (`LogFormat.has_boundaries`), a range is split only at the nearest starts of its
    `segments`: a task may be larger than `max_records_per_partition`, and there are no more tasks than segments.
    """
    filled = sorted((r for r in ranges if len(r.range)), key=_range_of)
    parts = _parts(filled, min_partitions, max_records_per_partition)
    pieces = [
        _divide_at(r, n, (segments or {}).get(r.range.partition, ())) if log_format.has_boundaries else _divide(r, n)
        for r, n in zip(filled, parts, strict=True)
    ]
    small = min(SMALL[log_format], max_records_per_partition or SMALL[log_format])
    packable = [p[0] for p in pieces if len(p) == 1 and len(p[0].range) <= small]
    single = [FetchTask((r,)) for p in pieces if len(p) > 1 or len(p[0].range) > small for r in p]
    enough = _enough_for_few(packable)
    bins = _packed(packable, min(max(packed_offsets, enough), small))
    few = MOST_SMALL_TASKS if packed_offsets < enough else 1
    packed = _spread(bins, max((min_partitions or 1) - len(single), few))
    return sorted((*single, *packed), key=lambda task: (-len(task), _range_of(task.ranges[0])))


# -- splitting ---------------------------------------------------------------------------------------------------------


def _parts(ranges: Sequence[FetchRange], min_partitions: int | None, max_records: int | None) -> list[int]:
    sizes = [len(r.range) for r in ranges]
    capped = [-(-size // max_records) if max_records else 1 for size in sizes]
    if min_partitions is None or min_partitions <= sum(capped):
        return capped
    # The ranges too small to be split come off first: the large ones share the tasks that are left.
    total = sum(sizes)
    kept = [_share(size, total, min_partitions) == 1 for size in sizes]
    rest = total - sum(size for size, whole in zip(sizes, kept, strict=True) if whole)
    tasks = max(min_partitions - sum(kept), 1)
    wanted = [1 if whole else _share(size, rest, tasks) for size, whole in zip(sizes, kept, strict=True)]
    return [min(size, max(pair)) for size, *pair in zip(sizes, wanted, capped, strict=True)]


def _share(size: int, total: int, tasks: int) -> int:
    """Return the share of `size` in `tasks`, rounded half up, at least 1."""
    return max(1, (2 * size * tasks + total) // (2 * total))


def _divide(range_: FetchRange, parts: int) -> list[FetchRange]:
    """Divide a range into `parts` pieces of nearly one size."""
    start, size = range_.range.start, len(range_.range)
    return _cut(range_, [start + size * part // parts for part in range(parts + 1)])


def _divide_at(range_: FetchRange, parts: int, segments: Sequence[int]) -> list[FetchRange]:
    """Divide a range at the starts of segments into `parts` pieces of sizes as equal as possible.

    There are fewer pieces if there are fewer segments.
    """
    start, until, size = range_.range.start, range_.range.until, len(range_.range)
    inside = [segment for segment in segments if start < segment < until]
    parts = min(parts, len(inside) + 1)
    cuts = [start]
    first = 0
    for part in range(1, parts):
        ideal = start + size * part // parts
        last = len(inside) - (parts - 1 - part)  # the cuts after this one need one each
        nearest = min(bisect_left(inside, ideal, first, last), last - 1)
        if nearest > first and ideal - inside[nearest - 1] <= abs(inside[nearest] - ideal):
            nearest -= 1
        cuts.append(inside[nearest])
        first = nearest + 1
    return _cut(range_, [*cuts, until])


def _cut(range_: FetchRange, cuts: Sequence[int]) -> list[FetchRange]:
    tp = range_.range.partition
    return [replace(range_, range=OffsetRange(tp, a, b)) for a, b in pairwise(cuts)]


# -- packing -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Bin:
    """Ranges that are to share a task."""

    ranges: list[FetchRange]
    size: int


def _enough_for_few(ranges: Sequence[FetchRange]) -> int:
    """Return the maximum offsets of a shared task so that at most `MOST_SMALL_TASKS` tasks are needed.

    Returns 0 if there are not more ranges than that. All but one of the tasks that `_filled` packs are more than half
    full.
    """
    if len(ranges) <= MOST_SMALL_TASKS:
        return 0
    return -(-2 * sum(len(r.range) for r in ranges) // (MOST_SMALL_TASKS - 1))


def _packed(ranges: Iterable[FetchRange], bound: int) -> list[_Bin]:
    """Return bins of at most `bound` offsets: first each leader's ranges together, then the rest of all leaders.

    A larger range has its own bin.
    """
    by_leader: dict[int, list[_Bin]] = {}
    alone: list[_Bin] = []
    for range_ in ranges:
        bin_ = _Bin([range_], len(range_.range))
        if bin_.size > bound:
            alone.append(bin_)
        else:
            leader = NO_LEADER if range_.leader is None else range_.leader.node_id
            by_leader.setdefault(leader, []).append(bin_)
    bins = [bin_ for _, theirs in sorted(by_leader.items()) for bin_ in _filled(theirs, bound)]
    return [*_filled(bins, bound), *alone]


def _filled(bins: Iterable[_Bin], bound: int) -> Iterator[_Bin]:
    """Merge bins, the largest first, each into the first that has room."""
    rest = sorted(bins, key=lambda b: -b.size)
    room = _Room(len(rest), bound)
    opened: list[_Bin] = []
    for bin_ in rest:
        place = room.take(bin_.size)
        if place == len(opened):
            opened.append(bin_)
        else:
            opened[place].ranges.extend(bin_.ranges)
            opened[place].size += bin_.size
    yield from opened


class _Room:
    """A binary tree that finds the first of `places` with enough free room. Each node has the maximum room below it.

    Finding the place takes logarithmic time. Searching all open bins for each range would take seconds for 10,000
    ranges.
    """

    def __init__(self, places: int, room: int) -> None:
        self._leaves = 1 << max(0, places - 1).bit_length()
        self._most = [room] * (2 * self._leaves)

    def take(self, size: int) -> int:
        """Take `size` from the first place with enough room, and return the index of that place."""
        most = self._most
        node = 1
        while node < self._leaves:
            node *= 2
            if most[node] < size:
                node += 1
        place = node - self._leaves
        most[node] -= size
        while node > 1:
            node //= 2
            most[node] = max(most[2 * node], most[2 * node + 1])
        return place


def _spread(bins: list[_Bin], at_least: int) -> list[FetchTask]:
    """Return the bins as tasks. The largest of several ranges are halved while there are fewer than `at_least`."""
    # A heap: by how many ranges a group has, of several the oldest.
    groups = [(-len(b.ranges), age, sorted(b.ranges, key=_range_of)) for age, b in enumerate(bins)]
    heapify(groups)
    while len(groups) < at_least and groups and len(groups[0][2]) > 1:
        most, age = groups[0][2], len(bins) + 2 * len(groups)
        half = len(most) // 2
        heapreplace(groups, (-half, age, most[:half]))
        heappush(groups, (half - len(most), age + 1, most[half:]))
    return [FetchTask(tuple(group)) for _, _, group in groups]


def _range_of(range_: FetchRange) -> tuple[TopicPartition, int]:
    """Return a sort key that orders as the range does, but is faster: ranges of one partition have different starts."""
    return range_.range.partition, range_.range.start


# -- sizes of records -------------------------------------------------------------------------------------------------

UNIT: Final = 1024
"""A density is the number of bytes of this many offsets, an integer that is precise enough for small records."""
KEPT: Final = 5
"""Samples that are kept of each partition, each of another position. The largest of them is the estimate."""
UNKNOWN: Final = UNIT * 1024 * 1024
"""The density of a partition without any sample: a record of 1 MiB for each offset, the default of Kafka's
`max.message.bytes`. A batch of such a partition is small until the first sample comes."""


class RecordSizes:
    """Estimates the bytes per offset of each owned partition from samples, for `maxBytesPerTrigger` and similar limits.

    A sample is taken from the log at the start of a batch. The largest of the last KEPT samples is the estimate. So one
    batch of small records does not make the next one large, and after KEPT batches of smaller records the estimate
    follows.
    """

    def __init__(self) -> None:
        self._samples: dict[TopicPartition, deque[int]] = {}
        self._sampled: dict[TopicPartition, int] = {}
        """The position of the newest sample of each partition."""

    def wanted(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the entries of `positions` for which no sample was taken yet.

        Partitions without any sample come first, then those with the oldest samples. Forgets all other partitions.
        """
        self._samples = {tp: kept for tp, kept in self._samples.items() if tp in positions}
        self._sampled = {tp: at for tp, at in self._sampled.items() if tp in positions}
        age = {tp: number for number, tp in enumerate(self._sampled)}  # `add` puts the newest at the end
        new = (tp for tp, position in positions.items() if self._sampled.get(tp) != position)
        return {tp: positions[tp] for tp in sorted(new, key=lambda tp: (age.get(tp, -1), tp))}

    def add(self, tp: TopicPartition, position: int, size: int, offsets: int) -> None:
        """Add a sample: from `position` on, `offsets` offsets take `size` bytes. Both numbers are positive."""
        self._sampled.pop(tp, None)
        self._sampled[tp] = position
        self._samples.setdefault(tp, deque(maxlen=KEPT)).append(max(1, -(-size * UNIT // offsets)))

    def densities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the estimated bytes of UNIT offsets of each partition.

        A partition without a sample has the largest density of its topic, or UNKNOWN if no partition of the topic has
        one.
        """
        known = {tp: max(kept) for tp, kept in self._samples.items()}
        by_topic: dict[str, int] = {}
        for tp, density in known.items():
            by_topic[tp.topic] = max(density, by_topic.get(tp.topic, 0))
        return {tp: known.get(tp, by_topic.get(tp.topic, UNKNOWN)) for tp in partitions}
