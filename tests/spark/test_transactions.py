"""Records and offsets in one transaction of Kafka: consumers of `read_committed` see each record once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.kafka.cluster.transactions import open_transactions
from streamgroup.spark.exactly_once import ExactlyOnceSink, _TransactionWriter
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.live.transacting import read_committed
from tests.spark.support import Load, Streams, committed, log_ends
from tests.spark.test_restart import forget_last_commit
from tests.unit.test_doc_blocks import blocks
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

Write = Callable[[DataFrame, int], None]


class Copies:
    """Queries of one group that copy the records of `load` to the topic `out`."""

    def __init__(self, load: Load, streams: Streams, out: str) -> None:
        self.load, self.streams, self.out = load, streams, out
        self.group = f"{out}-group"

    def sink(self, **options: Any) -> ExactlyOnceSink:
        return streamgroup.exactly_once(
            self.out, **{"kafka.bootstrap.servers": self.load.server.bootstrap_servers}, **options
        )

    def start(
        self, name: str, write: Write | None = None, columns: tuple[str, ...] = ("value",), **options: Any
    ) -> StreamingQuery:
        trigger = options.pop("trigger", {"availableNow": True})
        read = {name: value for name, value in {"offsets__store": "transaction", **options}.items() if value}
        rows = self.streams.read(self.load.server, self.load.topic, self.group, **read).selectExpr(*columns)
        writer = rows.writeStream.foreachBatch(write or self.sink()).trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.streams.home / f"{name}-checkpoint")).start()
        self.streams.add(query)
        return query

    def run(self, name: str, write: Write | None = None, **options: Any) -> None:
        assert self.start(name, write, **options).awaitTermination(90)

    def fails(self, name: str, cause: str, write: Write | None = None, **options: Any) -> None:
        with pytest.raises(StreamingQueryException, match=cause):
            self.run(name, write, **options)

    def values(self) -> list[str]:
        """Return the values of `out` that a consumer with `isolation.level=read_committed` reads."""
        return read_committed(self.load.server, self.out)

    def check(self) -> None:
        """Check that `out` has each record once, and that the group has committed the log end offsets."""
        found = self.values()
        assert Counter(found) == Counter(self.load.sent)
        ends = log_ends(self.load.server, self.load.topic, self.load.partitions)
        assert committed(self.load.server, self.group, self.load.topic) == ends


@pytest.fixture
def copies(load: Load, streams: Streams, make_topic: MakeTopic) -> Copies:
    return Copies(load, streams, make_topic(load.server, 3))


def test_each_record_is_visible_once_and_the_group_has_the_offsets(copies: Copies) -> None:
    copies.load.send(200)
    copies.run("one", maxOffsetsPerTrigger=60)
    copies.check()
    copies.load.send(50)
    copies.run("one")
    copies.check()


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.1.1"])
def test_brokers_of_other_releases(version: str, streams: Streams, make_topic: MakeTopic) -> None:
    """Transactions V1 with and without a check of each write, and V2 before Kafka 4.2."""
    with KafkaServer(version) as server:
        copies = Copies(Load(server, make_topic(server, 2), 2), streams, make_topic(server, 3))
        copies.load.send(200)
        copies.run("one", maxOffsetsPerTrigger=60)
        copies.check()
        forget_last_commit(streams, "one")
        copies.load.send(50)
        copies.run("one")
        copies.check()


def test_a_query_that_finds_no_records_writes_nothing(copies: Copies) -> None:
    copies.run("one")
    assert copies.values() == []
    copies.load.send(20)
    copies.run("one")
    copies.check()


def test_the_example_of_the_page_writes_each_record_once(copies: Copies) -> None:
    *_, example = [text for page, _, text in blocks("python") if page == "exactly-once.md"]
    for mine, of_test in {
        "broker-1:9092": copies.load.server.bootstrap_servers,
        '"subscribe", "orders"': '"startingOffsets", "earliest").option("subscribe", topic',
        '"shipping"': "group",
        '"shipments"': "target",
        "/data/ship": str(copies.streams.home / "ship-checkpoint"),
    }.items():
        assert mine in example
        example = example.replace(mine, of_test)
    names = {"spark": copies.streams.spark, "streamgroup": streamgroup, "topic": copies.load.topic}
    names |= {"group": copies.group, "target": copies.out}
    copies.load.send(50)
    exec(compile(example, "exactly-once.md", "exec"), names)
    copies.streams.add(names["query"])
    wait_until(lambda: len(copies.values()) >= 50, "the records are copied", 60)
    copies.check()


def test_the_records_of_a_key_keep_their_order(copies: Copies) -> None:
    copies.load.send(400)
    keyed = "cast(partition as string) as key", "value"
    copies.run("one", columns=keyed, maxOffsetsPerTrigger=150)
    copies.check()
    of_partition = defaultdict(list)
    for value in copies.values():
        of_partition[value.split("-")[-2]].append(int(value.split("-")[-1]))
    assert all(numbers == sorted(numbers) for numbers in of_partition.values())


def test_two_groups_are_committed_with_the_records_of_two_topics(copies: Copies, make_topic: MakeTopic) -> None:
    server, streams, group = copies.load.server, copies.streams, f"{copies.out}-group"
    other, out = Load(server, make_topic(server, 2), 2), make_topic(server, 2)

    def run() -> None:
        one, two = (
            streams.read(server, load.topic, name, offsets__store="transaction").selectExpr("value", f"'{to}' as topic")
            for load, name, to in ((copies.load, group, copies.out), (other, f"{group}-2", out))
        )
        sink = streamgroup.exactly_once(**{"kafka.bootstrap.servers": server.bootstrap_servers})
        writer = one.union(two).writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(streams.home / "two-checkpoint")).start()
        streams.add(query)
        assert query.awaitTermination(90)

    def check() -> None:
        copies.check()
        assert Counter(read_committed(server, out)) == Counter(other.sent)
        assert committed(server, f"{group}-2", other.topic) == log_ends(server, other.topic, 2)

    copies.load.send(60)
    other.send(40)
    run()
    check()
    forget_last_commit(streams, "two")
    other.send(10)  # only the second group reads in the next batch
    run()
    check()


def test_a_copy_of_the_partitions_needs_no_shuffle(copies: Copies) -> None:
    copies.load.send(200)
    copies.run("one", copies.sink(clustered=True), columns=("value", "partition"))
    copies.check()


def test_rows_of_a_partition_in_two_tasks_are_refused_without_a_shuffle(copies: Copies) -> None:
    copies.load.send(200)
    copies.fails(
        "one", "in a transaction from two tasks", copies.sink(clustered=True), columns=("value", "0 as partition")
    )
    assert copies.values() == []
    copies.run("one", columns=("value", "0 as partition"))
    copies.check()


def test_a_batch_that_is_committed_but_not_in_sparks_checkpoint_is_not_written_again(copies: Copies) -> None:
    copies.load.send(100)
    copies.run("one")
    forget_last_commit(copies.streams, "one")
    copies.load.send(100)
    copies.run("one")
    copies.check()


def test_a_batch_whose_query_ends_before_the_commit_is_written_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records stay in the log, in an aborted transaction."""
    copies.load.send(100)

    def ends(*_: Any) -> None:
        raise RuntimeError("the query ends here")

    with monkeypatch.context() as patched:
        patched.setattr(_TransactionWriter, "_commit", ends)
        patched.setattr(_TransactionWriter, "_abort", lambda _: None)  # as if the process were killed
        copies.fails("one", "the query ends here")
    copies.run("one")
    copies.check()


def test_a_batch_whose_query_ends_after_the_commit_is_not_written_again(copies: Copies) -> None:
    copies.load.send(100)
    sink = copies.sink()

    def ends_after(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        raise RuntimeError("the query ends here")

    copies.fails("one", "the query ends here", ends_after)
    copies.load.send(20)
    copies.run("one")
    copies.check()


def test_one_function_serves_several_starts_of_a_query(copies: Copies) -> None:
    sink = copies.sink()
    for name in ("one", "one", "two"):
        copies.load.send(30)
        copies.run(name, sink)
    copies.check()


def test_a_new_checkpoint_goes_on_at_the_offsets_of_the_transactions(copies: Copies) -> None:
    copies.load.send(100)
    copies.run("one")
    copies.load.send(100)
    copies.run("two")
    copies.check()


def test_two_members_share_the_partitions_and_one_takes_over(copies: Copies) -> None:
    copies.load.send(200)
    first = copies.start("one", trigger={"processingTime": "1 second"}, maxOffsetsPerTrigger=40)
    second = copies.start("two", trigger={"processingTime": "1 second"}, maxOffsetsPerTrigger=40)
    wait_until(lambda: all(query.lastProgress for query in (first, second)), "both write", 60)
    copies.load.send(200)
    second.stop()
    ends = log_ends(copies.load.server, copies.load.topic, copies.load.partitions)
    wait_until(lambda: committed(copies.load.server, copies.group, copies.load.topic) == ends, "all is committed", 90)
    assert streamgroup.drain(first).drained
    copies.check()


def test_a_shuffle_without_checksums_is_refused(copies: Copies, spark: SparkSession) -> None:
    copies.load.send(10)
    spark.conf.set("spark.sql.shuffle.orderIndependentChecksum.enabled", "false")
    try:
        copies.fails("one", "spark.sql.shuffle.orderIndependentChecksum.enabled is false")
    finally:
        spark.conf.unset("spark.sql.shuffle.orderIndependentChecksum.enabled")
    copies.run("one")
    copies.check()


def test_a_source_without_the_option_is_refused(copies: Copies) -> None:
    copies.load.send(10)
    copies.fails("one", "Set its options offsets.store=transaction", offsets__store="")
    assert copies.values() == []


def test_a_sink_that_commits_no_offsets_is_found_out(copies: Copies) -> None:
    copies.load.send(10)
    copies.fails("one", r"no transaction has committed it.*streamgroup\.exactly_once", lambda batch, _: batch.count())


def test_a_timeout_above_the_brokers_limit_is_refused(copies: Copies) -> None:
    copies.load.send(10)
    copies.fails("one", "is above transaction.max.timeout.ms", kafka__transaction__timeout__ms=3_600_000)
    assert copies.values() == []


def test_two_queries_with_one_transactional_id_fence_each_other_and_lose_nothing(
    copies: Copies, streams: Streams, make_topic: MakeTopic
) -> None:
    """The one that starts later ends the transactions of the other, whose error names the id."""
    other = Copies(copies.load, streams, make_topic(copies.load.server, 3))
    shared = {"kafka__transactional__id": f"{copies.out}-shared"}
    copies.load.send(50)
    first = copies.start("one", trigger={"processingTime": "1 second"}, **shared)
    wait_until(lambda: len(copies.values()) == 50, "the first query writes", 60)
    other.run("other", **shared)
    copies.load.send(50)
    wait_until(lambda: not first.isActive, "the first query is refused", 60)
    assert "another query with this id has begun a newer one" in str(first.exception())
    for each, name in ((copies, "one"), (other, "other")):
        each.run(name, **shared)
        each.check()


@pytest.mark.long
def test_a_batch_that_takes_longer_than_the_timeout_ends_the_query_and_is_written_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.load.send(50)
    commit = _TransactionWriter._commit

    def late(writer: _TransactionWriter, parts: Any) -> None:
        wait_until(
            lambda: not open_transactions(writer._cluster, writer._cluster.deadline()), "the brokers abort it", 60
        )
        commit(writer, parts)

    with monkeypatch.context() as patched:
        patched.setattr(_TransactionWriter, "_commit", late)
        copies.fails("one", r"kafka\.transaction\.timeout\.ms=1000", kafka__transaction__timeout__ms=1_000)
    assert copies.values() == []
    copies.run("one", kafka__transaction__timeout__ms=600_000)
    copies.check()


def test_a_second_call_for_a_batch_ends_the_query(copies: Copies) -> None:
    """Its rows could be in no transaction: the first call has committed the offsets."""
    copies.load.send(50)
    sink, another = copies.sink(), copies.sink()

    def twice(batch: DataFrame, batch_id: int) -> None:
        sink(batch.where("offset < 10"), batch_id)
        another(batch.where("offset >= 10"), batch_id)

    copies.fails("one", "Write all rows of a batch in one call", twice, columns=("value", "offset"))
