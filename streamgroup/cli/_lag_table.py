"""The table of `streamgroup lag`: the lag of each partition, and how fast it changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroup.cli._group_tables import OffsetRow
from streamgroup.cli._tables import Column
from streamgroup.counting import counted, first_of
from streamgroup.model import TopicPartition

_NAMED = 3

Key = tuple[str, TopicPartition]
"""A group and a partition."""


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition of a group, and its offsets as they were `seconds` before; None where they were unknown.

    `paused` is None where no query on this machine holds the partition.
    """

    now: OffsetRow
    before: OffsetRow | None = None
    seconds: float = 0.0
    paused: bool | None = None

    @property
    def committed_per_s(self) -> float | None:
        """Return the offsets per second that the group has committed since."""
        if self.before is None or self.now.committed is None or self.before.committed is None:
            return None
        return _rate(self.now.committed.offset, self.before.committed.offset, self.seconds)

    @property
    def written_per_s(self) -> float | None:
        """Return the offsets per second that the log has grown by since."""
        if self.before is None or self.now.log_end is None or self.before.log_end is None:
            return None
        return _rate(self.now.log_end, self.before.log_end, self.seconds)

    @property
    def seconds_left(self) -> float | None:
        """Return after how many seconds the lag is 0 if both rates stay. None if it does not fall."""
        if self.now.lag is None or self.committed_per_s is None or self.written_per_s is None:
            return None
        if self.now.lag <= 0:
            return 0.0
        falls = self.committed_per_s - self.written_per_s
        return self.now.lag / falls if falls > 0 else None


def _rate(now: int, before: int, seconds: float) -> float | None:
    return (now - before) / seconds if seconds > 0 else None


def lag_rows(
    now: Iterable[OffsetRow],
    before: Mapping[Key, OffsetRow],
    seconds: float,
    paused: Mapping[tuple[str, str], bool] | None = None,
) -> list[LagRow]:
    """Return a row for each partition, the largest lag first, and those of an unknown lag last.

    `paused` is by group and name of the partition.
    """
    known = paused or {}
    rows = [
        LagRow(row, before.get((row.group, row.partition)), seconds, known.get((row.group, str(row.partition))))
        for row in now
        if row.partition is not None
    ]
    return sorted(rows, key=lambda row: -1 if row.now.lag is None else row.now.lag, reverse=True)


def by_key(rows: Iterable[OffsetRow]) -> dict[Key, OffsetRow]:
    """Return the rows of partitions by group and partition."""
    return {(row.group, row.partition): row for row in rows if row.partition is not None}


def summary(rows: Iterable[LagRow]) -> list[str]:
    """Return a line for each group, such as `orders-ingest: lag 1200 in 4 partitions, unknown in 1`."""
    groups: dict[str, list[LagRow]] = {}
    for row in rows:
        groups.setdefault(row.now.group, []).append(row)
    return [_summary(group, members) for group, members in sorted(groups.items())]


def _summary(group: str, rows: list[LagRow]) -> str:
    known = [row.now.lag for row in rows if row.now.lag is not None]
    unknown = len(rows) - len(known)
    text = f"{group}: lag {sum(known)} in {counted(len(rows), 'partition')}"
    if unknown:
        text += f", unknown in {unknown}"
    beyond = [f"{row.now.partition.topic}-{row.now.name}" for row in rows if row.now.partition and row.now.beyond_end]
    if beyond:
        text += f", committed beyond the end in {first_of(beyond, _NAMED, 'partition')}"
    return text


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _duration(seconds: float | None) -> str | None:
    """Return `2h05m`, `3m20s` or `12s`."""
    if seconds is None:
        return None
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 60}m{whole % 60:02}s" if whole >= 60 else f"{whole}s"


LAG: tuple[Column[LagRow], ...] = (
    Column("GROUP", "group", lambda row: row.now.group),
    Column("TOPIC", "topic", lambda row: row.now.partition and row.now.partition.topic),
    Column("PARTITION", "partition", lambda row: row.now.name),
    Column(
        "CURRENT-OFFSET",
        "current_offset",
        lambda row: None if row.now.committed is None else row.now.committed.offset,
    ),
    Column("LOG-END-OFFSET", "log_end_offset", lambda row: row.now.log_end),
    Column("LAG", "lag", lambda row: row.now.lag),
    Column("BEYOND-END", "beyond_end", lambda row: row.now.beyond_end, if_any=True),
    Column("COMMITTED/S", "committed_per_second", lambda row: _rounded(row.committed_per_s)),
    Column("WRITTEN/S", "written_per_second", lambda row: _rounded(row.written_per_s)),
    Column("CAUGHT-UP-IN", "seconds_left", lambda row: _duration(row.seconds_left)),
    Column("CONSUMER-ID", "consumer_id", lambda row: None if row.now.member is None else row.now.member.member_id),
    Column("PAUSED", "paused", lambda row: row.paused, verbose=True),
)
