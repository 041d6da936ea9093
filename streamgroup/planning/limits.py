"""How much a batch takes: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` with `maxTriggerDelay`."""

from __future__ import annotations

from collections.abc import Mapping

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
