"""Rows on their way into a table: tasks stage them in parallel, and the transaction of their batch adds them at once.

A task with few rows returns them to the driver. A task with more rows loads them into a separate staging table. If an
attempt fails or is repeated, no transaction reads its table. Nothing is visible in the target before the
transaction of the driver ends. PostgreSQL loads by COPY, and its staging tables are unlogged: a crash of the server
empties them, so the transaction counts the rows that it adds.

In PostgreSQL a staging table has the types of the rows, and the transaction converts them to those of the target, as an
INSERT does. In other databases it has the types of the target.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from streamgroup.errors import OffsetStoreError
from streamgroup.frozen import frozen
from streamgroup.sql import copy_binary
from streamgroup.sql.columns import IN_UTC, Target
from streamgroup.sql.database import is_mariadb, reason_of, wait_to_connect

log = logging.getLogger("streamgroup")

MOST_INLINE_BYTES = 1 << 20
"""The most bytes of Arrow columns that a task returns to the driver."""
_FULL_TASKS = 64
"""So many tasks may return as much. Later ones return less, so that the driver can hold what a thousand return."""
_ORDER = "streamgroup_order"
"""The column of a staging table by which the last of several rows with one key is found."""
_ROWS_OF_TASK = 40
"""Bits for the number of a row in its task; the bits above are the task's number."""
_LOCK_TIMEOUT_MS = 2_000
"""How long a staging table is waited for that another session uses."""
_STAGING = re.compile(r"streamgroup_staging_([0-9a-f]{12})_([0-9]{10})_[0-9a-f]{12}")
"""The beginning of the query's id, the seconds since 1970, and an id of the attempt."""


@frozen
class StagedRows:
    """The rows of one task: `count` rows in the staging table `table`, or in `inline`, an Arrow stream."""

    count: int
    table: str = ""
    inline: bytes = b""


@frozen
class StagingTable:
    """A table into which a task loaded its rows. `query` is the beginning of the query's id, without hyphens."""

    name: str
    query: str
    created: datetime


def prefix_of(query_id: str, created: float | None = None) -> str:
    """Return the beginning of the names of a batch's staging tables, or without `created` of all tables of a query."""
    query = f"streamgroup_staging_{query_id.replace('-', '')[:12]}_"
    return query if created is None else f"{query}{int(created):010d}_"


def new_prefix(query_id: str) -> str:
    """Return the beginning of the names for a batch that begins now."""
    return prefix_of(query_id, time.time())


def stage(
    engine: sa.Engine, target: Target, batches: Iterator[pa.RecordBatch], prefix: str, task: int = 0
) -> StagedRows:
    """Stage the rows of one attempt of the task with the number `task`. Raises SQLAlchemy's errors."""
    count, size, held = 0, 0, list[pa.RecordBatch]()

    def ordered() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            first, count = count, count + batch.num_rows
            yield _ordered(batch, target, (task << _ROWS_OF_TASK) + first)

    rows, most = ordered(), MOST_INLINE_BYTES * _FULL_TASKS // max(_FULL_TASKS, task + 1)
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size > most:
            break
    else:
        return StagedRows(count, inline=_stream(held))
    name = prefix + secrets.token_hex(6)
    with wait_to_connect(engine) as connection, connection.begin():
        _create(connection, target, name, held[0].schema)
        if engine.dialect.name == "postgresql":  # one COPY: the server stores a batch while Spark makes the next
            _copy(connection, name, chain(held, rows))
            return StagedRows(count, table=name)
    for group in chain([held], ([batch] for batch in rows)):
        with wait_to_connect(engine) as connection, connection.begin():  # short: SQLite has one writer at a time
            _insert(connection, target, name, group)
    return StagedRows(count, table=name)


def add(connection: sa.Connection, target: Target, staged: Sequence[StagedRows]) -> int:
    """Add the rows of a batch to the table, in the transaction of `connection`. Return how many rows were staged.

    Raises OffsetStoreError if a staging table does not have the rows that its task has loaded.
    """
    tables = [rows for rows in staged if rows.table]
    with _temporary(connection, target, [rows for rows in staged if rows.inline]) as temporary:
        tables += temporary
        for rows in tables:
            _check(connection, target, rows)
        if target.keys and tables:
            _merge(connection, target, tables)
        elif not target.keys:
            for rows in tables:
                select = sa.select(*_converted(target, _staging(target, rows.table)).values())
                connection.execute(sa.insert(target.table).from_select(list(target.columns), select))
    return sum(rows.count for rows in staged)


@contextmanager
def _temporary(connection: sa.Connection, target: Target, inline: Sequence[StagedRows]) -> Iterator[list[StagedRows]]:
    """Yield a temporary table with the rows that tasks have returned; none if there are none."""
    batches = [batch for rows in inline for batch in pa.ipc.open_stream(rows.inline)]
    if not batches:
        yield []
        return
    name = f"streamgroup_rows_{secrets.token_hex(6)}"
    _create(connection, target, name, batches[0].schema, is_temporary=True)
    _load(connection, target, name, batches)
    yield [StagedRows(sum(rows.count for rows in inline), table=name)]
    # The word keeps MariaDB from ending the transaction.
    word = "TEMPORARY " if is_mariadb(connection) else ""
    connection.exec_driver_sql(f"DROP {word}TABLE {name}")


def staging_tables(connection: sa.Connection) -> list[StagingTable]:
    """Return the staging tables of the default schema, the oldest first: of running batches, and left by crashes."""
    found = (_STAGING.fullmatch(name) for name in sa.inspect(connection).get_table_names())
    tables = [StagingTable(each[0], each[1], datetime.fromtimestamp(int(each[2]), UTC)) for each in found if each]
    return sorted(tables, key=lambda table: (table.created, table.name))


def drop_staging(engine: sa.Engine, prefix: str = "", *, created_before: float | None = None) -> int:
    """Drop the staging tables whose names begin with `prefix`; return how many these were.

    With `created_before`, in seconds since 1970, younger ones stay.
    """
    with engine.connect() as connection:
        names = [
            table.name
            for table in staging_tables(connection)
            if table.name.startswith(prefix) and (created_before is None or table.created.timestamp() < created_before)
        ]
    dropped = 0
    for name in names:
        try:
            with engine.begin() as connection:
                if connection.dialect.name == "postgresql":  # a backup may have locked the table for hours
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
                drop_table(connection, name)
            dropped += 1
        except sa.exc.DBAPIError as error:  # it is in use, or belongs to another user
            if error.connection_invalidated:
                raise
            log.warning("cannot drop the staging table %s: %s. It stays", name, reason_of(error))
    return dropped


def drop_table(connection: sa.Connection, name: str) -> None:
    """Drop a table of the default schema, unless it is gone."""
    connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData()), if_exists=True))


def _check(connection: sa.Connection, target: Target, rows: StagedRows) -> None:
    """Raise OffsetStoreError if a staging table lacks rows that its task has loaded, or keys of rows."""
    table = _staging(target, rows.table)
    counts = [sa.func.count(), *(sa.func.count(table.c[key]) for key in target.keys)]
    found, *with_key = connection.execute(sa.select(*counts).select_from(table)).one()
    if found != rows.count:
        raise OffsetStoreError(
            f"cannot add the rows of staging table {rows.table}: it has {found} rows, and the task has loaded "
            f"{rows.count}. PostgreSQL empties such tables when it restarts after a crash. Nothing was stored. Start "
            "the query again: it repeats the batch"
        )
    for key, count in zip(target.keys, with_key, strict=True):
        if count != found:
            raise OffsetStoreError(
                f"cannot add rows to table {target}: {found - count} of them have null in the key column {key!r}, so "
                "they replace no row, and repeated ones would not be found. Nothing was stored. Filter them out"
            )


def _merge(connection: sa.Connection, target: Target, tables: Sequence[StagedRows]) -> None:
    """Add the last row of each key, in place of the row with that key in the table."""
    staged = sa.union_all(*(sa.select(_staging(target, rows.table)) for rows in tables)).subquery()
    converted = _converted(target, staged)
    last = sa.func.row_number().over(
        partition_by=[converted[key] for key in target.keys], order_by=staged.c[_ORDER].desc()
    )
    labeled = [value.label(name) for name, value in converted.items()]
    ranked = sa.select(*labeled, last.label("streamgroup_rank")).subquery()
    newest = sa.select(*(ranked.c[name] for name in target.columns)).where(ranked.c.streamgroup_rank == 1)
    connection.execute(_upsert(connection, target, newest))


def _converted(target: Target, source: sa.FromClause) -> dict[str, sa.ColumnElement[Any]]:
    """Return the columns of staged rows by name, converted where the database would not do so by itself."""
    conversions = target.conversions or [None] * len(target.columns)
    return {
        name: source.c[name]
        if conversion is None
        else sa.func.timezone("UTC", source.c[name])
        if conversion == IN_UTC
        else sa.cast(source.c[name], _Named(conversion))
        for name, conversion in zip(target.columns, conversions, strict=True)
    }


class _Named(sa.types.UserDefinedType[Any]):
    """A type of the database by its name."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


def _upsert(connection: sa.Connection, target: Target, rows: sa.Select[Any]) -> sa.Executable:
    others = [name for name in target.columns if name not in target.keys]
    if is_mariadb(connection):
        from sqlalchemy.dialects import mysql  # noqa: PLC0415  (most databases are others)

        merged = mysql.insert(target.table).from_select(list(target.columns), rows)
        return merged.on_duplicate_key_update({name: merged.inserted[name] for name in others or target.keys})
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415  (SQLite has the same statement)

    insert = postgresql.insert(target.table).from_select(list(target.columns), rows)
    if not others:
        return insert.on_conflict_do_nothing(index_elements=list(target.keys))
    return insert.on_conflict_do_update(
        index_elements=list(target.keys), set_={name: insert.excluded[name] for name in others}
    )


def _staging(target: Target, name: str) -> sa.TableClause:
    order = [_ORDER] if target.keys else []
    return sa.table(name, *(sa.column(column) for column in (*target.columns, *order)))


def _create(
    connection: sa.Connection, target: Target, name: str, schema: pa.Schema, *, is_temporary: bool = False
) -> None:
    """Create a table for rows of `schema`, without the constraints of the target."""
    dialect = connection.dialect
    if dialect.name == "postgresql":
        quote = dialect.identifier_preparer.quote
        columns = ", ".join(f"{quote(field.name)} {copy_binary.type_of(field.type)}" for field in schema)
        kind = "TEMPORARY" if is_temporary else "UNLOGGED"
        connection.exec_driver_sql(f"CREATE {kind} TABLE {name} ({columns}) WITH (autovacuum_enabled = off)")
        return
    like: list[sa.ColumnElement[Any]] = [sa.column(column) for column in target.columns]
    if target.keys:
        like.append(sa.cast(sa.literal(1 << 62), sa.BigInteger).label(_ORDER))  # MariaDB takes a type that fits
    none = sa.select(*like).select_from(target.table).where(sa.false())
    text = none.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    connection.exec_driver_sql(f"CREATE {'TEMPORARY ' if is_temporary else ''}TABLE {name} AS {text}")


# --- loading ----------------------------------------------------------------------------------------------------------


def _ordered(batch: pa.RecordBatch, target: Target, first: int) -> pa.RecordBatch:
    """Return the rows with the table's names of their columns, and with their order if the last one of a key counts."""
    arrays, names = list(batch.columns), list(target.columns)
    if target.keys:
        arrays.append(pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64)))
        names.append(_ORDER)
    return pa.RecordBatch.from_arrays(arrays, names)


def _stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _load(connection: sa.Connection, target: Target, name: str, batches: Sequence[pa.RecordBatch]) -> None:
    """Load rows into a staging table."""
    if connection.dialect.name == "postgresql":
        _copy(connection, name, batches)
    else:
        _insert(connection, target, name, batches)


def _insert(connection: sa.Connection, target: Target, name: str, batches: Sequence[pa.RecordBatch]) -> None:
    table = _staging(target, name)
    names = [column.name for column in table.columns]
    for batch in batches:
        columns = [_values(name, batch[name], connection.dialect.name) for name in names]
        if batch.num_rows:
            rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
            connection.execute(sa.insert(table), rows)


def _copy(connection: sa.Connection, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Load rows by PostgreSQL's COPY, in the order of the table's columns."""
    driver = connection.connection.driver_connection
    assert driver is not None
    errors = connection.dialect.loaded_dbapi.Error
    statement = f"COPY {name} FROM STDIN (FORMAT binary)"
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(copy_binary.HEADER)
            for batch in batches:
                if batch.num_rows:
                    copy.write(copy_binary.rows(batch))
            copy.write(copy_binary.TRAILER)
    except errors as error:
        raise sa.exc.DBAPIError.instance(statement, None, error, errors, dialect=connection.dialect) from error


def _values(name: str, column: pa.Array, dialect: str) -> list[object]:
    """Return the values for drivers of Python's DB-API: times in UTC without a zone, for SQLite also as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = (column.cast(pa.timestamp("us", "UTC")) if kind.tz else column).cast(pa.timestamp("us"))
    if dialect == "sqlite" and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        column = column.cast(pa.string())
    try:
        values: list[object] = column.to_pylist()
    except UnicodeDecodeError:
        raise OffsetStoreError(
            f"cannot store text of column {name!r}: it is not UTF-8. Nothing was stored. Write it as binary, or "
            "replace invalid bytes by make_valid_utf8"
        ) from None
    if dialect == "sqlite" and pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in values]  # Arrow would write 0E-10
    return values
