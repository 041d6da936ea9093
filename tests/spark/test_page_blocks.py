"""Python blocks of pages run as they stand, but for the addresses of brokers, the names of topics and directories."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamgroup
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams
from tests.unit.test_doc_blocks import blocks
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(240)]

TIMEOUT_S = 120.0
Run = Callable[..., dict[str, Any]]
Meanwhile = Callable[[dict[str, Any]], None]
_numbers = itertools.count(1)


@pytest.fixture
def load(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    return Load(kafka4, make_topic(kafka4, 2, name=f"orders{next(_numbers)}"), 2)


@pytest.fixture
def run(spark: SparkSession, streams: Streams, load: Load, tmp_path: Path) -> Iterator[Run]:
    """Run the block of a page that has `having`, with the test's broker, topic and directories; returns its names.

    `meanwhile` is called where the block has a line `...`.
    """

    def run(page: str, having: str, meanwhile: Meanwhile = lambda _: None, **names: Any) -> dict[str, Any]:
        (block,) = [text for name, _, text in blocks("python") if name == page and having in text]
        text = re.sub(r'"(?:localhost|broker-1):9092"', f'"{load.server.bootstrap_servers}"', block)
        text = re.sub(r'"orders(-copy)?"', lambda found: f'"{load.topic}{found[1] or ""}"', text)
        text = re.sub(r'"/(ckpt|data|lake)/', rf'"{tmp_path}/\1/', text)
        found = {"spark": spark, "streamgroup": streamgroup, **names}
        first, *others = re.split(r"^\.\.\.$", text, flags=re.MULTILINE)
        exec(compile(first, page, "exec"), found)
        for other in others:
            meanwhile(found)
            exec(compile(other, page, "exec"), found)
        return found

    yield run
    for query in spark.streams.active:  # of a test that has failed
        query.stop()


def options(load: Load, **others: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": load.server.bootstrap_servers,
        "subscribe": load.topic,
        "startingOffsets": "earliest",
        **others,
    }


def test_the_query_of_the_readme_writes_what_comes_and_is_drained(
    run: Run, spark: SparkSession, load: Load, tmp_path: Path
) -> None:
    def meanwhile(found: dict[str, Any]) -> None:
        wait_until(lambda: load.send(10) and rows(), "rows come", TIMEOUT_S)
        assert found["query"].isActive

    def rows() -> int:
        here = tmp_path / "data" / "orders" / "a"
        is_sunk = list((here / "_spark_metadata").glob("[0-9]*"))  # before, its files may be incomplete
        return spark.read.parquet(str(here)).count() if is_sunk else 0

    found = run("README.md", "streamgroup.drain(query)", meanwhile)
    assert not found["query"].isActive
    assert spark.read.parquet(str(tmp_path / "data/orders/a")).columns == ["value", "partition", "offset"]


def test_the_blocks_of_a_drain_and_of_its_progress(run: Run, streams: Streams, load: Load) -> None:
    load.send(20)
    streamgroup.listen(streams.spark)
    query = streams.to_parquet(streams.read(load.server, load.topic, f"g-{load.topic}")).query
    assert query is not None
    wait_until(lambda: len(query.recentProgress), "a batch", TIMEOUT_S)
    event = SimpleNamespace(progress=query.recentProgress[-1])
    run("monitor.md", "streamgroup.progress(query)", query=query, event=event)
    assert run("drain.md", "result.drained", query=query)["result"].drained


@pytest.mark.parametrize(("page", "having"), [("migrate-from-spark.md", "listen"), ("stateful.md", '"group.mode"')])
def test_a_source_of_a_page_is_read(page: str, having: str, run: Run, load: Load, tmp_path: Path) -> None:
    load.send(20)
    frame = run(page, having)["df"]
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
    assert query.awaitTermination(TIMEOUT_S)


def test_the_writes_of_the_page_arrive(run: Run, spark: SparkSession, load: Load, make_topic: MakeTopic) -> None:
    run("write.md", "to_json", df=spark.range(10))
    read = spark.read.format("streamgroup").options(**options(load))
    assert sorted(row.key for row in read.load().selectExpr("CAST(key AS STRING) AS key").collect()) == [
        str(number) for number in range(10)
    ]
    make_topic(load.server, 1, name=f"{load.topic}-copy")
    stream = spark.readStream.format("streamgroup").options(**options(load, **{"kafka.group.id": f"g-{load.topic}"}))
    query = run("write.md", "orders-copy", df=stream.load())["query"]
    copy = spark.read.format("streamgroup").options(**options(load, subscribe=f"{load.topic}-copy"))
    wait_until(lambda: copy.load().count() == 10, "the copy has all", TIMEOUT_S)
    query.stop()


def test_the_dead_letters_of_the_page_are_set_aside(run: Run, spark: SparkSession, load: Load, tmp_path: Path) -> None:
    rows = [f'{{"id": {number}, "amount": 1.5}}' for number in range(199)] + ["no json"]
    frame = spark.createDataFrame([(row,) for row in rows], "value string")
    to = {"kafka.bootstrap.servers": load.server.bootstrap_servers, "topic": load.topic}
    frame.write.format("streamgroup").mode("append").options(**to).save()
    group = options(load, **{"kafka.group.id": f"g-{load.topic}"})
    query = run("dead-letters.md", "max_share", options=group)["query"]
    wait_until(lambda: query.lastProgress or query.exception(), "a batch", TIMEOUT_S)
    wait_until(lambda: spark.catalog.tableExists(load.topic) and spark.table(load.topic).count() == 199, "rows", 60)
    wait_until(lambda: list((tmp_path / "lake/orders-dead").rglob("*.parquet")), "the dead letter", 60)
    query.stop()
    spark.sql(f"DROP TABLE {load.topic}")
