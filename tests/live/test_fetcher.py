"""The fetcher against real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streamgroup.errors import DataLossError
from streamgroup.executor.fetcher import read
from streamgroup.executor.pool import POOL
from streamgroup.model import FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.net.cluster import Cluster
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.testing import KafkaServer

pytestmark = pytest.mark.live
MakeTopic = Callable[..., str]


@pytest.fixture(params=["kafka39", "kafka41"])
def kafka(request: pytest.FixtureRequest) -> KafkaServer:
    server: KafkaServer = request.getfixturevalue(request.param)
    return server


def options_for(server: KafkaServer, **others: Any) -> ClientOptions:
    host, port = server.bootstrap_servers.rsplit(":", 1)
    return ClientOptions(bootstrap_servers=((host, int(port)),), **others)


def produce(
    server: KafkaServer, topic: str, values: Sequence[bytes], *, partition: int = 0, **config: Any
) -> None:
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
    cluster = Cluster(options_for(server))
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
    return pa.Table.from_batches(read(task, options_for(server), fetch, **others))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_twenty_thousand_records_of_each_codec_are_read_as_written(
    codec: str, kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka, 1, name=f"codec-{codec}-{id(codec)}")
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
