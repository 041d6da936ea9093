"""Computes the offset document of the next batch, and the ranges that a replay reads.

The functions use no I/O and no clock. Spark may poll every 10 ms, so they are called that often.
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
    """Return the offset document of a batch from `positions` (all owned partitions) to `ends` (the known log ends).

    Returns None if there are fewer than `min_offsets` new offsets: the caller then returns Spark's `start` unchanged
    (R2). All partitions with a backlog share `max_offsets`; with `is_strict` the batch never exceeds it. They also
    share `max_bytes`, converted to offsets by their `densities`; both limits apply. `targets` are AvailableNow's end
    offsets (R11): no partition is read beyond its target, and a partition without a target, which was created later, is
    not read. With `boundaries` (Kafka 0.7) a limit is rounded to a message boundary (R34), and a partition without a
    known boundary is not read yet.
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
    """Return a document without ranges under the next sequence number, with which AvailableNow continues to wait (R10).

    If the document has no positions and `previous` is marked as founded, the result is marked, too: otherwise a restart
    would apply startingOffsets again (R7).
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
    """Return the document of a query whose subscription matched no partitions when it began (R7)."""
    empty = empty_document(previous, group=group, lineage=lineage, run=run, positions={})
    return replace(empty, is_founded=True)


def below_targets(
    positions: Mapping[TopicPartition, Position],
    targets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
) -> frozenset[TopicPartition]:
    """Return the partitions that AvailableNow has not read up to their targets, which are its end offsets (R11).

    `positions` are the positions of the current generation, without deleted partitions. A log that was truncated below
    its target counts as read at its log end, because it may never reach the target. `ends` are log ends listed *after*
    the targets; with older ends, below the targets, a partition would count as read too early.
    """
    now = ends or {}
    return frozenset(tp for tp, position in positions.items() if position.offset < _target(tp, targets, now))


def _target(tp: TopicPartition, targets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    target = targets.get(tp, 0)
    return min(target, ends.get(tp, target))


def replay_ranges(document: Document, committed: Mapping[TopicPartition, CommittedOffset]) -> list[OffsetRange]:
    """Return the ranges that the replay of `document` reads: all of them, less the offsets that are committed (R13).

    Partitions that this member does not own are included. `committed` has the group's offsets from when Spark first
    requested the replay; if a partition has no commit, its entire range is replayed.
    """
    left = []
    for range_ in document.ranges:
        commit = committed.get(range_.partition)
        start = range_.start if commit is None else max(range_.start, commit.offset)
        if start < range_.until:
            left.append(OffsetRange(range_.partition, start, range_.until))
    return left


def whole_batch(start: Document, end: Document) -> Document:
    """Return `end` with ranges if it is an offset of Spark's own Kafka source, which contains only positions.

    Spark's source has planned that batch, and it is not completed. It reads from the positions of `start` to the
    positions of `end`. A partition that only `end` has was added later, and Spark's source reads it from offset 0.
    Raises ConfigError if a partition is missing from `start`, and `start` is a document of streamgroup or is empty. It
    is empty for batch 0: Spark's source stores the first offsets in a file of the checkpoint that Spark does not pass
    to a Python source.
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
    """Return the unread range of each partition, up to its log end or its target, whichever is lower."""
    backlog = {}
    for tp, position in positions.items():
        end = ends.get(tp, position.offset)
        if targets is not None:
            end = min(end, targets.get(tp, position.offset))
        if end > position.offset:
            backlog[tp] = OffsetRange(tp, position.offset, end)
    return backlog


def offsets_behind(end: Any, latest: Any) -> list[int]:
    """Return for each owned partition the number of offsets from a batch's end to the log end, at least 0.

    `end` is the end document of the batch and `latest` the log end offsets, `{"orders": {"0": 110}}`. Both are JSON
    texts or values. A partition that one of them lacks is skipped. For Kafka 0.7 the numbers are bytes.
    """
    positions, behind = _mapping(_mapping(end).get("positions")), []
    for topic, partitions in _mapping(latest).items():
        held = _mapping(positions.get(topic))
        for number, log_end in _mapping(partitions).items():
            if number in held and isinstance(log_end, int):
                behind.append(max(0, log_end - int(held[number][0])))
    return behind


def offset_metrics(behind: list[int]) -> dict[str, str]:
    """Return the metrics of Spark's Kafka source (KafkaMicroBatchStream.metrics); empty if `behind` is empty."""
    if not behind:
        return {}
    return {
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "minOffsetsBehindLatest": str(min(behind)),
    }


def _mapping(offset: Any) -> Mapping[str, Any]:
    """Return an offset of a StreamingQueryProgress, JSON text or value, as a mapping; empty if it is not one."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
