"""`streamgroup drain`: end a query of this machine so that nothing is repeated (R30), from a shell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from streamgroup.cli import _tables as tables
from streamgroup.driver.application import control
from streamgroup.driver.application.drains import drain_together
from streamgroup.errors import StreamGroupError

ENDED_S = 5.0
"""How long the end of a drained query is waited for: Spark asks its coordinator with the next trigger, and is told."""
POLL_S = 0.1


class NotDrained(StreamGroupError):
    """There is no such query, or more than one, or the time was over before its last batch had sunk."""


@dataclass(frozen=True, slots=True)
class Running:
    """A coordinator that runs here, and what it says of itself."""

    pid: int
    run: str
    status: dict[str, Any]

    @property
    def group(self) -> str:
        """Its group; empty where no group knows of it."""
        return str(self.status.get("group", ""))

    @property
    def name(self) -> str:
        """Its `group.member`, if it has one."""
        return str(self.status.get("name", ""))

    @property
    def query(self) -> tuple[int, str]:
        """What coordinators of one query share: Spark's id of it where a listener has told it, else nothing."""
        return self.pid, str(self.status.get("query", {}).get("id") or self.run)


def _query_name(row: Running) -> str | None:
    query = row.status.get("query", {})
    return str(query.get("name") or query.get("id") or "") or None


COLUMNS: tuple[tables.Column[Running], ...] = (
    tables.Column("PID", "pid", lambda row: row.pid),
    tables.Column("GROUP", "group", lambda row: row.group or None),
    tables.Column("MEMBER", "member", lambda row: row.name or None),
    tables.Column("STATE", "state", lambda row: row.status.get("state")),
    tables.Column("IN-FLIGHT", "in_flight", lambda row: "no" if row.status.get("idle") else "yes"),
    tables.Column("CONSUMER-ID", "consumer_id", lambda row: row.status.get("member") or None),
    tables.Column("QUERY", "query", _query_name),
    tables.Column("RUN", "run", lambda row: row.run),
)


@click.command()
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Of this group; repeat it for a query of several."
)
@click.option("--member", metavar="NAME", help="Of this group.member or group.instance.id.")
@click.option("--pid", type=int, help="Of the driver whose JVM has this process id.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, control.LONGEST_DRAIN_S),
    default=60.0,
    show_default=True,
    help="Seconds for the last batch.",
)
def drain(*, groups: tuple[str, ...], member: str | None, pid: int | None, timeout: float) -> None:
    """Drain a query that runs on this machine: its last batch sinks and is committed, it leaves its group and ends."""
    running = find()
    chosen = choose(running, groups, member, pid)
    names = ", ".join(dict.fromkeys(one.group or "(no group)" for one in chosen))
    click.echo(f"draining {names} of the driver {chosen[0].pid}: its last batch sinks first, {timeout:g} s at most")
    answers = drain_together(chosen[0].pid, [one.run for one in chosen], timeout, ends=True)
    if not all(answer["drained"] for answer in answers):
        raise NotDrained(
            f"{names}: not drained within {timeout:g} s, or another member has the last batch's partitions by now: the "
            "query ends all the same, with its next trigger, and its last batch may be repeated"
        )
    ended = _wait_for_end(chosen)
    click.echo(
        "drained: nothing will be repeated; the query " + ("has ended" if ended else "ends with its next trigger")
    )


def find() -> list[Running]:
    """The coordinators of this user on this machine that answer."""
    return [Running(pid, run, status) for pid in control.drivers() for run, status in control.statuses(pid).items()]


def choose(running: Sequence[Running], groups: Sequence[str], member: str | None, pid: int | None) -> list[Running]:
    """The coordinators of the one query that is meant: all of them, where a listener has told which they are.

    Raises NotDrained with what there is, where nothing or more than one query is meant.
    """
    meant = [
        one
        for one in running
        if (not groups or one.group in groups) and member in (None, one.name) and pid in (None, one.pid)
    ]
    queries = {one.query for one in meant}
    # Without a listener nobody knows which coordinators are of one query: whoever names all its groups does.
    together = len(groups) > 1 and sorted(one.group for one in meant) == sorted(set(groups))
    if len(queries) == 1 or (together and len({one.pid for one in meant}) == 1):
        return [one for one in running if one.query in queries]
    listed = "\n\n" + tables.table(COLUMNS, running) if running else ""
    if not running:
        raise NotDrained(
            "no query of streamgroup runs on this machine as this user (drivers share TMPDIR with this shell)"
        )
    if not meant:
        raise NotDrained(f"no query like that runs here; there are:{listed}")
    raise NotDrained(
        f"{len(queries)} queries are meant: choose one by --group, --member or --pid (a query that reads several "
        f"groups by all of them, unless its application calls streamgroup.listen). There are:{listed}"
    )


def _wait_for_end(chosen: Sequence[Running]) -> bool:
    deadline = time.monotonic() + ENDED_S
    while any(one.run in control.runs(one.pid) for one in chosen):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
