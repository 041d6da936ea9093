"""The next batch: the document that follows the previous one, and the ranges that a replay reads.

Without I/O and clocks; may be called as often as Spark polls, that is every 10 ms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamgroup.coordinator.planning.limits import Boundaries, byte_limit, rate_limit, strict_limit, whole_messages
from streamgroup.errors import ConfigError
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition, name_some


def next_document(
    previous: Document,
    *,
    group: str,
    lineage: str,
    run: str,
    positions: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, int],
    max_offsets: int | None = None,
    max_bytes: int | None = None,
    densities: Mapping[TopicPartition, int] | None = None,
    is_strict: bool = False,
    min_offsets: int = 1,
    targets: Mapping[TopicPartition, int] | None = None,
    boundaries: Boundaries | None = None,
) -> Document | None:
    """Return the document of a batch from `positions` (all partitions held) to `ends` (log ends, as far as known).

    None if there is nothing new, or less than `min_offsets`: the caller then returns Spark's `start` unchanged (R2).
    `max_offsets` is shared by the backlog; with `is_strict` the batch never exceeds it. `max_bytes` is shared, too, by
    the `densities` of the partitions; both limits hold. `targets` are AvailableNow's snapshot (R11): no partition is
    read beyond its target, and a partition without a target, which was created later, is not read. With `boundaries`
    (Kafka 0.7) a limit is rounded to one of them (R34), and a partition without a known boundary is not read yet.
    """
    backlog = backlog_of(positions, ends, targets)
    if not backlog or sum(map(len, backlog.values())) < min_offsets:
        return None
    if max_offsets is None:
        until = {tp: r.until for tp, r in backlog.items()}
    else:
        until = strict_limit(backlog, max_offsets) if is_strict else rate_limit(backlog, max_offsets)
    if max_bytes is not None:
        most = byte_limit(backlog, max_bytes, densities or {})
        until = {tp: min(end, most[tp]) for tp, end in until.items()}
    if boundaries is not None:
        until = whole_messages({tp: backlog[tp] for tp in until}, until, boundaries).until
        if not until:
            return None
    return Document(
        group=group,
        lineage=lineage,
        run=run,
        sequence=previous.sequence + 1,
        ranges=tuple(OffsetRange(tp, r.start, until[tp]) for tp, r in sorted(backlog.items()) if tp in until),
        positions={
            tp: Position(until[tp], position.topic_id, position.leader_epoch) if tp in until else position
            for tp, position in positions.items()
        },
    )


def empty_document(
    previous: Document, *, group: str, lineage: str, run: str, positions: Mapping[TopicPartition, Position]
) -> Document:
    """Return a document without ranges under the next sequence number: AvailableNow continues to wait with it (R10).

    A document without positions is marked as founded if `previous` is: otherwise a restart uses startingOffsets (R7).
    """
    return Document(
        group=group,
        lineage=lineage,
        run=run,
        sequence=previous.sequence + 1,
        positions=dict(positions),
        is_founded=previous.is_founded and not positions,
    )


def founded_document(previous: Document, *, group: str, lineage: str, run: str) -> Document:
    """Return the document of a query that begins with a subscription of no partitions (R7)."""
    empty = empty_document(previous, group=group, lineage=lineage, run=run, positions={})
    return replace(empty, is_founded=True)


def below_targets(
    positions: Mapping[TopicPartition, Position],
    targets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
) -> frozenset[TopicPartition]:
    """Return the partitions whose positions are below their ends of AvailableNow's snapshot (R11).

    `positions` are those of a current generation, without partitions that were deleted. A log that was cut below its
    target since the snapshot counts as read at its end: it may never reach the target. `ends` are log ends listed
    *after* the snapshot; with older ones, below their targets, a partition would count as read too early.
    """
    now = ends or {}
    return frozenset(tp for tp, position in positions.items() if position.offset < _target(tp, targets, now))


def _target(tp: TopicPartition, targets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    target = targets.get(tp, 0)
    return min(target, ends.get(tp, target))


def replay_ranges(document: Document, committed: Mapping[TopicPartition, CommittedOffset]) -> list[OffsetRange]:
    """Return what the replay of a document reads: every range, held or not, above the group's committed offset (R13).

    `committed` is what the group had committed when the replay was first asked for; a partition without a commit is
    absent, and its entire range is replayed.
    """
    left = []
    for range_ in document.ranges:
        commit = committed.get(range_.partition)
        start = range_.start if commit is None else max(range_.start, commit.offset)
        if start < range_.until:
            left.append(OffsetRange(range_.partition, start, range_.until))
    return left


def whole_batch(start: Document, end: Document) -> Document:
    """Return `end` with its ranges if it is an offset of Spark's own connector, which writes positions only.

    The connector has planned the batch, and it has not sunk. The batch reads from the positions of `start` to the
    positions of `end`. A partition that an offset of the connector lacks was added later, and the connector reads it
    from offset 0. Raises ConfigError if any other `start` lacks the first offset of a partition. For batch 0 the
    connector keeps the first offsets in a file of the checkpoint that Spark does not pass to a source in Python.
    """
    if end.lineage or not end.positions:
        return end
    unknown = sorted(tp for tp in end.positions if tp not in start.positions)
    if unknown and (start.lineage or not start.positions):
        raise ConfigError(
            "cannot replay the checkpoint's last batch: Spark's own Kafka source has planned it, it has not completed, "
            f"and only that source can find where it begins in {name_some(unknown)}. Let format('kafka') finish "
            "that batch, then continue with format('streamgroup')"
        )
    begins = {tp: start.positions[tp].offset if tp in start.positions else 0 for tp in end.positions}
    ranges = tuple(
        OffsetRange(tp, begins[tp], position.offset)
        for tp, position in sorted(end.positions.items())
        if begins[tp] < position.offset
    )
    return replace(end, ranges=ranges)


def backlog_of(
    positions: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, int],
    targets: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, OffsetRange]:
    """Return the unread range of each partition, up to the end of its log or its target, whichever comes first."""
    backlog = {}
    for tp, position in positions.items():
        end = ends.get(tp, position.offset)
        if targets is not None:
            end = min(end, targets.get(tp, position.offset))
        if end > position.offset:
            backlog[tp] = OffsetRange(tp, position.offset, end)
    return backlog


def offsets_behind(end: Any, latest: Any) -> list[int]:
    """Return for each partition held the number of offsets from a batch's end to the end of its log, none below 0.

    `end` is the end document of the batch and `latest` the end offsets of the logs, `{"orders": {"0": 110}}`. Both are
    JSON texts or values. A partition that one of them lacks is left out. For Kafka 0.7 the numbers are bytes.
    """
    positions, behind = _mapping(_mapping(end).get("positions")), []
    for topic, partitions in _mapping(latest).items():
        held = _mapping(positions.get(topic))
        for number, log_end in _mapping(partitions).items():
            if number in held and isinstance(log_end, int):
                behind.append(max(0, log_end - int(held[number][0])))
    return behind


def offset_metrics(behind: list[int]) -> dict[str, str]:
    """Return the metrics of Spark's Kafka source (KafkaMicroBatchStream.metrics); empty if no partition is known."""
    if not behind:
        return {}
    return {
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "minOffsetsBehindLatest": str(min(behind)),
    }


def _mapping(offset: Any) -> Mapping[str, Any]:
    """Return an offset of a progress, text or value, as a mapping; empty if it is not one."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
