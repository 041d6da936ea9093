"""`streamgroup groups`: consumer groups, in the columns of kafka-consumer-groups.sh."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click

from streamgroup.cli import _group_tables as tables
from streamgroup.cli._change_options import ACTIONS, GROUPS, ChangeOptions, action_options, change_options
from streamgroup.cli._click import (
    OUTPUT,
    Column,
    SectionedCommand,
    flag,
    json_option,
    json_rows,
    option,
    table,
    timeout_option,
)
from streamgroup.cli._cluster import ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_changes import GroupChanges
from streamgroup.cli._group_stores import GroupStore, offsets_of, opened_store
from streamgroup.cli._group_tables import Trouble
from streamgroup.driver.application import control
from streamgroup.errors import StreamGroupError
from streamgroup.model import GroupDescription, GroupListing, GroupState

_VIEWS = "With --describe (give one)"
_NOT_HERE = (
    "{who} is a streamgroup query of this user on this machine that answers: this command reads the events only of "
    "such members."
)
_ACTIONS = "--list, --describe, --reset-offsets, --export, --delete and --delete-offsets"


class NoSuchGroup(StreamGroupError):
    """A group of the command line does not exist."""


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup groups -b localhost:9092 --list --state": "all groups with their states",
        "streamgroup groups -b localhost:9092 --describe --group orders-ingest": "offsets and lag of one group",
        "streamgroup groups -b localhost:9092 --describe --group orders-ingest --members": "its members",
        "streamgroup groups -b localhost:9092 --reset-offsets --group orders-ingest --all-topics --to-earliest": "new "
        "offsets, only shown; --execute sets them",
    },
)
@flag(ACTIONS, "--list", "list_groups", help="List the names of all groups; with --state also their states.")
@flag(ACTIONS, "--describe", help="Show offsets and lag of groups, or their members or states.")
@action_options
@option(GROUPS, "--group", "names", multiple=True, metavar="GROUP", help="One group; repeatable.")
@flag(GROUPS, "--all-groups", help="All groups.")
@option(
    _VIEWS,
    "--offsets",
    "view",
    flag_value="offsets",
    help="Committed offset, log end, lag and member of each partition (the default).",
)
@option(
    _VIEWS,
    "--members",
    "view",
    flag_value="members",
    help="Members, and the event counters of those that are streamgroup queries of this user on this machine.",
)
@option(_VIEWS, "--state", "view", flag_value="state", help="State, coordinator, strategy and number of members.")
@change_options
@flag(OUTPUT, "--verbose", help="Show more columns: leader epochs, assigned partitions, or offsets before a reset.")
@json_option("Print all columns as JSON; an unknown value is null.")
@cluster_options
@timeout_option(5_000, "How long the whole command may take.")
def groups(
    *,
    where: ClusterAddress,
    list_groups: bool,
    describe: bool,
    names: tuple[str, ...],
    all_groups: bool,
    view: str | None,
    changes: ChangeOptions,
    verbose: bool,
    timeout: int,
    as_json: bool,
) -> None:
    """List, describe, reset, export or delete consumer groups.

    The options and columns are those of kafka-consumer-groups.sh. With --bootstrap-server the command sees groups that
    the brokers store, with --zookeeper those of old consumers. Changes need a group without members.
    """
    if list_groups + describe + changes.has_action != 1:
        raise click.UsageError(f"choose one of {_ACTIONS}")
    if not list_groups and bool(names) == all_groups:
        raise click.UsageError("choose groups by either --group or --all-groups")
    if list_groups and (names or all_groups or verbose or view not in (None, "state")):
        raise click.UsageError("--list accepts only --state")
    if changes.has_action and view is not None:
        raise click.UsageError(f"--{view} requires --describe")
    with opened_store(client_options(where, "streamgroup-groups", timeout)) as store:
        deadline = time.monotonic() + timeout / 1000
        try:
            if list_groups:
                _list(store, deadline, states=view == "state", as_json=as_json)
            elif changes.has_action:
                chosen = list(dict.fromkeys(names)) or _all(store, deadline)
                GroupChanges(store, deadline, changes, as_json=as_json, verbose=verbose).run(chosen)
            else:
                _describe(store, deadline, names, view=view or "offsets", verbose=verbose, as_json=as_json)
        finally:
            for note in dict.fromkeys(store.notes):
                click.echo(f"Warning: {note}", err=True)


def _list(store: GroupStore, deadline: float, *, states: bool, as_json: bool) -> None:
    found = tables.consumer_groups(store.list_groups(deadline).values())
    if states or as_json:
        found = _with_states(store, deadline, found)
    if as_json:
        _print_json(tables.LISTED, found)
    elif states:
        click.echo(table(tables.LISTED, found))
    elif found:
        click.echo("\n".join(group.group_id for group in found))


def _with_states(store: GroupStore, deadline: float, found: list[GroupListing]) -> list[GroupListing]:
    """Return the groups with their states. Brokers before 2.6 list only names, so this function asks for the states."""
    stateless = [group.group_id for group in found if not group.state]
    described = store.describe(stateless, deadline)
    return [
        GroupListing(group.group_id, group.protocol_type, group.state or described[group.group_id].state)
        for group in found
    ]


def _describe(
    store: GroupStore, deadline: float, names: Sequence[str], *, view: str, verbose: bool, as_json: bool
) -> None:
    """Show the groups that exist, then raise NoSuchGroup for the others."""
    described = store.describe(names or _all(store, deadline), deadline)
    alive = [group for group in described.values() if group.state != GroupState.DEAD]
    if view == "offsets":
        _show(tables.OFFSETS, [offsets_of(store, deadline, group) for group in alive], verbose, as_json)
    elif view == "members":
        _show_members(store, alive, deadline, verbose=verbose, as_json=as_json)
    else:
        rows = [tables.StateRow(group, store.coordinator(group.group_id, deadline)) for group in alive]
        _show(tables.STATES, [rows] if rows else [], verbose, as_json)
    for group in alive:
        _remark(group, view)
    if missing := sorted(name for name, group in described.items() if group.state == GroupState.DEAD):
        raise NoSuchGroup("; ".join(f"consumer group {name!r} does not exist" for name in missing))


def _all(store: GroupStore, deadline: float) -> list[str]:
    return [group.group_id for group in tables.consumer_groups(store.list_groups(deadline).values())]


def _show(columns: Sequence[Column[Any]], parts: list[list[Any]], verbose: bool, as_json: bool) -> None:
    """Print one table for each part with rows, or one JSON list of all rows."""
    if as_json:
        _print_json(columns, [row for rows in parts for row in rows])
        return
    shown = [table(columns, rows, verbose=verbose) for rows in parts if rows]
    if shown:
        click.echo("\n\n".join(shown))


def _show_members(
    store: GroupStore, groups: Sequence[GroupDescription], deadline: float, *, verbose: bool, as_json: bool
) -> None:
    """Print the members, then the event counts of those whose coordinators run on this machine."""
    counts = troubles({group.group_id for group in groups}, deadline)
    parts = [tables.member_rows(group, counts, store.name_of) for group in groups]
    if as_json:
        _print_json((*tables.MEMBERS, tables.TROUBLE), [row for rows in parts for row in rows])
        return
    _show(tables.MEMBERS, parts, verbose, as_json)
    members = [row for rows in parts for row in rows]
    if all(row.trouble is None for row in members):
        if members:
            click.echo(_NOT_HERE.format(who="no member"), err=True)
        return
    # A program that reads a pipe needs the whole ids, so only a terminal shortens them.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo()
    if verbose:
        click.echo(table(tables.EVENTS, tables.event_rows(members)))
    else:
        click.echo(table(tables.COUNTS, members, width=width))
    if any(row.trouble is None for row in members):
        click.echo(_NOT_HERE.format(who="-: not every member"))


def _print_json(columns: Sequence[Column[Any]], rows: Iterable[Any]) -> None:
    click.echo(json.dumps(json_rows(columns, rows), indent=2))


def _remark(group: GroupDescription, view: str) -> None:
    if view == "state":
        return
    if group.is_rebalancing:
        click.echo(f"Warning: Consumer group '{group.group_id}' is rebalancing.", err=True)
    elif group.state == GroupState.EMPTY:
        click.echo(f"Consumer group '{group.group_id}' has no active members.", err=True)


ANSWER_S = 2.0
"""How long to wait for one coordinator. One that does not answer at once is ending, and must not delay the others."""


def troubles(groups: Collection[str], deadline: float) -> dict[str, Trouble]:
    """Return the event counts of members of `groups` by member id, for coordinators of this user on this machine.

    `deadline` is on the monotonic clock. A coordinator that has not answered by then is left out.
    """
    return {
        status["member"]: status["trouble"]
        for pid in control.drivers()
        for status in control.statuses(pid, ANSWER_S, deadline).values()
        if status.get("group") in groups and status.get("member") and isinstance(status.get("trouble"), dict)
    }
