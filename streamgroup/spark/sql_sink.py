"""Writes rows into a table of a database: `streamgroup.sql_sink` for streams, `format("streamgroup-sql")` for batches.

A stream needs a function for `foreachBatch`, because its transaction stores offsets too. PySpark does not report to a
Python sink which query it commits a batch of, and an application may have several queries. A sink that guesses could
store the rows of one query with the offsets of another. The thread of a `foreachBatch` function knows its query.
"""

from __future__ import annotations

import functools
import logging
import platform
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from streamgroup.coordinator.log_output import log_to_stderr, log_warnings_to_stderr
from streamgroup.errors import ConfigError
from streamgroup.options.database import FORMAT, DatabaseOptions, parse_database
from streamgroup.spark.channel import transaction
from streamgroup.spark.queries import driver_context, output_mode, query_id_of_thread
from streamgroup.spark.tasks import PromptInTasks, exempt_modules
from streamgroup.text import counted

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from streamgroup.sql.columns import Target
    from streamgroup.sql.staging import StagedRows

log = logging.getLogger("streamgroup")

_STAGED = "count bigint, staging string, inline binary"
_ABANDONED_S = 7 * 24 * 3600.0
"""The age of a staging table that no running batch uses."""
_NEXT_STEP = "Nothing was stored. Correct the cause and start the query again: it repeats the batch"
_AT_COMMIT = "If the connection was lost, look whether the table has the rows before you write them again"


def sql_sink(
    url: str,
    dbtable: str,
    *,
    user: str | None = None,
    password: str | None = None,
    key_columns: Sequence[str] = (),
    create_table: bool = False,
) -> SqlSink:
    """Return a function for `foreachBatch` that stores each row in a table once.

        sink = streamgroup.sql_sink("postgresql://db/shop", "orders", user="writer", password="env:SHOP_PASSWORD")
        rows.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

    Rows and offsets are stored in one transaction, so all sources of the query have the option `offsets.store` with
    the same database. Tasks load the rows in parallel. With `key_columns`, a row replaces the row with the same key.
    `create_table` creates the table if it does not exist. Driver and executors need `streamgroup[sql]`.

    Raises ConfigError for invalid arguments. The function raises ConfigError if the table does not take the rows, and
    FencedError and OffsetStoreError as `streamgroup.transaction` does; nothing is stored then.
    """
    if isinstance(key_columns, str):
        raise ConfigError(f"invalid key_columns {key_columns!r}: expected a list of names, such as ['id']")
    given = {"url": url, "dbtable": dbtable, "user": user, "password": password, "createTable": str(create_table)}
    given |= {"keyColumns": ",".join(key_columns)} if key_columns else {}
    return SqlSink({name: text for name, text in given.items() if text is not None})


class SqlSink:
    """The function that `foreachBatch` calls with each batch of a stream. It takes the options of the format."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_database(options)
        self._engine = _engine(self._options)
        self._swept: set[str] = set()
        """The queries whose staging tables of an earlier run are dropped."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Store a batch. Raises ConfigError, FencedError, OffsetStoreError."""
        from streamgroup.sql.staging import add, prefix_of  # noqa: PLC0415

        query_id = self._checked_query(driver_context("sql_sink"))
        target = _target(self._options, batch.schema)
        self._sweep(query_id)
        began, times = time.time(), [time.monotonic()]
        prefix = prefix_of(query_id, began)
        staged: list[StagedRows] | None = None
        try:
            staged = [_of_row(row) for row in batch.mapInArrow(Stage(self._options, target, prefix), _STAGED).collect()]
            times.append(time.monotonic())
            with transaction(self._engine) as open_transaction:
                times.append(time.monotonic())
                if not open_transaction.is_replay:
                    with _translated(self._options, f"add rows to table {target}"):
                        add(open_transaction.connection, target, staged)
                times.append(time.monotonic())
        finally:
            if staged is None or any(one.table for one in staged):
                # Also what earlier batches have left: a copy of a task that ended late, or the database was away.
                _drop(self._engine, prefix_of(query_id), began + 1)
        _log_times(staged, batch_id, target, [*times, time.monotonic()])

    def _checked_query(self, context: SparkContext) -> str:
        """Return the id of the query that calls. Raises ConfigError for an output mode that the table cannot take."""
        query_id = query_id_of_thread(context)
        if not query_id:
            raise ConfigError(
                "cannot store rows: this thread writes no batch of a stream. Pass the sink to foreachBatch. For a "
                f"batch write, use df.write.format('{FORMAT}')"
            )
        mode = output_mode(context, query_id)
        if mode == "Complete" or (mode == "Update" and not self._options.key_columns):
            needed = "update with key_columns" if mode == "Complete" else "key_columns"
            raise ConfigError(
                f"cannot store the batches of output mode {mode.lower()}: each repeats rows of earlier ones, which "
                f"would be in the table several times. Use {needed}"
            )
        return query_id

    def _sweep(self, query_id: str) -> None:
        """Drop the staging tables that a crash of this query has left, and all that are a week old.

        A query with a new checkpoint has another id, so its first run does not drop what it left before. Batch writes
        have no id. Younger tables of other queries may be in use.
        """
        import sqlalchemy as sa  # noqa: PLC0415

        from streamgroup.sql.staging import drop_staging, prefix_of  # noqa: PLC0415

        if query_id not in self._swept:
            with suppress(sa.exc.SQLAlchemyError):  # they may belong to another user
                drop_staging(self._engine, prefix_of(query_id))
                drop_staging(self._engine, created_before=time.time() - _ABANDONED_S)
            self._swept.add(query_id)


def _log_times(staged: Sequence[StagedRows], batch_id: int, target: Target, times: Sequence[float]) -> None:
    log.debug(
        "batch %d: %s for table %s: staged in %.1f ms, offsets compared in %.1f ms, added in %.1f ms, committed in "
        "%.1f ms",
        batch_id,
        counted(sum(one.count for one in staged), "row"),
        target,
        *((end - start) * 1000 for start, end in pairwise(times)),
    )


def _of_row(row: Any) -> StagedRows:
    from streamgroup.sql.staging import StagedRows  # noqa: PLC0415

    return StagedRows(row["count"], row["staging"], bytes(row["inline"]))


def _drop(engine: sa.Engine, prefix: str, created_before: float | None = None) -> None:
    """Drop staging tables. They can stay if the database is away: the next batch or run drops them."""
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    from streamgroup.sql.staging import drop_staging  # noqa: PLC0415

    with suppress(SQLAlchemyError):
        drop_staging(engine, prefix, created_before=created_before)


class Stage(PromptInTasks):
    """The function of the tasks that stage a batch: it takes their rows and returns one row with the result."""

    def __init__(self, options: DatabaseOptions, target: Target, prefix: str) -> None:
        self._options, self._target, self._prefix = options, target, prefix

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415

        staged = self.stage(batches)
        yield pa.RecordBatch.from_pydict(
            {"count": [staged.count], "staging": [staged.table], "inline": [staged.inline]},
            pa.schema([("count", pa.int64()), ("staging", pa.string()), ("inline", pa.binary())]),
        )

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of this task. Raises ConfigError, OffsetStoreError."""
        from streamgroup.sql.staging import stage  # noqa: PLC0415

        log_warnings_to_stderr()
        context = TaskContext.get()
        with _translated(self._options, f"stage rows for table {self._target}"):
            task = 0 if context is None else context.partitionId()
            staged = stage(_engine_here(self._options), self._target, batches, self._prefix, task)
        exempt_modules()
        return staged


def _engine_here(options: DatabaseOptions) -> sa.Engine:
    """Return the engine in a task. Raises ConfigError if the file of SQLite is not on this machine."""
    engine = _engine(options)
    path = engine.url.database or ""
    is_file = engine.url.get_backend_name() == "sqlite" and not path.startswith("file:")
    if is_file and not Path(path).exists():
        raise ConfigError(
            f"cannot stage rows in sqlite:///{path}: host {platform.node()} has no such file. SQLite is for "
            "executors on the machine of the driver. Use PostgreSQL"
        )
    return engine


@functools.lru_cache(maxsize=16)
def _engine(options: DatabaseOptions) -> sa.Engine:
    """Return the engine of this process. Python workers serve many tasks, and keep its connections."""
    try:
        from streamgroup.sql.database import open_engine, take_password, url_of  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot write into a database: the Python package {error.name} is not installed. Install streamgroup[sql] "
            "for the Python of driver and executors"
        ) from None
    password = None if options.password is None else options.password.reveal("password")
    engine = open_engine(url_of(options.url, user=options.user, password=password), limits_statements=False)
    if options.password is not None:
        take_password(engine, functools.partial(options.password.reveal, "password"))
    return engine


def _translated(options: DatabaseOptions, what: str) -> Any:
    from streamgroup.sql.database import translated  # noqa: PLC0415

    return translated(what, _engine(options).url, _NEXT_STEP)


def _target(options: DatabaseOptions, schema: StructType) -> Target:
    """Return the table for rows of this schema, after creating it if that is asked for. Raises ConfigError."""
    from streamgroup.sql.columns import Column, find_target  # noqa: PLC0415
    from streamgroup.sql.database import wait_to_connect  # noqa: PLC0415

    columns = [Column(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
    with (
        _translated(options, f"find table {options.table}"),
        wait_to_connect(_engine(options)) as connection,
        connection.begin(),
    ):
        return find_target(connection, options.table, columns, options.key_columns, create=options.create_table)


# --- batch writes -----------------------------------------------------------------------------------------------------


class SqlDataSource(DataSource):
    """The data source `streamgroup-sql`: `df.write` into a table, in one transaction."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of `df.write`. Raises ConfigError for invalid options, or if the table lacks columns."""
        return SqlBatchWriter(parse_database(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Raise ConfigError: only a `foreachBatch` function can store the offsets with the rows."""
        raise ConfigError(
            f"cannot write a stream by format('{FORMAT}'): Spark does not report to a Python sink which query it "
            "serves, so it cannot store offsets with the rows. Use "
            "writeStream.foreachBatch(streamgroup.sql_sink(url, dbtable))"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        raise ConfigError(f"cannot read by format('{FORMAT}'): it writes only. Use format('jdbc')")

    def schema(self) -> StructType:
        raise ConfigError(f"cannot read by format('{FORMAT}'): it writes only. Use format('jdbc')")


@dataclass(frozen=True)
class RowsStaged(WriterCommitMessage):
    """The commit message of one task: the rows that it has staged."""

    staged: StagedRows


class SqlBatchWriter(PromptInTasks, DataSourceArrowWriter):
    """The writer of `df.write`. Spark pickles it into the tasks, and into the process that commits."""

    def __init__(self, options: DatabaseOptions, schema: StructType, *, overwrite: bool) -> None:
        from streamgroup.sql.staging import new_prefix  # noqa: PLC0415

        self._options, self._overwrite = options, overwrite
        self._target, self._prefix = _target(options, schema), new_prefix(secrets.token_hex(6))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task. Raises OffsetStoreError."""
        return RowsStaged(Stage(self._options, self._target, self._prefix).stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add all rows in one transaction. Raises OffsetStoreError."""
        import sqlalchemy as sa  # noqa: PLC0415

        from streamgroup.sql.database import translated  # noqa: PLC0415
        from streamgroup.sql.staging import add  # noqa: PLC0415

        log_to_stderr()
        staged = [message.staged for message in messages if isinstance(message, RowsStaged)]
        engine = _engine(self._options)
        what = f"add rows to table {self._target}"
        try:
            with _translated(self._options, what), engine.connect() as connection:
                open_transaction = connection.begin()
                if self._overwrite:
                    connection.execute(sa.delete(self._target.table))
                count = add(connection, self._target, staged)
                with translated(what, engine.url, _AT_COMMIT):
                    open_transaction.commit()
        finally:
            _drop(engine, self._prefix)
        log.info("wrote %s to table %s", counted(count, "row"), self._target)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks have staged. Nothing is in the table.

        Spark does not wait for tasks that still run: what they stage afterwards stays until an operator drops it.
        """
        _drop(_engine(self._options), self._prefix)
