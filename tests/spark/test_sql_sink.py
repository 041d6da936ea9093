"""`streamgroup.sql_sink` and `format("streamgroup-sql")`: rows reach a table once, in parallel, or not at all."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.spark import sql_sink as sink_module
from streamgroup.sql.staging import prefix_of, staging_tables
from streamgroup.testing import PostgresServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams
from tests.spark.test_exactly_once import Database, Queries, on, queries
from tests.spark.test_restart import forget_last_commit
from tests.waiting import wait_until

__all__ = ["queries"]

pytestmark = [pytest.mark.spark, pytest.mark.live]

database = on("postgres")

MANY = ["repeat(cast(value as string), 40) as value"]
"""Columns so large that the rows of a few thousand records do not travel to the driver."""


def access(database: Database) -> dict[str, str]:
    """Return the options of a write into the database."""
    names = {"offsets__store": "url", "offsets__store__user": "user", "offsets__store__password": "password"}
    return {names[name]: text for name, text in database.options.items()}


class Sinks:
    """Queries of one group that write by the sink."""

    def __init__(self, queries: Queries) -> None:
        self.queries, self.load, self.database = queries, queries.load, queries.database

    def sink(self, table: str = "orders", **options: Any) -> streamgroup.spark.sql_sink.SqlSink:
        return streamgroup.sql_sink(**access(self.database), dbtable=table, **options)

    def start(self, name: str, *columns: str, frame: DataFrame | None = None, **options: Any) -> StreamingQuery:
        sink = options.pop("sink", None) or self.sink()
        trigger = options.pop("trigger", {"availableNow": True})
        read = frame if frame is not None else self.read(**options)
        writer = read.selectExpr(*columns or ["cast(value as string) as value"]).writeStream.foreachBatch(sink)
        home = self.queries.streams.home
        query = writer.trigger(**trigger).option("checkpointLocation", str(home / f"{name}-checkpoint")).start()
        self.queries.streams.add(query)
        return query

    def read(self, group: str = "", **options: Any) -> DataFrame:
        group = group or self.queries.group
        return self.queries.streams.read(
            self.load.server, self.load.topic, group, **{**self.database.options, **options}
        )

    def run(self, name: str, *columns: str, **options: Any) -> StreamingQuery:
        query = self.start(name, *columns, **options)
        assert query.awaitTermination(60)
        return query

    def fails(self, name: str, cause: str, *columns: str, **options: Any) -> None:
        with pytest.raises(StreamingQueryException, match=cause):
            self.run(name, *columns, **options)

    def leftovers(self) -> list[str]:
        with self.database.engine.connect() as connection:
            return [one.name for one in staging_tables(connection)]


@pytest.fixture
def sinks(queries: Queries) -> Sinks:
    return Sinks(queries)


def test_rows_and_offsets_are_stored_together_in_small_batches(sinks: Sinks, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamgroup")
    sinks.load.send(200)
    sinks.run("one", maxOffsetsPerTrigger=60)
    sinks.queries.check()
    assert sinks.leftovers() == []
    assert re.search(r"batch \d+: 60 rows for table orders: staged in .* ms, offsets compared in", caplog.text)


def test_many_rows_are_staged_by_the_tasks_and_added_at_once(sinks: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    of_tasks = sink_module._of_row

    def counted(row: Any) -> Any:
        seen.append(len(sinks.leftovers()))
        assert sinks.database.values() == []
        return of_tasks(row)

    monkeypatch.setattr(sink_module, "_of_row", counted)
    sent = sinks.load.send(6000)
    sinks.run("one", *MANY)
    assert max(seen) == 2
    assert sinks.database.values() == sorted(value * 40 for value in sent)
    assert sinks.leftovers() == []


def test_a_row_replaces_the_row_with_its_key(sinks: Sinks) -> None:
    sink = sinks.sink("by_partition", key_columns=["partition"], create_table=True)
    with sinks.database.engine.begin() as connection:
        sa.Table("by_partition", sa.MetaData()).drop(connection, checkfirst=True)
    columns = ["partition", "cast(value as string) as value", "offset", "timestamp"]
    for count in (50, 31):
        sinks.load.send(count)
        sinks.run("one", *columns, sink=sink, maxOffsetsPerTrigger=20)
    with sinks.database.engine.connect() as connection:
        found = connection.execute(sa.text('SELECT "partition", value FROM by_partition')).all()
    last = {int(value.split("-")[-2]): value for value in sinks.load.sent}
    assert dict(map(tuple, found)) == last


def test_the_sink_leaves_a_replay_out(sinks: Sinks) -> None:
    sinks.load.send(100)
    sinks.run("one", maxOffsetsPerTrigger=40)
    forget_last_commit(sinks.queries.streams, "one")
    sinks.load.send(30)
    sinks.run("one")
    sinks.queries.check()


def test_the_next_run_drops_what_a_crash_has_left_and_only_that(sinks: Sinks) -> None:
    sinks.load.send(10)
    query_id = str(sinks.run("one").id)
    week = 7 * 24 * 3600
    mine, other = (prefix_of(one, time.time() - week + 600) + "0" * 12 for one in (query_id, "f" * 32))
    old = prefix_of("e" * 32, time.time() - week) + "0" * 12
    with sinks.database.engine.begin() as connection:
        for name in (mine, other, old):
            connection.exec_driver_sql(f"CREATE TABLE {name} (value TEXT)")
    sinks.load.send(10)
    sinks.run("one")
    assert sinks.leftovers() == [other]
    with sinks.database.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE {other}")
    sinks.queries.check()


def test_the_next_batch_drops_what_an_earlier_batch_has_left(sinks: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sinks.sink()
    sinks.load.send(6000)
    with monkeypatch.context() as patch:
        patch.setattr(sink_module, "_drop", lambda *_: None)
        sinks.run("one", *MANY, sink=sink)
    assert sinks.leftovers() != []
    sinks.load.send(6000)
    sinks.run("one", *MANY, sink=sink)
    assert sinks.leftovers() == []
    assert len(sinks.database.values()) == 12_000


def test_two_sources_are_stored_in_one_transaction(sinks: Sinks) -> None:
    one, two = sinks.queries.group, sinks.queries.group + "-2"
    sinks.load.send(80)
    frame = sinks.read(one).union(sinks.read(two))
    sinks.run("one", frame=frame)
    assert Counter(sinks.database.values()) == Counter(2 * sinks.load.sent)
    assert sinks.database.offsets(one) == sinks.database.offsets(two) != {}
    forget_last_commit(sinks.queries.streams, "one")
    sinks.load.send(20)
    sinks.run("one", frame=frame)
    assert Counter(sinks.database.values()) == Counter(2 * sinks.load.sent)


def test_a_repeated_batch_in_which_one_group_read_nothing_is_left_out_too(sinks: Sinks, make_topic: MakeTopic) -> None:
    one, two = sinks.queries.group, sinks.queries.group + "-2"
    other = Load(sinks.load.server, make_topic(sinks.load.server, 1), 1)
    other.send(5)
    second = sinks.queries.streams.read(other.server, other.topic, two, **sinks.database.options)
    frame = sinks.read(one).union(second)
    sinks.load.send(30)
    sinks.run("one", frame=frame)
    sinks.load.send(20)  # only the first group reads in the next batch
    sinks.run("one", frame=frame)
    forget_last_commit(sinks.queries.streams, "one")
    other.send(5)
    sinks.run("one", frame=frame)
    assert Counter(sinks.database.values()) == Counter(sinks.load.sent + other.sent)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("DROP TABLE orders", r"the table does not exist\. Create it, or set create_table=True"),
        ("ALTER TABLE orders RENAME COLUMN value TO payload", r"column 'value' \(string\) is not in the table"),
        ("ALTER TABLE orders ADD COLUMN needed INTEGER NOT NULL DEFAULT 1", None),
    ],
)
def test_a_table_that_is_altered_while_the_query_runs_loses_nothing(
    sinks: Sinks, change: str, cause: str | None
) -> None:
    sinks.load.send(40)
    query = sinks.start("one", trigger={"processingTime": "0 seconds"})
    wait_until(lambda: len(sinks.database.values()) == 40, 60)
    with sinks.database.engine.begin() as connection:
        connection.exec_driver_sql(change)
    sinks.load.send(20)
    if cause is None:
        wait_until(lambda: len(sinks.database.values()) == 60, 60)
        query.stop()
        return
    with pytest.raises(StreamingQueryException, match=cause):
        query.awaitTermination(60)
    with sinks.database.engine.begin() as connection:
        if "DROP" in change:
            connection.exec_driver_sql("CREATE TABLE orders (value TEXT)")
        else:
            connection.exec_driver_sql("ALTER TABLE orders RENAME COLUMN payload TO value")
    sinks.run("one")
    assert Counter(sinks.database.values()) == Counter(sinks.load.sent[40 if "DROP" in change else 0 :])


def test_a_column_that_does_not_fit_stores_nothing(sinks: Sinks) -> None:
    sinks.load.send(10)
    sinks.fails("one", r"column 'value' \(binary\) does not fit the table's type TEXT", "value")
    sinks.fails("one", "column 'value' has the type array<int>, which has no", "array(1) as value")
    assert sinks.database.values() == []
    sinks.run("one")
    sinks.queries.check()


def test_a_source_without_an_offset_table_stores_nothing(sinks: Sinks) -> None:
    sinks.load.send(10)
    frame = sinks.queries.streams.read(sinks.load.server, sinks.load.topic, sinks.queries.group)
    sinks.fails("plain", r"has no offset table\. Set the option offsets\.store", frame=frame)
    assert sinks.database.values() == []


def test_staged_rows_that_vanish_before_the_transaction_store_nothing(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_tasks = sink_module._of_row

    def emptied(row: Any) -> Any:
        with sinks.database.engine.begin() as connection:
            connection.exec_driver_sql(f"DELETE FROM {row['staging']}")
        return of_tasks(row)

    sent = sinks.load.send(6000)
    with monkeypatch.context() as patch:
        patch.setattr(sink_module, "_of_row", emptied)
        sinks.fails("one", r"it has 0 rows, and the task has loaded 3000\. PostgreSQL empties such tables", *MANY)
    assert (sinks.database.values(), sinks.leftovers()) == ([], [])
    sinks.run("one", *MANY)
    assert sinks.database.values() == sorted(value * 40 for value in sent)


def test_a_database_that_is_away_between_two_batches_holds_the_query_up(
    streams: Streams, load: Load, request: pytest.FixtureRequest
) -> None:
    with PostgresServer() as server:
        sinks = Sinks(Queries(streams, load, Database(server.url), request.node.name))
        load.send(100)
        query = sinks.start("one", trigger={"processingTime": "0 seconds"})
        wait_until(lambda: len(sinks.database.values()) == 100, 60)
        query.processAllAvailable()
        server.kill()
        load.send(50)
        wait_until(lambda: not server.alive, 10)
        server.restart()
        wait_until(lambda: len(sinks.database.values()) == 150 or not query.isActive, 90)
        query.processAllAvailable()
        query.stop()
        sinks.queries.check()


def test_a_wrong_password_is_told_without_it(queries: Queries) -> None:
    if queries.database.url.get_backend_name() == "sqlite":
        return  # it has no users
    queries.load.send(5)
    options = {**access(queries.database), "password": "wrong-canary"}
    sink = streamgroup.sql_sink(**options, dbtable="orders")
    with pytest.raises(StreamingQueryException, match="password authentication failed") as caught:
        Sinks(queries).run("one", sink=sink)
    assert "wrong-canary" not in str(caught.value)
    assert queries.database.values() == []


# --- batch writes -----------------------------------------------------------------------------------------------------


def write(frame: DataFrame, database: Database, mode: str = "append", **options: str) -> None:
    frame.write.format("streamgroup-sql").mode(mode).options(**access(database), dbtable="orders", **options).save()


def test_a_batch_write_appends_replaces_by_key_and_overwrites(spark: SparkSession, database: Database) -> None:
    write(spark.sql("SELECT 'a' AS value UNION ALL SELECT 'b'"), database)
    write(spark.range(20_000).selectExpr("repeat(cast(id as string), 50) as value"), database)
    assert len(database.values()) == 20_002
    write(spark.sql("SELECT 'c' AS value UNION ALL SELECT 'd'"), database, "overwrite")
    assert database.values() == ["c", "d"]
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE UNIQUE INDEX one_value ON orders (value)")
    write(spark.sql("SELECT 'd' AS value UNION ALL SELECT 'e'"), database, keyColumns="value")
    assert database.values() == ["c", "d", "e"]


def test_a_batch_write_that_fails_adds_nothing(spark: SparkSession, database: Database) -> None:
    rows = spark.range(30_000).selectExpr(
        "if(id = 29999, raise_error('a bad row'), repeat(cast(id as string), 60)) as value"
    )
    with pytest.raises(PySparkException, match="a bad row"):
        write(rows, database)
    assert database.values() == []


def test_what_the_format_cannot_do_says_what_to_use(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"it writes only\. Use format\('jdbc'\)"):
        spark.read.format("streamgroup-sql").options(**access(database), dbtable="orders").load()
    stream = spark.readStream.format("rate").load().writeStream.format("streamgroup-sql")
    stream = stream.option("checkpointLocation", str(tmp_path))
    query = stream.options(**access(database), dbtable="orders").start()
    with pytest.raises(
        PySparkException, match=r"Use writeStream\.foreachBatch\(streamgroup\.sql_sink\(url, dbtable\)\)"
    ):
        query.awaitTermination(60)
    with pytest.raises(PySparkException, match="3 problems with the options"):
        spark.range(1).write.format("streamgroup-sql").mode("append").option("dbTabel", "x").save()
