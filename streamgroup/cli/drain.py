"""`streamgroup drain`: stop a query on this machine from a shell, so that no record is repeated (R30)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from streamgroup.cli import _tables as tables
from streamgroup.cli._durations import OR_UNITS, Duration
from streamgroup.cli._help import OTHERS, SectionedCommand, flag, json_option, option
from streamgroup.driver.application import control
from streamgroup.driver.application.drains import drain_together
from streamgroup.errors import StreamGroupError

ENDED_S = 5.0
"""How long the command waits until a drained query has ended, which happens at Spark's next trigger."""
POLL_S = 0.1
NOTHING_RUNS = (
    "no streamgroup query of this user runs on this machine. Check that the driver and this shell have the same TMPDIR"
)


class NotDrained(StreamGroupError):
    """The command found no query or more than one, or the last batch had not sunk in time."""


@dataclass(frozen=True, slots=True)
class Running:
    """A coordinator on this machine, and its status."""

    pid: int
    run: str
    status: dict[str, Any]

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
        """Return what coordinators of one query share: Spark's id of it if a listener has reported it, else the run."""
        return self.pid, str(self.status.get("query", {}).get("id") or self.run)


def _query_name(row: Running) -> str | None:
    query = row.status.get("query", {})
    return str(query.get("name") or query.get("id") or "") or None


COLUMNS: tuple[tables.Column[Running], ...] = (
    tables.Column("PID", "pid", lambda row: row.pid),
    tables.Column("GROUP", "group", lambda row: row.group or None),
    tables.Column("MEMBER", "member", lambda row: row.name or None),
    tables.Column("STATE", "state", lambda row: row.status.get("state")),
    tables.Column("IN-FLIGHT", "in_flight", lambda row: not row.status.get("idle")),
    tables.Column("CONSUMER-ID", "consumer_id", lambda row: row.status.get("member") or None),
    tables.Column("QUERY", "query", _query_name),
    tables.Column("RUN", "run", lambda row: row.run),
)


@dataclass(slots=True)
class Report:
    """The result of a drain for programs. `running` are all coordinators that were found, `chosen` the drained ones."""

    running: Sequence[Running]
    chosen: Sequence[Running] = ()
    is_drained: bool = False
    has_ended: bool = False

    def document(self) -> dict[str, Any]:
        """Return the value for JSON."""
        return {
            "drained": self.is_drained,
            "ended": self.has_ended,
            "chosen": tables.json_rows(COLUMNS, self.chosen),
            "running": tables.json_rows(COLUMNS, self.running),
        }


_QUERY = "Which query"


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup drain --list": "the queries on this machine; none is drained",
        "streamgroup drain": "the only query on this machine",
        "streamgroup drain --group orders-ingest --timeout 5m": "the query of a group, whose batches take minutes",
    },
)
@option(
    _QUERY,
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Consumer group of the query; repeat it for a query of several groups.",
)
@option(_QUERY, "--member", metavar="NAME", help="Its option group.member or kafka.group.instance.id.")
@option(_QUERY, "--pid", type=int, metavar="PID", help="Process id of the JVM of its driver.")
@flag(_QUERY, "--list", "lists", help="List the queries on this machine, or those that the other options choose.")
@option(
    OTHERS,
    "--timeout",
    type=Duration("s", 0, control.LONGEST_DRAIN_S),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help=f"How long to wait until the last batch has sunk. In seconds, {OR_UNITS}.",
)
@json_option("Print the result and the queries on this machine as JSON.")
def drain(
    *, groups: tuple[str, ...], member: str | None, pid: int | None, lists: bool, timeout: float, as_json: bool
) -> None:
    """Stop a query on this machine so that no record is repeated.

    Run it on the machine of Spark's driver, as the driver's user. The query plans no more batches. Its last batch
    sinks and is committed, then the query leaves its group and ends. Without options the command drains the only query
    on this machine. If several run, it lists them and drains none.
    """
    running = find()
    if lists:
        _list(_matching(running, groups, member, pid), as_json=as_json)
        return
    report = Report(running)
    try:
        report.chosen = choose(running, groups, member, pid)
        _drain(report, timeout, (lambda _: None) if as_json else click.echo)
    finally:
        if as_json:
            click.echo(json.dumps(report.document(), indent=2))


def _list(rows: Sequence[Running], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(tables.json_rows(COLUMNS, rows), indent=2))
    elif rows:
        click.echo(tables.table(COLUMNS, rows))
    else:
        click.echo(NOTHING_RUNS, err=True)


def _drain(report: Report, timeout: float, say: Callable[[str], None]) -> None:
    """Drain the chosen query, and wait until it has ended. Raises NotDrained if its last batch may be repeated."""
    pid, names = report.chosen[0].pid, ", ".join(dict.fromkeys(one.group or "(no group)" for one in report.chosen))
    say(f"draining {names} of driver {pid}: waiting up to {timeout:g} s for the last batch")
    answers = drain_together(pid, [one.run for one in report.chosen], timeout, ends=True)
    report.is_drained = all(answer["drained"] for answer in answers)
    if not report.is_drained:
        raise NotDrained(
            f"cannot drain {names} within {timeout:g} s: its last batch has not sunk, or another member holds its "
            "partitions now. The query ends with its next trigger all the same, and its last batch may be repeated"
        )
    report.has_ended = _wait_for_end(report.chosen)
    say(
        "drained: nothing will be repeated; the query "
        + ("has ended" if report.has_ended else "ends with its next trigger")
    )


def find() -> list[Running]:
    """Return the coordinators of this user on this machine that answer."""
    return [Running(pid, run, status) for pid in control.drivers() for run, status in control.statuses(pid).items()]


def choose(running: Sequence[Running], groups: Sequence[str], member: str | None, pid: int | None) -> list[Running]:
    """Return the coordinators of the query that the options choose: all of them, if a listener has reported them.

    Raises NotDrained, with a list of the queries, if the options choose no query or more than one.
    """
    matching = _matching(running, groups, member, pid)
    queries = {one.query for one in matching}
    # Without a listener the coordinators of one query are unknown, unless the user names all its groups.
    together = len(groups) > 1 and sorted(one.group for one in matching) == sorted(set(groups))
    if len(queries) == 1 or (together and len({one.pid for one in matching}) == 1):
        return [one for one in running if one.query in queries]
    listed = "\n\n" + tables.table(COLUMNS, running) if running else ""
    if not running:
        raise NotDrained(NOTHING_RUNS)
    if not matching:
        raise NotDrained(f"no query matches the options. These run on this machine:{listed}")
    raise NotDrained(
        f"{len(queries)} queries match the options. Choose one with --group, --member or --pid. Name all groups of a "
        f"query that reads several, unless its application calls streamgroup.listen. These run on this machine:{listed}"
    )


def _matching(running: Sequence[Running], groups: Sequence[str], member: str | None, pid: int | None) -> list[Running]:
    return [
        one
        for one in running
        if (not groups or one.group in groups) and member in (None, one.name) and pid in (None, one.pid)
    ]


def _wait_for_end(chosen: Sequence[Running]) -> bool:
    deadline = time.monotonic() + ENDED_S
    while any(one.run in control.runs(one.pid) for one in chosen):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
