"""The same options given to Spark's own source and to this one: the same rows and errors, or a difference that
docs/migrate-from-spark.md names.
"""

from __future__ import annotations

import json

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
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
def load(kafka41: KafkaServer, make_topic: MakeTopic) -> Load:
    """Twenty records in two partitions."""
    made = Load(kafka41, make_topic(kafka41, 2), 2)
    made.send(20)
    return made


# -- the same ----------------------------------------------------------------------------------------------------------


def test_options_of_others_change_nothing(spark: SparkSession, load: Load) -> None:
    for form in BOTH:
        assert values(batch(spark, form, load.server, subscribe=load.topic, **OF_OTHERS)) == sorted(load.sent), form


def test_options_of_others_change_nothing_in_a_write(
    spark: SparkSession, kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    given = {"path": "/data", "mode": "append", "batchsize": "5", "acks": "0", "kafka.schema.registry.url": "http://r"}
    for form in BOTH:
        topic = make_topic(kafka41)
        writer = spark.range(3).selectExpr("CAST(id AS string) AS value").write.format(form).mode("append")
        writer.option("kafka.bootstrap.servers", kafka41.bootstrap_servers).option("topic", topic).options(
            **given
        ).save()
        assert sorted(m.value() for log in read_back(kafka41, topic) for m in log) == [b"0", b"1", b"2"], form


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
            "startingOffsets lies above endingOffsets",
            id="start above end",
        ),
        pytest.param(
            {
                "startingOffsetsByTimestamp": '{"TOPIC": {"0": 1001, "1": 5}}',
                "endingOffsetsByTimestamp": '{"TOPIC": {"0": 1000, "1": 9}}',
            },
            "(?i)timestamp.*greater than.*end",
            "startingOffsetsByTimestamp lies above endingOffsetsByTimestamp",
            id="start after end",
        ),
    ],
)
def test_both_refuse(spark: SparkSession, load: Load, options: dict[str, str], theirs: str, ours: str) -> None:
    given = {name: text.replace("TOPIC", load.topic) for name, text in options.items()}
    for form, words in ((THEIRS, theirs), (OURS, ours)):
        with pytest.raises(Exception, match=words):
            batch(spark, form, load.server, subscribe=load.topic, **given).collect()


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


def test_only_this_source_splits_a_batch_read_by_records(spark: SparkSession, load: Load) -> None:
    tasks = {}
    for form in BOTH:
        frame = batch(spark, form, load.server, subscribe=load.topic, maxRecordsPerPartition=4)
        assert values(frame) == sorted(load.sent), form
        tasks[form] = frame.rdd.getNumPartitions()
    assert tasks == {THEIRS: 2, OURS: 6}


def test_only_this_source_reads_an_internal_topic_that_is_named(
    spark: SparkSession, kafka41: KafkaServer, load: Load
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka41.bootstrap_servers, "log_level": 3})
    commit = ConsumerGroupTopicPartitions("internal-topics", [TopicPartition(load.topic, 0, 3)])
    wait_until(
        lambda: all(
            tp.error is None
            for tp in admin.alter_consumer_group_offsets([commit])["internal-topics"].result(20).topic_partitions
        ),
        "a commit",
        PATIENCE,
    )
    counts = {form: batch(spark, form, kafka41, subscribe="__consumer_offsets").count() for form in BOTH}
    assert counts[THEIRS] == 0
    assert counts[OURS] > 0


def test_only_this_source_reads_the_rest_below_the_minimum_at_the_end_of_a_run(streams: Streams, load: Load) -> None:
    """Spark's source delays the last batch, which ends the run."""
    options = {"subscribe": load.topic, "maxOffsetsPerTrigger": 14, "minOffsetsPerTrigger": 10}
    found = {form: run_to_end(streams, form, load.server, **options) for form in BOTH}
    assert found[OURS] == sorted(load.sent)
    assert len(found[THEIRS]) == 14


# -- deleted topics ----------------------------------------------------------------------------------------------------


def recreate(server: KafkaServer, topic: str, make_topic: MakeTopic) -> Load:
    delete_topic(server, topic)
    make_topic(server, 1, name=topic)
    return Load(server, topic, 1)


@pytest.mark.long
def test_only_this_source_notices_that_a_topic_was_created_again(
    streams: Streams, kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    """Spark's source goes on at the old offset, and the first records of the new topic are lost without an error."""
    topic = make_topic(kafka41, 1)
    old = Load(kafka41, topic, 1).send(3)
    for form in BOTH:
        assert run_to_end(streams, form, kafka41, subscribe=topic) == old
    recreate(kafka41, topic, make_topic).send(8)
    assert len(run_to_end(streams, THEIRS, kafka41, subscribe=topic)) == 3 + 5, "failOnDataLoss is true"
    with pytest.raises(PySparkException, match="the topic was deleted and created again"):
        run_to_end(streams, OURS, kafka41, subscribe=topic)
    assert len(run_to_end(streams, OURS, kafka41, subscribe=topic, failOnDataLoss="false")) == 3 + 8


@pytest.mark.long
def test_only_this_source_goes_on_without_a_deleted_topic_where_losses_are_allowed(
    streams: Streams, kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    loads = [Load(kafka41, make_topic(kafka41, 1), 1) for _ in range(2)]
    sent = [value for each in loads for value in each.send(3)]
    options = {"subscribe": ",".join(each.topic for each in loads), "failOnDataLoss": "false"}
    queries: dict[str, Sunk] = {
        form: streams.to_parquet(stream(streams.spark, form, kafka41, **options), form) for form in BOTH
    }
    for form, sunk in queries.items():
        wait_until(lambda sunk=sunk: sorted(sunk.values()) == sorted(sent), f"{form} reads both", PATIENCE)
    delete_topic(kafka41, loads[1].topic)
    wait_until(lambda: not queries[THEIRS].query.isActive, "Spark's source gives up", PATIENCE)
    sent += loads[0].send(4)
    wait_until(lambda: sorted(queries[OURS].values()) == sorted(sent), "this source goes on", PATIENCE)
