"""The sink's function without Spark: which rows it adds, and which staging tables it drops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import StringType, StructType

from streamgroup.errors import ConfigError, FencedError
from streamgroup.spark import sql_sink as module
from streamgroup.spark.sql_sink import SqlBatchWriter, SqlSink, Stage, sql_sink
from streamgroup.sql import staging
from streamgroup.sql.offset_table import Transaction

QUERY = "01234567-89ab-cdef-0123-456789abcdef"
SCHEMA = StructType().add("value", StringType())


class Batch:
    """A DataFrame of rows in some tasks."""

    schema = SCHEMA

    def __init__(self, *tasks: list[str], fails: bool = False) -> None:
        self._tasks, self._fails, self._staged = tasks, fails, list[Any]()

    def mapInArrow(self, stage: Callable[..., Iterator[pa.RecordBatch]], _: str) -> Batch:  # noqa: N802
        for values in self._tasks:
            batch = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], ["value"])
            self._staged += [row for out in stage(iter([batch])) for row in out.to_pylist()]
        return self

    def collect(self) -> list[Any]:
        if self._fails:
            raise RuntimeError("a task has failed")
        return self._staged


class Database:
    """A database of SQLite with an empty table, and the transaction of the batch that the tests write."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self.engine = sa.create_engine(self.url)
        self.is_replay, self.error = False, False
        with self.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE orders (value TEXT)")

    @contextmanager
    def transaction(self, engine: sa.Engine) -> Iterator[Transaction]:
        if self.error:
            raise FencedError("another query has claimed the partition")
        with engine.begin() as connection:
            yield Transaction(connection, self.is_replay)

    def sink(self) -> SqlSink:
        return SqlSink({"url": self.url, "dbtable": "orders"})

    def values(self) -> list[str]:
        with self.engine.connect() as connection:
            return sorted(connection.exec_driver_sql("SELECT value FROM orders").scalars())

    def staged(self) -> list[str]:
        with self.engine.connect() as connection:
            return [one.name for one in staging.staging_tables(connection)]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database(tmp_path / "rows.db")
    monkeypatch.setattr(module, "transaction", made.transaction)
    monkeypatch.setattr(module, "driver_context", lambda _: None)
    monkeypatch.setattr(module, "query_id_of_thread", lambda _: QUERY)
    monkeypatch.setattr(module, "output_mode", lambda *_: "Append")
    return made


@pytest.fixture(params=[0, 1 << 20], ids=["staged", "inline"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(staging, "MOST_INLINE_BYTES", request.param)
    return int(request.param)


@pytest.mark.usefixtures("limit")
def test_a_batch_is_stored_once_and_a_replay_adds_nothing(database: Database) -> None:
    sink = database.sink()
    sink(Batch(["a", "b"], [], ["c"]), 0)
    assert database.values() == ["a", "b", "c"]
    database.is_replay = True
    sink(Batch(["a", "b"], [], ["c"]), 0)
    assert (database.values(), database.staged()) == (["a", "b", "c"], [])


@pytest.mark.usefixtures("limit")
def test_a_fenced_batch_or_a_failed_task_adds_nothing_and_leaves_no_table(database: Database) -> None:
    sink = database.sink()
    with pytest.raises(RuntimeError, match="a task has failed"):
        sink(Batch(["a"], fails=True), 0)
    assert database.staged() == []
    database.error = True
    with pytest.raises(FencedError):
        sink(Batch(["a"]), 0)
    assert (database.values(), database.staged()) == ([], [])


def test_a_run_drops_what_an_earlier_one_has_left_once_and_no_other_querys_tables(database: Database) -> None:
    mine, other = staging.prefix_of(QUERY, 1) + "0" * 12, staging.new_prefix("f" * 32) + "0" * 12

    def leave() -> None:
        with database.engine.begin() as connection:
            for name in {mine, other} - set(database.staged()):
                connection.exec_driver_sql(f"CREATE TABLE {name} (value TEXT)")

    leave()
    sink = database.sink()
    sink(Batch(["a"]), 0)
    assert database.staged() == [other]
    leave()  # a paused process of the same query, for example: its tables may be in use
    sink(Batch(["b"]), 1)
    assert sorted(database.staged()) == sorted([mine, other])


def test_a_second_attempt_of_a_task_is_not_added(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST_INLINE_BYTES", 0)
    batch = Batch(["a"])
    of_stage = batch.mapInArrow

    def twice(stage: Any, schema: str) -> Batch:
        of_stage(stage, schema)
        batch._staged.clear()  # its result is lost
        return of_stage(stage, schema)

    monkeypatch.setattr(batch, "mapInArrow", twice)
    database.sink()(batch, 0)
    assert (database.values(), database.staged()) == (["a"], [])


def test_a_task_on_a_host_without_the_file_says_so(database: Database, tmp_path: Path) -> None:
    sink = database.sink()
    target = module._target(sink._options, SCHEMA)
    (tmp_path / "rows.db").unlink()
    with pytest.raises(ConfigError, match=r"has no such file\. SQLite is for executors on the machine of the driver"):
        Stage(sink._options, target, "streamgroup_staging_").stage(iter([]))
    assert not (tmp_path / "rows.db").exists()


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_batch_write_adds_rows_or_replaces_them_all(database: Database, *, overwrite: bool) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO orders VALUES ('before')")
    writer = SqlBatchWriter(database.sink()._options, SCHEMA, overwrite=overwrite)
    rows = pa.RecordBatch.from_arrays([pa.array(["a", "b"])], ["value"])
    messages = [writer.write(iter([rows])), None]
    assert database.values() == ["before"]
    writer.commit(messages)
    assert database.values() == (["a", "b"] if overwrite else ["a", "b", "before"])
    writer.write(iter([rows]))
    writer.abort([])
    assert database.staged() == []


@pytest.mark.parametrize(
    ("mode", "needed"), [("Complete", "Use update with key_columns"), ("Update", "Use key_columns")]
)
def test_an_output_mode_that_repeats_rows_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch, mode: str, needed: str
) -> None:
    monkeypatch.setattr(module, "output_mode", lambda *_: mode)
    with pytest.raises(ConfigError, match=needed):
        database.sink()(Batch(["a"]), 0)
    assert database.values() == []


def test_outside_of_foreach_batch_nothing_is_staged(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "query_id_of_thread", lambda _: None)
    with pytest.raises(ConfigError, match="Pass the sink to foreachBatch"):
        database.sink()(Batch(["a"]), 0)


def test_two_batch_writes_have_staging_tables_of_their_own(database: Database) -> None:
    one, two = (SqlBatchWriter(database.sink()._options, SCHEMA, overwrite=False) for _ in range(2))
    assert one._prefix != two._prefix


def test_options_are_checked_when_the_sink_is_made() -> None:
    with pytest.raises(ConfigError, match=r"expected a list of names, such as \['id'\]"):
        sql_sink("sqlite:////x.db", "orders", key_columns="id")
    with pytest.raises(ConfigError, match="unsupported database 'oracle'"):
        SqlSink({"url": "oracle://db/shop", "dbtable": "orders"})
