"""The options of a command line that name a database with an offset table, and its rows beside a group's commits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from streamgroup.cli._click import option
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._group_stores import GroupStore
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.model import TopicPartition
from streamgroup.options.kinds import DATABASE, SECRET, TEXT, ValueKind

if TYPE_CHECKING:
    from streamgroup.sql.operations import OffsetDatabase, TableRow

Command = TypeVar("Command", bound=Callable[..., Any])
_SECTION = "Offset table"
_NAMES = ("offsets.store", "offsets.store.user", "offsets.store.password")
_OPTIONS = (
    option(
        _SECTION,
        "--store",
        metavar="URL",
        help="The database, as in the option offsets.store of the query. --command-config may have it, too.",
    ),
    option(_SECTION, "--store-user", metavar="NAME", help="User of the database, if the URL names none."),
    option(
        _SECTION,
        "--store-password",
        metavar="PASSWORD",
        help="Password of that user. Other users of this machine can see it, unless it is env:NAME or file:PATH.",
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class StoreAddress:
    """The database as a command line names it. The password is not parsed yet."""

    url: str | None = None
    user: str | None = None
    password: str | None = None

    def completed(self, where: ClusterAddress) -> StoreAddress:
        """Return the address with what the file of `--command-config` has in addition. Raises ConfigError."""
        of_file = where.store_properties()
        given = (self.url, self.user, self.password)
        return StoreAddress(
            *(of_file.get(name) if value is None else value for name, value in zip(_NAMES, given, strict=True))
        )


def store_options(command: Command) -> Command:
    """Add the options that name a database to `command`, which gets them as `store`."""

    @functools.wraps(command)
    def with_store(
        *args: Any, store: str | None, store_user: str | None, store_password: str | None, **others: Any
    ) -> Any:
        return command(*args, store=StoreAddress(store, store_user, store_password), **others)

    decorated = cast("Command", with_store)
    for add in reversed(_OPTIONS):
        decorated = add(decorated)
    return decorated


def offset_database(address: StoreAddress, timeout_ms: int) -> OffsetDatabase:
    """Return the database; it connects with the first call. Raises ConfigError."""
    if address.url is None:
        raise click.UsageError("name the database with --store, or by offsets.store in the file of --command-config")
    try:
        from streamgroup.sql.operations import OffsetDatabase  # noqa: PLC0415  (of the extra `sql`)
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise ConfigError(
            "cannot open the offset table: the Python package sqlalchemy is not installed. Install streamgroup[sql] "
            "for the Python of this command"
        ) from None
    password = _parsed("--store-password", SECRET, address.password)
    return OffsetDatabase(
        _parsed("--store", DATABASE, address.url),
        _parsed("--store-user", TEXT, address.user),
        None if password is None else password.reveal("--store-password"),
        timeout_ms,
    )


def _parsed(name: str, kind: ValueKind, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"invalid value for {name}: {error}") from None


# --- rows beside commits ----------------------------------------------------------------------------------------------


@frozen
class OffsetLook:
    """A partition of a group: its row, None without one; the group's commit in Kafka; the end of its log."""

    group: str
    partition: TopicPartition
    row: TableRow | None
    committed: int | None = None
    log_end: int | None = None

    @property
    def next_offset(self) -> int | None:
        return None if self.row is None else self.row.stored.next_offset

    @property
    def lag(self) -> int | None:
        """How much the table is behind the log's end, 0 if it is beyond the end."""
        if self.next_offset is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.next_offset)


def looks_of(
    group: str, rows: Mapping[TopicPartition, TableRow], cluster: GroupStore | None, deadline: float
) -> list[OffsetLook]:
    """Return each partition that has a row, or a commit of the group in `cluster`, sorted."""
    if cluster is None:
        return [OffsetLook(group, tp, row) for tp, row in rows.items()]
    commits = cluster.committed(group, deadline)
    partitions = sorted({*rows, *commits})
    ends = cluster.log_ends(partitions, deadline)
    return [
        OffsetLook(group, tp, rows.get(tp), commits[tp].offset if tp in commits else None, ends.get(tp))
        for tp in partitions
    ]


def lagging(looks: Sequence[OffsetLook]) -> list[TopicPartition]:
    """Return the partitions with a commit in Kafka before the offset of the table, or without a commit."""
    return [
        look.partition
        for look in looks
        if look.next_offset is not None and (look.committed is None or look.committed < look.next_offset)
    ]


def passed(looks: Sequence[OffsetLook]) -> list[TopicPartition]:
    """Return the partitions with a commit in Kafka that is beyond the offset of the table."""
    return [
        look.partition
        for look in looks
        if look.committed is not None and look.next_offset is not None and look.committed > look.next_offset
    ]
