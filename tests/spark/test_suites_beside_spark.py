"""Scenarios of the test suites of Spark's own Kafka source, each read by both formats (docs/spark-suites.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.beside import ADMIN_S, BOTH, OURS, PATIENCE, THEIRS, batch, delete_topic, run_to_end, stream, values
from tests.spark.support import Load, Rows, Streams, committed, delete_records, log_ends
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300), pytest.mark.long]

BEGAN = 1_700_000_000_000
"""The time of the first record, in ms since 1970; each has one of its own, a second after the one before."""

RECORDS = 20

Options = dict[str, str]


def filled(options: Options, topic: str) -> Options:
    """The options with the topic's name in the place of TOPIC."""
    return {name: text.replace("TOPIC", topic) for name, text in options.items()}


@pytest.fixture
def load(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    """Twenty records in two partitions."""
    made = Load(kafka4, make_topic(kafka4, 2, config={"retention.ms": "-1"}), 2)
    made.send(RECORDS)
    return made


@pytest.fixture
def timed(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    """Twenty records in two partitions, a second apart."""
    made = Load(kafka4, make_topic(kafka4, 2, config={"retention.ms": "-1"}), 2)
    producer = Producer({"bootstrap.servers": kafka4.direct_servers})
    for n in range(RECORDS):
        made.sent.append(f"{made.topic}-{n % 2}-{n}")
        producer.produce(made.topic, made.sent[-1], partition=n % 2, timestamp=BEGAN + 1_000 * n)
    assert producer.flush(20) == 0
    return made


# -- starting and ending offsets ---------------------------------------------------------------------------------------

BEYOND = str(BEGAN + 1_000_000)

RANGES: dict[str, tuple[Options, int]] = {
    "defaults": ({}, 20),
    "earliest to latest": ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 20),
    "offsets": (
        {"startingOffsets": '{"TOPIC": {"0": -2, "1": 3}}', "endingOffsets": '{"TOPIC": {"0": -1, "1": 7}}'},
        10 + 4,
    ),
    "an empty range": (
        {"startingOffsets": '{"TOPIC": {"0": 4, "1": 4}}', "endingOffsets": '{"TOPIC": {"0": 4, "1": 9}}'},
        5,
    ),
    "options in capitals": ({"STARTINGOFFSETS": '{"TOPIC": {"0": 5, "1": 5}}'}, 10),
    "a prefix of group ids": ({"groupIdPrefix": "etl"}, 20),
    "one starting timestamp": ({"startingTimestamp": str(BEGAN + 4_500)}, 15),
    "a starting timestamp of each partition": (
        {"startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {BEGAN + 4_000}, "1": {BEGAN + 9_001}}}}}'},
        8 + 5,
    ),
    "one ending timestamp": ({"endingTimestamp": str(BEGAN + 4_500)}, 5),
    "an ending timestamp of each partition": (
        {"endingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {BEGAN + 4_000}, "1": {BEGAN + 9_001}}}}}'},
        2 + 5,
    ),
    "an ending timestamp after all records": ({"endingTimestamp": BEYOND}, 20),
    "a starting timestamp after all records, latest": (
        {"startingTimestamp": BEYOND, "startingOffsetsByTimestampStrategy": "latest"},
        0,
    ),
    "one timestamp over timestamps over offsets": (
        {
            "startingTimestamp": str(BEGAN + 15_000),
            "startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {BEGAN}, "1": {BEGAN}}}}}',
            "startingOffsets": "earliest",
            "endingTimestamp": str(BEGAN + 18_000),
            "endingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {BEGAN}, "1": {BEGAN}}}}}',
            "endingOffsets": "latest",
        },
        3,
    ),
    "timestamps over offsets": (
        {
            "startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {BEGAN + 15_000}, "1": {BEGAN + 15_000}}}}}',
            "startingOffsets": "earliest",
        },
        5,
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_a_batch_read_has_the_same_range(spark: SparkSession, timed: Load, name: str) -> None:
    options, count = RANGES[name]
    found = {}
    for form in BOTH:
        frame = batch(spark, form, timed.server, subscribe=timed.topic, **filled(options, timed.topic))
        found[form] = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
    assert found[OURS] == found[THEIRS]
    assert len(found[OURS]) == count


STARTS: dict[str, tuple[Options, int]] = {
    "latest": ({"startingOffsets": "latest"}, 0),
    "earliest": ({"startingOffsets": "earliest"}, 20),
    "offsets": ({"startingOffsets": '{"TOPIC": {"0": -1, "1": 3}}'}, 7),
    "timestamps": ({"startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {BEGAN + 4_000}, "1": {BEGAN + 9_001}}}}}'}, 13),
    "one timestamp": ({"startingTimestamp": str(BEGAN + 4_500)}, 15),
}


@pytest.mark.long
@pytest.mark.parametrize("name", STARTS)
def test_a_stream_starts_at_the_same_offsets_and_reads_added_partitions(
    streams: Streams, timed: Load, name: str
) -> None:
    """By `assign`, `subscribe` and `subscribePattern`, with both values of failOnDataLoss: six sources in one query."""
    start, count = STARTS[name]
    ways = {
        "assign": {"assign": json.dumps({timed.topic: [0, 1]})},
        "subscribe": {"subscribe": timed.topic},
        "pattern": {"subscribePattern": f"^{timed.topic}$"},
    }

    def run(form: str) -> Rows:
        frames = [
            stream(
                streams.spark, form, timed.server, failOnDataLoss=loss, **ways[way], **filled(start, timed.topic)
            ).selectExpr(f"'{way} {loss}' AS way", "partition", "offset")
            for way, loss in product(ways, ("true", "false"))
        ]
        sunk = streams.to_parquet(reduce(DataFrame.union, frames), form, availableNow=True)
        sunk.finish(PATIENCE)
        return sorted(sunk.rows("way", "partition", "offset"))

    first = {form: run(form) for form in BOTH}
    assert first[OURS] == first[THEIRS]
    assert len(first[OURS]) == 6 * count
    admin = AdminClient({"bootstrap.servers": timed.server.bootstrap_servers, "log_level": 3})
    admin.create_partitions([NewPartitions(timed.topic, 3)])[timed.topic].result(ADMIN_S)
    Load(timed.server, timed.topic, 3).send(9)
    second = {form: run(form) for form in BOTH}
    assert second[OURS] == second[THEIRS]
    assert len(second[OURS]) == 6 * count + 4 * 9 + 2 * 6


# -- options that both refuse ------------------------------------------------------------------------------------------

OF_BOTH: list[tuple[Options, str, str]] = [
    ({}, "One of the following options must be specified", "none is set"),
    ({"subscribe": "TOPIC", "subscribePattern": "TOPIC"}, "Only one of", "subscribe and subscribePattern are set"),
    ({"subscribe": ""}, "No topics to subscribe to", "expected at least one topic"),
    ({"subscribePattern": ""}, "Pattern to subscribe is empty", "expected a text that is not empty"),
    ({"assign": "no json"}, "No topicpartitions to assign", "invalid JSON"),
    ({"subscribe": "TOPIC", "minPartitions": "0"}, "minPartitions must be positive", "expected an integer from 1"),
    ({"subscribe": "TOPIC", "startingTimestamp": BEYOND}, "No offset matched", "no record is that late"),
    *(
        ({"subscribe": "TOPIC", f"kafka.{name}": "x"}, name, f"cannot use option kafka.{name}")
        for name in ("auto.offset.reset", "key.deserializer", "value.deserializer", "interceptor.classes")
    ),
    ({"subscribe": "TOPIC", "kafka.enable.auto.commit": "true"}, "enable.auto.commit", "enable.auto.commit"),
]
"""Options, with words of each source's error."""

OF_STREAMS: list[tuple[Options, str, str]] = [
    ({"subscribe": "TOPIC", "endingOffsets": "latest"}, "ending offset not valid", "a stream has no end"),
    (
        {"subscribe": "TOPIC", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"},
        "is higher than the maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
    ),
]

OF_BATCHES: list[tuple[Options, str, str]] = [
    ({"subscribe": "TOPIC", "startingOffsets": "latest"}, "can't be latest", "cannot start at the latest"),
    ({"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": -1, "1": 1}}'}, "can't be latest", "-1 for"),
    ({"subscribe": "TOPIC", "endingOffsets": "earliest"}, "can't be earliest", "endingOffsets"),
    ({"subscribe": "TOPIC", "endingOffsets": '{"TOPIC": {"0": -2, "1": 1}}'}, "can't be earliest", "endingOffsets"),
    (
        {
            "subscribe": "TOPIC",
            "startingOffsets": '{"TOPIC": {"0": 1, "1": 1}}',
            "endingOffsets": '{"TOPIC": {"0": 1}}',
        },
        "should have the same topic-partitions",
        "List all partitions",
    ),
    (
        {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 5}}'},
        "don't match what are assigned",
        "List all partitions",
    ),
    (
        {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 5, "1": 50}}'},
        "offset",
        "cannot read the requested offsets: they are out of range",
    ),
]


def test_both_refuse_these_options_of_a_stream(streams: Streams, timed: Load) -> None:
    for options, *words in OF_BOTH + OF_STREAMS:
        given = filled(options, timed.topic)
        for form, said in zip(BOTH, words, strict=True):
            with pytest.raises(PySparkException, match=said):
                run_to_end(streams, form, timed.server, **given)


def test_both_refuse_these_options_of_a_batch_read(spark: SparkSession, timed: Load) -> None:
    for options, *words in OF_BOTH + OF_BATCHES:
        for form, said in zip(BOTH, words, strict=True):
            with pytest.raises((PySparkException, Py4JJavaError), match=said):
                batch(spark, form, timed.server, **filled(options, timed.topic)).collect()


# -- batches and limits ------------------------------------------------------------------------------------------------


def test_a_batch_waits_for_the_minimum_and_has_at_most_the_maximum(streams: Streams, load: Load) -> None:
    options = {"subscribe": load.topic, "minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 14, "maxTriggerDelay": "1d"}
    running = {form: streams.to_parquet(stream(streams.spark, form, load.server, **options), form) for form in BOTH}
    for form, sunk in running.items():
        sunk.query.processAllAvailable()
        assert len(sunk.values()) == 14, form
    load.send(4)
    for form, sunk in running.items():
        wait_until(lambda sunk=sunk: len(sunk.values()) > 14, f"{form} has enough for a batch", PATIENCE)
        sunk.query.processAllAvailable()
        assert [p.numInputRows for p in sunk.query.recentProgress if p.numInputRows] == [14, 10], form
        assert sorted(sunk.values()) == sorted(load.sent), form


def test_min_partitions_divides_the_ranges_into_as_many_tasks(spark: SparkSession, load: Load) -> None:
    tasks: dict[str, list[int]] = {form: [] for form in BOTH}
    for form, least in product(BOTH, (None, 1, 2, 5, 8)):
        options = {} if least is None else {"minPartitions": least}
        frame = batch(spark, form, load.server, subscribe=load.topic, **options)
        assert values(frame) == sorted(load.sent), (form, least)
        tasks[form].append(frame.rdd.getNumPartitions())
    assert tasks[OURS] == tasks[THEIRS]
    assert tasks[OURS][:3] == [2, 2, 2]


@pytest.mark.parametrize("options", [{"maxOffsetsPerTrigger": 4}, {"minPartitions": 5}], ids=["limit", "minPartitions"])
def test_a_union_of_two_streams_has_the_rows_of_both(
    streams: Streams, load: Load, make_topic: MakeTopic, options: Options
) -> None:
    other = Load(load.server, make_topic(load.server, 1), 1)
    other.send(6)
    for form in BOTH:
        frames = [stream(streams.spark, form, load.server, subscribe=t, **options) for t in (load.topic, other.topic)]
        sunk = streams.to_parquet(reduce(DataFrame.union, frames), form, availableNow=True)
        sunk.finish(PATIENCE)
        assert sorted(sunk.values()) == sorted(load.sent + other.sent), form


def test_a_union_of_a_batch_read_with_itself_has_each_row_twice(spark: SparkSession, load: Load) -> None:
    for form in BOTH:
        frame = batch(spark, form, load.server, subscribe=load.topic)
        assert values(frame.union(frame)) == sorted(load.sent * 2), form


def test_a_stream_joins_itself(streams: Streams, load: Load) -> None:
    same = expr("one.partition = other.partition AND one.offset = other.offset")
    for form in BOTH:
        frame = stream(streams.spark, form, load.server, subscribe=load.topic)
        joined = frame.alias("one").join(frame.alias("other"), same).selectExpr("one.value AS value")
        sunk = streams.to_parquet(joined, form, availableNow=True)
        sunk.finish(PATIENCE)
        assert sorted(sunk.values()) == sorted(load.sent), form


def test_a_watermark_closes_the_same_windows(streams: Streams, timed: Load) -> None:
    found = {}
    for form in BOTH:
        frame = stream(streams.spark, form, timed.server, subscribe=timed.topic, maxOffsetsPerTrigger=8)
        windows = frame.withWatermark("timestamp", "2 seconds").groupBy(expr("window(timestamp, '5 seconds')")).count()
        sunk = streams.to_parquet(
            windows.selectExpr("unix_millis(window.start) AS ms", "count"), form, availableNow=True
        )
        sunk.finish(PATIENCE)
        found[form] = sorted(sunk.rows("ms", "count"))
    assert found[OURS] == found[THEIRS]
    assert found[OURS] == [(BEGAN + 5_000 * n, 5) for n in range(3)]


def test_an_uncommitted_batch_is_replayed_with_its_own_partitions(streams: Streams, load: Load) -> None:
    """SPARK-53560: a topic that has more partitions by then."""
    for form in BOTH:
        run_to_end(streams, form, load.server, subscribe=load.topic)
        for path in (streams.home / f"{form}-checkpoint" / "commits", streams.home / f"{form}-out" / "_spark_metadata"):
            for name in ("0", ".0.crc"):
                (path / name).unlink(missing_ok=True)
    admin = AdminClient({"bootstrap.servers": load.server.bootstrap_servers, "log_level": 3})
    admin.create_partitions([NewPartitions(load.topic, 4)])[load.topic].result(ADMIN_S)
    later = Load(load.server, load.topic, 4, sent=list(load.sent))
    later.send(8)
    for form in BOTH:
        assert run_to_end(streams, form, load.server, subscribe=load.topic) == sorted(later.sent), form


def test_a_group_id_lets_only_this_source_commit(streams: Streams, load: Load) -> None:
    for form in BOTH:
        found = run_to_end(streams, form, load.server, subscribe=load.topic, kafka__group__id=f"{load.topic}-{form}")
        assert found == sorted(load.sent), form
    assert committed(load.server, f"{load.topic}-{THEIRS}", load.topic) == {}
    assert committed(load.server, f"{load.topic}-{OURS}", load.topic) == log_ends(load.server, load.topic, 2)


def test_only_this_source_plans_a_dataframe_once(spark: SparkSession, load: Load) -> None:
    frames = {form: batch(spark, form, load.server, subscribe=load.topic) for form in BOTH}
    assert {form: frame.count() for form, frame in frames.items()} == {THEIRS: 20, OURS: 20}
    load.send(5)
    assert {form: frame.count() for form, frame in frames.items()} == {THEIRS: 25, OURS: 20}


# -- records -----------------------------------------------------------------------------------------------------------


def kinds_of_records(server: KafkaServer, topic: str) -> None:
    """Null and empty keys, values and headers; a name of a header that comes twice."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    headers: list[Any] = [None, [], [("h", b"1"), ("h", None), ("", b"")]]
    for n, (key, value, header) in enumerate(product((None, b"", b"key"), (None, b"", b"value"), headers)):
        producer.produce(topic, value, key, partition=0, headers=header, timestamp=BEGAN + n)
    assert producer.flush(20) == 0


@pytest.mark.parametrize("include", ["true", "false"])
def test_all_columns_of_all_kinds_of_records_are_the_same(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, include: str
) -> None:
    """In a batch read and in a stream: names, types and values."""
    topic = make_topic(kafka4, 1, config={"retention.ms": "-1"})
    kinds_of_records(kafka4, topic)
    found = {}
    for form in BOTH:
        options = {"subscribe": topic, "includeHeaders": include}
        read, followed = batch(streams.spark, form, kafka4, **options), stream(streams.spark, form, kafka4, **options)
        assert followed.schema == read.schema, form
        sunk = streams.to_parquet(followed, form, availableNow=True)
        sunk.finish(PATIENCE)
        schema = [(field.name, field.dataType.simpleString()) for field in read.schema.fields]
        found[form] = (
            schema,
            [row.asDict(recursive=True) for row in read.orderBy("offset").collect()],
            sorted(sunk.rows(*read.columns), key=lambda row: row[4]),
        )
    assert found[OURS] == found[THEIRS]
    assert len(found[OURS][1]) == len(found[OURS][2]) == 27


@pytest.fixture
def transactions(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    """Committed and aborted transactions in turn; the first and the last are aborted. `sent` is what is committed."""
    made = Load(kafka4, make_topic(kafka4, 1), 1)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "transactional.id": f"tx-{made.topic}"})
    producer.init_transactions(ADMIN_S)
    for n in range(5):
        producer.begin_transaction()
        for k in range(4):
            producer.produce(made.topic, b"%d-%d" % (n, k), partition=0)
        producer.flush(ADMIN_S)
        if n % 2:
            producer.commit_transaction(ADMIN_S)
            made.sent += [f"{n}-{k}" for k in range(4)]
        else:
            producer.abort_transaction(ADMIN_S)
    return made


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_isolation_level_decides_on_aborted_records(streams: Streams, transactions: Load, level: str) -> None:
    """In a batch read and in a stream whose batches begin and end at gaps."""
    sent = transactions.sent if level == "read_committed" else [f"{n}-{k}" for n in range(5) for k in range(4)]
    server, options = transactions.server, {"subscribe": transactions.topic, "kafka.isolation.level": level}
    for form in BOTH:
        assert values(batch(streams.spark, form, server, **options)) == sorted(sent), form
        assert run_to_end(streams, form, server, **options, maxOffsetsPerTrigger=7) == sorted(sent), form


def test_records_that_compaction_removed_leave_no_trace(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1",
    }
    load = Load(kafka4, make_topic(kafka4, 1, config=config), 1)

    def is_compacted() -> bool:
        load.send(3, key="key")  # a log is only compacted up to its active segment, which only a record rolls
        return batch(streams.spark, OURS, kafka4, subscribe=load.topic).count() < len(load.sent)

    wait_until(is_compacted, "the broker has compacted the log", PATIENCE)
    # The broker goes on meanwhile, so only the record that it keeps, the last of the key, is certain.
    for form in BOTH:
        read = [
            row.offset for row in batch(streams.spark, form, kafka4, subscribe=load.topic).select("offset").collect()
        ]
        assert len(read) == len(set(read)) < len(load.sent), form
        assert max(read) == len(load.sent) - 1, form
        found = run_to_end(streams, form, kafka4, subscribe=load.topic, maxOffsetsPerTrigger=4)
        assert len(found) == len(set(found)) < len(load.sent), form
        assert load.sent[-1] in found, form


# -- topics and logs that change ---------------------------------------------------------------------------------------


def test_a_pattern_that_matches_nothing_finds_a_topic_in_a_later_run(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """SPARK-41375. Both read it from its beginning, also where the stream starts at the latest offsets."""
    starts = ("earliest", "latest")

    def run(form: str, start: str) -> list[str]:
        options = {"subscribePattern": f"appears-later-{start}.*", "startingOffsets": start}
        sunk = streams.to_parquet(stream(streams.spark, form, kafka4, **options), f"{form}-{start}", availableNow=True)
        sunk.finish(PATIENCE)
        return sorted(sunk.values())

    assert [run(form, start) for form, start in product(BOTH, starts)] == [[]] * 4
    loads = {start: Load(kafka4, make_topic(kafka4, 2, name=f"appears-later-{start}"), 2) for start in starts}
    sent = {start: sorted(load.send(6)) for start, load in loads.items()}
    for form in BOTH:
        assert {start: run(form, start) for start in starts} == sent, form


def test_a_running_pattern_goes_on_without_a_deleted_topic_and_with_a_new_one(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    options = {"subscribePattern": "comes-and-goes-.*", "failOnDataLoss": "false", "kafka.metadata.max.age.ms": "1000"}
    old = Load(kafka4, make_topic(kafka4, 1, name="comes-and-goes-1"), 1)
    sent = list(old.send(5))
    running = {form: streams.to_parquet(stream(streams.spark, form, kafka4, **options), form) for form in BOTH}
    for form, sunk in running.items():
        wait_until(lambda sunk=sunk: sorted(sunk.values()) == sorted(sent), f"{form} reads the first", PATIENCE)
    delete_topic(kafka4, old.topic)
    sent += Load(kafka4, make_topic(kafka4, 1, name="comes-and-goes-2"), 1).send(7)
    for form, sunk in running.items():
        wait_until(lambda sunk=sunk: sorted(sunk.values()) == sorted(sent), f"{form} reads the second", PATIENCE)


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_records_that_are_gone_are_an_error_unless_losses_are_allowed(streams: Streams, load: Load, kind: str) -> None:
    """And no record is read twice (KafkaDontFailOnDataLossSuite)."""
    delete_records(load.server, load.topic, {0: 3, 1: 8})
    left = sorted(value for n, value in enumerate(load.sent) if n // 2 >= (3, 8)[n % 2])
    options = {"subscribe": load.topic, "startingOffsets": json.dumps({load.topic: {"0": 0, "1": 0}})}

    def run(form: str, loss: str) -> list[str]:
        if kind == "batch":
            return values(batch(streams.spark, form, load.server, failOnDataLoss=loss, **options))
        frame = stream(streams.spark, form, load.server, failOnDataLoss=loss, **options)
        sunk = streams.to_parquet(frame, f"{form}-{loss}", availableNow=True)
        sunk.finish(PATIENCE)
        return sorted(sunk.values())

    for form in BOTH:
        assert run(form, "false") == left, form
        with pytest.raises(Exception, match=r"(?i)failOnDataLoss"):
            run(form, "true")


# -- the sink ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(streams: Streams, load: Load, make_topic: MakeTopic) -> Callable[..., list[tuple[Any, ...]]]:
    """Writes a stream by a sink into a topic of its own; returns that topic's keys and values in their order."""

    def act(form: str, frame: DataFrame, mode: str) -> list[tuple[Any, ...]]:
        topic = make_topic(load.server, 1)
        writer = frame.writeStream.format(form).outputMode(mode).option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", load.server.bootstrap_servers)
        query = writer.option("checkpointLocation", str(streams.home / topic)).trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)
        rows = batch(streams.spark, THEIRS, load.server, subscribe=topic).orderBy("offset").collect()
        return [(row.key and bytes(row.key), row.value and bytes(row.value)) for row in rows]

    return act


def test_a_stream_is_written_alike(streams: Streams, load: Load, written: Callable[..., list[Any]]) -> None:
    found = {}
    for form in BOTH:
        frame = stream(streams.spark, THEIRS, load.server, subscribe=load.topic, maxOffsetsPerTrigger=8)
        rows = frame.selectExpr("IF(offset % 2 = 0, CAST(offset AS STRING), NULL) AS key", "value")
        found[form] = sorted(written(form, rows, "append"), key=str)
    assert found[OURS] == found[THEIRS]
    assert len(found[OURS]) == RECORDS


def test_an_aggregation_in_complete_mode_is_written_alike(
    streams: Streams, load: Load, written: Callable[..., list[Any]]
) -> None:
    found = {}
    for form in BOTH:
        frame = stream(streams.spark, THEIRS, load.server, subscribe=load.topic, maxOffsetsPerTrigger=10)
        counts = frame.groupBy(expr("CAST(partition AS STRING) AS key")).count()
        found[form] = sorted(written(form, counts.selectExpr("key", "CAST(count AS STRING) AS value"), "complete"))
    assert found[OURS] == found[THEIRS] == sorted((b"%d" % p, b"%d" % n) for p in (0, 1) for n in (5, 10))
