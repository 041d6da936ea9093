"""A log that an unclean election cuts below a position, and that has grown past it before anybody looks (R8)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.errors import DataLossError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import INITIAL_DOCUMENT, LATEST, OffsetRange, TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.options.types import Isolation, LimitOptions
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(240)]

REPLICATED, UNREPLICATED, OTHERS = 5, 5, 20
TIMEOUT_S = 60.0


class Victim:
    """The one partition of a topic with two replicas, whose leader knows more than its follower."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        self.server, self.topic = server, topic
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})

    def look(self) -> Any:
        """The partition's metadata. The broker that is asked may be the one that was killed: then it is asked again."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self._admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions[0]
            except KafkaException:
                if time.monotonic() >= until:
                    raise

    def write(self, name: str, count: int) -> None:
        servers = self.server.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "acks": 1, "message.timeout.ms": 60_000, "log_level": 0})
        for i in range(count):
            producer.produce(self.topic, f"{name}-{i}".encode(), partition=0)
        assert producer.flush(60) == 0

    def cut(self) -> None:
        """The leader dies, its follower becomes leader without the last records, and others are written."""
        leader, follower = self._leader, self._follower
        self.server.brokers[leader].kill()
        self.server.brokers[follower].restart()
        wait_until(lambda: self.look().leader == follower, "unclean leader", TIMEOUT_S)
        self.write("other", OTHERS)

    def fall_behind(self) -> None:
        self._leader = self.look().leader
        (self._follower,) = set(self.look().replicas) - {self._leader}
        wait_until(lambda: len(self.look().isrs) == 2, "second replica in sync", TIMEOUT_S)
        self.write("replicated", REPLICATED)
        wait_until(lambda: self._end() == REPLICATED, "high watermark at the end: the follower has them too", TIMEOUT_S)
        self.server.brokers[self._follower].kill()
        wait_until(lambda: self.look().isrs == [self._leader], "leader alone", TIMEOUT_S)
        self.write("unreplicated", UNREPLICATED)

    def _end(self) -> int:
        options = parse_source(self.source("nobody"), streaming=True)
        with closing(KafkaCluster(options.client)) as cluster:
            tp = TopicPartition(self.topic, 0)
            return cluster.list_offsets({tp: LATEST}, Isolation.READ_UNCOMMITTED, cluster.deadline())[tp].offset

    def source(self, group: str, **others: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.server.bootstrap_servers,
            "kafka.group.id": group,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "kafka.request.timeout.ms": "3000",
            **others,
        }


class CoordinatorCalls:
    """The calls of Spark to a coordinator process."""

    def __init__(self, options: dict[str, str]) -> None:
        self.coordinator = Coordinator(parse_source(options, streaming=True))
        self.at = to_value(INITIAL_DOCUMENT)

    def batch(self) -> tuple[OffsetRange, ...]:
        """The ranges of the next batch, which sinks."""
        start = self.at

        def planned() -> bool:
            self.at = self.coordinator.latest_offset(start, limits=LimitOptions())
            return self.at != start

        wait_until(planned, "batch", TIMEOUT_S)
        self.coordinator.partitions(start, self.at)
        return from_value(self.at).ranges


@contextmanager
def query(options: dict[str, str]) -> Iterator[CoordinatorCalls]:
    made = CoordinatorCalls(options)
    try:
        yield made
    finally:
        made.coordinator.stop()


def test_a_broker_that_comes_back_has_every_position_checked_and_nothing_is_lost(make_topic: MakeTopic) -> None:
    with KafkaServer() as server:
        victim = Victim(server, make_topic(server))
        tp = TopicPartition(victim.topic, 0)
        victim.write("before", 10)
        with query(victim.source("bounced")) as reader:
            assert reader.batch() == (OffsetRange(tp, 0, 10),)
            before = from_value(reader.at).positions[tp].leader_epoch
            server.brokers[0].kill()
            server.brokers[0].restart()
            victim.write("after", 20)
            ranges = reader.batch()
            assert from_value(reader.at).positions[tp].leader_epoch > before >= 0
            while ranges[-1].until < 30:
                ranges += reader.batch()
            assert [r.start for r in ranges] == [10, *(r.until for r in ranges[:-1])]


def test_records_behind_a_cut_are_an_error_or_read_from_the_cut_on(make_topic: MakeTopic) -> None:
    with KafkaServer(brokers=3, config={"min.insync.replicas": 1}) as server:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        victim = Victim(server, make_topic(server, replication=2, config=config))
        victim.fall_behind()
        position, tp = REPLICATED + UNREPLICATED, TopicPartition(victim.topic, 0)
        with (
            query(victim.source("strict")) as strict,
            query(victim.source("lenient", failOnDataLoss="false")) as lenient,
        ):
            for each in (strict, lenient):
                assert each.batch() == (OffsetRange(tp, 0, position),)
                assert each.coordinator.latest_offset(each.at, limits=LimitOptions()) == each.at
            victim.cut()
            with pytest.raises(
                DataLossError, match=rf"{tp}: .* lost from position {position} on: .* at offset {REPLICATED}"
            ):
                strict.batch()
            assert lenient.batch() == (OffsetRange(tp, REPLICATED, REPLICATED + OTHERS),)
