"""`streamgroup offsets` and the part of `doctor` about databases, with a file of SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import doctor as doctor_module
from streamgroup.cli import offsets as module
from streamgroup.cli._offset_store import StoreAddress
from streamgroup.cli.doctor import CheckVerdict, of_offset_table
from streamgroup.cli.main import main
from streamgroup.coordinator.control import channel
from streamgroup.group.offsets.table_rows import Claimant
from streamgroup.kafka.cluster.requests import NO_OFFSET
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import OffsetTable
from tests.unit.cli.shown import cells, orders
from tests.unit.cli.test_groups import FakeStore
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

QUERY = "0123456789ab"
DAY_S = 86_400


class Store:
    """A file of SQLite. Group `g` has claimed orders-0 at 90 and orders-1 at 40, `done` has orders-0 at 7."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.url = f"sqlite:///{file}"
        self.table = OffsetTable()
        self.engine = open_engine(url_of(self.url))
        with self.engine.begin() as connection:
            self.table.create(connection)
        self.claim("g", {orders(0): CommittedOffset(90), orders(1): CommittedOffset(40)})
        self.claim("done", {orders(0): CommittedOffset(7)})

    def claim(self, group: str, found: dict[TopicPartition, CommittedOffset]) -> None:
        with self.engine.begin() as connection:
            self.table.insert_missing(connection, group, found)
            self.table.claim(connection, group, Claimant("checkpoint", "run"), found, found)

    def rows(self, group: str = "g") -> dict[int, tuple[int | None, int]]:
        """Offset and claim by the number of the partition."""
        with self.engine.begin() as connection:
            found = self.table.read(connection, group)
        return {tp.partition: (row.next_offset, row.claim) for tp, row in found.items()}

    def add_staging(self, age_s: float) -> str:
        name = f"streamgroup_staging_{QUERY}_{int(time.time() - age_s):010d}_{os.urandom(6).hex()}"
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute(f"CREATE TABLE {name} (value INTEGER)")
        return name

    def tables(self) -> set[str]:
        with closing(sqlite3.connect(self.file)) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


class Brokers(FakeStore):
    """Logs of `orders` that hold [10, 100), with a record of each time until offset 55."""

    def partitions(self, topics: Any, deadline: float) -> dict[str, tuple[int, ...]]:
        return {topic: (0, 1, 2) for topic in topics if topic == "orders"}

    def offsets_at(self, wanted: dict[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        return {tp: {-2: 10, -1: 100}.get(at, 55 if at < 1_800_000_000_000 else NO_OFFSET) for tp, at in wanted.items()}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(channel, "drivers", list)
    return Store(tmp_path / "offsets.db")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(made))
    monkeypatch.setattr(doctor_module, "opened_store", lambda _: nullcontext(made))
    return made


def run(store: Store, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["offsets", "--store", store.url, *arguments])


def rows_of(store: Store, *arguments: str) -> list[dict[str, Any]]:
    result = run(store, *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def reset(store: Store, *arguments: str) -> dict[int, int]:
    found = rows_of(store, "--reset-offsets", "--group", "g", *arguments)
    return {row["partition"]: row["new_offset"] for row in found}


# -- look --------------------------------------------------------------------------------------------------------------


def test_the_groups_of_the_table_are_listed(store: Store) -> None:
    heading, *lines = cells(run(store, "--list").stdout)
    assert heading == "GROUP PARTITIONS UPDATED-AT"
    assert [line.split()[:2] for line in lines] == [["done", "1"], ["g", "2"]]


def test_a_group_is_described_by_its_rows(store: Store) -> None:
    described = run(store, "--describe", "--group", "g")
    heading, first, second = cells(described.stdout)
    assert heading == "GROUP TOPIC PARTITION NEXT-OFFSET CLAIM RUN UPDATED-AT"
    assert first.startswith("g orders 0 90 1 run 20")
    assert second.startswith("g orders 1 40 1 run 20")
    assert {row["group"] for row in rows_of(store, "--describe")} == {"g", "done"}, "all groups are the default"
    assert rows_of(store, "--describe", "--group", "g")[0]["lineage"] == "checkpoint"


@pytest.mark.usefixtures("brokers")
def test_brokers_add_the_commits_and_the_lag_and_a_commit_beyond_the_table_is_warned_of(store: Store) -> None:
    store.claim("g", {orders(3): CommittedOffset(2)})
    result = run(store, "--describe", "--group", "g", "-b", "broker")
    assert result.exit_code == 0, result.output
    heading, *lines = cells(result.stdout)
    assert heading == "GROUP TOPIC PARTITION NEXT-OFFSET COMMITTED-OFFSET LOG-END-OFFSET LAG CLAIM RUN UPDATED-AT"
    assert [line.split()[2:8] for line in lines] == [
        ["0", "90", "90", "100", "10", "1"],
        ["1", "40", "-", "100", "60", "1"],
        ["3", "2", "5", "-", "-", "1"],
    ]
    assert "Warning: group g: the commits of orders-3 in Kafka are beyond the offsets of the table" in result.stderr


def test_a_group_without_rows_is_an_error_after_the_others_are_shown(store: Store) -> None:
    result = run(store, "--describe", "--group", "other", "--group", "g")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == f"Error: the offset table in {store.url} has no offset of group 'other'\n"


def test_a_reader_does_not_wait_for_a_batch_that_is_written(store: Store) -> None:
    with store.engine.begin() as connection:
        store.table.reset(connection, "g", {orders(0): 1})
        assert rows_of(store, "--describe", "--group", "g", "--timeout", "100")[0]["next_offset"] == 90


# -- change ------------------------------------------------------------------------------------------------------------


def test_a_reset_is_shown_first_and_then_fences_the_batch_that_was_planned(store: Store) -> None:
    result = run(store, "--reset-offsets", "--group", "g", "--topic", "orders:0", "--to-offset", "50")
    assert cells(result.stdout) == ["GROUP TOPIC PARTITION NEW-OFFSET", "g orders 0 50"]
    assert "Dry run: nothing was changed" in result.stderr
    assert store.rows() == {0: (90, 1), 1: (40, 1)}

    assert reset(store, "--topic", "orders:0", "--to-offset", "50", "--execute") == {0: 50}
    assert store.rows() == {0: (50, 2), 1: (40, 1)}


def test_ways_that_need_no_log_work_without_brokers(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("orders,1,3\norders,5,8\n")
    assert reset(store, "--all-topics", "--shift-by", "-60") == {0: 30, 1: 0}, "no offset is negative"
    assert reset(store, "--topic", "orders", "--shift-by", "5") == {0: 95, 1: 45}
    assert reset(store, "--from-file", str(file), "--execute") == {1: 3, 5: 8}
    assert store.rows() == {0: (90, 1), 1: (3, 2), 5: (8, 1)}, "a missing row is created"


@pytest.mark.usefixtures("brokers")
def test_ways_of_logs_take_the_offsets_from_the_brokers(store: Store) -> None:
    with_brokers = ("-b", "broker", "--topic", "orders")
    assert reset(store, *with_brokers, "--to-earliest") == {0: 10, 1: 10, 2: 10}
    assert reset(store, *with_brokers, "--to-latest") == {0: 100, 1: 100, 2: 100}
    assert reset(store, *with_brokers, "--to-current") == {0: 90, 1: 40, 2: 100}
    assert reset(store, *with_brokers, "--to-datetime", "2020-01-01T00:00:00.000") == {0: 55, 1: 55, 2: 55}
    assert reset(store, *with_brokers, "--to-offset", "7000") == {0: 100, 1: 100, 2: 100}
    assert reset(store, "-b", "broker", "--all-topics", "--to-earliest") == {0: 10, 1: 10}
    store.claim("g", {TopicPartition("deleted", 0): CommittedOffset(1)})
    skipped = run(store, "-b", "broker", "--group", "g", "--reset-offsets", "--all-topics", "--to-earliest")
    assert "not reset, because they do not exist any more: deleted-0" in skipped.stderr
    refused = run(store, "-b", "broker", "--group", "g", "--reset-offsets", "--topic", "orders:7", "--to-earliest")
    assert "partitions that do not exist: orders-7" in refused.stderr


def test_a_deletion_is_shown_first(store: Store) -> None:
    assert "Add --execute to delete these rows" in run(store, "--delete", "--group", "g").stderr
    assert len(store.rows()) == 2
    deleted = run(store, "--delete", "--group", "g", "--execute")
    assert (deleted.exit_code, deleted.stderr) == (0, "Deleted 2 rows of group 'g'.\n")
    assert (store.rows(), len(store.rows("done"))) == ({}, 1)
    assert run(store, "--delete", "--group", "g", "--execute").exit_code == 1


@pytest.mark.usefixtures("home")
def test_a_query_that_runs_with_the_table_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., FakeCoordinator]
) -> None:
    store = Store(tmp_path / "offsets.db")
    monkeypatch.setattr(serve("r1"), "status", lambda: {"group": "g", "offsets_store": store.url})
    for change in (("--delete",), ("--reset-offsets", "--all-topics", "--to-offset", "1")):
        result = run(store, *change, "--group", "g")
        assert f"Warning: a query of group 'g' runs on this machine (driver {JVM})" in result.stderr
        assert "Warning" not in run(store, *change, "--group", "done").stderr


@pytest.mark.usefixtures("brokers")
def test_members_on_other_machines_are_warned_of(store: Store) -> None:
    result = run(store, "--delete", "--group", "g", "-b", "broker")
    assert "Warning: group 'g' has 2 members." in result.stderr
    assert "Warning" not in run(store, "--delete", "--group", "done", "-b", "broker").stderr


# -- staging tables ----------------------------------------------------------------------------------------------------


def test_staging_tables_are_dropped_when_they_are_old(store: Store) -> None:
    old, new = store.add_staging(2 * DAY_S), store.add_staging(60)
    with closing(sqlite3.connect(store.file)) as connection:
        connection.execute("CREATE TABLE streamgroup_staging_of_a_user (value INTEGER)")
    heading, *lines = cells(run(store, "--staging").stdout)
    assert heading == "TABLE QUERY CREATED STATUS"
    assert [(words[0], words[1], words[3]) for words in map(str.split, lines)] == [
        (old, QUERY, "old"),
        (new, QUERY, "kept"),
    ]
    assert {old, new} <= store.tables(), "a dry run"
    dropped = rows_of(store, "--staging", "--execute")
    assert {row["table"]: row["status"] for row in dropped} == {old: "dropped", new: "kept"}
    rows_of(store, "--staging", "--execute", "--older-than", "30s")
    assert store.tables() == {"streamgroup_offsets", "streamgroup_staging_of_a_user"}


# -- wrong usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "choose one of --list, --describe, --reset-offsets, --delete and --staging"),
        (("--list", "--staging"), "choose one of --list"),
        (("--delete",), "--reset-offsets and --delete require one --group"),
        (("--delete", "--group", "a", "--group", "b"), "--reset-offsets and --delete require one --group"),
        (("--list", "--group", "g"), "--group requires --describe, --reset-offsets or --delete"),
        (("--describe", "--execute"), "--execute requires --reset-offsets, --delete or --staging"),
        (("--describe", "--older-than", "5"), "--older-than requires --staging"),
        (("--describe", "--to-latest"), "--reset-offsets requires one of the ways"),
        (("--reset-offsets", "--group", "g", "--to-offset", "1"), "--reset-offsets requires one of --topic"),
        (("--delete", "--group", "g", "--all-topics"), "and each of them requires it"),
        (("--delete", "--group", "g", "--execute", "--dry-run"), "choose one of --execute and --dry-run"),
        (("--reset-offsets", "--group", "g", "--all-topics", "--to-latest"), "--to-latest requires --bootstrap-server"),
        (
            ("--reset-offsets", "--group", "g", "--all-topics", "--to-current"),
            "--to-current requires --bootstrap-server",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_has_exit_code_2(store: Store, arguments: tuple[str, ...], expected: str) -> None:
    result = run(store, *arguments)
    assert (result.exit_code, expected in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_a_topic_without_rows_and_partitions_that_are_no_numbers_are_errors(store: Store) -> None:
    for topic, expected in (
        ("other", "no partition of topic 'other' is in the offset table of group 'g'"),
        ("a:x", "invalid partition of --topic a"),
    ):
        result = run(store, "--reset-offsets", "--group", "g", "--topic", topic, "--to-offset", "1")
        assert (result.exit_code, expected in result.stderr) == (1, True), result.stderr


# -- the database ------------------------------------------------------------------------------------------------------


def test_a_database_without_the_table_and_a_file_that_does_not_exist_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    absent = CliRunner().invoke(main, ["offsets", "--store", f"sqlite:///{file}", "--list"])
    assert f"cannot list the groups in sqlite:///{file}: the file does not exist" in absent.stderr
    assert not file.exists(), "a look creates no file"
    sqlite3.connect(file).close()
    file.touch()
    empty = CliRunner().invoke(main, ["offsets", "--store", f"sqlite:///{file}", "--list"])
    assert (empty.exit_code, "has no table streamgroup_offsets" in empty.stderr) == (1, True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://db/shop", "it begins with 'jdbc:'"),
        ("postgresql://u:secret@db/shop", "expected a URL without a password"),
        ("shop", "expected the URL of a database"),
        ("oracle://db/shop", "unsupported database 'oracle'"),
    ],
)
def test_another_url_is_an_error_without_the_password(url: str, expected: str) -> None:
    result = CliRunner().invoke(main, ["offsets", "--store", url, "--list"])
    assert (result.exit_code, expected in result.stderr) == (1, True), result.stderr
    assert "secret" not in result.output


def test_the_database_may_be_in_the_file_of_properties(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"offsets.store={store.url}\n")
    result = CliRunner().invoke(main, ["offsets", "--command-config", str(file), "--list", "--json"])
    assert [row["group"] for row in json.loads(result.stdout)] == ["done", "g"]
    file.write_text(f"offsets.store={store.url}\nkafka.offsets.store.password=secret\n")
    refused = CliRunner().invoke(main, ["offsets", "--command-config", str(file), "--list"])
    assert "SQLite has no servers, users and passwords" in refused.stderr
    assert "secret" not in refused.output
    without = CliRunner().invoke(main, ["offsets", "--list"])
    assert (without.exit_code, "name the database with --store" in without.stderr) == (2, True)
    listed = CliRunner().invoke(main, ["groups", "-b", "127.0.0.1:1", "--command-config", str(file), "--list"])
    assert "offsets.store" not in listed.output, "other commands ignore it"


def test_a_password_that_cannot_be_read_names_its_option(store: Store) -> None:
    result = run(store, "--list", "--store-password", "env:STREAMGROUP_NO_SUCH_VARIABLE")
    assert "cannot read the secret for option --store-password" in result.stderr


def test_without_sqlalchemy_the_extra_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "streamgroup.sql.operations", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    result = run(store, "--list")
    assert "the Python package sqlalchemy is not installed. Install streamgroup[sql]" in result.stderr


# -- doctor ------------------------------------------------------------------------------------------------------------


def findings(url: str, *names: str, options: Any = None) -> list[tuple[str, CheckVerdict, str]]:
    found = of_offset_table(StoreAddress(url), 5_000, names, options)
    return [(each.subject, each.verdict, each.text) for each in found]


def test_doctor_checks_the_table_and_warns_of_old_staging_tables(store: Store, tmp_path: Path) -> None:
    ((subject, verdict, text),) = findings(store.url)
    assert (subject, verdict) == ("offset table", CheckVerdict.OK)
    assert text.startswith("SQLite 3.")
    assert text.endswith("the table has offsets of 2 groups")
    ((_, verdict, text),) = findings(f"sqlite:///{tmp_path}/new.db")
    assert (verdict, "no table yet. The first query creates it" in text) == (CheckVerdict.OK, True)
    store.add_staging(60)
    old = store.add_staging(2 * DAY_S)
    (_, (subject, verdict, text)) = findings(store.url)
    assert (subject, verdict) == ("staging tables", CheckVerdict.WARN)
    assert text.startswith(f"1 staging table older than a day, which failed batches have left: {old}. ")


def test_doctor_fails_where_the_user_may_not_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != store.file)
    ((_, verdict, text),) = findings(store.url)
    assert (verdict, f"the user may not write to {store.file}" in text) == (CheckVerdict.FAIL, True)
    ((_, verdict, text),) = findings("jdbc:postgresql://db/shop")
    assert (verdict, "jdbc:" in text) == (CheckVerdict.FAIL, True)


def test_doctor_compares_the_offsets_with_the_commits_of_the_group(store: Store, brokers: Brokers) -> None:
    options: Any = type("Options", (), {"default_api_timeout_ms": 5_000})
    assert "With a cluster this check compares them" in findings(store.url, "g")[1][2]
    subject, verdict, text = findings(store.url, "g", options=options)[1]
    assert (subject, verdict) == ("offsets of g", CheckVerdict.OK)
    assert text == "2 partitions in the table. The commits of orders-1 in Kafka have not reached them yet"
    store.claim("g", {orders(3): CommittedOffset(2)})
    _, verdict, text = findings(store.url, "g", options=options)[1]
    assert (verdict, "the commits of orders-3 in Kafka are beyond them" in text) == (CheckVerdict.WARN, True)
    assert findings(store.url, "other", options=options)[1][1:] == (
        CheckVerdict.OK,
        "none in the table: the first query begins at the commits of the group",
    )


def test_doctor_takes_a_group_without_a_cluster_only_with_a_database(store: Store) -> None:
    assert CliRunner().invoke(main, ["doctor", "--group", "g"]).exit_code == 2
    result = CliRunner().invoke(main, ["doctor", "--group", "g", "--store", store.url, "--json"])
    found = {row["check"]: row["verdict"] for row in json.loads(result.stdout)["findings"]}
    assert (found["offset table"], found["offsets of g"]) == ("ok", "ok")
