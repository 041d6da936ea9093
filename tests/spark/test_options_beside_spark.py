"""The same options given to Spark's own source and to this one: the same rows and errors, or a difference that
docs/migrate-from-spark.md names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from streamgroup.spark.tasks import network_timeout_ms
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.read_back import read_back
from tests.spark.beside import ADMIN_S, BOTH, OURS, PATIENCE, THEIRS, batch, delete_topic, run_to_end, stream, values
from tests.spark.support import Load, Streams, Sunk
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]


OF_OTHERS = {
    "path": "/data/orders",
    "topic": "orders",
    "mode": "PERMISSIVE",
    "inferSchema": "true",
    "checkpointLocation": "/checkpoints/orders",
    "maxFilesPerTrigger": "5",
    "group.id": "etl",
    "auto.offset.reset": "latest",
    "kafka.schema.registry.url": "http://registry:8081",
}
"""Options that Spark's source ignores: Spark adds some, code that serves several sources adds others."""


@pytest.fixture
def load(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    """Twenty records in two partitions."""
    made = Load(kafka4, make_topic(kafka4, 2), 2)
    made.send(20)
    return made


# -- the same ----------------------------------------------------------------------------------------------------------


LIMITS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "in proportion": ((31, 11, 1), 10, 5),
    "fifteen by five": ((15,), 5, 3),
    "the largest long": ((31, 11, 1), 2**63 - 1, 1),
}
"""By name: the records of each partition, the limit, the batches that it makes of them."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "in proportion" else pytest.mark.long) for name in LIMITS]
)
def test_a_limit_divides_the_records_into_the_same_batches(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, name: str
) -> None:
    sizes, limit, batches = LIMITS[name]
    topic = make_topic(kafka4, len(sizes))
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers})
    for partition, size in enumerate(sizes):
        for n in range(size):
            producer.produce(topic, b"%d" % n, partition=partition)
    assert producer.flush(20) == 0
    found: dict[str, list[Counter[int]]] = {form: [] for form in BOTH}
    inputs = {}
    for form, seen in found.items():
        frame = stream(streams.spark, form, kafka4, subscribe=topic, maxOffsetsPerTrigger=limit)
        writer = frame.select("partition").writeStream.foreachBatch(
            lambda rows, _, seen=seen: seen.append(Counter(row.partition for row in rows.collect()))
        )
        writer = writer.option("checkpointLocation", str(streams.home / form)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(PATIENCE)
        inputs[form] = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert found[OURS] == found[THEIRS]
    assert inputs[OURS] == inputs[THEIRS] == [seen.total() for seen in found[OURS]]
    assert len(found[OURS]) == batches
    assert sum(found[OURS], Counter()) == dict(enumerate(sizes))


@pytest.mark.parametrize("way", ["assign", "subscribePattern"])
def test_a_batch_read_by_assign_and_by_pattern_has_the_same_rows(
    spark: SparkSession, load: Load, make_topic: MakeTopic, way: str
) -> None:
    other = Load(load.server, make_topic(load.server, 1), 1)
    other.send(6)
    options, count = {
        "assign": ({"assign": json.dumps({load.topic: [1], other.topic: [0]})}, 10 + 6),
        "subscribePattern": (
            {"subscribePattern": f"^({load.topic}|{other.topic})$", "endingOffsets": "latest"},
            20 + 6,
        ),
    }[way]
    found = {
        form: sorted(
            batch(spark, form, load.server, **options).select("topic", "partition", "offset", "value").collect()
        )
        for form in BOTH
    }
    assert found[OURS] == found[THEIRS]
    assert len(found[OURS]) == count


def test_once_takes_all_in_one_batch_whatever_the_limit_is(streams: Streams, load: Load) -> None:
    inputs: dict[str, list[int]] = {form: [] for form in BOTH}
    for _ in range(2):
        for form in BOTH:
            frame = stream(streams.spark, form, load.server, subscribe=load.topic, maxOffsetsPerTrigger=3)
            sunk = streams.to_parquet(frame, form, once=True)
            sunk.finish(PATIENCE)
            assert sunk.query is not None
            assert sorted(sunk.values()) == sorted(load.sent), form
            inputs[form] += [p.numInputRows for p in sunk.query.recentProgress if p.numInputRows]
        load.send(8)
    assert inputs[OURS] == inputs[THEIRS] == [20, 8]


def test_options_of_others_change_nothing(spark: SparkSession, load: Load) -> None:
    for form in BOTH:
        assert values(batch(spark, form, load.server, subscribe=load.topic, **OF_OTHERS)) == sorted(load.sent), form


def test_options_of_others_change_nothing_in_a_write(
    spark: SparkSession, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    given = {"path": "/data", "mode": "append", "batchsize": "5", "acks": "0", "kafka.schema.registry.url": "http://r"}
    for form in BOTH:
        topic = make_topic(kafka4)
        writer = spark.range(3).selectExpr("CAST(id AS string) AS value").write.format(form).mode("append")
        writer.option("kafka.bootstrap.servers", kafka4.bootstrap_servers).option("topic", topic).options(
            **given
        ).save()
        assert sorted(m.value() for log in read_back(kafka4, topic) for m in log) == [b"0", b"1", b"2"], form


def test_a_stream_with_these_options_reads_everything(streams: Streams, load: Load) -> None:
    """No stream ends at a timestamp, and a delay may be longer than an int can count in milliseconds."""
    options = {"subscribe": load.topic, "minOffsetsPerTrigger": 5, "maxTriggerDelay": "60d", "endingTimestamp": 1}
    for form in BOTH:
        assert run_to_end(streams, form, load.server, **options, **OF_OTHERS) == sorted(load.sent), form


def test_an_assigned_partition_that_does_not_exist_is_left_out_until_it_does(streams: Streams, load: Load) -> None:
    assigned = json.dumps({load.topic: [0, 3]})
    first = sorted(value for value in load.sent if value.startswith(f"{load.topic}-0-"))
    for form in BOTH:
        assert values(batch(streams.spark, form, load.server, assign=assigned)) == first, form
    queries = {
        form: streams.to_parquet(stream(streams.spark, form, load.server, assign=assigned), form) for form in BOTH
    }
    for form, sunk in queries.items():
        wait_until(lambda sunk=sunk: sorted(sunk.values()) == first, f"{form} reads what there is", PATIENCE)
    admin = AdminClient({"bootstrap.servers": load.server.bootstrap_servers, "log_level": 3})
    admin.create_partitions([NewPartitions(load.topic, 4)])[load.topic].result(ADMIN_S)
    later = Load(load.server, load.topic, 4, sent=list(load.sent))
    new = [value for value in later.send(8) if value.startswith((f"{load.topic}-0-", f"{load.topic}-3-"))]
    for form, sunk in queries.items():
        wait_until(
            lambda sunk=sunk: sorted(sunk.values()) == sorted(first + new), f"{form} reads the new one", PATIENCE
        )


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        pytest.param({"includeHeaders": "yes"}, 'For input string: "yes"', "invalid value 'yes'", id="headers"),
        pytest.param(
            {
                "startingOffsets": '{"TOPIC": {"0": 5, "1": 5}}',
                "endingOffsets": '{"TOPIC": {"0": 4, "1": 9}}',
            },
            "(?i)start.*greater than.*end",
            "startingOffsets is above endingOffsets",
            id="start above end",
        ),
        pytest.param(
            {
                "startingOffsetsByTimestamp": '{"TOPIC": {"0": 1001, "1": 5}}',
                "endingOffsetsByTimestamp": '{"TOPIC": {"0": 1000, "1": 9}}',
            },
            "(?i)timestamp.*greater than.*end",
            "startingOffsetsByTimestamp is above endingOffsetsByTimestamp",
            id="start after end",
        ),
    ],
)
def test_both_refuse(spark: SparkSession, load: Load, options: dict[str, str], theirs: str, ours: str) -> None:
    given = {name: text.replace("TOPIC", load.topic) for name, text in options.items()}
    for form, words in ((THEIRS, theirs), (OURS, ours)):
        with pytest.raises(Exception, match=words):
            batch(spark, form, load.server, subscribe=load.topic, **given).collect()


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_both_sinks_refuse_a_serializer(spark: SparkSession, kafka4: KafkaServer, name: str) -> None:
    rows = spark.createDataFrame([("a",)], "value string")
    for form in BOTH:
        writer = rows.write.format(form).mode("append").option("topic", "never-made").option(f"kafka.{name}", "x")
        with pytest.raises((PySparkException, Py4JJavaError), match=rf"(?i)option '?(kafka\.)?{name}"):
            writer.option("kafka.bootstrap.servers", kafka4.bootstrap_servers).save()


WRONG_STREAMS = {
    "no value": ("CAST(key AS STRING) AS key", "value", {"topic": "t"}),
    "value of a wrong type": ("offset AS value", "value.*bigint", {"topic": "t"}),
    "key of a wrong type": ("value, partition AS key", "key.*int", {"topic": "t"}),
    "no topic": ("value", "topic", {}),
    "topic of a wrong type": ("value, partition AS topic", "topic.*int", {}),
}
"""By name: the columns that a stream writes, words of both errors, the options."""


def test_both_sinks_end_a_stream_that_they_cannot_write(streams: Streams, load: Load) -> None:
    source = {form: stream(streams.spark, form, load.server, subscribe=load.topic) for form in BOTH}
    for name, (columns, words, options) in WRONG_STREAMS.items():
        for form in BOTH:
            writer = source[form].selectExpr(*columns.split(", ")).writeStream.format(form).options(**options)
            writer = writer.option("checkpointLocation", str(streams.home / f"{name}-{form}")).trigger(
                availableNow=True
            )
            with pytest.raises(PySparkException, match=f"(?s){words}"):
                writer.option("kafka.bootstrap.servers", load.server.bootstrap_servers).start().awaitTermination(
                    PATIENCE
                )


def vanishing(streams: Streams, form: str, load: Load, vanish: Callable[[], object], words: str) -> list[int]:
    """Run a query with AvailableNow in batches of 4, the first of which calls `vanish`; return the rows of each."""
    seen: list[int] = []

    def take(rows: DataFrame, number: int) -> None:
        count = rows.count()
        if number == 0:
            vanish()
        seen.append(count)

    frame = stream(streams.spark, form, load.server, subscribe=load.topic, maxOffsetsPerTrigger=4)
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(streams.home / form))
    with pytest.raises(PySparkException, match=words):
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    return seen


@pytest.mark.long
@pytest.mark.parametrize("left", [1, 2], ids=["a partition", "offsets"])
def test_available_now_ends_with_an_error_if_partitions_or_offsets_vanish_during_the_run(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, left: int
) -> None:
    """The topic is created again in the first batch, with so many partitions and without records.

    The driver notices it, or else a task that reads the second batch.
    """
    for form in BOTH:
        load = Load(kafka4, make_topic(kafka4, 2), 2)
        load.send(20)
        words = "during running query with Trigger.AvailableNow" if form == THEIRS else "deleted and created again"
        seen = vanishing(streams, form, load, lambda load=load: recreate(kafka4, load.topic, make_topic, left), words)
        assert seen == [4], form


def test_a_task_finds_the_network_timeout_of_its_application(streams: Streams, load: Load) -> None:
    """Spark's source waits as long for records by default."""

    timeout = udf(lambda _: network_timeout_ms(), "long", useArrow=False)
    read = batch(streams.spark, OURS, load.server, subscribe=load.topic)
    assert {row.ms for row in read.select(timeout("offset").alias("ms")).collect()} == {119_000}
    followed = stream(streams.spark, OURS, load.server, subscribe=load.topic)
    sunk = streams.to_parquet(followed.select(timeout("offset").alias("ms")), availableNow=True)
    sunk.finish(PATIENCE)
    assert set(sunk.rows("ms")) == {(119_000,)}


# -- named differences -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"), [("kafka.isolation.level", "READ_COMMITTED"), ("fetchOffset.numRetries", "0")]
)
def test_this_source_takes_values_that_sparks_refuses(spark: SparkSession, load: Load, option: str, value: str) -> None:
    assert values(batch(spark, OURS, load.server, subscribe=load.topic, **{option: value})) == sorted(load.sent)
    with pytest.raises(Exception, match=r"(?i)isolation|assertion|attempt"):
        batch(spark, THEIRS, load.server, subscribe=load.topic, **{option: value}).collect()


def test_only_the_plan_of_sparks_source_names_the_topics_of_a_batch_read(
    spark: SparkSession, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = {}
    for form in BOTH:
        batch(spark, form, load.server, subscribe=load.topic).explain()
        plans[form] = capsys.readouterr().out
    assert f"KafkaRelation(strategy=Subscribe[{load.topic}]" in plans[THEIRS]
    assert "BatchScan streamgroup[" in plans[OURS]
    assert load.topic not in plans[OURS]


def test_only_this_source_splits_a_batch_read_by_records(spark: SparkSession, load: Load) -> None:
    tasks = {}
    for form in BOTH:
        frame = batch(spark, form, load.server, subscribe=load.topic, maxRecordsPerPartition=4)
        assert values(frame) == sorted(load.sent), form
        tasks[form] = frame.rdd.getNumPartitions()
    assert tasks == {THEIRS: 2, OURS: 6}


def test_only_this_source_reads_an_internal_topic_that_is_named(
    spark: SparkSession, kafka4: KafkaServer, load: Load
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap_servers, "log_level": 3})
    commit = ConsumerGroupTopicPartitions("internal-topics", [TopicPartition(load.topic, 0, 3)])
    wait_until(
        lambda: all(
            tp.error is None
            for tp in admin.alter_consumer_group_offsets([commit])["internal-topics"].result(20).topic_partitions
        ),
        "a commit",
        PATIENCE,
    )
    counts = {form: batch(spark, form, kafka4, subscribe="__consumer_offsets").count() for form in BOTH}
    assert counts[THEIRS] == 0
    assert counts[OURS] > 0


def test_only_this_source_reads_the_rest_below_the_minimum_at_the_end_of_a_run(streams: Streams, load: Load) -> None:
    """Spark's source delays the last batch, which ends the run."""
    options = {"subscribe": load.topic, "maxOffsetsPerTrigger": 14, "minOffsetsPerTrigger": 10}
    found = {form: run_to_end(streams, form, load.server, **options) for form in BOTH}
    assert found[OURS] == sorted(load.sent)
    assert len(found[THEIRS]) == 14


# -- deleted topics ----------------------------------------------------------------------------------------------------


def recreate(server: KafkaServer, topic: str, make_topic: MakeTopic, partitions: int = 1) -> Load:
    delete_topic(server, topic)
    make_topic(server, partitions, name=topic)
    return Load(server, topic, partitions)


@pytest.mark.long
def test_only_this_source_notices_that_a_topic_was_created_again(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """Spark's source goes on at the old offset, and the first records of the new topic are lost without an error."""
    topic = make_topic(kafka4, 1)
    old = Load(kafka4, topic, 1).send(3)
    for form in BOTH:
        assert run_to_end(streams, form, kafka4, subscribe=topic) == old
    recreate(kafka4, topic, make_topic).send(8)
    assert len(run_to_end(streams, THEIRS, kafka4, subscribe=topic)) == 3 + 5, "failOnDataLoss is true"
    with pytest.raises(PySparkException, match="the topic was deleted and created again"):
        run_to_end(streams, OURS, kafka4, subscribe=topic)
    assert len(run_to_end(streams, OURS, kafka4, subscribe=topic, failOnDataLoss="false")) == 3 + 8


@pytest.mark.long
def test_only_this_source_goes_on_without_a_deleted_topic_where_losses_are_allowed(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    loads = [Load(kafka4, make_topic(kafka4, 1), 1) for _ in range(2)]
    sent = [value for each in loads for value in each.send(3)]
    options = {"subscribe": ",".join(each.topic for each in loads), "failOnDataLoss": "false"}
    queries: dict[str, Sunk] = {
        form: streams.to_parquet(stream(streams.spark, form, kafka4, **options), form) for form in BOTH
    }
    for form, sunk in queries.items():
        wait_until(lambda sunk=sunk: sorted(sunk.values()) == sorted(sent), f"{form} reads both", PATIENCE)
    delete_topic(kafka4, loads[1].topic)
    wait_until(lambda: not queries[THEIRS].query.isActive, "Spark's source gives up", PATIENCE)
    sent += loads[0].send(4)
    wait_until(lambda: sorted(queries[OURS].values()) == sorted(sent), "this source goes on", PATIENCE)
