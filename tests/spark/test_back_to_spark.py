"""There and back: a member goes on with a checkpoint of Spark's own source, and Spark's own source with one that
`streamgroup checkpoint --to-spark` has rewritten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import streamgroup
from streamgroup.cli.main import main
from streamgroup.spark_home import minor_version
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.beside import ADMIN_S
from tests.spark.support import Load, Streams, Sunk, committed, log_ends, reset_offsets
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

NAMED = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",  # implied since Spark 4.3
}
# This is a bug of Spark 4.2, fixed in 4.3: `make test-pyspark` runs the case.
FINISHES_NAMED = pytest.mark.skipif(
    minor_version(pyspark.__version__) < (4, 3), reason="Spark 4.2 cannot finish a batch of named sources: None.get"
)
PARTITIONS = 3
TIMEOUT_S = 60.0


@pytest.fixture
def load(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    return Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)


def sparks(streams: Streams, load: Load, **options: str) -> DataFrame:
    """The same query after the change of one word."""
    reader = streams.spark.readStream.format("kafka").option("kafka.bootstrap.servers", load.server.bootstrap_servers)
    # With `latest` a position that Spark did not take from the checkpoint would lose records.
    return reader.option("subscribe", load.topic).options(**{"startingOffsets": "latest", **options}).load()


def to_spark(streams: Streams, load: Load, name: str = "q") -> Result:
    checkpoint = str(streams.home / f"{name}-checkpoint")
    where = ["-b", load.server.bootstrap_servers]
    return CliRunner().invoke(main, ["checkpoint", checkpoint, "--to-spark", "--timeout", "20000", "--json", *where])


def shown(streams: Streams) -> Any:
    """What `streamgroup checkpoint PATH --json` shows, without a cluster. The plain table must show the same."""
    command = ["checkpoint", str(streams.home / "q-checkpoint")]
    plain, result = CliRunner().invoke(main, command), CliRunner().invoke(main, [*command, "--json"])
    assert (plain.exit_code, result.exit_code) == (0, 0), result.output
    value = json.loads(result.stdout)
    first, titles, *lines = plain.stdout.splitlines()
    assert first.startswith(f"Batch {value['batch']} is {'complete.' if value['sunk'] else 'not complete'}")
    assert titles.split() == ["SOURCE", "GROUP", "TOPIC", "PARTITION", "START", "END"]
    rows = [["-" if cell is None else str(cell) for cell in row.values()] for row in value["offsets"]]
    assert [line.split() for line in lines] == rows
    return value


def run_to_end(streams: Streams, frame: DataFrame) -> Sunk:
    sunk = streams.to_parquet(frame, "q", availableNow=True)
    sunk.finish()
    return sunk


def forget_last_batch(streams: Streams) -> int:
    """Make checkpoint and sink those of a query that died when it had planned its last batch."""
    commits = streams.home / "q-checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for directory in (commits, streams.home / "q-out" / "_spark_metadata"):
        for path in (directory / str(last), directory / f".{last}.crc"):
            path.unlink(missing_ok=True)
    return last


def planned(streams: Streams, batch: int) -> dict[int, tuple[int, int]]:
    """The ranges of a batch in our document."""
    lines = (streams.home / "q-checkpoint" / "offsets" / str(batch)).read_text().splitlines()
    (ranges,) = json.loads(lines[-1])["ranges"].values()
    return {int(partition): (start, until) for partition, (start, until) in ranges.items()}


def planned_by_spark(streams: Streams, topic: str, batch: int) -> dict[int, int]:
    """The ends of a batch in the document of Spark's own source."""
    lines = (streams.home / "q-checkpoint" / "offsets" / str(batch)).read_text().splitlines()
    return {int(partition): end for partition, end in json.loads(lines[-1])[topic].items()}


def rows_of_batch(streams: Streams, batch: int) -> Counter[int]:
    """How many rows of each partition the sink has in one batch."""
    entries = (streams.home / "q-out" / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
    files = [Path(json.loads(entry)["path"].removeprefix("file://")) for entry in entries]
    return Counter(number for file in files for number in pq.read_table(file).column("partition").to_pylist())


def test_a_drained_query_goes_on_as_sparks_own_and_nothing_is_lost_or_repeated(streams: Streams, load: Load) -> None:
    group = f"back-{load.topic}"
    load.send(90)
    running = streams.to_parquet(streams.read(load.server, load.topic, group, maxOffsetsPerTrigger=30), "q")
    wait_until(lambda: len(running.values()) == 90, "the query has read everything", 90)
    refused = to_spark(streams, load)
    assert refused.exit_code == 1
    assert "Drain it first" in refused.output
    assert running.query is not None
    assert streamgroup.drain(running.query, 60).drained
    assert shown(streams)["offsets"][0] | {"start": 0} == {
        "source": "0",
        "group": group,
        "topic": load.topic,
        "partition": 0,
        "start": 0,
        "end": 30,
    }
    load.send(60)
    result = to_spark(streams, load)
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout)
    assert {(row["partition"], row["end"]) for row in written["offsets"]} == {(0, 30), (1, 30), (2, 30)}
    assert written["sunk"]

    again = run_to_end(streams, sparks(streams, load))
    assert sorted(again.values()) == sorted(load.sent)
    load.send(30)
    again = run_to_end(streams, sparks(streams, load))
    assert sorted(again.values()) == sorted(load.sent)


@pytest.mark.parametrize(
    "first",
    [pytest.param(False, id="a later batch"), pytest.param(True, id="batch 0", marks=pytest.mark.long)],
)
def test_a_batch_planned_but_not_sunk_is_replayed_by_spark_with_the_same_ranges(
    streams: Streams, load: Load, *, first: bool
) -> None:
    group = f"replay-{load.topic}"
    load.send(90)
    limit = 1000 if first else 40
    run_to_end(streams, streams.read(load.server, load.topic, group, maxOffsetsPerTrigger=limit))
    last = forget_last_batch(streams)
    assert (last == 0) is first
    before = shown(streams)
    assert (before["batch"], before["sunk"]) == (last, False)
    ranges = planned(streams, last)
    assert {(row["partition"], row["start"], row["end"]) for row in before["offsets"]} >= {
        (number, *bounds) for number, bounds in ranges.items()
    }
    # The group's offsets are where they were before that batch: nobody has committed it.
    reset_offsets(load.server, group, load.topic, {number: start for number, (start, _) in ranges.items()})
    load.send(40)
    result = to_spark(streams, load)
    assert result.exit_code == 0, result.output
    assert not json.loads(result.stdout)["sunk"]

    again = run_to_end(streams, sparks(streams, load))
    assert sorted(again.values()) == sorted(load.sent)
    replayed = {number: until - start for number, (start, until) in ranges.items() if until > start}
    assert rows_of_batch(streams, last) == replayed


@pytest.mark.long
def test_a_query_without_a_group_goes_back_and_forth(streams: Streams, load: Load) -> None:
    """A checkpoint of Spark's is adopted, as before, so both words go on with one checkpoint."""
    load.send(60)
    run_to_end(streams, sparks(streams, load, startingOffsets="earliest"))
    ours = streams.spark.readStream.format("streamgroup").option("subscribe", load.topic)
    ours = ours.option("kafka.bootstrap.servers", load.server.bootstrap_servers)
    load.send(30)
    run_to_end(streams, ours.load())
    load.send(30)
    assert to_spark(streams, load).exit_code == 0
    again = run_to_end(streams, sparks(streams, load))
    assert sorted(again.values()) == sorted(load.sent)
    load.send(30)
    assert sorted(run_to_end(streams, ours.load()).values()) == sorted(load.sent)


@pytest.fixture
def evolution(spark: SparkSession) -> Iterator[None]:
    """Sources have names, under which Spark keeps their offsets."""
    for name, value in NAMED.items():
        spark.conf.set(name, value)
    yield
    for name in NAMED:
        spark.conf.unset(name)


@pytest.mark.usefixtures("evolution")
@pytest.mark.parametrize("unfinished", [False, pytest.param(True, marks=FINISHES_NAMED)])
def test_named_sources_that_changed_their_order_and_number_go_back_to_spark(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, *, unfinished: bool
) -> None:
    orders, payments, refunds = (Load(kafka4, make_topic(kafka4, 2), 2) for _ in range(3))

    def run(form: str, **sources: Load) -> Sunk:
        reader = streams.spark.readStream.format(form).option("kafka.bootstrap.servers", kafka4.bootstrap_servers)
        reader = reader.option("startingOffsets", "earliest")
        frames = (reader.option("subscribe", load.topic).name(name).load() for name, load in sources.items())
        return run_to_end(streams, reduce(DataFrame.union, frames))

    for load in (orders, payments, refunds):
        load.send(30)
    run("streamgroup", orders=orders, payments=payments)
    for load in (orders, payments, refunds):
        load.send(20)
    run("streamgroup", refunds=refunds, payments=payments, orders=orders)
    if unfinished:
        assert forget_last_batch(streams) == 1
    rows = [(row["source"], row["start"], row["end"]) for row in shown(streams)["offsets"]]
    assert sorted(rows) == sorted(
        [(name, start, 25) for name, start in {"orders": 15, "payments": 15, "refunds": 0}.items()] * 2
    )
    refunds.send(10)
    assert to_spark(streams, orders).exit_code == 0

    again = run("kafka", payments=payments, orders=orders, refunds=refunds)
    assert sorted(again.values()) == sorted(orders.sent + payments.sent + refunds.sent)
    assert rows_of_batch(streams, 1) == {0: 45, 1: 45}


@pytest.mark.parametrize(
    "added", [pytest.param(0, id="same partitions"), pytest.param(2, id="added partitions", marks=pytest.mark.long)]
)
def test_a_batch_planned_by_sparks_own_source_is_replayed_by_a_member_and_its_group_goes_on(
    streams: Streams, load: Load, added: int
) -> None:
    load.send(90)
    run_to_end(streams, sparks(streams, load, startingOffsets="earliest"))
    if added:
        add_partitions(load, added)
    load.send(45)
    run_to_end(streams, sparks(streams, load))
    last = forget_last_batch(streams)
    assert last == 1
    starts, ends = (planned_by_spark(streams, load.topic, batch) for batch in (0, 1))
    assert len(ends) == len(starts) + added
    load.send(40)  # the replay has none of them

    goes_on_as_a_member(streams, load)
    assert rows_of_batch(streams, last) == {number: end - starts.get(number, 0) for number, end in ends.items()}


def test_batch_0_planned_by_sparks_own_source_is_refused_until_that_source_has_finished_it(
    streams: Streams, load: Load
) -> None:
    """Its file with the offsets at which batch 0 began is nothing that Spark shows a source in Python."""
    load.send(30)
    run_to_end(streams, sparks(streams, load, startingOffsets="earliest"))
    assert forget_last_batch(streams) == 0
    load.send(20)
    refused = streams.to_parquet(streams.read(load.server, load.topic, "refused"), "q", availableNow=True)
    assert refused.query is not None
    with pytest.raises(PySparkException, match=r"Let format\('kafka'\) finish that batch"):
        refused.query.awaitTermination(TIMEOUT_S)

    run_to_end(streams, sparks(streams, load))
    load.send(20)
    goes_on_as_a_member(streams, load)


def add_partitions(load: Load, count: int) -> None:
    """Add partitions to the topic of a load, which sends to them, too."""
    load.partitions += count
    admin = AdminClient({"bootstrap.servers": load.server.bootstrap_servers, "log_level": 3})
    admin.create_partitions([NewPartitions(load.topic, load.partitions)])[load.topic].result(ADMIN_S)


def goes_on_as_a_member(streams: Streams, load: Load) -> None:
    """Go on with the checkpoint as a member: everything is read once, also what comes later, and committed."""
    group = f"adopts-{load.topic}"
    member = streams.to_parquet(streams.read(load.server, load.topic, group), "q")
    wait_until(lambda: len(member.values()) >= len(load.sent), "the member has read everything", TIMEOUT_S)
    load.send(30)
    wait_until(lambda: len(member.values()) >= len(load.sent), "and what came later", TIMEOUT_S)
    done = log_ends(load.server, load.topic, load.partitions)
    wait_until(lambda: committed(load.server, group, load.topic) == done, "all is committed", TIMEOUT_S)
    assert sorted(member.values()) == sorted(load.sent)
