"""The queries on this machine, which `drain`, `pause` and `resume` find and choose through their control channels."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from streamgroup.cli._click import (
    Column,
    flag,
    json_option,
    json_rows,
    option,
    partitions_option,
    table,
)
from streamgroup.coordinator.control import channel
from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import TopicPartition
from streamgroup.text import MOST_NAMED, first_of

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


@frozen
class Running:
    """A coordinator process on this machine, with its status. The status is empty if the process does not respond."""

    pid: int
    run: str
    status: dict[str, Any]

    @property
    def answers(self) -> bool:
        return bool(self.status)

    @property
    def group(self) -> str:
        """Return the group of this coordinator, or "" if it has none."""
        return str(self.status.get("group", ""))

    @property
    def name(self) -> str:
        """Return the member name (option `group.member`), or "" if none is set."""
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


@frozen
class PauseRequest:
    """The query that the command line chooses, and its partitions; no partitions mean the whole query."""

    groups: tuple[str, ...]
    member: str | None
    pid: int | None
    lists: bool
    partitions: tuple[TopicPartition, ...]
    as_json: bool


def pause_options(partitions_help: str) -> Callable[[Any], Any]:
    """Add the options to a command, which gets them as `request`. `--topic-partition` has the given help."""

    def add(command: Any) -> Any:
        @functools.wraps(command)
        def with_request(**options: Any) -> Any:
            return command(PauseRequest(**options))

        with_json = json_option("Print the query and its paused partitions as JSON.")(with_request)
        return query_options(partitions_option(partitions_help)(with_json))

    return add


class NotHeldError(StreamGroupError):
    """No source of the query owns a partition that the command names."""


def _paused(row: Running) -> str | None:
    return ", ".join(row.status.get("paused", ())) or ("all" if row.status.get("paused_whole") else None)


PAUSES: tuple[Column[Running], ...] = (*COLUMNS, Column("PAUSED", "paused", _paused))


def run(request: PauseRequest, *, is_paused: bool) -> None:
    """List the queries, or pause or resume one. Raises NotChosen, NotHeldError, and the error of a coordinator."""
    running = find()
    if request.lists:
        listed = select(running, request.groups, request.member, request.pid)
        print_list(listed, as_json=request.as_json, columns=PAUSES)
        return
    chosen = choose(running, request.groups, request.member, request.pid)
    for one, names in _shares(chosen, request.partitions):
        channel.ask(one.pid, one.run, "pause", partitions=names, paused=is_paused)
    runs = {one.run for one in chosen}
    rows = [one for one in find() if one.run in runs]
    click.echo(json.dumps(json_rows(PAUSES, rows), indent=2) if request.as_json else table(PAUSES, rows))


def _shares(chosen: Sequence[Running], partitions: Sequence[TopicPartition]) -> list[tuple[Running, list[str] | None]]:
    """Return each coordinator with its share of the partitions; all of them with None if no partition is named.

    Raises NotHeldError before any request is sent: the command pauses all partitions or none.
    """
    if not partitions:
        return [(one, None) for one in chosen]
    held = {name: one for one in chosen for name in one.status.get("positions", {})}
    if strange := [str(tp) for tp in partitions if str(tp) not in held]:
        lacking, has = (first_of(names, MOST_NAMED, "partition") for names in (strange, sorted(held)))
        raise NotHeldError(
            f"cannot pause or resume {lacking}: not assigned to the query now. Assigned are {has or 'none'}. If "
            f"another member of the group owns it, run the command on that member's machine"
        )
    return [
        (one, names)
        for one in chosen
        if (names := sorted({str(tp) for tp in partitions if held[str(tp)].run == one.run}))
    ]
