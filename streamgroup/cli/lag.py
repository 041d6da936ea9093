"""`streamgroup lag`: the lag of groups, once or as a live table."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from streamgroup.cli._click import (
    Column,
    Duration,
    SectionedCommand,
    flag,
    json_option,
    json_rows,
    option,
    table,
    timeout_option,
)
from streamgroup.cli._cluster import ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_stores import GroupStore, offsets_of, opened_store
from streamgroup.cli._group_tables import OffsetRow, consumer_groups
from streamgroup.coordinator.control import channel
from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import GroupState, TopicPartition
from streamgroup.monitoring.query_totals import pauses
from streamgroup.text import counted, first_of

Show = Callable[[str], None]
Statuses = Sequence[tuple[int, Mapping[str, Any]]]
"""The process of each query's driver on this machine, and the query's status."""
_WATCH = "Live table"
ANSWER_S = 2.0
"""Seconds to wait for the queries on this machine to report their paused partitions."""


@click.command(
    cls=SectionedCommand,
    short_help="Show the lag of consumer groups, once or as a live table.",
    examples={
        "streamgroup lag -b localhost:9092": "the lag of all groups, once",
        "streamgroup lag -b localhost:9092 --group orders-ingest --watch": "a live table of one group",
    },
)
@option("Groups", "--group", "names", multiple=True, metavar="GROUP", help="Group to show; repeatable.  [default: all]")
@flag(_WATCH, "--watch", help="Refresh the table until Ctrl-C, and show rates.")
@option(
    _WATCH,
    "--interval",
    type=Duration("s", 0.2, 3600),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Time between two refreshes.",
)
@option(_WATCH, "--count", type=click.IntRange(1), metavar="N", help="Exit after N refreshes.  [default: never]")
@json_option("Print a JSON list; with --watch one JSON object in a line for each refresh.")
@cluster_options
@timeout_option(5_000, "How long reading the offsets may take, each time.")
def lag(
    *,
    where: ClusterAddress,
    names: tuple[str, ...],
    watch: bool,
    interval: float,
    count: int | None,
    timeout: int,
    as_json: bool,
) -> None:
    """Show how many records consumer groups are behind, the partition with the largest lag first.

    The lag is the end of the partition's log minus the committed offset; in Kafka 0.7 both count bytes. With --watch
    the table also shows how fast the group commits, how fast the topic grows, and when the group will have caught up. A
    refresh that fails is a warning.
    """
    if count is not None and not watch:
        raise click.UsageError("--count requires --watch")
    with opened_store(client_options(where, "streamgroup-lag", timeout)) as store:
        if not watch:
            read = _read(store, names, time.monotonic() + timeout / 1000)
            _warn(store, set())
            statuses = _statuses()
            rows = lag_rows(read, {}, 0.0, _paused(read, statuses), _stores(statuses))
            click.echo(json.dumps(json_rows(LAG, rows), indent=2) if as_json else _text(rows, statuses))
            return
        refreshes = itertools.count() if count is None else range(count)
        with _screen(as_json) as show, suppress(KeyboardInterrupt):
            for rows, statuses in _watched(store, names, refreshes, interval, timeout):
                show(
                    _line(rows)
                    if as_json
                    else f"{_text(rows, statuses)}\n\n{time.strftime('%H:%M:%S')}  every {interval:g} s"
                )


def _watched(
    store: GroupStore, names: Sequence[str], refreshes: Iterable[int], interval: float, timeout: int
) -> Iterator[tuple[list[LagRow], Statuses]]:
    """Yield the rows of each refresh, with the rates since the one before, and the statuses of this machine.

    A refresh that fails is a warning.

    Raises StreamGroupError at the end if all have failed.
    """
    before: dict[Key, OffsetRow] | None = None
    warned: set[str] = set()
    read_at = began = 0.0
    number = -1
    for number in refreshes:
        if number:
            time.sleep(max(0.0, began + interval - time.monotonic()))
        began = time.monotonic()
        try:
            rows = _read(store, names, began + timeout / 1000)
        except StreamGroupError as error:
            click.echo(f"Warning: {error}", err=True)
            continue
        finally:
            _warn(store, warned)
        statuses = _statuses()
        yield lag_rows(rows, before or {}, began - read_at, _paused(rows, statuses), _stores(statuses)), statuses
        before, read_at = by_key(rows), began
    if before is None:
        raise StreamGroupError(f"cannot read the lag: {counted(number + 1, 'refresh')} failed: see the warnings above")


def _read(store: GroupStore, names: Sequence[str], deadline: float) -> list[OffsetRow]:
    """Return the offsets of the groups. Raises StreamGroupError for one that does not exist."""
    wanted = names or [group.group_id for group in consumer_groups(store.list_groups(deadline).values())]
    described = store.describe(wanted, deadline)
    missing = sorted(name for name, group in described.items() if group.state == GroupState.DEAD)
    if missing and names:
        raise StreamGroupError("; ".join(f"consumer group {name!r} does not exist" for name in missing))
    alive = [group for group in described.values() if group.state != GroupState.DEAD]
    return [row for group in alive for row in offsets_of(store, deadline, group)]


def _warn(store: GroupStore, warned: set[str]) -> None:
    for note in dict.fromkeys(store.notes):
        if note not in warned:
            click.echo(f"Warning: {note}", err=True)
    warned.update(store.notes)
    store.notes.clear()


def _text(rows: Sequence[LagRow], statuses: Statuses) -> str:
    if not rows:
        return "no group has a partition or a commit"
    groups = {row.now.group for row in rows}
    return "\n".join((table(LAG, rows), "", *summary(rows), *_in_tables(groups, statuses), *_pauses(groups, statuses)))


def _statuses() -> Statuses:
    """Return the process and the status of each query on this machine that answers in time."""
    deadline = time.monotonic() + ANSWER_S
    return [(pid, status) for pid in channel.drivers() for status in channel.statuses(pid, ANSWER_S, deadline).values()]


def _paused(rows: Iterable[OffsetRow], statuses: Statuses) -> dict[tuple[str, str], bool]:
    """Return whether each partition that queries on this machine hold is paused, by group and partition."""
    only = [status for _, status in statuses]
    return {
        (group, name): is_paused for group in {r.group for r in rows} for name, is_paused in pauses(only, group).items()
    }


def _pauses(groups: Collection[str], statuses: Statuses) -> list[str]:
    """Return a line for each query of `groups` on this machine with paused partitions, whose lag grows on purpose."""
    return [
        f"{status['group']}: paused on this machine (driver {pid}): {', '.join(status['paused'])}"
        for pid, status in statuses
        if status.get("group") in groups and status.get("paused")
    ]


def _stores(statuses: Statuses) -> dict[str, str]:
    """Return the database with the offset table by group, for queries on this machine that have one."""
    return {status["group"]: status["offsets_store"] for _, status in statuses if status.get("offsets_store")}


def _in_tables(groups: Collection[str], statuses: Statuses) -> list[str]:
    """Return a line for each of `groups` with an offset table: its commits in Kafka only follow the table."""
    return [
        f"{group}: the offsets are in an offset table in {where}; the commits follow each batch"
        for group, where in sorted(_stores(statuses).items())
        if group in groups
    ]


def _line(rows: Sequence[LagRow]) -> str:
    return json.dumps({"time_ms": round(time.time() * 1000), "partitions": json_rows(LAG, rows)})


@contextmanager
def _screen(as_json: bool) -> Iterator[Show]:
    """Show each refresh in place of the one before on a terminal, and below it elsewhere."""
    if as_json or not sys.stdout.isatty():
        yield click.echo
        return
    with Live(console=Console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


_NAMED = 3

Key = tuple[str, TopicPartition]
"""A group and a partition."""


@frozen
class LagRow:
    """A partition of a group, and its offsets `seconds` earlier; None if they were unknown.

    `paused` is None if no query on this machine holds the partition. `store` is the database with the group's offset
    table, None if no query on this machine has one.
    """

    now: OffsetRow
    before: OffsetRow | None = None
    seconds: float = 0.0
    paused: bool | None = None
    store: str | None = None

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
    stores: Mapping[str, str] | None = None,
) -> list[LagRow]:
    """Return a row for each partition: the largest lag first, unknown lags last.

    `paused` is by group and name of the partition, `stores` has the offset tables by group.
    """
    known, tables = paused or {}, stores or {}
    rows = [
        LagRow(
            row,
            before.get((row.group, row.partition)),
            seconds,
            known.get((row.group, str(row.partition))),
            tables.get(row.group),
        )
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
    Column("NEXT-CONSUMER-ID", "next_consumer_id", lambda row: row.now.next_id, if_any=True),
    Column("PAUSED", "paused", lambda row: row.paused, verbose=True),
    Column("OFFSETS-STORE", "offsets_store", lambda row: row.store, verbose=True),
)
