"""A record that a query cannot get past is given up, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import streamgroup
from streamgroup.cli.main import main
from streamgroup.sql.database import open_engine, url_of
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams

pytestmark = [pytest.mark.spark, pytest.mark.live]


class Sink:
    """A function for foreachBatch that fails at the offset `poison` of partition 0."""

    def __init__(self, poison: int) -> None:
        self.poison = poison
        self.offsets: list[tuple[int, int]] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.take(rows)

    def take(self, rows: DataFrame) -> None:
        found = [(row["partition"], row["offset"]) for row in rows.select("partition", "offset").collect()]
        if (0, self.poison) in found:
            raise ValueError(f"poison at offset {self.poison}")
        self.offsets += found


class TableSink(Sink):
    """The same with `streamgroup.transaction`, in a file of SQLite."""

    def __init__(self, poison: int, url: str) -> None:
        super().__init__(poison)
        self.engine = open_engine(url_of(url))

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with streamgroup.transaction(self.engine) as transaction:
            if not transaction.is_replay:
                self.take(rows)


@pytest.mark.parametrize("in_table", [False, True], ids=["group", "table"])
@pytest.mark.timeout(180)
def test_a_skip_of_one_record_lets_the_query_go_on_with_everything_else(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path, *, in_table: bool
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(40)
    group, home, url = f"skip-{load.topic}", streams.home / "checkpoint", f"sqlite:///{tmp_path}/offsets.db"
    sink = TableSink(7, url) if in_table else Sink(7)
    options = {"offsets__store": url} if in_table else {}

    def run() -> None:
        """A run to the end of the topic. Raises the error that ends it."""
        frame = streams.read(kafka4, load.topic, group, maxOffsetsPerTrigger=10, **options)
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(home))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    def skip(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["skip", str(home), "-b", kafka4.bootstrap_servers, *arguments, "--json"])

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="poison at offset 7"):
            run()
    store = ["--store", url] if in_table else []
    if in_table:
        assert "Name the database with --store" in skip().output
    planned = json.loads(skip(*store).stdout)
    assert [(row["partition"], row["from"], row["until"]) for row in planned["skipped"]] == [(0, 5, 10), (1, 5, 10)]
    done = skip("--topic-partition", f"{load.topic}-0", "--to-offset", "8", "--execute", *store)
    assert done.exit_code == 0, done.output
    run()
    wanted = {(n, offset) for n in range(2) for offset in range(20)} - {(0, 5), (0, 6), (0, 7)}
    assert sorted(sink.offsets) == sorted(wanted), "given up are offsets 5 to 7, and nothing is read twice"
