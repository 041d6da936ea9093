"""`streamgroup offsets`, and `doctor` with a database, against real brokers and a real PostgreSQL."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli.main import main
from streamgroup.group.offsets.table_rows import StoredOffset
from streamgroup.model import TopicPartition
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import OffsetTable
from streamgroup.testing import KafkaServer, PostgresServer
from tests.conftest import MakeTopic
from tests.fault.harness import Stream
from tests.live.test_group_changes import committed, fill
from tests.live.test_group_changes import run as run_groups
from tests.spark.canaries import forms_of
from tests.waiting import wait_until

pytestmark = pytest.mark.live

TABLE = OffsetTable()


class Database:
    """A database with an offset table, and the words by which a command line and a query name it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.engine = open_engine(url_of(url))
        with self.engine.begin() as connection:
            TABLE.create(connection)
        self.password = parts.password or ""
        self.url = url if parts.username is None else f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}"
        self.words = ["--store", self.url]
        self.options = {"offsets.store": self.url}
        if parts.username is not None:
            self.words += ["--store-user", parts.username, "--store-password", "env:STORE_PASSWORD"]
            self.options |= {"offsets.store.user": parts.username, "offsets.store.password": "env:STORE_PASSWORD"}

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def row(self, group: str, topic: str, partition: int = 0) -> StoredOffset:
        with self.engine.begin() as connection:
            return TABLE.read(connection, group).get(TopicPartition(topic, partition), StoredOffset())


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    is_file = request.param == "sqlite"
    made = Database(f"sqlite:///{tmp_path}/o.db" if is_file else request.getfixturevalue("streamgroup_postgres").url)
    monkeypatch.setenv("STORE_PASSWORD", made.password)
    yield made
    made.engine.dispose()


@pytest.fixture
def postgres(streamgroup_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database(streamgroup_postgres.url)
    monkeypatch.setenv("STORE_PASSWORD", made.password)
    yield made
    made.engine.dispose()


def run(database: Database, *arguments: str, command: str = "offsets") -> Result:
    return CliRunner().invoke(main, [command, *database.words, "--timeout", "20000", *arguments])


def rows_of(database: Database, *arguments: str) -> list[dict[str, Any]]:
    result = run(database, *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def query(name: str, server: KafkaServer, topic: str, database: Database) -> Stream:
    options = {
        "kafka.bootstrap.servers": server.bootstrap_servers,
        "kafka.group.id": f"g-{topic}",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    return Stream(name, options | database.options)


def test_a_reset_of_the_table_moves_the_query_and_the_group_follows(
    kafka4: KafkaServer, make_topic: MakeTopic, database: Database
) -> None:
    topic = make_topic(kafka4)
    group, brokers = f"g-{topic}", ("-b", kafka4.bootstrap_servers)
    fill(kafka4, topic, partitions=1)

    def commit() -> int:
        return committed(kafka4, group).get((topic, 0), (0, ""))[0]

    with query("first", kafka4, topic, database) as first:
        wait_until(lambda: first.error or commit() == 10, "the query has committed everything")
    (described,) = rows_of(database, *brokers, "--describe", "--group", group)
    assert (described["next_offset"], described["committed_offset"], described["lag"]) == (10, 10, 0)
    assert {row["group"] for row in rows_of(database, "--list")} >= {group}

    reset = ("--reset-offsets", "--group", group, "--all-topics", *brokers)
    (shown,) = rows_of(database, *reset, "--shift-by", "-4")
    assert (shown["current_offset"], shown["new_offset"], database.row(group, topic).next_offset) == (10, 6, 10)
    rows_of(database, *reset, "--shift-by", "-4", "--execute")
    assert database.row(group, topic).next_offset == 6
    ahead = run(database, *brokers, "--describe", "--group", group)
    assert f"the commits of {topic}-0 in Kafka are beyond the offsets of the table" in ahead.stderr
    checked = run(database, *brokers, "--group", group, command="doctor")
    assert re.search(rf"offsets of {group} +warn .* the commits of {topic}-0 in Kafka are beyond them", checked.stdout)

    with query("again", kafka4, topic, database) as again:
        wait_until(lambda: again.error or len(again.rows) == 4, "the query reads from the reset on")
        assert [row.offset for row in again.rows] == [6, 7, 8, 9]
        wait_until(lambda: again.error or database.row(group, topic).next_offset == 10, "the batch is stored")


def test_a_group_that_was_reset_in_kafka_only_has_no_lag_once_its_query_runs(
    kafka4: KafkaServer, make_topic: MakeTopic, database: Database
) -> None:
    topic = make_topic(kafka4)
    group = f"g-{topic}"
    fill(kafka4, topic, partitions=1)
    with query("first", kafka4, topic, database) as first:
        wait_until(lambda: first.error or len(first.rows) == 10, "the query has read everything")
        wait_until(lambda: database.row(group, topic).next_offset == 10, "the offset is in the table")
    reset = ("-b", kafka4.bootstrap_servers, "--reset-offsets", "--group", group, "--topic", topic)
    wait_until(lambda: run_groups(*reset, "--to-earliest", "--execute").exit_code == 0, "the member has left")

    def lag() -> list[int]:
        words = ["lag", "-b", kafka4.bootstrap_servers, "--group", group, "--json"]
        return [row["lag"] for row in json.loads(CliRunner().invoke(main, words).stdout)]

    assert lag() == [10]
    with query("again", kafka4, topic, database) as again:
        wait_until(lambda: again.error or lag() == [0], "the group follows the table")
        assert again.status["offsets_store"] == database.url
        assert not again.rows


def test_a_reset_ends_a_query_that_runs(
    kafka4: KafkaServer, make_topic: MakeTopic, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(kafka4)
    group, brokers = f"g-{topic}", ("-b", kafka4.bootstrap_servers)
    fill(kafka4, topic, partitions=1)
    with query("query", kafka4, topic, database) as running:
        wait_until(lambda: running.error or database.row(group, topic).next_offset == 10, "the offset is stored")
        result = run(
            database, "--reset-offsets", "--group", group, *brokers, "--topic", topic, "--to-offset", "3", "--execute"
        )
        assert f"Warning: group '{group}' has 1 member. After a change each query" in result.stderr
        fill(kafka4, topic, partitions=1)
        wait_until(lambda: running.error is not None, "the query has failed")
        assert "an operator has reset their offsets" in str(running.error)
    assert database.row(group, topic).next_offset == 3
    assert "another run or an operator has claimed partitions in the offset table" in caplog.text


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    fixture = "streamgroup_postgres" if request.param == "postgresql" else "streamgroup_mariadb"
    made = Database(request.getfixturevalue(fixture).url)
    monkeypatch.setenv("STORE_PASSWORD", made.password)
    yield made
    made.engine.dispose()


def test_staging_tables_are_listed_and_dropped(server: Database) -> None:
    old, new = (f"streamgroup_staging_0123456789ab_{int(time.time() - age):010d}_ffffffffffff" for age in (90_000, 5))
    server.execute(f"CREATE TABLE {old} (value text)", f"CREATE TABLE {new} (value text)")
    status = {row["table"]: row["status"] for row in rows_of(server, "--staging")}
    assert (status[old], status[new]) == ("old", "kept")
    checked = run(server, command="doctor")
    assert re.search(r"staging tables +warn +\d+ staging table.* older than a day", checked.stdout)
    status = {row["table"]: row["status"] for row in rows_of(server, "--staging", "--execute")}
    assert (status[old], status[new]) == ("dropped", "kept")
    assert [row["table"] for row in rows_of(server, "--staging")] == [new]
    assert rows_of(server, "--staging", "--execute", "--older-than", "1s")[0]["status"] == "dropped"


NEW_USER = {"postgresql": "CREATE ROLE reader LOGIN PASSWORD", "mariadb": "CREATE USER reader IDENTIFIED BY"}


def test_a_user_without_privileges_is_told_what_is_missing(server: Database) -> None:
    dialect = server.engine.dialect.name
    server.execute("DROP USER IF EXISTS reader", f"{NEW_USER[dialect]} 'canary-of-reader'")
    server.execute("GRANT SELECT ON streamgroup_offsets TO reader")
    words = ["--store", server.url, "--store-user", "reader", "--store-password", "canary-of-reader"]
    try:
        checked = CliRunner().invoke(main, ["doctor", *words])
        assert re.search({"postgresql": r"PostgreSQL 1\d", "mariadb": r"MariaDB 1\d\.\d"}[dialect], checked.stdout)
        assert "the user may not INSERT on streamgroup_offsets, UPDATE on streamgroup_offsets" in checked.stdout
        assert checked.exit_code == 1
        if dialect == "postgresql":
            server.execute(
                "GRANT INSERT, UPDATE ON streamgroup_offsets TO reader", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
            )
            allowed = CliRunner().invoke(main, ["doctor", *words])
            assert "the user lacks CREATE on the default schema, which streamgroup.sql_sink needs" in allowed.stdout
            server.execute("REVOKE INSERT, UPDATE ON streamgroup_offsets FROM reader")
        listed = CliRunner().invoke(main, ["offsets", *words, "--list", "--json"])
        assert listed.exit_code == 0, listed.output
        change = ("--reset-offsets", "--group", "g", "--topic", "t:0", "--to-offset", "3", "--execute")
        refused = CliRunner().invoke(main, ["offsets", *words, *change])
        assert re.search("permission denied for table streamgroup_offsets|command denied to user", refused.stderr)
        assert "canary-of-reader" not in checked.output + listed.output + refused.output
    finally:
        server.execute(*["DROP OWNED BY reader"][: dialect == "postgresql"], "DROP USER reader")


@pytest.mark.parametrize("way", ["as it is", "env", "file"])
def test_no_output_shows_the_password(
    postgres: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Neither the one that is accepted nor one that is refused, and not in tracebacks of the command."""
    outputs = []
    for secret in (postgres.password, "canary0123456789wrong"):
        monkeypatch.setenv("CANARY", secret)
        (tmp_path / "secret").write_text(secret)
        given = {"as it is": secret, "env": "env:CANARY", "file": f"file:{tmp_path}/secret"}[way]
        words = [*postgres.words[:-1], given]
        for arguments in (["offsets", *words, "--describe"], ["offsets", *words, "--staging"], ["doctor", *words]):
            result = CliRunner().invoke(main, [*arguments, "--verbose"] if "--staging" not in arguments else arguments)
            assert result.exit_code == (0 if secret == postgres.password else 1), result.output
            text = f"{result.output}{result.stderr}{result.exception!r}"
            assert not any(form in text.encode() for form in forms_of(secret.encode()))
            outputs.append(text)
    assert any("password authentication failed" in text for text in outputs)
    broken = CliRunner().invoke(main, ["offsets", "--store", postgres.url.replace("//", "//u:canary@"), "--list"])
    assert "canary" not in broken.output
