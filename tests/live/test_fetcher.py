"""The fetcher against real brokers."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient

from streamgroup.errors import DataLossError
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.read.kafka import KafkaLookup
from streamgroup.kafka.cluster.changes import create_topics
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.records.columns import SCHEMA
from streamgroup.model import FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.testing import KafkaServer, java_tool
from tests.servers import address_of, each_of

pytestmark = pytest.mark.live
MakeTopic = Callable[..., str]


kafka = each_of("kafka4", long=("kafka39",))


def options_for(server: KafkaServer) -> ClientOptions:
    return ClientOptions(bootstrap_servers=(address_of(server),))


def produce(server: KafkaServer, topic: str, values: Sequence[bytes], *, partition: int = 0, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 5, **config})
    for i, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, f"k{i}".encode(), partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def plan(server: KafkaServer, *ranges: tuple[str, int, int, int]) -> FetchTask:
    """A task for ranges (topic, partition, start, until), with leaders as the cluster says."""
    cluster = KafkaCluster(options_for(server))
    snapshot = cluster.snapshot({topic for topic, *_ in ranges}, time.monotonic() + 30)
    cluster.close()
    planned = []
    for topic, partition, start, until in ranges:
        tp = TopicPartition(topic, partition)
        info = snapshot.partition(tp)
        assert info is not None
        planned.append(
            FetchRange(
                OffsetRange(tp, start, until), snapshot.leader(tp), snapshot.topics[topic].topic_id, info.leader_epoch
            )
        )
    return FetchTask(tuple(planned))


def table(server: KafkaServer, task: FetchTask, fetch: FetchOptions = FetchOptions(), **others: Any) -> pa.Table:  # noqa: B008
    return pa.Table.from_batches(read(task, options_for(server), fetch, **others), schema=SCHEMA)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_twenty_thousand_records_of_each_codec_are_read_as_written(
    codec: str, kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka, 1)
    values = [b"%06d" % i + b"x" * (i % 200) for i in range(20_000)]
    produce(kafka, topic, values, **{"compression.type": codec})
    found = table(kafka, plan(kafka, (topic, 0, 0, 20_000)))
    assert found["value"].to_pylist() == values
    assert found["key"].to_pylist() == [b"k%d" % i for i in range(20_000)]
    assert found["offset"].to_pylist() == list(range(20_000))
    assert set(found["topic"].to_pylist()) == {topic}


def test_a_range_within_a_log_is_read_exactly(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    produce(kafka, topic, [b"%d" % i for i in range(5_000)])
    assert table(kafka, plan(kafka, (topic, 0, 1_234, 4_321)))["offset"].to_pylist() == list(range(1_234, 4_321))


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_small_answers_are_put_together(prefetch: int, kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    produce(kafka, topic, [b"%d" % i + b"y" * 500 for i in range(5_000)], **{"batch.size": 4096})
    fetch = FetchOptions(max_partition_bytes=20_000, prefetch=prefetch)
    assert table(kafka, plan(kafka, (topic, 0, 0, 5_000)), fetch)["offset"].to_pylist() == list(range(5_000))


def test_batches_larger_than_the_fetch_size_arrive_whole(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 2)
    for partition in (0, 1):
        produce(kafka, topic, [b"z" * 300_000] * 5, partition=partition)
    fetch = FetchOptions(max_partition_bytes=1_000)
    found = table(kafka, plan(kafka, (topic, 0, 0, 5), (topic, 1, 0, 5)), fetch)
    assert sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)) == [
        (partition, offset) for partition in (0, 1) for offset in range(5)
    ]


def test_small_ranges_of_one_leader_share_requests(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 8)
    for partition in range(8):
        produce(kafka, topic, [b"%d" % i for i in range(100)], partition=partition)
    found = table(kafka, plan(kafka, *((topic, p, 10, 90) for p in range(8))))
    by_partition = {p: [] for p in range(8)}
    for partition, offset in zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True):
        by_partition[partition].append(offset)
    assert by_partition == {p: list(range(10, 90)) for p in range(8)}


def in_transactions(server: KafkaServer, topic: str, *outcomes: bool) -> None:
    """One transaction of 100 records after the other; True commits, False aborts."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number, commits in enumerate(outcomes):
        producer.begin_transaction()
        for i in range(100):
            producer.produce(topic, b"%d/%d" % (number, i), partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(30)


def test_both_isolation_levels_see_what_they_should(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    in_transactions(kafka, topic, True, False, True, False, False, True)
    task = plan(kafka, (topic, 0, 0, 6 * 101))
    every = [b"%d/%d" % (number, i) for number in range(6) for i in range(100)]
    committed = [value for value in every if value[:1] in b"025"]
    assert table(kafka, task)["value"].to_pylist() == every
    fetch = FetchOptions(isolation=Isolation.READ_COMMITTED)
    assert table(kafka, task, fetch)["value"].to_pylist() == committed
    small = FetchOptions(isolation=Isolation.READ_COMMITTED, max_partition_bytes=1000)
    assert table(kafka, plan(kafka, (topic, 0, 150, 6 * 101)), small)["value"].to_pylist() == [
        value for value in committed if value[:1] in b"25"
    ]


def test_a_range_that_ends_in_aborted_records_and_markers_is_done(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    in_transactions(kafka, topic, True, False)
    fetch = FetchOptions(isolation=Isolation.READ_COMMITTED)
    assert len(table(kafka, plan(kafka, (topic, 0, 0, 202)), fetch)) == 100
    assert len(table(kafka, plan(kafka, (topic, 0, 101, 202)), fetch)) == 0


def test_records_deleted_since_planning_are_data_loss_or_left_out(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    produce(kafka, topic, [b"%d" % i for i in range(1_000)])
    task = plan(kafka, (topic, 0, 100, 1_000))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([LibrdkafkaPartition(topic, 0, 400)])[LibrdkafkaPartition(topic, 0)].result(30)
    with pytest.raises(DataLossError, match=rf"{topic}-0: the offsets \[100, 400\)"):
        table(kafka, task)
    found = table(kafka, task, fail_on_data_loss=False)
    assert found["offset"].to_pylist() == list(range(400, 1_000))


def test_a_topic_deleted_and_made_anew_is_never_read_in_its_place(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    produce(kafka, topic, [b"old"] * 100)
    task = plan(kafka, (topic, 0, 0, 100))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)
    cluster = KafkaCluster(options_for(kafka))
    retry = cluster.retry("deletion", deadline := cluster.deadline(30_000))
    while topic in cluster.snapshot([topic], deadline, refresh=True).topics:
        retry.again("still there")
    create_topics(cluster, {topic: 1}, deadline)
    cluster.close()
    produce(kafka, topic, [b"new"] * 100)
    with pytest.raises(DataLossError, match="deleted and created again"):
        table(kafka, task)


def test_a_reader_that_stops_early_does_not_disturb_the_next(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 1)
    produce(kafka, topic, [b"%d" % i for i in range(20_000)])
    task = plan(kafka, (topic, 0, 0, 20_000))
    for _ in range(20):
        rows = read(task, options_for(kafka), FetchOptions(max_partition_bytes=50_000))
        assert next(rows)["offset"][0].as_py() == 0
        rows.close()  # type: ignore[attr-defined]
    assert len(table(kafka, task)) == 20_000


def test_a_broker_that_restarts_in_the_middle_of_a_read_is_waited_for() -> None:
    with KafkaServer() as server:
        cluster = KafkaCluster(options_for(server))
        create_topics(cluster, {"restart": 1}, cluster.deadline(60_000))
        cluster.close()
        produce(server, "restart", [b"%d" % i for i in range(20_000)])
        fetch = FetchOptions(max_partition_bytes=20_000, poll_timeout_ms=60_000)
        rows = read(plan(server, ("restart", 0, 0, 20_000)), options_for(server), fetch)
        found = next(rows)["offset"].to_pylist()
        server.kill()
        restarting = threading.Thread(target=server.restart)
        restarting.start()
        for each in rows:
            found += each["offset"].to_pylist()
        restarting.join(60)
        assert found == list(range(20_000))


@pytest.mark.long
def test_a_leader_that_dies_in_the_middle_of_a_read_is_followed_to_its_successor() -> None:
    with KafkaServer(brokers=3) as server:
        cluster = KafkaCluster(options_for(server))
        create_topics(cluster, {"moves": 1}, cluster.deadline(60_000), replication_factor=3)
        cluster.close()
        produce(server, "moves", [b"%d" % i for i in range(20_000)], acks="all")
        task = plan(server, ("moves", 0, 0, 20_000))
        leader = task.ranges[0].leader
        assert leader is not None
        fetch = FetchOptions(max_partition_bytes=20_000, poll_timeout_ms=60_000)
        # The leader may be the first broker, so the others must be known from the start.
        options = ClientOptions(bootstrap_servers=tuple(("127.0.0.1", node.port) for node in server.brokers))
        rows = read(task, options, fetch)
        found = next(rows)["offset"].to_pylist()
        (node,) = [node for node in server.brokers if node.port == leader.port]
        node.kill()
        for each in rows:
            found += each["offset"].to_pylist()
        assert found == list(range(20_000))


@pytest.mark.long
def test_a_former_leader_names_its_successor_and_no_metadata_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-951: Fetch v16 and later."""
    with KafkaServer(brokers=3) as server:
        cluster = KafkaCluster(options_for(server))
        deadline = cluster.deadline(60_000)
        create_topics(cluster, {"named": 1}, deadline, replication_factor=3)
        produce(server, "named", [b"%d" % i for i in range(1_000)], acks="all")
        task = plan(server, ("named", 0, 0, 1_000))
        leader = task.ranges[0].leader
        (node,) = [node for node in server.brokers if leader is not None and node.port == leader.port]
        retry = cluster.retry("election", deadline)
        node.kill()
        while cluster.snapshot(["named"], deadline, refresh=True).leader(TopicPartition("named", 0)) in {leader, None}:
            retry.again("no other leader yet")
        cluster.close()
        node.restart()
        monkeypatch.setattr(KafkaLookup, "look_up", None)
        assert [row["offset"] for row in table(server, task).to_pylist()] == list(range(1_000))


@pytest.mark.long
def test_a_task_that_a_quota_throttles_for_longer_than_its_timeouts_reads_everything(
    kafka: KafkaServer, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(kafka, 1)
    values = [os.urandom(10_000) for _ in range(400)]
    produce(kafka, topic, values)
    quota = ("--add-config", "consumer_byte_rate=200000", "--entity-type", "clients", "--entity-name", "throttled")
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    command = java_tool(kafka.version, "kafka.admin.ConfigCommand", *servers, "--alter", *quota)
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    client = replace(options_for(kafka), client_id="throttled", request_timeout_ms=2_000)
    began = time.monotonic()
    batches = read(plan(kafka, (topic, 0, 0, 400)), client, FetchOptions(poll_timeout_ms=3_000))
    assert [value for batch in batches for value in batch["value"].to_pylist()] == values
    assert time.monotonic() - began > 3, "the quota was in force"
    assert caplog.text.count("throttles the client 'throttled' because of a quota") == 1
