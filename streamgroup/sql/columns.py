"""Compares the columns of rows with the columns of a table, and creates a table for a schema.

Types of rows are Spark's, by their simple names, such as `bigint` or `decimal(10,2)`. A column fits if the database
stores each of its values unchanged, or refuses it. Anything else would be a silent loss: a database rounds, cuts and
parses when it assigns, and SQLite stores text in a column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.sql.database import MARIADB, MARIADB_COLLATION, shown

SqlType = sa.types.TypeEngine[Any]


@frozen
class Column:
    """A column of rows: `type` is the simple name of Spark's type."""

    name: str
    type: str
    nullable: bool = True


@frozen
class Target:
    """The table that rows are added to, as tasks know it.

    `columns` are the table's names of the rows' columns, in the order of the rows. If there are `keys`, a row replaces
    the row with the same ones.
    """

    schema: str | None
    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    conversions: tuple[str | None, ...] = ()
    """PostgreSQL: for each column the type to convert staged values to, or `IN_UTC`; None if an INSERT does it."""

    @property
    def table(self) -> sa.TableClause:
        """The table for statements."""
        return sa.table(self.name, *(sa.column(name) for name in self.columns), schema=self.schema)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def find_target(
    connection: sa.Connection, dbtable: str, columns: Sequence[Column], keys: Collection[str], *, create: bool
) -> Target:
    """Return the table `dbtable` for rows with `columns`. If it does not exist and `create` is set, create it.

    Raises ConfigError that names all columns which the table lacks or does not fit, and keys without a unique index.
    """
    schema, _, name = dbtable.rpartition(".")
    where = f"table {dbtable} of {shown(connection.engine.url)}"
    problems = [problem for column in columns if (problem := _unsupported(column))]
    given = {column.name.lower() for column in columns}
    absent = [
        f"keyColumns has {key!r}, which is not among the columns of the rows"
        for key in keys
        if key.lower() not in given
    ]
    if problems or (create and absent):  # the table would be created without its primary key
        problems += absent
        raise ConfigError(f"cannot write into {where}: {'; '.join(problems)}")
    if create:
        _create(connection, schema or None, name, columns, keys)
    try:
        # Not a whole sa.Table: that takes five times as many queries, in each batch.
        inspector = sa.inspect(connection)
        found = {one["name"]: one["type"] for one in inspector.get_columns(name, schema or None)}
    except sa.exc.NoSuchTableError:
        raise ConfigError(
            f"cannot write into {where}: the table does not exist. Create it, or set create_table=True of "
            "streamgroup.sql_sink, for a batch write the option createTable=true"
        ) from None
    names = [_named(found, column.name) for column in columns]
    pairs = list(zip(columns, names, strict=True))
    misfits = absent + [
        f"column {column.name!r} ({column.type}) is not in the table"
        if named is None
        else _misfit(column, found[named], connection.dialect.name)
        for column, named in pairs
    ]
    several = sorted({named for named in names if named is not None and names.count(named) > 1})
    misfits += [f"several columns of the rows belong to column {named!r}: rename or drop them" for named in several]
    key_names = [_named(found, key) for key in keys]
    if keys and None not in key_names:
        misfits.append(_key_misfit(set(key_names), _unique(inspector, name, schema or None), connection.dialect.name))
    if connection.dialect.name == "postgresql":
        type_names = _type_names(connection, schema or None, name)
        misfits += [
            f"column {column.name!r} ({column.type}) does not fit the table's type {type_names[named]}, which cuts text"
            for column, named in pairs
            if named is not None and type_names[named] in _CUTTING
        ]
    if problems := [problem for problem in misfits if problem]:
        raise ConfigError(
            f"cannot write into {where}: {'; '.join(problems)}. Select and cast the columns in the query, or alter "
            "the table"
        )
    targets = tuple(map(str, names))
    target = Target(schema or None, name, targets, tuple(map(str, key_names)))
    if connection.dialect.name != "postgresql":
        return target
    conversions = (_conversion(column, found[str(named)], type_names[str(named)]) for column, named in pairs)
    return replace(target, conversions=tuple(conversions))


IN_UTC = "UTC"
"""The conversion of a point in time to a date and time without a zone."""


_CUTTING = ("name", '"char"')
"""Types of PostgreSQL that SQLAlchemy takes for text without a limit."""


def _type_names(connection: sa.Connection, schema: str | None, table: str) -> dict[str, str]:
    """Return PostgreSQL's names of the types of a table's columns, without their lengths.

    A conversion to a type with its length cuts what is too long, and an INSERT refuses it.
    """
    named = connection.dialect.identifier_preparer.format_table(sa.table(table, schema=schema)).replace("%%", "%")
    found = connection.execute(
        sa.text("SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(:name)"),
        {"name": named},
    )
    return dict(map(tuple, found))


def _conversion(column: Column, target: SqlType, name: str) -> str | None:
    """Return the conversion of staged values that an INSERT does not do by itself, or None. `name` is the type's."""
    kind = _kind(column)
    if kind == "timestamp" and not getattr(target, "timezone", True):
        return IN_UTC
    is_parsed = kind == "string" and (not _is_text(target) or isinstance(target, sa.Enum))
    return name if is_parsed or kind == "decimal" else None


def _named(found: Collection[str], name: str) -> str | None:
    """Return the table's name of a column. Spark ignores case, and so does this if no other column fits as well."""
    if name in found:
        return name
    alike = [one for one in found if one.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _unique(inspector: sa.Inspector, name: str, schema: str | None) -> list[set[str | None]]:
    """Return the columns of the primary key, and of each unique index of all rows."""
    unique: list[list[str | None]] = [list(inspector.get_pk_constraint(name, schema)["constrained_columns"])]
    unique += [list(one["column_names"]) for one in inspector.get_unique_constraints(name, schema)]
    unique += [
        one["column_names"]
        for one in inspector.get_indexes(name, schema)
        if one["unique"] and not any(key.endswith("_where") for key in one.get("dialect_options", {}))
    ]
    return [set(names) for names in unique if names]


def _key_misfit(keys: set[str | None], unique: Sequence[set[str | None]], dialect: str) -> str | None:
    named = f"keyColumns ({', '.join(sorted(map(str, keys)))})"
    if keys not in unique:
        return f"{named} is neither the primary key nor a unique index of the table. Create one"
    if dialect in MARIADB and (others := [names for names in unique if names != keys]):
        also = ", ".join(sorted(map(str, others[0])))
        return (
            f"{named} is not the only unique index: there is also one of {also}, and MariaDB replaces the row that has "
            "the same value in either. Drop that index"
        )
    return None


def _create(
    connection: sa.Connection, schema: str | None, name: str, columns: Sequence[Column], keys: Collection[str]
) -> None:
    """Create the table unless it exists. Several queries may do so at the same time."""
    if sa.inspect(connection).has_table(name, schema):
        return
    lower = {key.lower() for key in keys}
    made = [
        sa.Column(
            column.name,
            _created(column, connection.dialect.name, is_key=column.name.lower() in lower),
            primary_key=column.name.lower() in lower,
            autoincrement=False,
            nullable=column.nullable and column.name.lower() not in lower,
        )
        for column in columns
    ]
    table = sa.Table(name, sa.MetaData(), *made, schema=schema)
    try:
        with connection.begin_nested():
            table.create(connection)
    except (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.OperationalError):
        if not sa.inspect(connection).has_table(name, schema):
            raise


# --- types ------------------------------------------------------------------------------------------------------------

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGERS = {"tinyint": sa.SmallInteger, "smallint": sa.SmallInteger, "int": sa.Integer, "bigint": sa.BigInteger}
_CREATED: dict[str, SqlType] = {
    **{name: integer() for name, integer in _INTEGERS.items()},
    "boolean": sa.Boolean(),
    "float": sa.REAL(),
    "double": sa.Double(),
    "string": sa.Text(),
    "binary": sa.LargeBinary(),
    "date": sa.Date(),
    "timestamp": sa.DateTime(timezone=True),
    "timestamp_ntz": sa.DateTime(),
}
_LONGEST_KEY = 255
_ADVICE = "write it as text, for example with to_json"


def _kind(column: Column) -> str:
    """Return Spark's type without its length or precision; types with a length are strings."""
    name = column.type.partition("(")[0]
    return "string" if name in ("char", "varchar") else name


def _unsupported(column: Column) -> str | None:
    kind = _kind(column)
    if kind in _CREATED or kind == "decimal":
        return None
    return f"column {column.name!r} has the type {column.type}, which has no counterpart: {_ADVICE}"


def _created(column: Column, dialect: str, *, is_key: bool) -> SqlType:
    """Return the type of a column in a table that is created for rows."""
    kind = _kind(column)
    if decimal := _DECIMAL.fullmatch(column.type):
        # SQLite has no decimal numbers: it would round them to binary ones.
        return sa.Text() if dialect == "sqlite" else sa.Numeric(int(decimal[1]), int(decimal[2]))
    if dialect in MARIADB:
        return _created_in_mariadb(kind, is_key=is_key)
    return _CREATED[kind]


def _created_in_mariadb(kind: str, *, is_key: bool) -> SqlType:
    """Return a type of MariaDB: its text and its bytes are short, its times lack fractions, and keys have a length."""
    from sqlalchemy.dialects import mysql  # noqa: PLC0415  (most databases are others)

    if kind == "string":
        return mysql.VARCHAR(_LONGEST_KEY, collation=MARIADB_COLLATION) if is_key else mysql.LONGTEXT()
    if kind == "binary":
        return mysql.VARBINARY(_LONGEST_KEY) if is_key else mysql.LONGBLOB()
    return mysql.DATETIME(fsp=6) if kind in ("timestamp", "timestamp_ntz") else _CREATED[kind]


def _misfit(column: Column, target: SqlType, dialect: str) -> str | None:
    """Return why values of `column` cannot be stored in `target`; None if they can, or if that is not known."""
    if _fits(column, target, dialect) and not (dialect in MARIADB and _is_changed_by_mariadb(target)):
        return None
    return f"column {column.name!r} ({column.type}) does not fit the table's type {_name(target)}"


def _name(type_: SqlType) -> str:
    try:
        return str(type_)
    except sa.exc.SQLAlchemyError:
        return type(type_).__name__


def _fits(column: Column, target: SqlType, dialect: str) -> bool:
    kind = _kind(column)
    if isinstance(target, sa.types.NullType):  # SQLite: a column without a type; elsewhere one that SQLAlchemy lacks
        return kind == "string" or dialect == "sqlite"
    if kind == "boolean":
        return isinstance(target, sa.Boolean) or (isinstance(target, sa.Integer) and dialect != "postgresql")
    if kind == "double":
        return isinstance(target, sa.Float) and (dialect == "sqlite" or not isinstance(target, _SINGLE_PRECISION))
    if dialect == "sqlite" and kind in ("decimal", "string"):  # other columns store what looks like a number as one
        return _is_text(target)
    if kind == "decimal":
        return _is_exact(target) and _has_scale(column, target)
    return _TAKES[kind](target)


def _is_changed_by_mariadb(target: SqlType) -> bool:
    """Return whether MariaDB stores other values: numbers for words, zeros at the end of bytes, rounded fractions."""
    is_rounded = isinstance(target, sa.Float) and target.scale is not None
    return is_rounded or isinstance(target, sa.BINARY) or type(target).__name__ in ("ENUM", "SET")


def _is_exact(target: SqlType) -> bool:
    return isinstance(target, sa.Numeric) and not isinstance(target, sa.Float) and (target.scale or 0) >= 0


def _is_text(target: SqlType) -> bool:
    """Return whether text stays as it is: CHAR fills it up."""
    return isinstance(target, sa.String) and not isinstance(target, sa.CHAR)


def _has_microseconds(target: SqlType) -> bool:
    """Return whether a type stores points in time without rounding them."""
    if not isinstance(target, sa.DateTime):
        return False
    if hasattr(target, "fsp"):  # MariaDB's, where no digits is the default
        return bool(target.fsp == _MICROSECONDS)
    precision = getattr(target, "precision", None)
    return precision is None or precision >= _MICROSECONDS


def _is_parsed(target: SqlType) -> bool:
    """Return whether PostgreSQL parses text for a type, and refuses text that it cannot read or would have to cut."""
    return isinstance(target, sa.JSON | sa.Uuid | sa.Enum) or type(target).__name__ in _NETWORK


def _is_binary(target: SqlType) -> bool:
    try:
        return target.python_type is bytes
    except NotImplementedError:  # SQLAlchemy knows no type of Python for it, so it is not one for bytes
        return False


_SINGLE_PRECISION = (sa.REAL, sa.FLOAT)  # a DOUBLE is neither
_MICROSECONDS = 6
_NETWORK = ("INET", "CIDR", "MACADDR", "MACADDR8")
_TAKES: dict[str, Callable[[SqlType], bool]] = {
    # The database refuses numbers that are too large.
    **dict.fromkeys(_INTEGERS, lambda target: isinstance(target, sa.Integer) or _is_exact(target)),
    "float": lambda target: isinstance(target, sa.Float),
    "string": lambda target: _is_text(target) or _is_parsed(target),
    "binary": _is_binary,
    "date": lambda target: isinstance(target, sa.Date),
    "timestamp": _has_microseconds,
    "timestamp_ntz": lambda target: _has_microseconds(target) and not getattr(target, "timezone", False),
}


def _has_scale(column: Column, target: SqlType) -> bool:
    """Return whether a type of exact numbers has all digits behind the point that the column has."""
    decimal, scale = _DECIMAL.fullmatch(column.type), getattr(target, "scale", None)
    return decimal is None or scale is None or scale >= int(decimal[2])
