"""From ranges of offsets to the tasks that read them: large ranges are split, small ones are packed.

Splitting is that of Spark's KafkaOffsetRangeCalculator. Packing is ours: a task costs Spark about 30 ms, as much as
tens of thousands of records, so that a task for each nearly empty partition makes small batches slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from streamgroup.model import NO_LEADER, FetchRange, FetchTask, OffsetRange

SMALL = 20_000
"""Offsets up to which small ranges are packed into one task: what a task's own cost is worth at some 1 us a record."""


def pack(
    ranges: Sequence[FetchRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    small: int = SMALL,
) -> list[FetchTask]:
    """The tasks of a batch: they tile `ranges` exactly; the same ranges in any order give the same tasks.

    Empty ranges are dropped. No task is larger than `max_records_per_partition`. There are at least `min_partitions`
    tasks, as far as rounding allows; without both of these never more than partitions. Whole ranges of up to `small`
    offsets share a task while that stays as small, those of one leader first. The longest task comes first, so that it
    is not started last.
    """
    filled = sorted((r for r in ranges if len(r.range)), key=lambda r: r.range)
    pieces = [
        _divide(r, n) for r, n in zip(filled, _parts(filled, min_partitions, max_records_per_partition), strict=True)
    ]
    bound = min(small, max_records_per_partition or small)
    packable = [p[0] for p in pieces if len(p) == 1 and len(p[0].range) <= bound]
    single = [FetchTask((r,)) for p in pieces if len(p) > 1 or len(p[0].range) > bound for r in p]
    packed = _spread(_packed(packable, bound), (min_partitions or 1) - len(single))
    return sorted((*single, *packed), key=lambda task: (-len(task), task.ranges[0].range))


# -- splitting ---------------------------------------------------------------------------------------------------------


def _parts(ranges: Sequence[FetchRange], min_partitions: int | None, max_records: int | None) -> list[int]:
    """Into how many pieces each range is divided."""
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
    """`tasks` in proportion, rounded half up, at least 1."""
    return max(1, (2 * size * tasks + total) // (2 * total))


def _divide(range_: FetchRange, parts: int) -> list[FetchRange]:
    """`parts` pieces of nearly one size, which tile the range."""
    start, size = range_.range.start, len(range_.range)
    cuts = [start + size * part // parts for part in range(parts + 1)]
    tp = range_.range.partition
    return [replace(range_, range=OffsetRange(tp, a, b)) for a, b in pairwise(cuts)]


# -- packing -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Bin:
    """Ranges that are to share a task."""

    ranges: list[FetchRange]
    size: int


def _packed(ranges: Iterable[FetchRange], bound: int) -> list[_Bin]:
    """Bins of at most `bound` offsets: each leader's ranges together, then what is left of the leaders."""
    by_leader: dict[int, list[FetchRange]] = {}
    for range_ in ranges:
        by_leader.setdefault(NO_LEADER if range_.leader is None else range_.leader.node_id, []).append(range_)
    bins: list[_Bin] = []
    for _, theirs in sorted(by_leader.items()):
        bins.extend(_filled((_Bin([r], len(r.range)) for r in theirs), bound))
    return list(_filled(bins, bound))


def _filled(bins: Iterable[_Bin], bound: int) -> Iterator[_Bin]:
    """The bins poured together, largest first, each into the first that has room."""
    open_bins: list[_Bin] = []
    for bin_ in sorted(bins, key=lambda b: -b.size):
        into = next((b for b in open_bins if b.size + bin_.size <= bound), None)
        if into is None:
            open_bins.append(bin_)
        else:
            into.ranges.extend(bin_.ranges)
            into.size += bin_.size
    yield from open_bins


def _spread(bins: list[_Bin], at_least: int) -> list[FetchTask]:
    """The bins as tasks; the largest of several ranges are halved while there are fewer than `at_least`."""
    groups = [sorted(b.ranges, key=lambda r: r.range) for b in bins]
    while len(groups) < at_least:
        most = max(groups, key=len, default=[])
        if len(most) < 2:
            break
        groups.remove(most)
        groups += [most[: len(most) // 2], most[len(most) // 2 :]]
    return [FetchTask(tuple(group)) for group in groups]
