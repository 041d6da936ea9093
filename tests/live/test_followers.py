"""Fetching from followers (KIP-392) on a real cluster with racks: which broker sends, and what its end changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from streamgroup.executor.pools import POOL
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.read.read_replicas import REPLICAS
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.waiting import wait_until

pytestmark = pytest.mark.live

RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
RECORDS = 4_000
SMALL = 30_000
"""Bytes of an answer, so that a range takes many."""


@pytest.fixture(scope="module")
def racks() -> Iterator[KafkaServer]:
    """Broker 0 is in rack r0, broker 1 in rack r1. Proxies count what they send to clients."""
    with KafkaServer(brokers=2, racks=("r0", "r1"), proxied=True, config=RACK_AWARE) as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    yield
    POOL.clear()
    REPLICAS.clear()


class Topic:
    """A topic of one partition with a replica on both brokers, and records of 500 bytes."""

    def __init__(self, server: KafkaServer, make_topic: MakeTopic, **producer: Any) -> None:
        self.server = server
        self.name = make_topic(server, 1, replication=2)
        self.tp = TopicPartition(self.name, 0)
        addresses = [address.rsplit(":", 1) for address in server.bootstrap_servers.split(",")]
        self.client = ClientOptions(bootstrap_servers=tuple((host, int(port)) for host, port in addresses))
        self.send(RECORDS, **producer)
        cluster = KafkaCluster(self.client)
        snapshot = cluster.snapshot({self.name}, time.monotonic() + 30)
        cluster.close()
        info, leader = snapshot.partition(self.tp), snapshot.leader(self.tp)
        assert info is not None
        assert leader is not None
        self.leader, self.follower = leader.node_id, 1 - leader.node_id
        self._facts: tuple[Any, ...] = (leader, snapshot.topics[self.name].topic_id, info.leader_epoch)

    def send(self, count: int, **config: Any) -> None:
        producer = Producer(
            {"bootstrap.servers": self.server.direct_servers, "linger.ms": 5, "batch.size": 16_000, **config}
        )
        if "transactional.id" in config:
            producer.init_transactions(30)
            producer.begin_transaction()
        for i in range(count):
            producer.produce(self.name, b"%06d" % i + b"x" * 494, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        if "transactional.id" in config:
            producer.abort_transaction(30)

    def task(self, start: int, until: int) -> FetchTask:
        return FetchTask((FetchRange(OffsetRange(self.tp, start, until), *self._facts),))

    def fetch(self, **others: Any) -> FetchOptions:
        """From the rack of the follower."""
        return FetchOptions(rack=f"r{self.follower}", max_partition_bytes=SMALL, **others)

    def delivered(self) -> tuple[int, int]:
        """The bytes that leader and follower have sent so far."""
        return self.server.proxies[self.leader].delivered, self.server.proxies[self.follower].delivered

    def sent_by(self, act: Callable[[], None]) -> tuple[int, int]:
        before = self.delivered()
        act()
        return tuple(now - was for now, was in zip(self.delivered(), before, strict=True))  # type: ignore[return-value]


def test_the_records_come_from_the_replica_in_the_rack(racks: KafkaServer, make_topic: MakeTopic) -> None:
    topic = Topic(racks, make_topic)

    def read_whole(fetch: FetchOptions) -> None:
        found = [
            offset
            for each in read(topic.task(0, RECORDS), topic.client, fetch)
            for offset in each["offset"].to_pylist()
        ]
        assert found == list(range(RECORDS))

    leader, follower = topic.sent_by(lambda: read_whole(topic.fetch()))
    assert follower > RECORDS * 500
    assert leader < 20_000, "an answer that names the follower, and the metadata"
    leader, follower = topic.sent_by(lambda: read_whole(replace(topic.fetch(), rack="")))
    assert leader > RECORDS * 500
    assert follower < 20_000


def test_a_new_record_is_read_from_the_follower_as_soon_as_it_has_it(racks: KafkaServer, make_topic: MakeTopic) -> None:
    topic = Topic(racks, make_topic)
    for round_ in range(5):
        end = RECORDS + round_
        topic.send(1)
        (rows,) = read(topic.task(end, end + 1), topic.client, topic.fetch())
        assert rows["offset"].to_pylist() == [end]


def test_aborted_records_are_hidden_when_a_follower_sends_them(racks: KafkaServer, make_topic: MakeTopic) -> None:
    topic = Topic(racks, make_topic)
    topic.send(100, **{"transactional.id": "aborts"})
    topic.send(10)
    end = RECORDS + 100 + 1 + 10
    fetch = topic.fetch(isolation=Isolation.READ_COMMITTED)
    found: list[int] = []

    def read_end() -> None:
        for each in read(topic.task(RECORDS - 5, end), topic.client, fetch):
            found.extend(each["offset"].to_pylist())

    leader, follower = topic.sent_by(read_end)
    assert found[:5] == list(range(RECORDS - 5, RECORDS))
    rest = found[5:]  # the marker, which is written after the transaction has been ended, may lie between them
    assert len(rest) == 10
    assert rest == sorted(set(rest) & set(range(RECORDS + 100, end)))
    assert follower > 100 * 500 > leader


@pytest.mark.parametrize("ends", ["kill", pytest.param("stop", marks=pytest.mark.long)])
def test_a_follower_that_ends_in_the_middle_loses_and_repeats_nothing(
    ends: str, racks: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = Topic(racks, make_topic)
    broker = racks.brokers[topic.follower]
    found: list[int] = []

    def read_whole() -> None:
        for each in read(topic.task(0, RECORDS), topic.client, topic.fetch()):
            found.extend(each["offset"].to_pylist())
            if broker.alive and len(found) > RECORDS // 4:
                getattr(broker, ends)()

    try:
        leader, follower = topic.sent_by(read_whole)
    finally:
        broker.restart()
    assert found == list(range(RECORDS))
    assert follower > RECORDS // 4 * 500
    assert leader > RECORDS // 4 * 500
    REPLICAS.clear()

    def comes_from_the_follower() -> bool:
        REPLICAS.clear()
        rows = read(topic.task(0, 100), topic.client, topic.fetch())
        return topic.sent_by(lambda: [None for _ in rows] and None)[1] > 100 * 500

    wait_until(comes_from_the_follower, "the follower that is back to serve", 60)
