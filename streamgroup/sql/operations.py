"""Operations on a database that has an offset table: read, reset and delete rows, and drop staging tables.

All errors of the database are raised as OffsetStoreError, without a password.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from streamgroup.errors import OffsetStoreError
from streamgroup.frozen import frozen
from streamgroup.group.offsets.table_rows import StoredOffset
from streamgroup.model import TopicPartition
from streamgroup.sql.database import READS, is_mariadb, mariadb_code, open_engine, shown, translated, url_of
from streamgroup.sql.offset_table import TABLE, OffsetTable
from streamgroup.sql.staging import StagingTable, drop_table, staging_tables

_NEEDED = ("SELECT", "INSERT", "UPDATE")
"""The privileges on the table that a query needs."""
_COMMAND_DENIED = 1142
"""MariaDB's code for a statement on a table that the user may not execute."""


@frozen
class TableRow:
    """A row of the offset table, and when it changed last."""

    partition: TopicPartition
    stored: StoredOffset
    updated_at: datetime


@frozen
class DatabaseState:
    """The state of a database, as far as a query depends on it."""

    server: str
    """Name and version, such as `PostgreSQL 16.3`."""
    has_table: bool
    lacking: tuple[str, ...]
    """The privileges that the user lacks: to use the offset table, to create it, or to write at all."""
    lacking_for_rows: tuple[str, ...] = ()
    """The privileges that the user lacks to stage rows for `streamgroup.sql_sink`, if that is known."""


class OffsetDatabase:
    """The offset table of one database, for operators. It connects for each call, for up to `timeout_ms`.

    Raises ConfigError for an invalid URL, or if the driver of the database is not installed.
    """

    def __init__(self, url: str, user: str | None, password: str | None, timeout_ms: int) -> None:
        self._url = url_of(url, user=user, password=password)
        self._engine = open_engine(self._url, timeout_ms)
        self._offsets = OffsetTable()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    @property
    def where(self) -> str:
        """The URL without user and password."""
        return shown(self._url)

    def groups(self) -> dict[str, list[TableRow]]:
        """Return the rows of all groups, sorted."""
        return self._rows("list the groups")

    def rows(self, group: str) -> dict[TopicPartition, TableRow]:
        """Return the rows of a group, sorted; empty if it has none."""
        found = self._rows("read the offsets", self._offsets.table.c.group_id == group)
        return {row.partition: row for row in found.get(group, ())}

    def reset(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets, and create rows that are missing. A batch that was planned before is refused (R37)."""
        with self._connected("set the offsets") as connection, connection.begin():
            self._offsets.insert_missing(connection, group, offsets)
        with self._connected("set the offsets") as connection, connection.begin():
            self._offsets.reset(connection, group, offsets)

    def delete(self, group: str) -> None:
        """Delete the rows of a group. Claims begin at 1 again.

        A batch that was planned before is refused, unless a query has claimed the same offsets since, with the same
        number. It continues at these offsets, so no record is lost or stored twice.
        """
        with self._connected("delete the offsets") as connection, connection.begin():
            self._offsets.delete(connection, group)

    def staging(self) -> list[StagingTable]:
        """Return the staging tables, the oldest first."""
        with self._connected("list the staging tables", needs_table=False, reads=True) as connection:
            return staging_tables(connection)

    def drop(self, table: StagingTable) -> None:
        """Drop a staging table, unless it is gone."""
        with self._connected(f"drop the table {table.name}", needs_table=False) as connection, connection.begin():
            drop_table(connection, table.name)

    def state(self) -> DatabaseState:
        """Return whether the database has the table, and what the user lacks to use it or to create it."""
        if self._is_absent_file():
            home = Path(self._url.database or "").absolute().parent
            is_open = os.access(home, os.W_OK | os.X_OK)
            return DatabaseState("SQLite, a new file", False, () if is_open else (f"create a file in {home}",))
        with self._connected("read the table", needs_table=False, reads=True) as connection:
            version = ".".join(map(str, connection.dialect.server_version_info or ()))
            has_table = sa.inspect(connection).has_table(TABLE)
            if connection.dialect.name == "sqlite":
                file = Path(self._url.database or "").absolute()
                closed = [path for path in (file, file.parent) if not os.access(path, os.W_OK)]
                return DatabaseState(f"SQLite {version}", has_table, tuple(f"write to {path}" for path in closed))
            if is_mariadb(connection):
                return DatabaseState(f"MariaDB {version}", has_table, tuple(_lacking_in_mariadb(connection, has_table)))
            lacking, for_rows = tuple(_lacking(connection, has_table)), tuple(_lacking_for_rows(connection))
            return DatabaseState(f"PostgreSQL {version}", has_table, lacking, for_rows)

    def _rows(self, what: str, *where: sa.ColumnElement[bool]) -> dict[str, list[TableRow]]:
        columns = self._offsets.table.c
        select = sa.select(self._offsets.table).where(*where)
        found: dict[str, list[TableRow]] = {}
        with self._connected(what, reads=True) as connection:
            for row in connection.execute(select.order_by(columns.group_id, columns.topic, columns.partition)):
                found.setdefault(row.group_id, []).append(_row(row))
        return found

    def _is_absent_file(self) -> bool:
        """Return whether the database is a file of SQLite that does not exist: a connection would create it."""
        name = self._url.database or ""
        is_file = self._url.get_backend_name() == "sqlite" and not name.startswith("file:")
        return is_file and not Path(name).exists()

    @contextmanager
    def _connected(self, what: str, *, needs_table: bool = True, reads: bool = False) -> Iterator[sa.Connection]:
        if self._is_absent_file():
            raise OffsetStoreError(f"cannot {what} in {self.where}: the file does not exist. Check the URL")
        next_step = "Check the URL, the user, the password and the user's privileges"
        engine = self._engine.execution_options(**{READS: reads})
        with translated(what, self._url, next_step), engine.connect() as connection:
            if needs_table and not sa.inspect(connection).has_table(TABLE):
                raise OffsetStoreError(
                    f"cannot {what} in {self.where}: the database has no table {TABLE}. The first query with "
                    "offsets.store creates it. Check the URL"
                )
            connection.rollback()  # the transaction of the inspection
            yield connection


def _row(row: sa.Row[Any]) -> TableRow:
    stored = StoredOffset(row.next_offset, row.claim, row.lineage, row.member, row.leader_epoch, row.metadata)
    at = row.updated_at
    return TableRow(
        TopicPartition(row.topic, row.partition),
        stored,
        at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC),  # SQLite stores no time zone
    )


def _lacking_in_mariadb(connection: sa.Connection, has_table: bool) -> Iterator[str]:
    """Yield what the user of a MariaDB may not do. Nothing tells whether it may create the table."""
    if connection.scalar(sa.text("SELECT @@read_only")):
        yield "write: the server is read-only, as a replica"
    if has_table:
        values = {"SELECT": f"SELECT * FROM {TABLE}", "INSERT": f"INSERT INTO {TABLE} SELECT * FROM {TABLE}"}
        for privilege, statement in {**values, "UPDATE": f"UPDATE {TABLE} SET claim = claim"}.items():
            try:
                connection.exec_driver_sql(f"EXPLAIN {statement}")  # it needs the privilege, and changes nothing
            except sa.exc.OperationalError as error:
                if mariadb_code(error) != _COMMAND_DENIED:
                    raise
                yield f"{privilege} on {TABLE}"


def _lacking(connection: sa.Connection, has_table: bool) -> Iterator[str]:
    """Yield what the user of a PostgreSQL may not do."""
    if connection.scalar(sa.text("SHOW transaction_read_only")) == "on":
        yield "write: the server accepts no writes of this user, as a standby"
    if has_table:
        for privilege in _NEEDED:
            allowed = sa.text("SELECT has_table_privilege(to_regclass(:name), :privilege)")
            if not connection.scalar(allowed, {"name": TABLE, "privilege": privilege}):
                yield f"{privilege} on {TABLE}"
    elif not connection.scalar(_MAY_CREATE):
        yield _CREATE


def _lacking_for_rows(connection: sa.Connection) -> Iterator[str]:
    """Yield what the user of a PostgreSQL lacks to stage rows: in tables of the default schema, or temporary ones."""
    if not connection.scalar(_MAY_CREATE):
        yield _CREATE
    if not connection.scalar(sa.text("SELECT has_database_privilege(current_database(), 'TEMPORARY')")):
        yield "TEMPORARY on the database"


_CREATE = "CREATE on the default schema"
_MAY_CREATE = sa.text("SELECT has_schema_privilege(current_schema(), 'CREATE')")
