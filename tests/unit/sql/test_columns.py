"""Which columns of rows a table takes, and the table that is created for rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from streamgroup.errors import ConfigError
from streamgroup.sql.columns import Column, Target, _created, _fits, find_target
from streamgroup.sql.database import open_engine, url_of

ALL = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,3)", "string", "varchar(10)"]
ALL += ["binary", "date", "timestamp", "timestamp_ntz"]
ROWS = [Column("id", "bigint", nullable=False), Column("name", "string")]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sa.Connection]:
    engine = open_engine(url_of(f"sqlite:///{tmp_path}/orders.db"))
    with engine.begin() as connection:
        yield connection


def find(connection: sa.Connection, *columns: Column, keys: tuple[str, ...] = (), create: bool = False) -> Target:
    return find_target(connection, "orders", columns or ROWS, keys, create=create)


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
@pytest.mark.parametrize("type_", ALL)
def test_a_created_column_fits_the_type_that_it_was_created_for(type_: str, dialect: str) -> None:
    column = Column("c", type_)
    for is_key in (False, True):
        assert _fits(column, _created(column, dialect, is_key=is_key), dialect)


@pytest.mark.parametrize("keys", [(), ("c0", "C4")])
def test_a_table_of_sqlite_is_created_once_with_its_keys_and_fits_its_rows(
    connection: sa.Connection, keys: tuple[str, ...]
) -> None:
    columns = [Column(f"c{n}", type_, nullable=n > 0) for n, type_ in enumerate(ALL)]
    for _ in range(2):
        target = find(connection, *columns, keys=keys, create=True)
    assert target.columns == tuple(column.name for column in columns)
    found = {one["name"]: one for one in sa.inspect(connection).get_columns("orders")}
    assert {name for name, one in found.items() if one["primary_key"]} == {key.lower() for key in keys}
    assert {name for name, one in found.items() if not one["nullable"]} == {"c0", *(key.lower() for key in keys)}
    assert target.keys == tuple(key.lower() for key in keys)


@pytest.mark.parametrize(
    ("type_", "target", "dialect"),
    [
        ("string", sa.Integer(), "sqlite"),
        ("string", sa.DateTime(), "postgresql"),
        ("string", sa.LargeBinary(), "postgresql"),
        ("binary", sa.Text(), "postgresql"),
        ("binary", postgresql.JSONB(), "postgresql"),
        ("bigint", sa.Text(), "sqlite"),
        ("bigint", sa.Double(), "postgresql"),
        ("boolean", sa.Integer(), "postgresql"),
        ("double", sa.REAL(), "postgresql"),
        ("double", mysql.FLOAT(), "mysql"),
        ("double", sa.Numeric(10, 2), "postgresql"),
        ("decimal(12,3)", sa.Numeric(12, 2), "postgresql"),
        ("decimal(12,3)", sa.Double(), "postgresql"),
        ("decimal(12,3)", sa.Text(), "postgresql"),
        ("date", sa.DateTime(), "postgresql"),
        ("timestamp", sa.Date(), "postgresql"),
        ("timestamp_ntz", sa.DateTime(timezone=True), "postgresql"),
        ("bigint", sa.types.NullType(), "postgresql"),
        ("bigint", sa.Numeric(5, -2), "postgresql"),
        ("decimal(12,3)", sa.Numeric(12, 3), "sqlite"),
        ("string", sa.JSON(), "sqlite"),
        ("string", sa.CHAR(5), "postgresql"),
        ("string", postgresql.ARRAY(sa.VARCHAR(3)), "postgresql"),
        ("string", postgresql.BIT(3), "postgresql"),
        ("string", postgresql.INTERVAL(precision=0), "postgresql"),
        ("string", postgresql.DOMAIN("short", sa.VARCHAR(3)), "postgresql"),
        ("timestamp", postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql"),
        ("timestamp_ntz", postgresql.TIMESTAMP(precision=0), "postgresql"),
        ("timestamp", mysql.DATETIME(), "mariadb"),
    ],
)
def test_a_type_that_the_database_would_change_or_misread_does_not_fit(
    type_: str, target: sa.types.TypeEngine[object], dialect: str
) -> None:
    assert not _fits(Column("c", type_), target, dialect)


@pytest.mark.parametrize(
    ("type_", "target", "dialect"),
    [
        ("string", postgresql.JSONB(), "postgresql"),
        ("string", sa.Uuid(), "postgresql"),
        ("string", sa.types.NullType(), "postgresql"),
        ("int", sa.Numeric(12, 0), "postgresql"),
        ("tinyint", sa.BigInteger(), "postgresql"),
        ("float", sa.Double(), "postgresql"),
        ("decimal(12,3)", sa.Numeric(), "postgresql"),
        ("decimal(12,3)", sa.Numeric(20, 3), "postgresql"),
        ("timestamp", sa.DateTime(), "postgresql"),
        ("timestamp", mysql.DATETIME(fsp=6), "mariadb"),
        ("boolean", mysql.TINYINT(1), "mysql"),
        ("binary", mysql.VARBINARY(9), "mysql"),
        ("bigint", sa.types.NullType(), "sqlite"),
        ("double", sa.REAL(), "sqlite"),
    ],
)
def test_a_type_that_keeps_the_values_or_refuses_them_fits(
    type_: str, target: sa.types.TypeEngine[object], dialect: str
) -> None:
    assert _fits(Column("c", type_), target, dialect)


def test_columns_are_found_in_any_case_and_in_the_order_of_the_rows(connection: sa.Connection) -> None:
    connection.exec_driver_sql("CREATE TABLE orders (Name TEXT, extra TEXT, ID INTEGER)")
    assert find(connection).columns == ("ID", "Name")


def test_all_problems_are_named_together(connection: sa.Connection) -> None:
    connection.exec_driver_sql("CREATE TABLE orders (id TEXT, other TEXT)")
    with pytest.raises(ConfigError) as caught:
        find(connection, keys=("id", "number"))
    text = str(caught.value)
    assert "column 'id' (bigint) does not fit the table's type TEXT" in text
    assert "column 'name' (string) is not in the table" in text
    assert "keyColumns has 'number', which is not among the columns of the rows" in text
    assert "Select and cast the columns in the query, or alter the table" in text


def test_a_wrong_key_creates_no_table(connection: sa.Connection) -> None:
    with pytest.raises(ConfigError, match="keyColumns has 'number', which is not among the columns of the rows"):
        find(connection, keys=("number",), create=True)
    assert not sa.inspect(connection).has_table("orders")


def test_two_columns_of_one_name_are_refused(connection: sa.Connection) -> None:
    connection.exec_driver_sql("CREATE TABLE orders (c TEXT)")
    for other in ("c", "C"):
        with pytest.raises(ConfigError, match="several columns of the rows belong to column 'c': rename or drop them"):
            find(connection, Column("c", "string"), Column(other, "string"))


def test_without_the_table_the_error_says_how_to_get_it(connection: sa.Connection) -> None:
    with pytest.raises(ConfigError, match=r"the table does not exist\. Create it, or set create_table=True"):
        find(connection)


@pytest.mark.parametrize("type_", ["array<int>", "map<string,int>", "struct<a:int>", "variant", "interval day"])
def test_a_type_without_a_counterpart_is_refused_before_a_table_is_created(
    connection: sa.Connection, type_: str
) -> None:
    with pytest.raises(ConfigError, match=r"which has no counterpart: write it as text, for example with to_json"):
        find(connection, Column("c", type_), create=True)
    assert not sa.inspect(connection).has_table("orders")


@pytest.mark.parametrize(
    ("index", "is_enough"),
    [
        ("CREATE UNIQUE INDEX one ON orders (id)", True),
        ("CREATE INDEX one ON orders (id)", False),
        ("CREATE UNIQUE INDEX one ON orders (id, name)", False),
        ("CREATE UNIQUE INDEX one ON orders (id) WHERE id > 7", False),
    ],
)
def test_keys_need_a_unique_index_of_exactly_these_columns(
    connection: sa.Connection, index: str, is_enough: bool
) -> None:
    connection.exec_driver_sql("CREATE TABLE orders (id INTEGER, name TEXT)")
    connection.exec_driver_sql(index)
    if is_enough:
        assert find(connection, keys=("id",)).keys == ("id",)
        return
    with pytest.raises(ConfigError, match=r"neither the primary key nor a unique index of the table\. Create one"):
        find(connection, keys=("id",))
