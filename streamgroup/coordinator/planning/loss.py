"""Decides what happens to positions that do not fit their logs: the data-loss policy (R8).

| found | before a metadata refresh | after it |
|---|---|---|
| the topic or the partition does not exist | look again | Deleted |
| the same in Kafka 0.7: its broker is away | Away | Away |
| the topic has another id | look again | Moved: the new topic's earliest offset |
| the position is below the earliest offset | Moved: the earliest offset | the same |
| the log ends below the position, or its epoch ended there | look again | Moved: where the log was cut |
| any other case, or the leader has not answered | Keep | Keep |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import Enum

from streamgroup.advice import OffsetLocation, how_to_reset
from streamgroup.errors import DataLossError
from streamgroup.frozen import frozen
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.model import NO_TOPIC_ID, LogRange, Position, TopicInfo, TopicPartition, is_another_topic


class Cause(Enum):
    """How records were lost. The values are used in messages."""

    RETENTION = "retention or a deletion of records has overtaken the position"
    TRUNCATED = "the log ends below the position: an unclean election has truncated it, or the topic was recreated"
    RECREATED = "the topic was deleted and created again"
    DELETED = "the topic or the partition was deleted"


@frozen
class Keep:
    """Verdict: no records are lost."""


@frozen
class Recheck:
    """Verdict: records may be lost, or the metadata is out of date.

    The metadata must be refreshed and the position judged again before this partition is planned.
    """

    cause: Cause


@frozen
class Moved:
    """Verdict: records are lost, and reading continues at `to`.

    `lost` is the number of skipped offsets, None if unknown.
    """

    cause: Cause
    was: Position
    to: Position
    lost: int | None


@frozen
class Deleted:
    """Verdict: the partition was deleted with all its records."""

    was: Position


@frozen
class Away:
    """Verdict: the broker of a Kafka 0.7 partition is not registered.

    No records are lost. The partition cannot be planned until the broker is registered again.
    """


Verdict = Keep | Recheck | Moved | Deleted | Away


def judge(
    positions: Mapping[TopicPartition, Position],
    logs: Mapping[TopicPartition, LogRange],
    topics: Mapping[str, TopicInfo],
    *,
    refreshed: bool,
    epoch_ends: Mapping[TopicPartition, int] | None = None,
    log_format: LogFormat = KAFKA_LOG,
) -> dict[TopicPartition, Verdict]:
    """Return a verdict for each position.

    `logs` has the listed ranges; a partition without a range is kept, since a missing response proves nothing. `topics`
    is the cluster's metadata. `refreshed` is True if it was requested after the first Recheck. `epoch_ends` has, from
    OffsetForLeaderEpoch, the end offset of the epoch under which each position was taken.

    If partitions of `log_format` exist only while their broker is registered, a missing partition proves nothing.

    Pass `logs` with high watermarks as ends: an open transaction can keep the last stable offset below a position that
    was taken under read_uncommitted, and then nothing is lost.
    """
    existing = {name: frozenset(p.partition for p in topic.partitions) for name, topic in topics.items()}
    ends = epoch_ends or {}
    return {
        tp: Away()
        if log_format.is_broker_bound and tp.partition not in existing.get(tp.topic, ())
        else _judge(position, _metadata(tp, topics, existing), logs.get(tp), ends.get(tp), refreshed)
        for tp, position in positions.items()
    }


def _metadata(
    tp: TopicPartition, topics: Mapping[str, TopicInfo], existing: Mapping[str, Collection[int]]
) -> TopicInfo | None:
    return topics[tp.topic] if tp.partition in existing.get(tp.topic, ()) else None


def _judge(
    position: Position, topic: TopicInfo | None, log: LogRange | None, epoch_end: int | None, refreshed: bool
) -> Verdict:
    if topic is None:
        return Deleted(position) if refreshed else Recheck(Cause.DELETED)
    if is_another_topic(position.topic_id, topic.topic_id):
        if not refreshed or log is None:  # only the new log's range has its start
            return Recheck(Cause.RECREATED)
        return Moved(Cause.RECREATED, position, Position(log.earliest, topic.topic_id), None)
    return Keep() if log is None else _compare(position, log, epoch_end, refreshed)


def _compare(position: Position, log: LogRange, epoch_end: int | None, refreshed: bool) -> Verdict:
    if position.offset < log.earliest:
        to = Position(log.earliest, position.topic_id, position.leader_epoch)
        return Moved(Cause.RETENTION, position, to, log.earliest - position.offset)
    if log.latest < position.offset or (epoch_end is not None and epoch_end < position.offset):
        return _cut(position, log, epoch_end) if refreshed else Recheck(Cause.TRUNCATED)
    return Keep()


def _cut(position: Position, log: LogRange, epoch_end: int | None) -> Moved:
    """Return the verdict for a log that was truncated below the position."""
    if epoch_end is not None:
        # Exact: from there on the log holds other records than those that were read.
        offset = max(log.earliest, epoch_end)
    elif position.topic_id != NO_TOPIC_ID:
        offset = log.latest
    else:
        # Without topic ids (brokers before 2.8) a topic created again looks the same, and all of it is unread.
        offset = log.earliest
    # The offset's epoch is not the position's any more; the next answer of the leader has it.
    return Moved(Cause.TRUNCATED, position, Position(offset, position.topic_id), None)


# -- settlement ------------------------------------------------------------------------------------------------------


@frozen
class Settlement:
    """The result of `settle`: where reading continues, which partitions must not be planned, and the lines to log."""

    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    """The positions of all partitions that can be planned, unchanged or moved."""
    deleted: tuple[TopicPartition, ...] = ()
    messages: tuple[str, ...] = ()


def settle(
    positions: Mapping[TopicPartition, Position],
    verdicts: Mapping[TopicPartition, Verdict],
    *,
    location: OffsetLocation,
    fail_on_data_loss: bool,
    log_format: LogFormat = KAFKA_LOG,
) -> Settlement:
    """Apply the verdicts to `positions`.

    `location` is where the group's offsets are stored, and where an operator can reset them. With `fail_on_data_loss`,
    raises DataLossError that lists all losses. Otherwise the result has a message for each loss.
    """
    messages = tuple(
        describe(tp, verdict, group=location.group, log_format=log_format)
        for tp, verdict in sorted(verdicts.items(), key=lambda item: item[0])
        if isinstance(verdict, Moved | Deleted)
    )
    if messages and fail_on_data_loss:
        raise DataLossError("\n".join((*messages, _ways_out(location))))
    return Settlement(
        positions={
            tp: verdict.to if isinstance(verdict, Moved) else positions[tp]
            for tp, verdict in verdicts.items()
            if isinstance(verdict, Keep | Moved)
        },
        deleted=tuple(sorted(tp for tp, verdict in verdicts.items() if isinstance(verdict, Deleted))),
        messages=messages,
    )


def describe(tp: TopicPartition, verdict: Moved | Deleted, *, group: str, log_format: LogFormat = KAFKA_LOG) -> str:
    """Return one sentence that describes the loss in one partition."""
    who = f"group {group!r}, {tp}" if group else str(tp)
    if isinstance(verdict, Deleted):
        return f"{who}: the records from offset {verdict.was.offset} on are lost: {Cause.DELETED.value}"
    content = log_format.content
    count = "an unknown number of records is" if verdict.lost is None else f"up to {verdict.lost} {content} are"
    return (
        f"{who}: {count} lost from position {verdict.was.offset} on: {verdict.cause.value}; for this query, the "
        f"remaining records begin at offset {verdict.to.offset}"
    )


def _ways_out(location: OffsetLocation) -> str:
    other = f"; or {how_to_reset(location)}" if location.group else ""
    return f"To continue: set failOnDataLoss=false, which skips the lost records and logs a warning{other}"


# -- suspicions -------------------------------------------------------------------------------------------------------

BELIEVED_AFTER_S = 3.0
"""Seconds for which the brokers' responses must show a loss before the data-loss policy is applied."""
LOOK_EVERY_S = 0.5
"""Seconds between two requests for the metadata and offsets of suspected partitions."""


class Suspicions:
    """Tracks the partitions whose positions seem lost, each since the first response that showed it.

    A lagging broker may show a loss that does not exist, so a loss counts only after a while. All times are
    `time.monotonic()` values that the caller passes.
    """

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        self._look_at = 0.0
        self._looked_at: float | None = None

    def __bool__(self) -> bool:
        """Return whether any partition is suspected."""
        return bool(self._since)

    def judge(
        self,
        positions: Mapping[TopicPartition, Position],
        logs: Mapping[TopicPartition, LogRange],
        topics: Mapping[str, TopicInfo],
        *,
        now: float,
        metadata_at: float,
        epoch_ends: Mapping[TopicPartition, int],
        log_format: LogFormat = KAFKA_LOG,
    ) -> dict[TopicPartition, Verdict]:
        """Return the verdict for each position, as `loss.judge` does; `metadata_at` is when `topics` was read.

        A verdict stays `Recheck` until metadata read at least `BELIEVED_AFTER_S` seconds after the first one still
        shows the loss. A suspected partition stays suspected while its leader does not respond.
        """
        verdicts = judge(positions, logs, topics, refreshed=False, epoch_ends=epoch_ends, log_format=log_format)
        suspected = {tp for tp, verdict in verdicts.items() if isinstance(verdict, Recheck)}
        unanswered = set(self._since.keys() & verdicts.keys() - logs.keys())
        if not suspected.issubset(self._since):
            self._look_at = now
        self._since = {tp: self._since.get(tp, now) for tp in suspected | unanswered}
        seen_again = {tp: positions[tp] for tp in suspected if metadata_at >= self._since[tp] + BELIEVED_AFTER_S}
        return verdicts | judge(seen_again, logs, topics, refreshed=True, epoch_ends=epoch_ends)

    def due(self, now: float, metadata_at: float) -> frozenset[TopicPartition]:
        """Return the partitions whose metadata and offsets must be requested again now; empty if it is too early.

        `metadata_at` is when the newest metadata was read. While an earlier request is pending, no other is sent:
        otherwise a refresh that takes longer than `LOOK_EVERY_S` would never end.
        """
        on_its_way = self._looked_at is not None and metadata_at < self._looked_at
        if not self._since or now < self._look_at or on_its_way:
            return frozenset()
        self._looked_at, self._look_at = now, now + LOOK_EVERY_S
        return frozenset(self._since)
