"""URLs of databases, and what the errors of a database mean."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from streamgroup.errors import ConfigError, OffsetStoreError
from streamgroup.sql import database
from streamgroup.sql.database import is_lost, open_engine, reason_of, shown, translated, url_of, wait_to_connect

REFUSED = 'connection to server at "127.0.0.1", port 5432 failed'


@pytest.mark.parametrize(
    ("text", "driver", "place"),
    [
        ("postgresql://db/orders", "postgresql+psycopg", "postgresql://db/orders"),
        (
            "postgresql+psycopg2://u:secret@db:5433/orders?sslmode=require",
            "postgresql+psycopg",
            "postgresql://db:5433/orders",
        ),
        ("mariadb://u:secret@db:3307/orders?ssl_ca=/ca.pem", "mariadb+pymysql", "mariadb://db:3307/orders"),
        ("sqlite:////data/orders.db", "sqlite+pysqlite", "sqlite:////data/orders.db"),
    ],
)
def test_a_url_gets_our_driver_and_is_shown_without_user_password_and_settings(
    text: str, driver: str, place: str
) -> None:
    url = url_of(text)
    assert (url.drivername, shown(url)) == (driver, place)


def test_user_and_password_replace_those_of_the_url() -> None:
    url = url_of("postgresql://someone@db/orders", user="writer", password="p@ss")
    assert (url.username, url.password) == ("writer", "p@ss")
    assert "p@ss" not in str(url)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("jdbc:postgresql://db/orders?password=secret", "begins with 'jdbc:'"),
        ("orders", "expected one such as"),
        ("oracle://u:secret@db/orders", "unsupported database 'oracle'"),
        ("mysql://u:secret@db/orders", "unsupported database 'mysql'. Supported are mariadb"),
        ("mariadb://u:secret@db", "it names no database"),
        ("sqlite://", "it names no file"),
        ("sqlite:///:memory:", "it names no file"),
        ("sqlite:///orders.db", "the path of its file is relative"),
        ("sqlite://u:secret@/orders.db", "SQLite has no servers"),
        ("sqlite://host/orders.db", "SQLite has no servers"),
    ],
)
def test_a_url_that_cannot_work_is_refused_and_not_shown(text: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause) as caught:
        url_of(text)
    assert "secret" not in str(caught.value)


def test_a_user_or_a_password_of_sqlite_is_refused() -> None:
    for given in ({"user": "u"}, {"password": "secret"}):
        with pytest.raises(ConfigError, match="SQLite has no servers, users and passwords"):
            url_of("sqlite:////orders.db", **given)


def failure(cause: Exception, *, invalidated: bool = False) -> sa.exc.DBAPIError:
    return sa.exc.OperationalError("SELECT secret", {"row": "secret"}, cause, connection_invalidated=invalidated)


def busy() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (failure(psycopg.OperationalError(f"{REFUSED}: Connection refused")), True),
        (failure(psycopg.errors.AdminShutdown("terminating connection")), True),
        (failure(psycopg.errors.CannotConnectNow("the database system is starting up")), True),
        (failure(psycopg.OperationalError("server closed the connection"), invalidated=True), True),
        (failure(psycopg.OperationalError(f"{REFUSED}: FATAL:  password authentication failed for user")), False),
        (failure(psycopg.OperationalError(f'{REFUSED}: FATAL:  database "o" does not exist')), False),
        (failure(psycopg.errors.InsufficientPrivilege("permission denied for table orders")), False),
        (failure(psycopg.errors.DiskFull("could not extend file")), False),
        (failure(psycopg.errors.DeadlockDetected("deadlock detected")), True),
        (failure(psycopg.errors.QueryCanceled("canceling statement due to statement timeout")), True),
        (failure(pymysql.OperationalError(2003, "Can't connect to MySQL server on 'db' (Connection refused)")), True),
        (failure(pymysql.OperationalError(2003, "Can't connect to … certificate verify failed: expired")), False),
        (failure(pymysql.OperationalError(2006, "MySQL server has gone away")), True),
        (failure(pymysql.OperationalError(1927, "Connection was killed")), True),
        (failure(pymysql.OperationalError(1053, "Server shutdown in progress")), True),
        (failure(pymysql.OperationalError(1040, "Too many connections")), True),
        (failure(pymysql.OperationalError(1205, "Lock wait timeout exceeded")), True),
        (failure(pymysql.OperationalError(1213, "Deadlock found")), True),
        (failure(pymysql.OperationalError(1020, "Record has changed since last read")), True),
        (failure(pymysql.InterfaceError(0, ""), invalidated=True), True),
        (failure(pymysql.OperationalError(1045, "Access denied for user")), False),
        (failure(pymysql.OperationalError(1049, "Unknown database 'orders'")), False),
        (failure(pymysql.OperationalError(1142, "INSERT command denied to user")), False),
        (failure(pymysql.OperationalError(1021, "Disk full")), False),
        (failure(psycopg.OperationalError("fe_sendauth: no password supplied")), False),
        (failure(psycopg.OperationalError('FATAL:  Peer authentication failed for user "u"')), False),
        (failure(psycopg.OperationalError("FATAL:  pg_hba.conf rejects connection for host")), False),
        (failure(psycopg.OperationalError("server does not support SSL, but SSL was required")), False),
        (failure(busy()), True),
        (failure(sqlite3.OperationalError("no such table: orders")), False),
        (sa.exc.TimeoutError("QueuePool limit"), True),
        (ValueError("no error of a database"), False),
    ],
)
def test_whether_a_retry_may_succeed(error: Exception, expected: bool) -> None:
    assert is_lost(error) is expected


def test_an_error_shows_the_first_line_of_the_database_and_no_values() -> None:
    error = failure(psycopg.errors.UniqueViolation("duplicate key\nDETAIL:  Key (id)=(secret) already exists."))
    assert reason_of(error) == "duplicate key"
    assert reason_of(failure(psycopg.OperationalError(""))) == "OperationalError"
    invalid = psycopg.errors.InvalidTextRepresentation('invalid input syntax for type uuid: "sec"ret"')
    assert reason_of(failure(invalid)) == 'invalid input syntax for type uuid: "…"'
    unknown = psycopg.errors.InvalidTextRepresentation('invalid input value for enum mood: "secret"')
    assert reason_of(failure(unknown)) == 'invalid input value for enum mood: "…"'
    with (
        pytest.raises(OffsetStoreError, match=r"cannot store in sqlite:///x: duplicate key\. Do this$"),
        translated("store", sa.make_url("sqlite:///x"), "Do this"),
    ):
        raise error


@pytest.mark.parametrize(
    ("code", "message", "shown_text"),
    [
        (1045, "Access denied for user 'u'@'h' (using password: YES)", None),
        (1146, "Table 'shop.orders' doesn't exist", None),
        (1205, "Lock wait timeout exceeded; try restarting transaction", None),
        (1062, "Duplicate entry 'secret' for key 'PRIMARY'", "Duplicate entry '…' for key 'PRIMARY'"),
        (1062, "Duplicate entry 'it's secret' for key 'a' for key 'b'", "Duplicate entry '…' for key 'b'"),
        (
            1366,
            "Incorrect integer value: 'a\nsecret' for column `o`.`n` at row 1",
            "Incorrect integer value: '…' for column `o`.`n` at row 1",
        ),
        (1064, "right syntax to use near 'secret ('a', 'b')' at line 1", "right syntax to use near '…' at line 1"),
        (0, "", "OperationalError"),
    ],
)
def test_an_error_of_mariadb_shows_names_and_no_values(code: int, message: str, shown_text: str | None) -> None:
    text = reason_of(failure(pymysql.OperationalError(code, message)))
    assert text == f"{message if shown_text is None else shown_text} (error {code})"


def test_a_transaction_of_sqlite_takes_the_lock_when_it_begins(tmp_path: Path) -> None:
    url = url_of(f"sqlite:///{tmp_path}/a b.db")
    other = sqlite3.connect(tmp_path / "a b.db", timeout=0)
    with open_engine(url).begin(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("CREATE TABLE t (a)")
    other.execute("CREATE TABLE t (a)")
    other.close()


def test_a_connection_waits_for_a_database_that_is_away_and_not_for_a_refusal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "_PAUSE_S", 0.01)
    engine = open_engine(url_of("postgresql://db/orders"))
    answers: list[Exception | str] = [failure(psycopg.OperationalError(REFUSED))] * 3 + ["a connection"]

    def answer() -> str:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(engine, "connect", answer)
    assert wait_to_connect(engine, 30) == "a connection"
    assert caplog.text.count("cannot reach postgresql://db/orders: connection to server") == 1
    for kept_s, cause in ((30, f"{REFUSED}: FATAL:  password authentication failed"), (0, REFUSED)):
        answers[:] = [failure(psycopg.OperationalError(cause))]
        with pytest.raises(sa.exc.OperationalError):
            wait_to_connect(engine, kept_s)
