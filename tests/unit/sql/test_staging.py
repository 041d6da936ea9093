"""Rows are staged by tasks and added by one transaction. `tests/live/test_sql_rows.py` repeats all on servers."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from streamgroup.errors import OffsetStoreError
from streamgroup.sql import staging
from streamgroup.sql.columns import Column, Target, find_target
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.staging import StagedRows, add, drop_staging, prefix_of, stage, staging_tables

QUERY = "0123abcd-4567-89ab-cdef-0123456789ab"
PREFIX = prefix_of(QUERY, 1_800_000_000.5)
COLUMNS = [Column("id", "bigint"), Column("text", "string")]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = open_engine(url_of(f"sqlite:///{tmp_path}/rows.db"))
    yield made
    made.dispose()


@pytest.fixture(params=[0, 1 << 20], ids=["in a table", "inline"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(staging, "MOST_INLINE_BYTES", request.param)
    return int(request.param)


def create(engine: sa.Engine, *columns: Column, keys: tuple[str, ...] = ()) -> Target:
    with engine.begin() as connection:
        return find_target(connection, "orders", columns or COLUMNS, keys, create=True)


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([one for one, _ in rows], pa.int64()), pa.array([text for _, text in rows], pa.string())], ["a", "b"]
    )


def read(engine: sa.Engine) -> list[Any]:
    with engine.connect() as connection:
        return sorted(tuple(row) for row in connection.execute(sa.text("SELECT id, text FROM orders")))


def values_of_all_types() -> dict[str, pa.Array]:
    """Return columns of all types by Spark's name, with the ends of what each can hold, and odd text."""
    micro = dt.timedelta(microseconds=1)
    times = [dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30, 23, 59, 59, 999999), dt.datetime(1970, 1, 1) - micro, None]
    return {
        "boolean": pa.array([True, False, True, None]),
        "tinyint": pa.array([-128, 127, 0, None], pa.int8()),
        "smallint": pa.array([-(2**15), 2**15 - 1, 0, None], pa.int16()),
        "int": pa.array([-(2**31), 2**31 - 1, 0, None], pa.int32()),
        "bigint": pa.array([-(2**63), 2**63 - 1, 0, None], pa.int64()),
        "float": pa.array([1.5, -3.4028234663852886e38, 1e-45, None], pa.float32()),
        "double": pa.array([0.1, -1.7976931348623157e308, 5e-324, None]),
        "decimal(38,10)": pa.array(
            [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.1"), 0, None], pa.decimal128(38, 10)
        ),
        "string": pa.array(["", 'quote " comma , line\n\r\t backslash \\ \\N \\.', "ÿ 漢 😀", None]),
        "binary": pa.array([b"", b"\x00\xff\\x", bytes(range(256)), None]),
        "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 2, 28), None]),
        "timestamp": pa.array([one and one.replace(tzinfo=dt.UTC) for one in times], pa.timestamp("us", "Asia/Tokyo")),
        "timestamp_ntz": pa.array(times, pa.timestamp("us")),
    }


@pytest.mark.usefixtures("limit")
def test_values_of_every_type_are_read_back_as_they_were(engine: sa.Engine) -> None:
    arrays = values_of_all_types()
    names = [f"c{n}" for n in range(len(arrays))]
    target = create(engine, *(Column(name, type_) for name, type_ in zip(names, arrays, strict=True)))
    whole = pa.RecordBatch.from_arrays(list(arrays.values()), names)
    batches = [whole.slice(0, 1), whole.slice(1, 3), whole.slice(0, 0)]  # a slice begins within its buffers
    staged = stage(engine, target, iter(batches), PREFIX)
    with engine.begin() as connection:
        assert add(connection, target, [staged]) == 4
        table = sa.Table("orders", sa.MetaData(), autoload_with=connection)
        for column in table.columns:
            if isinstance(column.type, sa.Float):
                column.type.asdecimal = False  # of MariaDB
        found = [list(column) for column in zip(*connection.execute(sa.select(table)), strict=True)]
    for (type_, array), values in zip(arrays.items(), found, strict=True):
        assert sorted(map(repr, normal(type_, values))) == sorted(map(repr, normal(type_, array.to_pylist()))), type_


def normal(type_: str, values: list[Any]) -> list[Any]:
    """Return values as every database and Arrow give them: times in UTC, 4-byte numbers, decimal numbers as such."""
    if type_ == "boolean":
        return [None if one is None else bool(one) for one in values]
    if type_ == "float":
        return [one and np.float32(one) for one in values]
    if type_ == "decimal(38,10)":
        return [None if one is None else Decimal(one).normalize() for one in values]
    if type_ == "timestamp":
        return [one and (one.astimezone(dt.UTC) if one.tzinfo else one).replace(tzinfo=None) for one in values]
    return values


def test_few_rows_go_to_the_driver_and_many_into_one_table(engine: sa.Engine, limit: int) -> None:
    target = create(engine)
    staged = stage(engine, target, iter([batch((1, "a")), batch((2, "b"), (3, None))]), PREFIX)
    assert (staged.count, bool(staged.table), bool(staged.inline)) == (3, not limit, bool(limit))
    assert read(engine) == []
    with engine.connect() as connection:
        assert [one.name for one in staging_tables(connection)] == ([staged.table] if staged.table else [])
        assert not staged.table or staged.table.startswith(PREFIX)
    with engine.begin() as connection:
        add(connection, target, [staged, StagedRows(0)])
    assert read(engine) == [(1, "a"), (2, "b"), (3, None)]


def test_a_thousand_tasks_return_no_more_than_a_driver_holds(engine: sa.Engine) -> None:
    target, rows = create(engine), batch((1, "x" * 100_000))
    staged = [stage(engine, target, iter([rows]), PREFIX, task) for task in (0, 63, 500, 999)]
    assert [bool(one.table) for one in staged] == [False, False, False, True]


@pytest.mark.usefixtures("limit")
def test_with_keys_the_last_row_of_each_key_counts_over_all_tasks(engine: sa.Engine) -> None:
    target = create(engine, keys=("id",))
    generator, expected = random.Random(1), {}
    for _ in range(3):
        staged = []
        for task in range(3):
            rows = [(generator.randrange(20), f"{task}-{n}" if n % 3 else None) for n in range(30)]
            expected.update(rows)
            staged.append(stage(engine, target, iter([batch(*rows[:17]), batch(*rows[17:])]), PREFIX, task))
        with engine.begin() as connection:
            assert add(connection, target, staged) == 90
        assert read(engine) == sorted(expected.items())


def test_rows_that_stay_and_rows_that_travel_are_merged_in_order(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = create(engine, keys=("id",))
    staged = []
    for task, limit in enumerate((0, 1 << 20, 0, 1 << 20)):
        monkeypatch.setattr(staging, "MOST_INLINE_BYTES", limit)
        staged.append(stage(engine, target, iter([batch((1, f"task {task}"), (task + 2, "own"))]), PREFIX, task))
    assert [bool(one.table) for one in staged] == [True, False, True, False]
    with engine.begin() as connection:
        add(connection, target, staged)
    assert read(engine) == [(1, "task 3"), *((n, "own") for n in range(2, 6))]


def test_a_table_of_keys_only_takes_each_key_once(engine: sa.Engine) -> None:
    target = create(engine, Column("id", "bigint"), Column("text", "string"), keys=("id", "text"))
    for _ in range(2):
        staged = stage(engine, target, iter([batch((1, "a"), (1, "a"), (2, "b"))]), PREFIX)
        with engine.begin() as connection:
            add(connection, target, [staged])
    assert read(engine) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_staging_table_that_lost_rows_stores_nothing(
    engine: sa.Engine, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MOST_INLINE_BYTES", 0)
    target = create(engine, keys=keys)
    staged = stage(engine, target, iter([batch((1, "a"), (2, "b"))]), PREFIX)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DELETE FROM {staged.table} WHERE id = 2")
    with (
        pytest.raises(OffsetStoreError, match="it has 1 rows, and the task has loaded 2"),
        engine.begin() as connection,
    ):
        add(connection, target, [staged])
    assert read(engine) == []


@pytest.mark.usefixtures("limit")
def test_rows_without_a_key_store_nothing(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id BIGINT UNIQUE, text VARCHAR(20))")
        target = find_target(connection, "orders", COLUMNS, ["id"], create=False)
    rows = pa.RecordBatch.from_arrays([pa.array([1, None, None]), pa.array(["a", "b", "c"])], ["id", "text"])
    staged = stage(engine, target, iter([rows]), PREFIX)
    with pytest.raises(OffsetStoreError, match="2 of them have null in the key column 'id'"), engine.begin() as open_:
        add(open_, target, [staged])
    assert read(engine) == []


def test_staging_tables_are_listed_and_dropped_by_query_and_batch(engine: sa.Engine) -> None:
    target = create(engine)
    for name in (PREFIX + "0" * 12, prefix_of(QUERY, 1_700_000_000) + "1" * 12, prefix_of("f" * 32, 5) + "2" * 12):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE {name} (id INTEGER)")
    with engine.connect() as connection:
        found = [(one.query, one.created.timestamp()) for one in staging_tables(connection)]
    assert found == [("f" * 12, 5), ("0123abcd4567", 1_700_000_000), ("0123abcd4567", 1_800_000_000)]
    assert drop_staging(engine, PREFIX) == 1
    assert drop_staging(engine, prefix_of(QUERY)) == 1
    with engine.connect() as connection:
        assert [one.query for one in staging_tables(connection)] == ["f" * 12]
        assert sa.inspect(connection).has_table(target.name)


def test_names_of_columns_are_quoted(engine: sa.Engine, limit: int) -> None:
    names = ["select", 'a "quoted" one', "50% off", "Mixed"]
    if engine.dialect.name == "mariadb":
        names[2] = "50 off"  # SQLAlchemy writes its VALUES() with one % too many
    target = create(engine, *(Column(name, "string") for name in names), keys=("select",))
    row = pa.RecordBatch.from_arrays([pa.array(["x"])] * 4, names)
    staged = stage(engine, target, iter([row]), PREFIX)
    with engine.begin() as connection:
        add(connection, target, [staged])
        found = connection.execute(sa.select(sa.Table("orders", sa.MetaData(), autoload_with=connection))).all()
    assert [tuple(row) for row in found] == [("x",) * 4]
