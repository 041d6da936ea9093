"""The tests of staged rows, on real servers; and what only PostgreSQL converts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
import sqlalchemy as sa

from streamgroup.errors import ConfigError
from streamgroup.sql.columns import Column, find_target
from streamgroup.sql.database import MARIADB, open_engine, url_of
from streamgroup.sql.staging import add, drop_staging, stage
from tests.unit.sql import test_staging as of_sqlite

pytestmark = pytest.mark.live

limit = of_sqlite.limit
globals().update({name: test for name, test in vars(of_sqlite).items() if name.startswith("test_")})


only_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


@pytest.fixture(params=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    fixture = {"postgresql": "streamgroup_postgres", "mariadb": "streamgroup_mariadb"}[request.param]
    made = open_engine(url_of(request.getfixturevalue(fixture).url))
    with made.begin() as connection:
        sa.Table("orders", sa.MetaData()).drop(connection, checkfirst=True)
    drop_staging(made, "streamgroup_staging_")
    yield made
    made.dispose()


@only_postgresql
@pytest.mark.parametrize("way", ["variable", "role"])
def test_text_is_stored_as_it_is_whatever_encoding_the_client_has(
    engine: sa.Engine, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (c TEXT)")
        if way == "role":
            connection.exec_driver_sql("ALTER ROLE CURRENT_USER SET client_encoding = 'LATIN1'")
    if way == "variable":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    engine.dispose()  # the settings are of new connections
    try:
        store(engine, "string", pa.array(["é €"]))
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER ROLE CURRENT_USER RESET client_encoding")
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT length(c), c FROM orders")).all() == [(3, "é €")]


@only_postgresql
def test_equal_keys_in_other_words_are_one_key(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id UUID PRIMARY KEY, text TEXT)")
        columns = [Column("id", "string"), Column("text", "string")]
        target = find_target(connection, "orders", columns, ["id"], create=False)
    upper = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    rows = pa.RecordBatch.from_arrays([pa.array([upper, upper.lower()]), pa.array(["1", "2"])], ["id", "text"])
    staged = stage(engine, target, iter([rows]), of_sqlite.PREFIX)
    with engine.begin() as connection:
        add(connection, target, [staged])
        assert connection.exec_driver_sql("SELECT text FROM orders").all() == [("2",)]


@only_postgresql
def test_a_staging_table_that_a_backup_uses_stays_and_holds_nothing_up(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    name = of_sqlite.PREFIX + "0" * 12
    with engine.connect() as backup:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE {name} (c TEXT)")
        backup.exec_driver_sql(f"LOCK TABLE {name} IN ACCESS SHARE MODE")
        assert drop_staging(engine, of_sqlite.PREFIX) == 0
    assert f"cannot drop the staging table {name}: canceling statement due to lock timeout. It stays" in caplog.text
    assert drop_staging(engine, of_sqlite.PREFIX) == 1


def store(engine: sa.Engine, type_: str, value: pa.Array) -> None:
    """Store one column in the table `orders`."""
    with engine.begin() as connection:
        target = find_target(connection, "orders", [Column("c", type_)], [], create=False)
        staged = stage(engine, target, iter([pa.RecordBatch.from_arrays([value], ["c"])]), of_sqlite.PREFIX)
        add(connection, target, [staged])


@only_postgresql
@pytest.mark.parametrize(
    ("of_table", "type_", "value", "stored"),
    [
        ("UUID", "string", pa.array(["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("JSONB", "string", pa.array(['{"b": 1,  "a": [null]}']), '{"a": [null], "b": 1}'),
        ("INET", "string", pa.array(["10.0.0.1/32"]), "10.0.0.1/32"),
        ("VARCHAR(3)", "string", pa.array(["abc"]), "abc"),
        ("NUMERIC", "bigint", pa.array([2**62]), str(2**62)),
        ("SMALLINT", "bigint", pa.array([7]), "7"),
        ("DOUBLE PRECISION", "float", pa.array([0.5], pa.float32()), "0.5"),
        ("TIMESTAMP", "timestamp", pa.array([0], pa.timestamp("us", "Asia/Tokyo")), "1970-01-01 00:00:00"),
    ],
)
def test_postgresql_converts_staged_values_to_the_types_of_the_table(
    engine: sa.Engine, of_table: str, type_: str, value: pa.Array, stored: str
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE orders (c {of_table})")
        connection.exec_driver_sql("ALTER ROLE CURRENT_USER SET timezone = 'America/New_York'")
    engine.dispose()  # the setting is of new connections
    try:
        store(engine, type_, value)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER ROLE CURRENT_USER RESET timezone")
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT CAST(c AS text) FROM orders")).scalars().all() == [stored]


@only_postgresql
@pytest.mark.parametrize(
    ("of_table", "type_", "value", "cause"),
    [
        ("VARCHAR(2)", "string", pa.array(["abc"]), "value too long"),
        ("SMALLINT", "bigint", pa.array([40_000]), "out of range"),
        ("UUID", "string", pa.array(["no uuid"]), "invalid input syntax for type uuid"),
        ("TEXT NOT NULL", "string", pa.array([None], pa.string()), "null value in column"),
        ("TEXT", "string", pa.array(["a\0b"]), "0x00"),
        ("TEXT", "string", pa.array([b"\xff"]).cast(pa.string(), safe=False), "invalid byte sequence"),
        ("NUMERIC(4,2)", "decimal(6,2)", pa.array(["1234.50"]).cast(pa.decimal128(6, 2)), "numeric field overflow"),
    ],
)
def test_a_value_that_does_not_fit_stores_nothing(
    engine: sa.Engine, of_table: str, type_: str, value: pa.Array, cause: str
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE orders (c {of_table})")
    with pytest.raises(sa.exc.DBAPIError, match=cause):
        store(engine, type_, value)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM orders")).scalar_one() == 0


@pytest.mark.parametrize(
    ("engine", "of_table", "type_"),
    [
        ("postgresql", "NAME", "string"),
        ("postgresql", '"char"', "string"),
        ("mariadb", "BINARY(4)", "binary"),
        ("mariadb", "DOUBLE(10,2)", "double"),
        ("mariadb", "FLOAT(7,2)", "float"),
        ("mariadb", "ENUM('0','a')", "string"),
        ("mariadb", "SET('a','b')", "string"),
    ],
    indirect=["engine"],
)
def test_a_type_that_changes_values_does_not_fit(engine: sa.Engine, of_table: str, type_: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE orders (c {of_table})")
        with pytest.raises(ConfigError, match=rf"column 'c' \({type_}\) does not fit the table's type"):
            find_target(connection, "orders", [Column("c", type_)], (), create=False)


PAIRS = [Column("id", "string"), Column("text", "string")]


def pairs(ids: list[str]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array(ids), pa.array([str(at) for at in range(len(ids))])], ["id", "text"])


def test_a_key_with_a_blank_at_its_end_is_another_key(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        target = find_target(connection, "orders", PAIRS, ["id"], create=True)
    staged = stage(engine, target, pairs(["x", "x ", "X"]), of_sqlite.PREFIX)
    with engine.begin() as connection:
        add(connection, target, [staged])
        assert connection.exec_driver_sql("SELECT count(*) FROM orders").scalar_one() == 3


def test_a_second_unique_index_loses_no_row(engine: sa.Engine) -> None:
    """PostgreSQL refuses the rows. MariaDB would replace the row that has the same value in the other index."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY, text VARCHAR(20) UNIQUE)")
        if engine.dialect.name in MARIADB:
            with pytest.raises(ConfigError, match=r"is not the only unique index: there is also one of text"):
                find_target(connection, "orders", PAIRS, ["id"], create=False)
            return
        target = find_target(connection, "orders", PAIRS, ["id"], create=False)
    rows = pa.RecordBatch.from_arrays([pa.array(["1", "2"]), pa.array(["a", "a"])], ["id", "text"])
    staged = stage(engine, target, iter([rows]), of_sqlite.PREFIX)
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        add(connection, target, [staged])


def test_a_staging_table_of_another_user_does_not_keep_others_from_being_dropped(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (f"streamgroup_staging_0123456789ab_170000000{at}_ffffffffffff" for at in (0, 1))
    with engine.begin() as connection:
        for name in (old, new):
            connection.exec_driver_sql(f"CREATE TABLE {name} (c INTEGER)")
        account = "ROLE other LOGIN PASSWORD" if engine.dialect.name == "postgresql" else "USER other IDENTIFIED BY"
        connection.exec_driver_sql(f"CREATE {account} 'canary-of-other'")
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"ALTER TABLE {new} OWNER TO other")
        else:
            connection.exec_driver_sql(f"GRANT SELECT, DROP ON {new} TO other")
            connection.exec_driver_sql(f"GRANT SELECT ON {old} TO other")
    other = open_engine(engine.url.set(username="other", password="canary-of-other"))
    try:
        assert drop_staging(other, "streamgroup_staging_") == 1
        assert f"cannot drop the staging table {old}" in caplog.text
    finally:
        other.dispose()
        drop_staging(engine, "streamgroup_staging_")
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP USER other")


@only_postgresql
def test_a_table_in_a_schema_is_created_and_found_there(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA IF EXISTS sales CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA sales")
        with pytest.raises(ConfigError, match=r"table sales\.orders of postgresql://.*: the table does not exist"):
            find_target(connection, "sales.orders", of_sqlite.COLUMNS, [], create=False)
        target = find_target(connection, "sales.orders", of_sqlite.COLUMNS, ["id"], create=True)
    staged = stage(engine, target, iter([of_sqlite.batch((1, "a"), (1, "b"))]), of_sqlite.PREFIX)
    with engine.begin() as connection:
        add(connection, target, [staged])
        assert connection.exec_driver_sql("SELECT id, text FROM sales.orders").all() == [(1, "b")]
        connection.exec_driver_sql("DROP SCHEMA sales CASCADE")
