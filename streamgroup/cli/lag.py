"""`streamgroup lag`: the lag of groups, once or as a live table."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from streamgroup.cli._cluster import ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_stores import GroupStore, offsets_of, opened_store
from streamgroup.cli._group_tables import OffsetRow, consumer_groups
from streamgroup.cli._lag_table import LAG, Key, LagRow, by_key, lag_rows, summary
from streamgroup.cli._tables import json_rows, table
from streamgroup.errors import StreamGroupError
from streamgroup.model import GroupState

Show = Callable[[str], None]


@click.command()
@cluster_options
@click.option("--group", "names", multiple=True, metavar="GROUP", help="Group to show; repeatable.  [default: all]")
@click.option("--watch", is_flag=True, help="Show the table again and again, with rates, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600.0),
    default=5.0,
    show_default=True,
    help="With --watch: seconds between two looks.",
)
@click.option("--count", type=click.IntRange(1), help="With --watch: end after this many looks.")
@click.option("--timeout", type=click.IntRange(1), default=5_000, show_default=True, help="Milliseconds for each look.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list, or with --watch a line for each look.")
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
    """Show the lag of groups, the partition with the largest lag first.

    With --watch it shows also how fast each group commits, how fast its topics grow, and when it will have caught up.
    A look that fails is named, and the next one is tried.
    """
    if count is not None and not watch:
        raise click.UsageError("--count requires --watch")
    with opened_store(client_options(where, "streamgroup-lag", timeout)) as store:
        if not watch:
            rows = lag_rows(_look(store, names, time.monotonic() + timeout / 1000), {}, 0.0)
            click.echo(json.dumps(json_rows(LAG, rows), indent=2) if as_json else _text(rows))
            return
        looks = itertools.count() if count is None else range(count)
        with _screen(as_json) as show, suppress(KeyboardInterrupt):
            for rows in _watched(store, names, looks, interval, timeout):
                show(_line(rows) if as_json else f"{_text(rows)}\n\n{time.strftime('%H:%M:%S')}  every {interval:g} s")


def _watched(
    store: GroupStore, names: Sequence[str], looks: Iterable[int], interval: float, timeout: int
) -> Iterator[list[LagRow]]:
    """Yield the rows of each look, with the rates since the one before. A look that fails is named and left out."""
    before: dict[Key, OffsetRow] = {}
    looked_at = began = 0.0
    for number in looks:
        if number:
            time.sleep(max(0.0, began + interval - time.monotonic()))
        began = time.monotonic()
        try:
            rows = _look(store, names, began + timeout / 1000)
        except StreamGroupError as error:
            click.echo(f"Warning: {error}", err=True)
            continue
        yield lag_rows(rows, before, began - looked_at)
        before, looked_at = by_key(rows), began


def _look(store: GroupStore, names: Sequence[str], deadline: float) -> list[OffsetRow]:
    """Return the offsets of the groups. Raises StreamGroupError for one that does not exist."""
    wanted = names or [group.group_id for group in consumer_groups(store.list_groups(deadline).values())]
    described = store.describe(wanted, deadline)
    missing = sorted(name for name, group in described.items() if group.state == GroupState.DEAD)
    if missing and names:
        raise StreamGroupError("; ".join(f"consumer group {name!r} does not exist" for name in missing))
    alive = [group for group in described.values() if group.state != GroupState.DEAD]
    return [row for group in alive for row in offsets_of(store, deadline, group)]


def _text(rows: Sequence[LagRow]) -> str:
    return "\n".join((table(LAG, rows), "", *summary(rows))) if rows else "no group has a partition or a commit"


def _line(rows: Sequence[LagRow]) -> str:
    return json.dumps({"time_ms": round(time.time() * 1000), "partitions": json_rows(LAG, rows)})


@contextmanager
def _screen(as_json: bool) -> Iterator[Show]:
    """Show each look in place of the one before on a terminal, and below it elsewhere."""
    if as_json or not sys.stdout.isatty():
        yield click.echo
        return
    with Live(console=Console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
