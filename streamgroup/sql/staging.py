"""Rows on their way into a table: tasks stage them in parallel, and the transaction of their batch adds them at once.

A task with few rows returns them to the driver. With more it loads them into a staging table of its own, so that a
failed or repeated attempt leaves a table that no transaction reads. Nothing is visible in the target before the
transaction of the driver ends. PostgreSQL loads by COPY, and its staging tables are unlogged: a crash of the server
empties them, so the transaction counts the rows that it adds.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import sqlalchemy as sa

from streamgroup.errors import OffsetStoreError
from streamgroup.sql.columns import Target

MOST_INLINE_BYTES = 1 << 20
"""The most bytes of Arrow columns that a task returns to the driver."""
_ORDER = "streamgroup_order"
"""The column of a staging table by which the last of several rows with one key is found."""
_ROWS_OF_TASK = 40
"""Bits for the number of a row in its task; the bits above are the task's number."""
_STAGING = re.compile(r"streamgroup_staging_([0-9a-f]{12})_([0-9]{10})_[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of one task: `count` rows in the staging table `table`, or in `inline`, an Arrow stream."""

    count: int
    table: str = ""
    inline: bytes = b""


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table that exists. `query` is the beginning of its query's id, without hyphens."""

    name: str
    query: str
    created: int
    """Seconds since 1970."""


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
    name, count, size, held = "", 0, 0, list[pa.RecordBatch]()
    for batch in batches:
        held.append(_ordered(batch, target, (task << _ROWS_OF_TASK) + count))
        count, size = count + batch.num_rows, size + batch.nbytes
        if size <= MOST_INLINE_BYTES:
            continue
        if not name:
            name = prefix + secrets.token_hex(6)
            with engine.begin() as connection:
                _create_like(connection, target, name)
        with engine.begin() as connection:  # short transactions: SQLite has one writer at a time
            for one in held:
                _load(connection, _staging(target, name), one)
        held.clear()
    return StagedRows(count, table=name) if name else StagedRows(count, inline=_stream(held))


def add(connection: sa.Connection, target: Target, staged: Sequence[StagedRows]) -> int:
    """Add the rows of a batch to the table, in the transaction of `connection`. Return how many rows were staged.

    Raises OffsetStoreError if a staging table does not have the rows that its task has loaded.
    """
    inline = [batch for rows in staged if rows.inline for batch in pa.ipc.open_stream(rows.inline)]
    tables = [rows for rows in staged if rows.table]
    if target.keys:
        _merge(connection, target, tables, inline)
    else:
        for rows in tables:
            source = _staging(target, rows.table)
            insert = sa.insert(target.table).from_select(list(target.columns), sa.select(source))
            added = connection.execute(insert, execution_options={"preserve_rowcount": True})
            _require(rows, added.rowcount)
        for batch in inline:
            _load(connection, target.table, batch)
    return sum(rows.count for rows in staged)


def staging_tables(connection: sa.Connection) -> list[StagingTable]:
    """Return all staging tables, the oldest first: those of running batches, and those that a crash has left."""
    found = (_STAGING.fullmatch(name) for name in sa.inspect(connection).get_table_names())
    return sorted(
        (StagingTable(match[0], match[1], int(match[2])) for match in found if match), key=lambda one: one.created
    )


def drop_staging(engine: sa.Engine, prefix: str) -> int:
    """Drop the staging tables whose names begin with `prefix`; return how many these were."""
    with engine.connect() as connection:
        names = [table.name for table in staging_tables(connection) if table.name.startswith(prefix)]
    for name in names:
        with engine.begin() as connection:
            connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData()), if_exists=True))
    return len(names)


def _require(rows: StagedRows, found: int) -> None:
    if found != rows.count:
        raise OffsetStoreError(
            f"cannot add the rows of staging table {rows.table}: it has {found} rows, and the task has loaded "
            f"{rows.count}. PostgreSQL empties such tables when it restarts after a crash. Nothing was stored. Start "
            "the query again: it repeats the batch"
        )


def _merge(
    connection: sa.Connection, target: Target, tables: Sequence[StagedRows], inline: Sequence[pa.RecordBatch]
) -> None:
    """Add the last row of each key, in place of the row with that key in the table."""
    for rows in tables:
        count = sa.select(sa.func.count()).select_from(_staging(target, rows.table))
        _require(rows, connection.execute(count).scalar_one())
    names = [rows.table for rows in tables]
    temporary = f"streamgroup_rows_{secrets.token_hex(6)}" if inline else ""
    if temporary:
        _create_like(connection, target, temporary, is_temporary=True)
        for batch in inline:
            _load(connection, _staging(target, temporary), batch)
        names.append(temporary)
    if not names:
        return
    staged = sa.union_all(*(sa.select(_staging(target, name)) for name in names)).subquery()
    last = sa.func.row_number().over(
        partition_by=[staged.c[key] for key in target.keys], order_by=staged.c[_ORDER].desc()
    )
    ranked = sa.select(*(staged.c[name] for name in target.columns), last.label("streamgroup_rank")).subquery()
    rows_ = sa.select(*(ranked.c[name] for name in target.columns)).where(ranked.c.streamgroup_rank == 1)
    connection.execute(_upsert(connection.dialect.name, target, rows_))
    if temporary:  # the word keeps MariaDB from ending the transaction
        word = "TEMPORARY " if connection.dialect.name in ("mysql", "mariadb") else ""
        connection.exec_driver_sql(f"DROP {word}TABLE {temporary}")


def _upsert(dialect: str, target: Target, rows: sa.Select[Any]) -> sa.Executable:
    others = [name for name in target.columns if name not in target.keys]
    if dialect in ("mysql", "mariadb"):
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


def _create_like(connection: sa.Connection, target: Target, name: str, *, is_temporary: bool = False) -> None:
    """Create a table with the types of the target, without its constraints."""
    dialect = connection.dialect
    columns: list[sa.ColumnElement[Any]] = [sa.column(column) for column in target.columns]
    if target.keys:
        columns.append(sa.cast(sa.literal(0), sa.BigInteger).label(_ORDER))
    like = sa.select(*columns).select_from(target.table).where(sa.false())
    text = like.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    kind = "UNLOGGED " if dialect.name == "postgresql" else ""
    if is_temporary:
        kind = "TEMPORARY "
    connection.exec_driver_sql(f"CREATE {kind}TABLE {name} AS {text}")


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


def _load(connection: sa.Connection, table: sa.TableClause, batch: pa.RecordBatch) -> None:
    """Insert rows into the columns of a table that have their names."""
    names = [column.name for column in table.columns]
    batch = batch.select(names)
    if not batch.num_rows:
        return
    if connection.dialect.driver == "psycopg":
        _copy(connection, table, batch)
        return
    columns = [_values(column, connection.dialect.name) for column in batch.columns]
    statement = sa.insert(table).values({name: sa.bindparam(name) for name in names})
    text = str(statement.compile(dialect=connection.dialect, column_keys=names))
    connection.exec_driver_sql(text, list(zip(*columns, strict=True)))


def _copy(connection: sa.Connection, table: sa.TableClause, batch: pa.RecordBatch) -> None:
    """Load rows by PostgreSQL's COPY, as CSV: the driver would take as long again to convert rows of Python."""
    quote = connection.dialect.identifier_preparer
    columns = ", ".join(quote.quote(column.name) for column in table.columns)
    arrays = [_as_text(column) for column in batch.columns]
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(
        pa.RecordBatch.from_arrays(arrays, batch.schema.names),
        sink,
        pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid"),
    )
    statement = f"COPY {quote.format_table(table)} ({columns}) FROM STDIN (FORMAT csv)".replace("%%", "%")
    driver = connection.connection.driver_connection
    assert driver is not None
    errors = connection.dialect.loaded_dbapi.Error
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(memoryview(sink.getvalue()))
    except errors as error:
        raise sa.exc.DBAPIError.instance(statement, None, error, errors, dialect=connection.dialect) from error


_HEXADECIMAL, _NOTHING = pa.scalar(r"\x", pa.large_string()), pa.scalar("", pa.large_string())


def _as_text(column: pa.Array) -> pa.Array:
    """Return a column that CSV can carry: bytes as PostgreSQL's hexadecimal text, times in UTC."""
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return column.cast(pa.timestamp("us", "UTC"))
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return column
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, width, len(column) + 1, column.offset * width().itemsize).astype(np.int64)
    digits = (b"" if data is None else bytes(memoryview(data)[ends[0] : ends[-1]])).hex().encode()
    valid = pc.is_valid(column)
    text = pa.LargeStringArray.from_buffers(
        len(column), pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(digits), None, 0
    )
    return pc.if_else(valid, pc.binary_join_element_wise(_HEXADECIMAL, text, _NOTHING), None)


def _values(column: pa.Array, dialect: str) -> list[object]:
    """Return the values for drivers of Python's DB-API: times in UTC without a zone, for SQLite also as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = (column.cast(pa.timestamp("us", "UTC")) if kind.tz else column).cast(pa.timestamp("us"))
    if dialect == "sqlite" and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        column = column.cast(pa.string())
    values: list[object] = column.to_pylist()
    if dialect == "sqlite" and pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in values]  # Arrow would write 0E-10
    return values
