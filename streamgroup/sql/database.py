"""The connection to a database: its URL, the engine of SQLAlchemy, and what its errors say.

PostgreSQL (by psycopg) and SQLite are supported.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from streamgroup.errors import ConfigError, OffsetStoreError

log = logging.getLogger("streamgroup")

_DRIVERS = {"postgresql": "psycopg", "sqlite": "pysqlite"}
_BUSY_TIMEOUT_S = 60.0
"""How long a statement of SQLite waits for another writer."""
_CONNECT_TIMEOUT_S = 10
WAIT_S = 60.0
"""How long a batch waits for a database that cannot be reached."""
_PAUSE_S = 1.0
_STATEMENT_TIMEOUT_MS = 30_000
"""How long a statement waits, for example for rows that the transaction of a batch has locked. It is then repeated."""
READS = "streamgroup_reads"
"""Execution option of a connection that only reads: in SQLite it does not wait for a transaction that writes."""


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
    except sa.exc.ArgumentError:
        raise ConfigError(
            "invalid URL of a database: expected one such as postgresql://host/database or sqlite:////path/of/file.db"
        ) from None
    dialect = url.get_backend_name()
    if dialect not in _DRIVERS:
        raise ConfigError(
            f"invalid URL of a database: unsupported database {dialect!r}. Supported are postgresql and sqlite"
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
    url = url.set(drivername=f"{dialect}+{_DRIVERS[dialect]}")
    if user is not None:
        url = url.set(username=user)
    return url if password is None else url.set(password=password)


def open_engine(url: sa.URL, timeout_ms: int | None = None, *, limits_statements: bool = True) -> sa.Engine:
    """Return the engine of a database; it connects with the first statement. Raises ConfigError without the driver.

    `timeout_ms` limits each statement, and the wait for a connection. The default suits a query. Without
    `limits_statements` PostgreSQL works at a statement for as long as it takes, as at the rows of a large batch.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, _BUSY_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000)
    statement_ms = _STATEMENT_TIMEOUT_MS if timeout_ms is None else timeout_ms
    try:
        engine = sa.create_engine(
            url,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": min(_CONNECT_TIMEOUT_S, -(-statement_ms // 1000)),
                "application_name": "streamgroup",
                "tcp_user_timeout": statement_ms,
            },
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot use {url.get_backend_name()}: the Python package {error.name} is not installed. Install "
            "streamgroup[sql] for the Python of the driver"
        ) from None

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:  # PgBouncer takes no settings when it connects
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {statement_ms if limits_statements else 0}")

    return engine


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
    state = str(getattr(cause, "sqlstate", "") or "")
    if state:
        return state.startswith(("08", "57P")) or state in _RETRIABLE
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return isinstance(error, sa.exc.OperationalError) and not _FINAL.search(str(cause))


_RETRIABLE = {"40001", "40P01", "55P03", "57014"}
"""PostgreSQL's codes for a conflict of transactions, a deadlock, and the timeouts of a lock and a statement."""
_FINAL = re.compile("password authentication failed|does not exist|no pg_hba.conf entry|is not permitted to log in")
"""PostgreSQL's errors for connections that it will refuse again. libpq reports no error code for them."""


def reason_of(error: BaseException) -> str:
    """Return what the database said, on one line. Neither statements nor their values are in it, nor a password."""
    cause: BaseException = error
    if isinstance(error, sa.exc.DBAPIError) and error.orig is not None:
        cause = error.orig
    line = str(cause).strip().partition("\n")[0]
    return line or type(cause).__name__


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
