"""`streamgroup offsets`: the offset table of a database, in which queries store offsets together with rows."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from streamgroup.cli._change_options import ACTIONS, GROUPS, ChangeOptions, table_change_options
from streamgroup.cli._click import (
    OR_UNITS,
    OUTPUT,
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
from streamgroup.cli._cluster import ClusterAddress, broker_options, client_options
from streamgroup.cli._group_stores import GroupStore, opened_store
from streamgroup.cli._offset_store import (
    OffsetLook,
    StoreAddress,
    looks_of,
    offset_database,
    passed,
    store_options,
)
from streamgroup.cli._reset import (
    RESET,
    LogOffsets,
    NoSuchGroup,
    NotChangedError,
    Reset,
    ResetRow,
    TopicScope,
    Way,
    new_offsets,
    read_csv,
)
from streamgroup.coordinator.control import channel
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.logformat import KAFKA_LOG
from streamgroup.model import EARLIEST, LATEST, TopicPartition, name_some
from streamgroup.text import counted

if TYPE_CHECKING:
    from streamgroup.sql.operations import OffsetDatabase
    from streamgroup.sql.staging import StagingTable

ANSWER_S = 2.0
"""Seconds to wait for the queries on this machine to report their groups."""
DAY_S = 86_400
_OF_LOGS = (Way.EARLIEST, Way.LATEST, Way.CURRENT, Way.DATETIME, Way.DURATION)
"""The ways to reset for which the logs are read."""
_DRY = "Dry run: nothing was changed. Add --execute to {do}."
_AHEAD = (
    "group {group}: the commits of {partitions} in Kafka are beyond the offsets of the table, which count: a query "
    "with this table reads these records again. To leave them out, reset the table with --from-file and the output of "
    "`streamgroup groups --export`"
)


@frozen
class StagingLook:
    """A staging table, and what the command does with it."""

    table: StagingTable
    status: str


OFFSETS: tuple[Column[OffsetLook], ...] = (
    Column("GROUP", "group", lambda look: look.group),
    Column("TOPIC", "topic", lambda look: look.partition.topic),
    Column("PARTITION", "partition", lambda look: look.partition.partition),
    Column("NEXT-OFFSET", "next_offset", lambda look: look.next_offset),
    Column("COMMITTED-OFFSET", "committed_offset", lambda look: look.committed, if_any=True),
    Column("LOG-END-OFFSET", "log_end_offset", lambda look: look.log_end, if_any=True),
    Column("LAG", "lag", lambda look: look.lag, if_any=True),
    Column("CLAIM", "claim", lambda look: None if look.row is None else look.row.stored.claim),
    Column("RUN", "run", lambda look: None if look.row is None else look.row.stored.member or None),
    Column(
        "LINEAGE", "lineage", lambda look: None if look.row is None else look.row.stored.lineage or None, verbose=True
    ),
    Column("UPDATED-AT", "updated_at", lambda look: None if look.row is None else _utc(look.row.updated_at)),
)
LISTED: tuple[Column[list[OffsetLook]], ...] = (
    Column("GROUP", "group", lambda looks: looks[0].group),
    Column("PARTITIONS", "partitions", len),
    Column("UPDATED-AT", "updated_at", lambda looks: _utc(max(look.row.updated_at for look in looks if look.row))),
)
STAGING: tuple[Column[StagingLook], ...] = (
    Column("TABLE", "table", lambda look: look.table.name),
    Column("QUERY", "query", lambda look: look.table.query),
    Column("CREATED", "created", lambda look: _utc(look.table.created)),
    Column("STATUS", "status", lambda look: look.status),
)


@click.command(
    cls=SectionedCommand,
    short_help="Show, reset or delete the offsets that a database stores for groups.",
    examples={
        "streamgroup offsets --store postgresql://db/shop --list": "the groups that have offsets in the database",
        "streamgroup offsets --store postgresql://db/shop --describe --group shop -b localhost:9092": "the offsets of "
        "a group, with its commits and its lag",
        "streamgroup offsets --store postgresql://db/shop --reset-offsets --group shop --topic orders:0 --to-offset "
        "500": "new offsets, only shown; --execute sets them",
        "streamgroup offsets --store postgresql://db/shop --staging": "staging tables that failed batches have left",
    },
)
@flag(ACTIONS, "--list", "lists", help="List the groups that have offsets in the table.")
@flag(ACTIONS, "--describe", help="Show the offsets of groups; with --bootstrap-server also commits and lag.")
@flag(ACTIONS, "--reset-offsets", help="Show new offsets of a group, and set them with --execute.")
@flag(ACTIONS, "--delete", help="Show the rows of a group, and delete them with --execute.")
@flag(ACTIONS, "--staging", help="List the staging tables, and drop old ones with --execute.")
@option(GROUPS, "--group", "names", multiple=True, metavar="GROUP", help="One group; --describe takes several, or all.")
@table_change_options
@option(
    "Changes",
    "--older-than",
    type=Duration("s", 0),
    metavar="SECONDS",
    help=f"--staging drops tables that are older. In seconds, {OR_UNITS}.  [default: 24h]",
)
@store_options
@flag(OUTPUT, "--verbose", help="Show more columns: the ids of checkpoints, or offsets before a reset.")
@json_option("Print all columns as JSON; an unknown value is null.")
@broker_options
@timeout_option(5_000, "How long the brokers may take, and the database for each statement.")
def offsets(
    *,
    where: ClusterAddress,
    store: StoreAddress,
    lists: bool,
    describe: bool,
    staging: bool,
    names: tuple[str, ...],
    changes: ChangeOptions,
    older_than: float | None,
    verbose: bool,
    timeout: int,
    as_json: bool,
) -> None:
    """Show, reset or delete the offsets that a database stores for groups: option offsets.store of queries.

    The offsets in this table count, not the commits of the group in Kafka. A reset or a deletion ends a query that
    runs: it can store no batch that it planned before. Ways to reset that depend on the logs require
    --bootstrap-server; with it, offsets beyond an end of the log become that end.
    """
    if lists + describe + staging + changes.resets + changes.deletes != 1:
        raise click.UsageError("choose one of --list, --describe, --reset-offsets, --delete and --staging")
    _check(changes, names, staging=staging, describe=describe, has_limit=older_than is not None)
    with offset_database(store.completed(where), timeout) as database, _opened(where, timeout) as cluster:
        command = OffsetsOfGroups(database, cluster, time.monotonic() + timeout / 1000, Shown(as_json, verbose))
        if lists:
            command.list_groups()
        elif describe:
            command.describe(names)
        elif staging:
            command.staging(DAY_S if older_than is None else older_than, executes=changes.executes)
        elif changes.deletes:
            command.delete(names[0], executes=changes.executes)
        else:
            command.reset(names[0], changes)
        for note in dict.fromkeys(() if cluster is None else cluster.notes):
            _warn(note)


def _check(changes: ChangeOptions, names: Sequence[str], *, staging: bool, describe: bool, has_limit: bool) -> None:
    """Raise UsageError for options that contradict each other."""
    if (changes.resets or changes.deletes) and len(names) != 1:
        raise click.UsageError("--reset-offsets and --delete require one --group")
    if names and not (describe or changes.resets or changes.deletes):
        raise click.UsageError("--group requires --describe, --reset-offsets or --delete")
    if changes.executes and not (changes.resets or changes.deletes or staging):
        raise click.UsageError("--execute requires --reset-offsets, --delete or --staging")
    if has_limit and not staging:
        raise click.UsageError("--older-than requires --staging")
    scopes = bool(changes.topics) + changes.all_topics + (changes.file is not None)
    if scopes != changes.resets:
        raise click.UsageError(
            "--reset-offsets requires one of --topic, --all-topics and --from-file, and each of them requires it"
        )


@frozen
class Shown:
    """How the command prints rows."""

    as_json: bool
    verbose: bool

    def print(self, columns: Sequence[Column[Any]], rows: Sequence[Any]) -> None:
        if self.as_json:
            click.echo(json.dumps(json_rows(columns, rows), indent=2))
        elif rows:
            click.echo(table(columns, rows, verbose=self.verbose))


@contextmanager
def _opened(where: ClusterAddress, timeout: int) -> Iterator[GroupStore | None]:
    if not where.bootstrap_server:
        yield None
        return
    with opened_store(client_options(where, "streamgroup-offsets", timeout)) as store:
        yield store


class OffsetsOfGroups:
    """Carries out one command for the offset table in `database`. `cluster` is None without brokers."""

    def __init__(self, database: OffsetDatabase, cluster: GroupStore | None, deadline: float, shown: Shown) -> None:
        self._database = database
        self._cluster = cluster
        self._deadline = deadline
        self._shown = shown

    # -- look ----------------------------------------------------------------------------------------------------------

    def list_groups(self) -> None:
        """Show all groups."""
        groups = self._database.groups()
        self._shown.print(LISTED, [[OffsetLook(name, row.partition, row) for row in groups[name]] for name in groups])

    def describe(self, names: Sequence[str]) -> None:
        """Show the rows of the groups `names`, or of all. Raises NoSuchGroup at the end if a group has no row."""
        rows = {name: found for name, found in self._database.groups().items() if not names or name in names}
        looks = {
            name: looks_of(name, {row.partition: row for row in found}, self._cluster, self._deadline)
            for name, found in rows.items()
        }
        self._shown.print(OFFSETS, [look for found in looks.values() for look in found])
        for name, found in looks.items():
            if beyond := passed(found):
                _warn(_AHEAD.format(group=name, partitions=name_some(beyond)))
        if missing := sorted(set(names) - looks.keys()):
            raise self._unknown(*missing)

    def _unknown(self, *names: str) -> NoSuchGroup:
        groups = ", ".join(map(repr, names))
        return NoSuchGroup(f"the offset table in {self._database.where} has no offset of group {groups}")

    # -- change --------------------------------------------------------------------------------------------------------

    def reset(self, group: str, changes: ChangeOptions) -> None:
        """Show new offsets of a group, and set them if `changes` say so."""
        reset, rows = changes.reset, self._database.rows(group)
        assert reset is not None, "checked with the options"
        if reset.way in _OF_LOGS and self._cluster is None:
            raise click.UsageError(f"{reset.way.value} requires --bootstrap-server")
        in_file = None if changes.file is None else read_csv(changes.file, [group], KAFKA_LOG)[group]
        partitions = self._chosen(group, rows, changes) if in_file is None else sorted(in_file)
        partitions = self._existing(partitions, skips=changes.all_topics)
        known = {tp: row.stored.committed for tp, row in rows.items() if row.stored.committed is not None}
        new, warnings = new_offsets(reset, partitions, known, self._logs(reset, partitions), in_file)
        for warning in (*warnings, *self._in_use(group)):
            _warn(warning)
        if changes.executes:
            self._database.reset(group, new)
        found = [ResetRow(group, tp, tp.partition, known[tp].offset if tp in known else None, new[tp]) for tp in new]
        self._shown.print(RESET, found)
        if not changes.executes:
            click.echo(_DRY.format(do="set these offsets"), err=True)

    def _chosen(
        self, group: str, rows: Collection[TopicPartition], changes: ChangeOptions
    ) -> Collection[TopicPartition]:
        """Return the partitions that the options choose. A topic without numbers means all its partitions."""
        if changes.all_topics:
            if not rows:
                raise self._unknown(group)
            return rows
        chosen: set[TopicPartition] = set()
        for scope in changes.topics:
            named = self._named(scope, rows)
            if not named:
                where = f"offset table of group {group!r}" if self._cluster is None else "cluster"
                raise ConfigError(f"no partition of topic {scope.topic!r} is in the {where}")
            chosen |= named
        return chosen

    def _named(self, scope: TopicScope, rows: Collection[TopicPartition]) -> set[TopicPartition]:
        if not scope.partitions:
            if self._cluster is None:
                return {tp for tp in rows if tp.topic == scope.topic}
            found = self._cluster.partitions([scope.topic], self._deadline)
            return {TopicPartition(scope.topic, number) for number in found.get(scope.topic, ())}
        try:
            return {TopicPartition(scope.topic, KAFKA_LOG.partition_number(name)) for name in scope.partitions}
        except ValueError as error:
            raise ConfigError(f"invalid partition of --topic {scope.topic}: {error}") from None

    def _existing(self, partitions: Collection[TopicPartition], *, skips: bool) -> list[TopicPartition]:
        """Return the partitions, sorted. Skip those that the cluster does not have, or raise ConfigError."""
        if self._cluster is None:
            return sorted(partitions)
        existing = self._cluster.partitions({tp.topic for tp in partitions}, self._deadline)
        missing = sorted(tp for tp in partitions if tp.partition not in existing.get(tp.topic, ()))
        if missing and not skips:
            raise ConfigError(
                f"partitions that do not exist: {name_some(missing)}. `streamgroup topics --describe` shows the "
                "partitions"
            )
        if missing:
            _warn(f"not reset, because they do not exist any more: {name_some(missing)}")
        return sorted(set(partitions) - set(missing))

    def _logs(self, reset: Reset, partitions: Collection[TopicPartition]) -> LogOffsets:
        if self._cluster is None:
            return LogOffsets({}, {})
        times = (EARLIEST, LATEST, *([reset.value] if reset.is_by_time else []))
        at = {time: self._cluster.offsets_at(dict.fromkeys(partitions, time), self._deadline) for time in times}
        return LogOffsets(at[EARLIEST], at[LATEST], at[reset.value] if reset.is_by_time else {})

    def delete(self, group: str, *, executes: bool) -> None:
        """Show the rows of a group, and delete them if `executes`."""
        rows = self._database.rows(group)
        if not rows:
            raise self._unknown(group)
        for warning in self._in_use(group):
            _warn(warning)
        if executes:
            self._database.delete(group)
        self._shown.print(OFFSETS, looks_of(group, rows, None, self._deadline))
        if executes:
            click.echo(f"Deleted {counted(len(rows), 'row')} of group {group!r}.", err=True)
        else:
            click.echo(_DRY.format(do="delete these rows"), err=True)

    def _in_use(self, group: str) -> Iterator[str]:
        """Yield a warning if a query of the group runs on this machine, or else if the group has members."""
        until = time.monotonic() + ANSWER_S
        running = [
            pid
            for pid in channel.drivers()
            for status in channel.statuses(pid, ANSWER_S, until).values()
            if status.get("group") == group and status.get("offsets_store")
        ]
        if running:
            yield (
                f"a query of group {group!r} runs on this machine (driver {running[0]}). After a change it ends with "
                f"an error at its next batch. `streamgroup drain --group {group}` stops it first"
            )
        elif self._cluster is not None and (members := self._cluster.describe([group], self._deadline)[group].members):
            yield (
                f"group {group!r} has {counted(len(members), 'member')}. After a change each query among them ends "
                "with an error at its next batch. Stop them first"
            )

    # -- staging tables ------------------------------------------------------------------------------------------------

    def staging(self, older_than: float, *, executes: bool) -> None:
        """Show the staging tables, and if `executes` drop those created more than `older_than` seconds ago."""
        limit = datetime.now(UTC) - timedelta(seconds=older_than)
        looks, errors = [], []
        for found in self._database.staging():
            status = "kept" if found.created >= limit else "old"
            if status == "old" and executes:
                try:
                    self._database.drop(found)
                    status = "dropped"
                except StreamGroupError as error:
                    status = "not dropped"
                    errors.append(str(error))
            looks.append(StagingLook(found, status))
        self._shown.print(STAGING, looks)
        if errors:
            raise NotChangedError("; ".join(errors))
        if any(look.status == "old" for look in looks):
            click.echo(_DRY.format(do="drop the tables that are old"), err=True)


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
