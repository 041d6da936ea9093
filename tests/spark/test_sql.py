"""Tables and views of SQL: where the options of a read and of a write may be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import streamgroup
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]


class Sql:
    """Statements on one topic, as a table or view of the session."""

    def __init__(self, spark: SparkSession, server: KafkaServer, topic: str) -> None:
        self.spark = spark
        self.topic = topic
        self.read = f"('kafka.bootstrap.servers' = '{server.bootstrap_servers}', 'subscribe' = '{topic}')"
        self.write = f"('kafka.bootstrap.servers' = '{server.bootstrap_servers}', 'topic' = '{topic}')"

    def count(self, relation: str) -> int:
        return int(self.spark.sql(f"SELECT count(*) FROM {relation}").first()[0])


@pytest.fixture
def sql(spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic) -> Iterator[Sql]:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(10)
    made = Sql(spark.newSession(), kafka4, load.topic)
    yield made
    made.spark.sql("DROP TABLE IF EXISTS orders")


def test_a_table_is_read_with_its_options_and_with_those_of_a_statement(sql: Sql) -> None:
    sql.spark.sql(f"CREATE TABLE orders USING streamgroup OPTIONS {sql.read}")
    assert sql.count("orders") == 10
    assert sql.count("orders WITH ('startingOffsets' = 'earliest', 'includeHeaders' = 'false')") == 10
    assert sql.spark.read.option("endingTimestamp", "1").table("orders").count() == 0
    stream = sql.spark.readStream.option("startingOffsets", "earliest").table("orders")
    query = stream.writeStream.format("memory").queryName("read_as_stream").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sql.count("read_as_stream") == 10
    progress = streamgroup.progress(query)
    assert progress is not None
    assert progress.sources[0].description == f"streamgroup[Subscribe[{sql.topic}], mode=off]"


def test_a_table_with_a_list_of_columns_needs_the_options_in_the_statement(sql: Sql) -> None:
    columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
    columns += ", timestamp TIMESTAMP, timestampType INT"
    sql.spark.sql(f"CREATE TABLE orders ({columns}) USING streamgroup OPTIONS {sql.read}")
    with pytest.raises(PySparkException, match="cannot read a table of format streamgroup without options"):
        sql.count("orders")
    assert sql.count(f"orders WITH {sql.read}") == 10


def test_a_temporary_view_is_read_with_its_options(sql: Sql) -> None:
    sql.spark.sql(f"CREATE TEMPORARY VIEW orders_view USING streamgroup OPTIONS {sql.read}")
    assert sql.count("orders_view") == 10


def test_a_statement_inserts_into_a_table_with_its_own_options_and_into_a_view_with_those_of_the_view(sql: Sql) -> None:
    sql.spark.sql("CREATE TABLE orders (key BINARY, value BINARY) USING streamgroup")
    row = "SELECT CAST('a' AS BINARY) AS key, CAST('b' AS BINARY) AS value"
    with pytest.raises(PySparkException, match="cannot write into a table of format streamgroup without options"):
        sql.spark.sql(f"INSERT INTO orders {row}")
    sql.spark.sql(f"INSERT INTO orders WITH {sql.write} {row}")
    sql.spark.sql(f"CREATE TEMPORARY VIEW sink (key BINARY, value BINARY) USING streamgroup OPTIONS {sql.write}")
    sql.spark.sql(f"INSERT INTO sink {row}")
    sql.spark.sql(f"CREATE TEMPORARY VIEW written USING streamgroup OPTIONS {sql.read}")
    assert sql.count("written WHERE key = CAST('a' AS BINARY) AND value = CAST('b' AS BINARY)") == 2
