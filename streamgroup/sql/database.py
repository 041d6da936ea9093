"""The connection to a database: its URL, the engine of SQLAlchemy, and what its errors say.

PostgreSQL (by psycopg), MariaDB (by PyMySQL) and SQLite are supported.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from streamgroup.errors import ConfigError, OffsetStoreError

log = logging.getLogger("streamgroup")

_DRIVERS = {"mariadb": "pymysql", "postgresql": "psycopg", "sqlite": "pysqlite"}
_BUSY_TIMEOUT_S = 60.0
"""How long a statement of SQLite waits for another writer."""
_CONNECT_TIMEOUT_S = 10
WAIT_S = 60.0
"""How long a batch waits for a database that cannot be reached."""
_PAUSE_S = 1.0
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""After so many seconds a host that has vanished during a statement is noticed. The system's default is two hours."""
_STATEMENT_TIMEOUT_MS = 30_000
"""How long a statement waits, for example for rows that the transaction of a batch has locked. It is then repeated."""
_IDLE_TIMEOUT_MS = 60_000
"""How long the server keeps a transaction open whose process sends nothing, for example because it is paused.

The transaction locks offsets. Without a limit, no other member could take over the partitions of that process. After
an `executemany` of psycopg, PostgreSQL does not count the time: COMMIT has to follow at once.
"""
READS = "streamgroup_reads"
"""Execution option of a connection that only reads: in SQLite it does not wait for a transaction that writes."""
_STRICT = (
    "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', default_storage_engine = InnoDB, time_zone = '+00:00'"
)
"""Settings of MariaDB: text that is too long is an error, all tables have transactions, and times are in UTC."""


def url_of(text: str, *, user: str | None = None, password: str | None = None) -> sa.URL:
    """Return the URL of a database, with the driver that streamgroup uses. Raises ConfigError.

    `user` and `password` replace those in the URL.
    """
    if text.startswith("jdbc:"):
        raise ConfigError(
            "invalid URL of a database: it begins with 'jdbc:', as URLs of Java do. Write it without 'jdbc:', such as "
            "postgresql://host/database, and set user and password as options"
        )
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # a ValueError for a port that is no number
        raise ConfigError(
            "invalid URL of a database: expected one such as postgresql://host/database or sqlite:////path/of/file.db"
        ) from None
    dialect = url.get_backend_name()
    if dialect not in _DRIVERS:
        raise ConfigError(
            f"invalid URL of a database: unsupported database {dialect!r}. Supported are mariadb, postgresql and sqlite"
        )
    if dialect == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(
            "invalid URL of a database: it names no file, and other processes cannot see a database in memory. Write "
            "sqlite:////path/of/file.db"
        )
    if dialect == "sqlite" and (url.host or url.username or user is not None or password is not None):
        raise ConfigError(
            "invalid URL of a database: SQLite has no servers, users and passwords. Write sqlite:////path/of/file.db, "
            "without options for user and password"
        )
    name = url.database or ""
    if dialect == "sqlite" and not Path(name).is_absolute() and not name.startswith("file:"):
        raise ConfigError(
            "invalid URL of a database: the path of its file is relative, and driver and executors may run in "
            "different directories. Write the absolute path, after four slashes: sqlite:////path/of/file.db"
        )
    if dialect == "mariadb" and not url.database:
        raise ConfigError("invalid URL of a database: it names no database. Write mariadb://host/database")
    url = url.set(drivername=f"{dialect}+{_DRIVERS[dialect]}")
    if user is not None:
        url = url.set(username=user)
    return url if password is None else url.set(password=password)


def open_engine(url: sa.URL, timeout_ms: int | None = None, *, limits_statements: bool = True) -> sa.Engine:
    """Return the engine of a database; it connects with the first statement. Raises ConfigError without the driver.

    `timeout_ms` limits each statement, and the wait for a connection. The default suits a query. Without
    `limits_statements` the server works at a statement for as long as it takes, as at the rows of a large batch.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, _BUSY_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000)
    statement_ms = _STATEMENT_TIMEOUT_MS if timeout_ms is None else timeout_ms
    try:
        if url.get_backend_name() == "mariadb":
            return _mariadb(url, statement_ms if limits_statements else 0)
        engine = sa.create_engine(
            url,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": min(_CONNECT_TIMEOUT_S, -(-statement_ms // 1000)),
                "application_name": "streamgroup",
                "tcp_user_timeout": statement_ms,
                **_KEEPALIVE,
                "client_encoding": "utf8",  # of the rows, whatever the database, its user or PGCLIENTENCODING say
                "prepare_threshold": None,  # a pooler such as PgBouncer gives each transaction another session
            },
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot use {url.get_backend_name()}: the Python package {error.name} is not installed. Install "
            "streamgroup[sql] for the Python of the driver"
        ) from None

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:  # PgBouncer takes no settings when it connects
        connection.exec_driver_sql(
            f"SELECT set_config('statement_timeout', '{statement_ms if limits_statements else 0}', true), "
            f"set_config('idle_in_transaction_session_timeout', '{_IDLE_TIMEOUT_MS}', true)"
        )

    return engine


def _mariadb(url: sa.URL, statement_ms: int) -> sa.Engine:
    """Return an engine of MariaDB. The server ends a statement at its limit; the client waits a little longer.

    If `statement_ms` is 0, neither has a limit.
    """
    limit_s, idle_s = statement_ms / 1000, _IDLE_TIMEOUT_MS // 1000
    silence_s = limit_s + _CONNECT_TIMEOUT_S if limit_s else None
    settings = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "read_timeout": silence_s,
        "write_timeout": silence_s,
        "program_name": "streamgroup",
        "init_command": f"SET SESSION max_statement_time = {limit_s}, idle_transaction_timeout = {idle_s}, {_STRICT}",
    }
    return sa.create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED", connect_args=settings)


def _sqlite(url: sa.URL, timeout_s: float) -> sa.Engine:
    """Return an engine of SQLite whose transactions take the write lock when they begin.

    Otherwise Python's module would begin them with the first row that is written, and commit each savepoint before.
    """
    settings = {"timeout": timeout_s, "isolation_level": None}
    engine = sa.create_engine(url, connect_args=settings, poolclass=sa.pool.NullPool)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(READS) else "BEGIN IMMEDIATE")

    return engine


def take_password(engine: sa.Engine, reveal: Callable[[], str]) -> None:
    """Ask `reveal` for the password at each new connection, so that a file with it may change."""

    @sa.event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
        parameters["password"] = reveal()


def wait_to_connect(engine: sa.Engine, wait_s: float = WAIT_S) -> sa.Connection:
    """Return a connection. If the database cannot be reached, log that and try again for up to `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    is_logged = False
    while True:
        try:
            return engine.connect()
        except sa.exc.DBAPIError as error:
            if not is_lost(error) or time.monotonic() + _PAUSE_S > deadline:
                raise
            if not is_logged:
                log.warning("cannot reach %s: %s. Trying again for %.0f s", shown(engine.url), reason_of(error), wait_s)
            is_logged = True
            time.sleep(_PAUSE_S)


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that the connection is lost or could not be made, so that a retry may succeed."""
    if isinstance(error, sa.exc.DBAPIError):
        return error.connection_invalidated or _refused(error)
    return isinstance(error, sa.exc.TimeoutError)


def _refused(error: sa.exc.DBAPIError) -> bool:
    """Return whether the server could not be reached, is starting, or is about to stop."""
    cause = error.orig
    if (code := mariadb_code(error)) is not None:
        return code in _RETRIABLE_CODES and not _FINAL.search(str(cause))
    state = str(getattr(cause, "sqlstate", "") or "")
    if state:
        return state.startswith(("08", "57P")) or state in _RETRIABLE
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return isinstance(error, sa.exc.OperationalError) and not _FINAL.search(str(cause))


_RETRIABLE = {"40001", "40P01", "55P03", "57014"}
"""PostgreSQL's codes for a conflict of transactions, a deadlock, and the timeouts of a lock and a statement."""
_FINAL = re.compile(
    "authentication failed|no password supplied|does not exist|pg_hba.conf|is not permitted to log in|"
    "certificate verify failed|does not support SSL"
)
"""Errors for connections that will be refused again. libpq reports no error code for them."""
_RETRIABLE_CODES = {
    *(1020, 1205, 1213, 1317, 1969),  # a row changed, a lock was not free in time, a deadlock, KILL, the time limit
    *(1040, 1203, 1226),  # too many connections
    *(1047, 1053, 1079, 1927),  # a node without its cluster, the server stops, KILL
    *(1152, 1158, 1159, 1160, 1161, 1184),  # the connection ended, as the server reports it
    *(2002, 2003, 2006, 2013, 2014, 2055),  # as the client reports it
}
"""MariaDB's codes for a conflict of transactions, and for a server that is away or busy."""


def mariadb_code(error: sa.exc.DBAPIError) -> int | None:
    """Return the code of an error that MariaDB or its driver reports, None for other databases."""
    code = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code if isinstance(code, int) else None


MARIADB = ("mariadb", "mysql")
"""SQLAlchemy's names of the dialect."""


MARIADB_COLLATION = "utf8mb4_nopad_bin"
"""Other collations of MariaDB take `a` for `A` or for `a` with a blank at its end."""


def is_mariadb(connection: sa.Connection) -> bool:
    """Return whether the database is MariaDB. SQLAlchemy also takes URLs of MySQL for it."""
    return connection.dialect.name in MARIADB


_NAMES_ONLY = {1044, 1045, 1048, 1049, 1050, 1054, 1130, 1142, 1143, 1146, 1193, 1264, 1265, 1273, 1286, 1364, 1406}
_NAMES_ONLY |= {1524, 1698, 2002, 2003}
"""MariaDB's errors that quote names. Others also quote values or parts of statements."""
_QUOTED = re.compile(r"'.*'(?= for key '[^']*'$)|'.*'", re.DOTALL)
"""From the first quote to the last, but for the name of a key at the end. A value may have quotes in it."""


def reason_of(error: BaseException) -> str:
    """Return what the database said, on one line. Neither statements nor their values are in it, nor a password."""
    cause: BaseException = error
    if isinstance(error, sa.exc.DBAPIError) and error.orig is not None:
        cause = error.orig
        if (code := mariadb_code(error)) is not None:
            text = str(cause.args[1]) if len(cause.args) > 1 else ""
            text = text if code in _NAMES_ONLY else _QUOTED.sub("'…'", text, count=1)
            line = text.strip().partition("\n")[0]
            return f"{line or type(cause).__name__} (error {code})"
    line = str(cause).strip().partition("\n")[0]
    if str(getattr(cause, "sqlstate", "") or "").startswith(_DATA_EXCEPTION):
        line = _VALUE.sub('"…"', line)
    return line or type(cause).__name__


_DATA_EXCEPTION = "22"
"""PostgreSQL's class of errors in values, which its texts quote."""
_VALUE = re.compile('".*"')


@contextmanager
def translated(what: str, url: sa.URL, next_step: str) -> Iterator[None]:
    """Raise errors of the database as OffsetStoreError: `what` failed in the database of `url`, then its reason."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise OffsetStoreError(f"cannot {what} in {shown(url)}: {reason_of(error)}. {next_step}") from None


def shown(url: sa.URL) -> str:
    """Return a URL for messages, without user, password and parameters."""
    place = url.database or ""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{place}"
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{place}"
