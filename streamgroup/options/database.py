"""The options of a write into a database: `format("streamgroup-sql")` and `streamgroup.sql_sink`."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.options import kinds
from streamgroup.options.parse import OptionsReader, all_together
from streamgroup.options.rows import Option, Scope
from streamgroup.options.secrets import Secret

FORMAT = "streamgroup-sql"

DATABASE: tuple[Option, ...] = (
    Option(
        "url",
        "URL of the database, without a password: `postgresql://host/database` or `sqlite:////path/of/file.db`. "
        "Required.",
        kinds.DATABASE,
        "database.url",
        scope=Scope.WRITE,
    ),
    Option(
        "dbtable",
        "The table that takes the rows: `orders`, or `sales.orders` with its schema. Required.",
        kinds.TEXT,
        "database.table",
        scope=Scope.WRITE,
    ),
    Option("user", "User of the database, if the URL names none.", kinds.TEXT, "database.user", scope=Scope.WRITE),
    Option(
        "password",
        "Password of that user, or `env:NAME` or `file:/path`, which driver and executors read.",
        kinds.SECRET,
        "database.password",
        scope=Scope.WRITE,
    ),
    Option(
        "keyColumns",
        "The columns of a primary key or a unique index, separated by commas. A row replaces the row with the same "
        "key; of several rows in a batch the last one counts. Without it every row is added.",
        kinds.COLUMNS,
        "database.key_columns",
        default_text="none: rows are added",
        scope=Scope.WRITE,
    ),
    Option(
        "createTable",
        "Whether to create the table if it does not exist, with the columns of the rows and `keyColumns` as its "
        "primary key.",
        kinds.BOOLEAN,
        "database.create_table",
        scope=Scope.WRITE,
    ),
)

_ROWS: Mapping[str, Option] = {option.name.lower(): option for option in DATABASE}
_HINTS = {
    "mode": "it is a method. Call mode('append') of a batch write",
    "path": "save('…') has a path, and a table has none. Name the table with 'dbtable'",
    "driver": "it is for JDBC. The URL names the database, and SQLAlchemy its driver",
    "batchsize": "it is for JDBC. Tasks load whole Arrow batches; set spark.sql.execution.arrow.maxRecordsPerBatch",
    "numpartitions": "it is for JDBC. Each task loads its rows; call repartition or coalesce on the rows",
    "truncate": "it is for JDBC. mode('overwrite') deletes the rows and keeps the table",
}


@frozen
class DatabaseOptions:
    """All options of one write into a database."""

    url: str
    table: str
    user: str | None = None
    password: Secret | None = None
    key_columns: tuple[str, ...] = ()
    create_table: bool = False


def parse_database(options: Mapping[str, str]) -> DatabaseOptions:
    """Return the options of a write into a database as values. Spark's own options of a write are left out.

    Raises ConfigError that names all problems together. It never shows the value of a secret option.
    """
    reading = OptionsReader(_ROWS, Scope.WRITE, _HINTS, strict=True)
    reading.take_all(options)
    values = reading.fields("database")
    reading.problems += [
        f"{name} is required. {next_step}" for name, next_step in _REQUIRED.items() if name not in reading.given
    ]
    if reading.problems:
        raise ConfigError(all_together(reading.problems))
    return DatabaseOptions(**values)


_REQUIRED = {
    "url": "Set it to the URL of the database, such as postgresql://host/database",
    "dbtable": "Set it to the name of the table that takes the rows",
}
