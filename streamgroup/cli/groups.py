"""`streamgroup groups`: consumer groups, in the columns of kafka-consumer-groups.sh."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from streamgroup.cli import _group_tables as tables
from streamgroup.cli._change_options import ACTIONS, GROUPS, SPARK, ChangeOptions, action_options, change_options
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
from streamgroup.cli._group_stores import GroupStore, offsets_of, opened_store
from streamgroup.cli._group_tables import Trouble
from streamgroup.cli._reset import (
    RESET,
    LogOffsets,
    NoSuchGroup,
    NotChangedError,
    OffsetLine,
    Reset,
    ResetRow,
    TopicScope,
    Way,
    new_offsets,
    read_csv,
    write_csv,
)
from streamgroup.coordinator.control import channel
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    TopicPartition,
    name_some,
)
from streamgroup.text import MOST_NAMED, first_of

_VIEWS = "With --describe (give one)"
_NOT_HERE = (
    "{who} is a streamgroup query of this user on this machine that answers: this command reads the events only of "
    "such members."
)
_ACTIONS = "--list, --describe, --reset-offsets, --export, --delete and --delete-offsets"


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
"""Seconds to wait for one coordinator.

A coordinator that does not answer at once is ending, and must not delay the others.
"""


def troubles(groups: Collection[str], deadline: float) -> dict[str, Trouble]:
    """Return the event counts of members of `groups` by member id, for coordinators of this user on this machine.

    `deadline` is on the monotonic clock. A coordinator that does not answer by then is left out.
    """
    return {
        status["member"]: status["trouble"]
        for pid in channel.drivers()
        for status in channel.statuses(pid, ANSWER_S, deadline).values()
        if status.get("group") in groups and status.get("member") and isinstance(status.get("trouble"), dict)
    }


_DRY = "Dry run: no offset was changed. Add --execute to set these offsets."
_CHOSEN = frozenset({Way.OFFSET, Way.SHIFT, Way.FILE})
"""The ways whose offsets come from the user, not from a log."""


@frozen
class DeletedOffset:
    """A partition whose commit was to be deleted; `error` is None if it was."""

    group: str
    partition: TopicPartition
    name: int | str
    error: str | None


EXPORTED: tuple[Column[OffsetLine], ...] = (
    Column("GROUP", "group", lambda line: line.group),
    Column("TOPIC", "topic", lambda line: line.topic),
    Column("PARTITION", "partition", lambda line: line.partition),
    Column("OFFSET", "offset", lambda line: line.offset),
)
DELETED: tuple[Column[DeletedOffset], ...] = (
    Column("GROUP", "group", lambda row: row.group),
    Column("TOPIC", "topic", lambda row: row.partition.topic),
    Column("PARTITION", "partition", lambda row: row.name),
    Column("STATUS", "status", lambda row: "Successful" if row.error is None else f"Error: {row.error}"),
)


class GroupChanges:
    """Carries out the changes of one command for the groups `names`. `store` must respond until `deadline`."""

    def __init__(
        self, store: GroupStore, deadline: float, options: ChangeOptions, *, as_json: bool, verbose: bool
    ) -> None:
        self._store = store
        self._deadline = deadline
        self._options = options
        self._as_json = as_json
        self._verbose = verbose

    def run(self, names: Sequence[str]) -> None:
        """Make the requested changes. Errors of single groups are raised after the other groups are done."""
        options = self._options
        if options.format == SPARK and len(names) != 1:
            raise click.UsageError("--format spark requires one --group")
        if options.resets:
            self._reset(names)
        elif options.deletes:
            self._delete(names)
        elif options.deletes_offsets:
            self._delete_offsets(names)
        else:
            self._export(names)

    # -- new offsets ---------------------------------------------------------------------------------------------------

    def _reset(self, names: Sequence[str]) -> None:
        options, store = self._options, self._store
        assert options.reset is not None, "checked with the options"
        in_file = {} if options.file is None else read_csv(options.file, names, store.log_format)

        def reset(name: str) -> list[ResetRow]:
            self._require_no_members(name)
            committed = store.committed(name, self._deadline)
            offsets = self._new_offsets(name, committed, in_file.get(name))
            if options.executes:
                store.set_offsets(name, offsets, self._deadline)
            return [
                ResetRow(
                    name, tp, store.name_of(tp.partition), None if tp not in committed else committed[tp].offset, new
                )
                for tp, new in sorted(offsets.items())
            ]

        found, errors = _each(names, reset)
        self._print_reset([row for rows in found.values() for row in rows], len(names))
        if found and not options.executes:
            click.echo(_DRY, err=True)
        _raise(errors)

    def _new_offsets(
        self,
        name: str,
        committed: Mapping[TopicPartition, CommittedOffset],
        in_file: Mapping[TopicPartition, int] | None,
    ) -> dict[TopicPartition, int]:
        store, reset = self._store, self._options.reset
        assert reset is not None, "checked with the options"
        partitions = self._existing(name, committed) if in_file is None else self._those_of_file(in_file)
        at = {
            time: store.offsets_at(dict.fromkeys(partitions, time), self._deadline)
            for time in (EARLIEST, LATEST, *([reset.value] if reset.is_by_time else []))
        }
        logs = LogOffsets(
            at[EARLIEST], at[LATEST], at.get(reset.value, {}) if reset.is_by_time else {}, store.log_format
        )
        offsets, warnings = new_offsets(reset, partitions, committed, logs, in_file)
        store.notes += warnings
        self._check_boundaries(reset, offsets, logs)
        return offsets

    def _check_boundaries(self, reset: Reset, offsets: Mapping[TopicPartition, int], logs: LogOffsets) -> None:
        """Raise ConfigError for an offset of the user at which no message begins, which is possible in Kafka 0.7."""
        if reset.way not in _CHOSEN:
            return
        for tp, offset in offsets.items():
            at_end = offset in (logs.earliest[tp], logs.latest[tp])
            if not at_end and not self._store.starts_message(tp, offset, self._deadline):
                raise ConfigError(
                    f"cannot reset {logs.log_format.name(tp)} to {offset}: no message begins there. Offsets of Kafka "
                    "0.7 are bytes: take one that a consumer has committed or that `streamgroup consume -f '%o'` prints"
                )

    def _print_reset(self, rows: Sequence[ResetRow], groups: int) -> None:
        if not self._options.exports:
            self._print(RESET, rows)
        elif self._options.format == SPARK:
            self._print_spark({row.partition: row.new_offset for row in rows})
        else:
            lines = [OffsetLine(row.group, row.partition.topic, row.name, row.new_offset) for row in rows]
            self._print_lines(lines, groups)

    # -- deletions -----------------------------------------------------------------------------------------------------

    def _delete(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            if self._require_no_members(name).state == GroupState.DEAD:
                raise NotChangedError(f"cannot delete consumer group {name!r}: it does not exist")
            self._store.delete_group(name, self._deadline)

        found, errors = _each(names, delete)
        if self._as_json:
            rows = [{"group": name, "deleted": name in found, "error": _text(errors.get(name))} for name in names]
            click.echo(json.dumps(rows, indent=2))
        elif found:
            click.echo(f"Deletion of requested consumer groups ({', '.join(map(repr, found))}) was successful.")
        _raise(errors)

    def _delete_offsets(self, names: Sequence[str]) -> None:
        def delete(name: str) -> list[DeletedOffset]:
            committed = self._store.committed(name, self._deadline)
            partitions = self._chosen(committed)
            if not partitions:
                raise NotChangedError(f"cannot delete offsets of group {name!r}: it has none of these topics")
            answers = self._store.delete_offsets(name, partitions, self._deadline)
            label = self._store.name_of
            return [DeletedOffset(name, tp, label(tp.partition), error) for tp, error in sorted(answers.items())]

        found, errors = _each(names, delete)
        rows = [row for theirs in found.values() for row in theirs]
        self._print(DELETED, rows)
        refused = [row for row in rows if row.error is not None]
        if refused and not errors:
            raise NotChangedError(f"{len(refused)} of {len(rows)} offsets were not deleted: see their status")
        _raise(errors)

    # -- export --------------------------------------------------------------------------------------------------------

    def _export(self, names: Sequence[str]) -> None:
        def export(name: str) -> dict[TopicPartition, int]:
            described = self._store.describe([name], self._deadline)[name]
            committed = self._store.committed(name, self._deadline)
            chosen = self._chosen(committed) if self._options.topics else committed
            offsets = {tp: committed[tp].offset for tp in chosen if tp in committed}
            if not offsets:
                raise NotChangedError(f"cannot export the offsets of group {name!r}: it has not committed any")
            if described.state not in (GroupState.EMPTY, GroupState.DEAD):
                self._store.notes.append(f"group {name!r} is {described.state}: its members commit other offsets later")
            return offsets

        found, errors = _each(names, export)
        label = self._store.name_of
        if found and self._options.format == SPARK:
            self._print_spark(found[names[0]])
        elif found:
            lines = [
                OffsetLine(name, tp.topic, label(tp.partition), offset)
                for name, offsets in found.items()
                for tp, offset in sorted(offsets.items())
            ]
            self._print_lines(lines, len(names))
        _raise(errors)

    # -- scope and output ----------------------------------------------------------------------------------------------

    def _require_no_members(self, name: str) -> GroupDescription:
        described = self._store.describe([name], self._deadline)[name]
        if described.other_kind:
            kind = described.other_kind
            raise NotChangedError(f"cannot change group {name!r}: it is a {kind} group. Use kafka-{kind}-groups.sh")
        if described.state in (GroupState.EMPTY, GroupState.DEAD):
            return described
        if described.members:
            has = f"it is {described.state}, with {len(described.members)} member(s)"
        else:
            has = f"its state is {described.state}"
        raise NotChangedError(
            f"cannot change group {name!r}: {has}. Stop all its members first: `streamgroup drain --group {name}` "
            "stops a query on this machine. A member that was killed counts until its session timeout is over"
        )

    def _chosen(self, committed: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that the options choose; a topic without numbers means its committed partitions."""
        if not self._options.topics:
            return sorted(committed)
        chosen: set[TopicPartition] = set()
        for scope in self._options.topics:
            if scope.partitions:
                chosen.update(self._numbered(scope))
            else:
                chosen.update(tp for tp in committed if tp.topic == scope.topic)
        return sorted(chosen)

    def _existing(self, name: str, committed: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the existing partitions that the options choose for a reset."""
        if not self._options.topics:
            existing = self._partitions(tp.topic for tp in committed)
            if gone := sorted(set(committed) - existing):
                names = name_some(gone, self._store.log_format.name)
                self._store.notes.append(f"not reset, because they do not exist any more: {names}")
            if not existing & set(committed):
                raise NotChangedError(
                    f"cannot reset the offsets of group {name!r}: it has no committed offsets. Choose topics by --topic"
                )
            return sorted(existing & set(committed))
        existing = self._partitions(scope.topic for scope in self._options.topics)
        chosen: set[TopicPartition] = set()
        for scope in self._options.topics:
            wanted = self._numbered(scope) if scope.partitions else {tp for tp in existing if tp.topic == scope.topic}
            if not wanted:
                raise ConfigError(f"topic {scope.topic!r} does not exist. `streamgroup topics --list` shows the topics")
            chosen |= wanted
        self._require_existing(chosen, existing)
        return sorted(chosen)

    def _those_of_file(self, in_file: Collection[TopicPartition]) -> list[TopicPartition]:
        self._require_existing(in_file, self._partitions(tp.topic for tp in in_file))
        return sorted(in_file)

    def _require_existing(self, chosen: Collection[TopicPartition], existing: Collection[TopicPartition]) -> None:
        if missing := sorted(set(chosen) - set(existing)):
            names = name_some(missing, self._store.log_format.name)
            raise ConfigError(
                f"partitions that do not exist: {names}. `streamgroup topics --describe` shows the partitions"
            )

    def _partitions(self, topics: Any) -> set[TopicPartition]:
        found = self._store.partitions(frozenset(topics), self._deadline)
        return {TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers}

    def _numbered(self, scope: TopicScope) -> set[TopicPartition]:
        try:
            numbers = [self._store.log_format.partition_number(name) for name in scope.partitions]
        except ValueError as error:
            raise ConfigError(f"invalid partition of --topic {scope.topic}: {error}") from None
        return {TopicPartition(scope.topic, number) for number in numbers}

    def _print(self, columns: Sequence[Column[Any]], rows: Sequence[Any]) -> None:
        if self._as_json:
            click.echo(json.dumps(json_rows(columns, rows), indent=2))
        elif rows:
            click.echo(table(columns, rows, verbose=self._verbose))

    def _print_lines(self, lines: Sequence[OffsetLine], groups: int) -> None:
        if self._as_json:
            self._print(EXPORTED, lines)
        elif lines:
            click.echo(write_csv(lines, with_group=groups != 1))

    def _print_spark(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._store.log_format.has_boundaries:
            raise ConfigError("cannot export startingOffsets: Spark's source does not read Kafka 0.7")
        existing = self._store.partitions({tp.topic for tp in offsets}, self._deadline)
        text, notes = starting_offsets(offsets, existing)
        self._store.notes += notes
        click.echo(text)


def _each(names: Sequence[str], do: Callable[[str], Any]) -> tuple[dict[str, Any], dict[str, StreamGroupError]]:
    """Return the results by group, and the errors: the error of one group must not stop the others."""
    found: dict[str, Any] = {}
    errors: dict[str, StreamGroupError] = {}
    for name in names:
        try:
            found[name] = do(name)
        except StreamGroupError as error:
            errors[name] = error
    return found, errors


def _raise(errors: Mapping[str, StreamGroupError]) -> None:
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise NotChangedError("; ".join(map(str, errors.values())))


def _text(error: StreamGroupError | None) -> str | None:
    return None if error is None else str(error)


def starting_offsets(
    offsets: Mapping[TopicPartition, int], existing: Mapping[str, Collection[int]]
) -> tuple[str, list[str]]:
    """Return `startingOffsets` for Spark's source, with notes about partitions that have no offset or no topic.

    Spark wants every partition of the topics that it subscribes to, and no other. So a partition of `existing` without
    an offset gets EARLIEST, where a member of the group would start too (R7). Partitions that do not exist are left
    out.
    """
    notes = []
    gone = sorted(tp for tp in offsets if tp.partition not in existing.get(tp.topic, ()))
    if gone:
        notes.append(f"left out, because the topic does not have it: {name_some(gone)}")
    nested: dict[str, dict[str, int]] = {}
    new = []
    for topic in sorted({tp.topic for tp in offsets} - {tp.topic for tp in gone if not existing.get(tp.topic)}):
        nested[topic] = {}
        for number in sorted(existing[topic]):
            tp = TopicPartition(topic, number)
            if tp not in offsets:
                new.append(str(tp))
            nested[topic][str(number)] = offsets.get(tp, EARLIEST)
    if new:
        names = first_of(new, MOST_NAMED, "partition")
        notes.append(f"no committed offset, so Spark starts at the earliest ({EARLIEST}): {names}")
    return json.dumps(nested, separators=(",", ":")), notes
