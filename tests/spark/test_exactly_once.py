"""Rows and offsets in one transaction of a database: every record is in the table once, whatever ends the query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.model import TopicPartition
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import OffsetTable
from streamgroup.testing import MariaDbServer, PostgresServer
from streamgroup.testing.directories import write_private
from tests.spark.support import Load, Streams, committed, log_ends, reset_offsets
from tests.spark.test_restart import forget_last_commit
from tests.unit.test_doc_blocks import blocks
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("value", sa.Text))
TABLE = OffsetTable()

Write = Callable[[DataFrame, int], None]


def on(quick: str) -> Callable[..., Iterator[Database]]:
    """Make the fixture of a database: `quick` in the test command, SQLite and PostgreSQL in the long run."""
    kinds = [kind if kind == quick else pytest.param(kind, marks=pytest.mark.long) for kind in ("sqlite", "postgres")]

    @pytest.fixture(params=kinds)
    def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
        kind = request.param
        made = Database(
            f"sqlite:///{tmp_path}/orders.db"
            if kind == "sqlite"
            else request.getfixturevalue(f"streamgroup_{kind}").url
        )
        yield made
        made.engine.dispose()

    return database


database = on("sqlite")
EACH = pytest.mark.parametrize("database", ["sqlite", "postgres", "mariadb"], indirect=True)
FIRST = pytest.mark.parametrize(
    "database",
    ["sqlite", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("postgres", "mariadb"))],
    indirect=True,
)
"""For replays and for members that fight for partitions. tests/live/test_offset_table.py has both in each database,
without Spark, and tests/spark/test_sql_sink.py has replays in PostgreSQL."""


class Database:
    """The table of a test's rows, and the offset table beside it."""

    def __init__(self, url: str) -> None:
        self.url = url_of(url)
        self.engine = open_engine(self.url)
        with self.engine.begin() as connection:
            TABLE.table.drop(connection, checkfirst=True)
            ORDERS.drop(connection, checkfirst=True)
            ORDERS.create(connection)

    @property
    def options(self) -> dict[str, str]:
        """The options of a source whose offsets it stores."""
        url = sa.URL.create(self.url.drivername, host=self.url.host, port=self.url.port, database=self.url.database)
        options = {"offsets__store": url.render_as_string()}
        if self.url.username and self.url.password:
            options |= {"offsets__store__user": self.url.username, "offsets__store__password": str(self.url.password)}
        return options

    def store(self, batch: DataFrame, _: int) -> None:
        """Store a batch as a user's function does."""
        with streamgroup.transaction(self.engine) as transaction:
            if not transaction.is_replay:
                self.insert(transaction.connection, batch)

    @staticmethod
    def insert(connection: sa.Connection, batch: DataFrame) -> None:
        values = [{"value": bytes(row.value).decode()} for row in batch.toLocalIterator()]
        if values:
            connection.execute(sa.insert(ORDERS), values)

    def values(self) -> list[str]:
        with self.engine.connect() as connection:
            return sorted(connection.execute(sa.select(ORDERS.c.value)).scalars())

    def offsets(self, group: str) -> dict[int, int | None]:
        with self.engine.connect() as connection:
            return {tp.partition: row.next_offset for tp, row in TABLE.read(connection, group).items()}


class Queries:
    """Queries of one group into one database."""

    def __init__(self, streams: Streams, load: Load, database: Database, group: str) -> None:
        self.streams, self.load, self.database, self.group = streams, load, database, group

    def start(self, name: str, write: Write | None = None, **options: Any) -> StreamingQuery:
        trigger = options.pop("trigger", {"availableNow": True})
        frame = self.streams.read(self.load.server, self.load.topic, self.group, **self.database.options, **options)
        writer = frame.writeStream.foreachBatch(write or self.database.store).trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.streams.home / f"{name}-checkpoint")).start()
        self.streams.add(query)
        return query

    def run(self, name: str, write: Write | None = None, **options: Any) -> None:
        assert self.start(name, write, **options).awaitTermination(60)

    def check(self) -> None:
        """Every record is in the table once, and the offsets of table and group are the ends of the logs."""
        assert Counter(self.database.values()) == Counter(self.load.sent)
        ends = log_ends(self.load.server, self.load.topic, self.load.partitions)
        assert self.database.offsets(self.group) == ends
        assert committed(self.load.server, self.group, self.load.topic) == ends


@pytest.fixture
def queries(streams: Streams, load: Load, database: Database, request: pytest.FixtureRequest) -> Queries:
    return Queries(streams, load, database, request.node.name)


@EACH
def test_rows_and_offsets_are_stored_together(queries: Queries) -> None:
    queries.load.send(200)
    queries.run("one", maxOffsetsPerTrigger=60)
    queries.check()
    queries.load.send(50)
    queries.run("one")
    queries.check()


def test_the_examples_of_the_page_store_each_record_once(
    spark: SparkSession,
    load: Load,
    streamgroup_postgres: PostgresServer,
    streams: Streams,
) -> None:
    database = Database(streamgroup_postgres.url)
    sink, own_sql, _ = [text for page, _, text in blocks("python") if page == "exactly-once.md"]
    assert max(len(sink.splitlines()), len(own_sql.splitlines())) <= 15
    password = write_private(streams.home / "password", str(database.url.password))
    plain = database.options["offsets__store"]
    for mine, of_test in {
        "env:SHOP_PASSWORD": f"file:{password}",  # Spark's JVM runs already, and would not see a variable
        '"user": "writer"': f'"user": "{database.url.username}"',
        "postgresql+psycopg://writer@db/shop": database.url.render_as_string(hide_password=False),
        "postgresql://db/shop": plain.replace("+psycopg", ""),
        "broker-1:9092": load.server.bootstrap_servers,
        '"subscribe", "orders"': '"subscribe", topic).option("startingOffsets", "earliest"',
        "/data/shop/checkpoint": str(streams.home / "shop-checkpoint"),
    }.items():
        assert mine in sink + own_sql
        sink, own_sql = sink.replace(mine, of_test), own_sql.replace(mine, of_test)
    names = {"spark": spark, "topic": load.topic}
    load.send(50)
    ORDERS.drop(database.engine)
    exec(compile(sink, "exactly-once.md", "exec"), names)
    streams.add(names["query"])
    wait_until(lambda: sa.inspect(database.engine).has_table("orders") and len(database.values()) >= 50, 60)
    names["query"].stop()
    assert Counter(database.values()) == Counter(load.sent)
    ORDERS.drop(database.engine)
    ORDERS.create(database.engine)
    second = load.send(30)
    own_sql = own_sql.replace("stream.load()", 'stream.option("subscribe", topic).load()')
    exec(compile(own_sql, "exactly-once.md", "exec"), names)
    streams.add(names["query"])
    wait_until(lambda: len(database.values()) >= 30, 60)
    assert Counter(database.values()) == Counter(second)


def test_a_new_checkpoint_goes_on_at_the_offsets_of_the_table(queries: Queries) -> None:
    queries.load.send(100)
    queries.run("one")
    queries.load.send(50)
    reset_offsets(queries.load.server, queries.group, queries.load.topic, {0: 0, 1: 0})
    queries.run("another")
    queries.check()


@FIRST
def test_a_batch_that_is_stored_but_not_in_sparks_checkpoint_is_not_stored_again(queries: Queries) -> None:
    queries.load.send(100)
    queries.run("one", maxOffsetsPerTrigger=40)
    forget_last_commit(queries.streams, "one")
    queries.load.send(30)
    queries.run("one")
    queries.check()


def test_a_batch_that_failed_after_its_rows_were_written_is_stored_once(queries: Queries) -> None:
    failures = iter([True])

    def write(batch: DataFrame, number: int) -> None:
        with streamgroup.transaction(queries.database.engine) as transaction:
            queries.database.insert(transaction.connection, batch)
            if next(failures, False):
                raise RuntimeError("the disk is full")

    queries.load.send(100)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        queries.run("one", write)
    assert queries.database.values() == []
    queries.run("one", write)
    queries.check()


def test_a_group_that_begins_to_use_a_table_goes_on_at_its_commits(queries: Queries) -> None:
    first = queries.load.send(80)
    queries.streams.to_parquet(
        queries.streams.read(queries.load.server, queries.load.topic, queries.group), "plain", availableNow=True
    ).finish()
    second = queries.load.send(40)
    queries.run("one")
    assert queries.database.values() == sorted(second)
    assert set(first).isdisjoint(second)


@FIRST
def test_two_members_and_one_that_takes_over_store_each_record_once(queries: Queries) -> None:
    one = queries.start("one", trigger={"processingTime": "0 seconds"})
    queries.load.send(200)
    wait_until(lambda: len(queries.database.values()) == 200, 60)
    two = queries.start("two", trigger={"processingTime": "0 seconds"})
    for _ in range(5):
        queries.load.send(100)
        wait_until(lambda: len(queries.database.values()) >= len(queries.load.sent) - 100, 60)
    one.stop()
    queries.load.send(100)
    wait_until(lambda: len(queries.database.values()) == len(queries.load.sent), 60)
    two.stop()
    assert Counter(queries.database.values()) == Counter(queries.load.sent)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{}, {"kafka__group__instance__id": "static"}, {"group__mode": "commit"}],
    ids=["member", "static member", "commit mode"],
)
def test_once_and_a_drain_store_each_record_once(queries: Queries, options: dict[str, str]) -> None:
    queries.load.send(100)
    queries.run("one", trigger={"once": True}, **options)
    assert Counter(queries.database.values()) == Counter(queries.load.sent)
    running = queries.start("one", trigger={"processingTime": "0 seconds"}, **options)
    queries.load.send(100)
    wait_until(lambda: len(queries.database.values()) == 200, "the query has stored what was sent meanwhile")
    assert streamgroup.drain(running, 60).drained
    queries.check()
    queries.load.send(20)
    queries.run("one", **options)
    queries.check()


@pytest.mark.parametrize("kind", [PostgresServer, pytest.param(MariaDbServer, marks=pytest.mark.long)])
def test_a_database_that_restarts_holds_the_query_up_and_loses_and_repeats_nothing(
    streams: Streams, load: Load, request: pytest.FixtureRequest, kind: type[PostgresServer] | type[MariaDbServer]
) -> None:
    with kind() as server:
        queries = Queries(streams, load, Database(server.url), request.node.name)
        load.send(100)
        query = queries.start("one", trigger={"processingTime": "0 seconds"})
        wait_until(lambda: len(queries.database.values()) == 100, 60)
        server.kill()
        query.stop()
        load.send(50)
        again = queries.start("one", trigger={"processingTime": "0 seconds"})
        wait_until(lambda: again.recentProgress or again.status["message"] != "Initializing sources", 60)
        server.restart()
        wait_until(lambda: len(queries.database.values()) == 150, 60)
        again.processAllAvailable()
        again.stop()
        queries.check()


def test_a_query_whose_partitions_were_claimed_meanwhile_stores_nothing_and_is_told(queries: Queries) -> None:
    queries.load.send(100)

    def write(batch: DataFrame, number: int) -> None:
        with queries.database.engine.begin() as connection:
            TABLE.reset(connection, queries.group, {TopicPartition(queries.load.topic, 0): 0})
        queries.database.store(batch, number)

    with pytest.raises(StreamingQueryException, match="an operator, who has reset the offset"):
        queries.run("one", write)
    assert queries.database.values() == []
    queries.run("one")
    queries.check()


def test_a_second_transaction_in_one_batch_is_an_error_and_loses_no_row(queries: Queries) -> None:
    queries.load.send(20)

    def write(batch: DataFrame, number: int) -> None:
        queries.database.store(batch, number)
        queries.database.store(batch, number)

    with pytest.raises(StreamingQueryException, match="Write all rows of a batch in one transaction"):
        queries.run("one", write)
    queries.run("one")
    queries.check()


def test_without_a_table_the_transaction_says_what_is_missing(queries: Queries) -> None:
    queries.load.send(10)
    frame = queries.streams.read(queries.load.server, queries.load.topic, queries.group)
    writer = frame.writeStream.foreachBatch(queries.database.store).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(queries.streams.home / "plain")).start()
    with pytest.raises(StreamingQueryException, match=r"has no offset table\. Set the option offsets\.store"):
        query.awaitTermination(60)


def test_a_sink_that_stores_no_offsets_commits_them_to_the_table_after_each_batch(queries: Queries) -> None:
    queries.load.send(100)
    queries.run("one", lambda batch, _: batch.count() and None)
    ends = log_ends(queries.load.server, queries.load.topic, queries.load.partitions)
    assert queries.database.offsets(queries.group) == ends
