"""A listener, a drain and a sink beside a query in a real Spark: proof that a batch has sunk, at once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.coordinator.control import channel
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.user_data import decode_identity
from streamgroup.kafka.cluster.admin import committed as committed_offsets
from streamgroup.kafka.cluster.admin import describe_any_group
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.spark.queries import driver_context, jvm_pid
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, committed
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

AT_ONCE_S = 15.0
"""A commit follows the sink within this, however long the trigger is: on a machine with nothing else to do in 0.2 s."""


@pytest.fixture
def listened(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries of a session of their own that is listened to."""
    session = spark.newSession()
    listener = streamgroup.listen(session)
    assert streamgroup.listen(session) is listener, "once a session"
    made = Streams(session, tmp_path)
    yield made
    made.stop_all()
    session.streams.removeListener(listener)
    channel.unannounce_listener(jvm_pid(driver_context("the test")))


def metadata(server: KafkaServer, group: str, topic: str) -> CommitMetadata:
    host, _, port = server.bootstrap_servers.rpartition(":")
    cluster = KafkaCluster(ClientOptions(((host, int(port)),)))
    try:
        found = committed_offsets(cluster, group, cluster.deadline(10_000))[TopicPartition(topic, 0)]
    finally:
        cluster.close()
    told = CommitMetadata.parse(found.metadata)
    assert told is not None
    return told


def to_function(streams: Streams, frame: DataFrame, function: Callable[..., None], name: str, **trigger: Any) -> Any:
    writer = frame.writeStream.foreachBatch(function)
    writer = writer.option("checkpointLocation", str(streams.home / f"{name}-checkpoint"))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    streams._queries.append(query)
    return query


class HeldSink:
    """A foreachBatch function that holds each batch until `go_on` is set."""

    def __init__(self) -> None:
        self.in_batch, self.go_on = threading.Event(), threading.Event()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        frame.collect()
        self.in_batch.set()
        self.go_on.wait(30)


# -- at once ----------------------------------------------------------------------------------------------------------


def test_available_now_ends_with_its_last_batch_committed_and_named(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(50)
    frame = listened.read(kafka4, load.topic, "now", maxOffsetsPerTrigger=20)
    listened.to_parquet(frame, availableNow=True).finish()
    wait_until(lambda: committed(kafka4, "now", load.topic) == {0: 50}, "committed", AT_ONCE_S)


# -- what a batch covers ----------------------------------------------------------------------------------------------


def test_foreach_batch_learns_what_its_batch_covers_and_need_not_read_it(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    told: dict[int, Any] = {}
    read: dict[int, Any] = {}

    def sink(frame: DataFrame, batch: int) -> None:
        told[batch] = {(r.partition.partition, r.start, r.until) for r in streamgroup.ranges()}
        if batch == 1:
            return
        rows = frame.groupBy("partition").agg({"offset": "min", "*": "count"}).collect()
        read[batch] = {(r["partition"], r["min(offset)"], r["min(offset)"] + r["count(1)"]) for r in rows}

    frame = listened.read(kafka4, load.topic, "covers", maxOffsetsPerTrigger=20)
    idle = to_function(listened, frame, sink, "covers-nothing")
    wait_until(lambda: told == {0: set()}, "batch 0 of a query without records", 60)
    idle.stop()
    load.send(50)
    query = to_function(listened, frame, sink, "covers", availableNow=True)
    assert query.awaitTermination(60)
    assert len(told) >= 3
    assert {batch: ranges for batch, ranges in told.items() if batch != 1} == read
    wait_until(lambda: committed(kafka4, "covers", load.topic) == {0: 25, 1: 25}, "committed", AT_ONCE_S)
    with pytest.raises(streamgroup.StreamGroupError, match="inside a foreachBatch function"):
        streamgroup.ranges()


def test_two_groups_in_one_query_have_ranges_each_and_are_drained_as_one(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    loads = {name: Load(kafka4, make_topic(kafka4, 1), 1) for name in ("east", "west")}
    for load in loads.values():
        load.send(200)
    seen: list[str] = []
    problems: list[str] = []

    checked: list[int] = []

    def sink(frame: DataFrame, batch: int) -> None:
        values = [bytes(row.value).decode() for row in frame.select("value").collect()]
        seen.extend(values)
        if not all(any(value.startswith(load.topic) for value in values) for load in loads.values()):
            return  # one of the two has not joined its group yet, or has read all
        checked.append(batch)
        try:
            assert all(
                r.partition.topic == load.topic for name, load in loads.items() for r in streamgroup.ranges(name)
            )
            with pytest.raises(streamgroup.StreamGroupError, match=r"more than one source .* 'east'.* 'west'"):
                streamgroup.ranges()
        except (AssertionError, streamgroup.StreamGroupError) as error:
            problems.append(str(error))

    def both(limit: int) -> DataFrame:
        east, west = (listened.read(kafka4, loads[n].topic, n, maxOffsetsPerTrigger=limit) for n in loads)
        return east.union(west)

    query = to_function(listened, both(10), sink, "union")
    wait_until(lambda: len(seen) >= 40, "some batches", 60)
    assert streamgroup.drain(query, 20) == streamgroup.DrainResult(True, ("east", "west"))
    drained = len(seen)
    assert drained < 400
    assert {n: committed(kafka4, n, load.topic)[0] for n, load in loads.items()} == {
        n: sum(value.startswith(load.topic) for value in seen) for n, load in loads.items()
    }
    query = to_function(listened, both(70), sink, "union", availableNow=True)
    assert query.awaitTermination(60)
    assert sorted(seen) == sorted(loads["east"].sent + loads["west"].sent), "nothing lost, nothing repeated"
    assert not problems
    assert checked, "batches with records of both"
    assert drained < len(seen)


# -- one DataFrame twice ----------------------------------------------------------------------------------------------


def test_two_sinks_of_one_dataframe_are_two_members_that_are_drained_apart(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(40)
    sinks = [
        listened.to_parquet(listened.read(kafka4, load.topic, "pair", group__member=name), name) for name in ("a", "b")
    ]
    wait_until(lambda: sum(len(sunk.rows("offset")) for sunk in sinks) >= 40, "all rows in the two sinks")
    assert streamgroup.drain(sinks[0].query, 20).drained
    assert sinks[1].query.isActive
    load.send(40)
    wait_until(lambda: committed(kafka4, "pair", load.topic) == {0: 40, 1: 40}, "the other takes over")
    assert streamgroup.drain(sinks[1].query, 20).drained
    assert sorted(sinks[0].values() + sinks[1].values()) == sorted(load.sent)


def test_a_dataframe_united_with_itself_is_one_member(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """Spark reads it once. A self-join it reads twice: that is two members, which are refused (R28)."""
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(20)
    frame = listened.read(kafka4, load.topic, "twice")
    sunk = listened.to_parquet(frame.union(frame), availableNow=True)
    sunk.finish()
    assert sorted(sunk.values()) == sorted(load.sent * 2)
    assert {len(progress["sources"]) for progress in sunk.query.recentProgress} == {1}
    wait_until(lambda: committed(kafka4, "twice", load.topic) == {0: 20}, "committed", AT_ONCE_S)


def test_a_weight_of_auto_is_the_number_of_cores(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(10)
    listened.to_parquet(listened.read(kafka4, load.topic, "weighed", group__member__weight="auto"))
    wait_until(lambda: sum(committed(kafka4, "weighed", load.topic).values()) == 10, "committed", 30)
    host, _, port = kafka4.bootstrap_servers.rpartition(":")
    cluster = KafkaCluster(ClientOptions(((host, int(port)),)))
    try:
        (member,) = describe_any_group(cluster, "weighed", cluster.deadline(10_000)).members
    finally:
        cluster.close()
    identity = decode_identity(member.user_data)
    assert identity is not None
    assert identity.weight == 2, "the session of the tests is local[2]"


# -- the other ends ---------------------------------------------------------------------------------------------------


def test_a_query_is_drained_in_the_middle_of_its_first_batch(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(10)
    sink = HeldSink()
    query = to_function(listened, listened.read(kafka4, load.topic, "first"), sink, "first")
    assert sink.in_batch.wait(30)
    threading.Timer(0.5, sink.go_on.set).start()
    assert streamgroup.drain(query, 20) == streamgroup.DrainResult(True, ("first",))
    assert committed(kafka4, "first", load.topic) == {0: 10}


def test_once_is_drained_in_the_middle_of_its_batch_without_a_listener(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(10)
    sink = HeldSink()
    query = to_function(streams, streams.read(kafka4, load.topic, "alone"), sink, "alone", once=True)
    assert sink.in_batch.wait(30)
    threading.Timer(0.5, sink.go_on.set).start()
    assert streamgroup.drain(query, 20) == streamgroup.DrainResult(True, ("alone",))
    assert committed(kafka4, "alone", load.topic) == {0: 10}


def test_state_in_a_member_of_a_group_is_warned_of_once(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(30)
    with caplog.at_level(logging.WARNING, logger="streamgroup"):
        frame = listened.read(kafka4, load.topic, "stateful", maxOffsetsPerTrigger=10).dropDuplicates(["offset"])
        query = to_function(listened, frame, lambda rows, _: rows.collect(), "stateful")
        wait_until(lambda: "keeps state" in caplog.text, "the warning", 60)
        load.send(10)
        wait_until(lambda: committed(kafka4, "stateful", load.topic) == {0: 40}, "another batch")
        streamgroup.drain(query, 20)
    assert caplog.text.count("keeps state") == 1
    assert "member of group stateful" in caplog.text
    assert "option('group.mode', 'commit')" in caplog.text


def test_a_running_query_is_drained_from_a_shell(listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(2_000)
    frame = listened.read(kafka4, load.topic, "shell", maxOffsetsPerTrigger=50)
    sunk = listened.to_parquet(frame, "shell")
    wait_until(lambda: len(sunk.rows("offset")) >= 100, "some batches", 60)
    command = Path(sys.executable).with_name("streamgroup")
    ended = subprocess.run(
        [command, "drain", "--group", "shell"], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "drained: nothing will be repeated; the query has ended" in ended.stdout
    query: StreamingQuery = sunk.query
    drained = r"DrainedError: group shell: the query was drained, and no batch will be repeated"
    with pytest.raises(StreamingQueryException, match=drained):
        query.awaitTermination(20)
    rows = len(sunk.values())
    assert rows < 2_000
    assert sum(committed(kafka4, "shell", load.topic).values()) == rows

    again = listened.to_parquet(listened.read(kafka4, load.topic, "shell"), "shell", availableNow=True)
    again.finish()
    assert sorted(again.values()) == sorted(load.sent)


# -- at once, at last: Spark's workers are warm by now -----------------------------------------------------------------


def test_once_is_committed_by_its_own_run(listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(60)
    sunk = listened.to_parquet(listened.read(kafka4, load.topic, "single"), once=True)
    sunk.finish()
    wait_until(lambda: committed(kafka4, "single", load.topic) == {0: 30, 1: 30}, "committed", AT_ONCE_S)


@pytest.mark.timeout(200)
def test_with_a_trigger_of_20_s_a_batch_is_committed_at_once_and_a_drain_waits_for_no_trigger(
    listened: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    sunk = listened.to_parquet(listened.read(kafka4, load.topic, "long"), processingTime="20 seconds")

    def sink_and_commit(each: int) -> float:
        load.send(40)
        wait_until(lambda: len(sunk.rows("offset")) == 2 * each, "all rows in the sink", 90)  # a trigger may miss them
        at = time.monotonic()
        wait_until(lambda: committed(kafka4, "long", load.topic) == {0: each, 1: each}, "committed", AT_ONCE_S)
        return at

    for number in (1, 2, 3):
        began = sink_and_commit(20 * number)
        told = metadata(kafka4, "long", load.topic)
        if told.batch is not None:  # else a trigger came between the batch and its report
            break
    assert told.batch == sunk.query.lastProgress["batchId"]
    (status,) = channel.statuses(jvm_pid(driver_context("the test"))).values()
    assert status["query"]["id"] == str(sunk.query.id)
    newest, progress = status["batches"][-1], sunk.query.lastProgress
    assert (newest["batch"], newest["began"]) == (progress["batchId"], progress["timestamp"])
    assert (newest["rows"], newest["durations_ms"]) == (progress["numInputRows"], progress["durationMs"])
    assert streamgroup.drain(sunk.query, AT_ONCE_S) == streamgroup.DrainResult(True, ("long",))
    assert time.monotonic() - began < 18, "no trigger was waited for"
