"""The queries on this machine, which `drain`, `pause` and `resume` find and choose through their control channels."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from streamgroup.cli._click import Column, flag, json_rows, option, table
from streamgroup.coordinator.control import channel
from streamgroup.errors import StreamGroupError

NOTHING_RUNS = (
    "no streamgroup query of this user runs on this machine. Check that the driver and this shell have the same TMPDIR"
)


_SILENT = (
    "a streamgroup query runs on this machine, and its coordinator does not answer: {which}. Its process may be "
    "stopped (state T in `ps -e -o pid,ppid,stat,args`): `kill -CONT` continues it. Or it hangs, or the machine is "
    "too busy"
)


class NotChosen(StreamGroupError):
    """The options choose no query on this machine, or more than one."""


@dataclass(frozen=True, slots=True)
class Running:
    """A coordinator on this machine and its status. The status is empty if the coordinator does not answer."""

    pid: int
    run: str
    status: dict[str, Any]

    @property
    def answers(self) -> bool:
        return bool(self.status)

    @property
    def group(self) -> str:
        """Return its group, or an empty text without a group."""
        return str(self.status.get("group", ""))

    @property
    def name(self) -> str:
        """Return its `group.member`, or an empty text without one."""
        return str(self.status.get("name", ""))

    @property
    def query(self) -> tuple[int, str]:
        """Return the key that coordinators of one query share:

        Spark's query id if a listener has reported it, else the run.
        """
        return self.pid, str(self.status.get("query", {}).get("id") or self.run)


def _query_name(row: Running) -> str | None:
    query = row.status.get("query", {})
    return str(query.get("name") or query.get("id") or "") or None


COLUMNS: tuple[Column[Running], ...] = (
    Column("PID", "pid", lambda row: row.pid),
    Column("GROUP", "group", lambda row: row.group or None),
    Column("MEMBER", "member", lambda row: row.name or None),
    Column("STATE", "state", lambda row: row.status.get("state") if row.answers else "no answer"),
    Column("IN-FLIGHT", "in_flight", lambda row: not row.status.get("idle") if row.answers else None),
    Column("CONSUMER-ID", "consumer_id", lambda row: row.status.get("member") or None),
    Column("QUERY", "query", _query_name),
    Column("RUN", "run", lambda row: row.run),
)


_QUERY = "Which query"
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        _QUERY,
        "--group",
        "groups",
        multiple=True,
        metavar="GROUP",
        help="Consumer group of the query; repeat it for a query of several groups.",
    ),
    option(_QUERY, "--member", metavar="NAME", help="Option group.member or kafka.group.instance.id of the query."),
    option(_QUERY, "--pid", type=int, metavar="PID", help="Process id of the JVM of the query's driver."),
    flag(_QUERY, "--list", "lists", help="List the queries on this machine, or those that the other options choose."),
)


def query_options(command: Any) -> Any:
    """Add the options that choose a query: `--group`, `--member`, `--pid` and `--list`."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def print_list(rows: Sequence[Running], *, as_json: bool, columns: tuple[Column[Running], ...] = COLUMNS) -> None:
    """Print a table of queries, or a hint if no query runs."""
    if as_json:
        click.echo(json.dumps(json_rows(columns, rows), indent=2))
    elif rows:
        click.echo(table(columns, rows))
    else:
        click.echo(NOTHING_RUNS, err=True)


def find() -> list[Running]:
    """Return the coordinators of this user on this machine: for each driver those that answer, then the others."""
    found = []
    for pid in channel.drivers():
        statuses, silent = channel.survey(pid)
        found += [Running(pid, run, status) for run, status in statuses.items()]
        found += [Running(pid, run, {}) for run in silent]
    return found


def choose(running: Sequence[Running], groups: Sequence[str], member: str | None, pid: int | None) -> list[Running]:
    """Return the coordinators of the query that the options choose: all of them, if a listener has reported them.

    Coordinators that do not answer are skipped. Raises NotChosen, with a list of the queries, if the options choose
    no query or more than one.
    """
    answering = [one for one in running if one.answers]
    matching = select(answering, groups, member, pid)
    queries = {one.query for one in matching}
    # Without a listener the coordinators of one query are unknown, unless the user names all its groups.
    together = len(groups) > 1 and sorted(one.group for one in matching) == sorted(set(groups))
    if len(queries) == 1 or (together and len({one.pid for one in matching}) == 1):
        return [one for one in answering if one.query in queries]
    listed = "\n\n" + table(COLUMNS, running) if running else ""
    if not running:
        raise NotChosen(NOTHING_RUNS)
    if not answering:
        raise NotChosen(_SILENT.format(which=", ".join(f"run {one.run} of driver {one.pid}" for one in running)))
    if not matching:
        raise NotChosen(f"no query matches the options. These run on this machine:{listed}")
    raise NotChosen(
        f"{len(queries)} queries match the options. Choose one with --group, --member or --pid. Name all groups of a "
        f"query that reads several, unless its application calls streamgroup.listen. These run on this machine:{listed}"
    )


def select(running: Sequence[Running], groups: Sequence[str], member: str | None, pid: int | None) -> list[Running]:
    return [
        one
        for one in running
        if (not groups or one.group in groups) and member in (None, one.name) and pid in (None, one.pid)
    ]
