"""A log that was emptied and written anew while its query was down, on a broker without topic ids (before 2.8)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import DataLossError
from streamgroup.model import INITIAL_DOCUMENT
from streamgroup.options.parse import parse_source
from streamgroup.options.types import LimitOptions
from streamgroup.testing import KafkaServer
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.conftest import MakeTopic
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Log:
    """The log of a topic with one partition."""

    def __init__(self, server: KafkaServer, make_topic: MakeTopic) -> None:
        self.server, self._make_topic = server, make_topic
        self.topic = make_topic(server)
        self._config = {"bootstrap.servers": server.bootstrap_servers, "log_level": 0}

    def write(self, count: int) -> None:
        producer = Producer(self._config)
        for i in range(count):
            producer.produce(self.topic, str(i).encode(), partition=0)
        assert producer.flush(60) == 0

    def empty(self) -> None:
        """Delete the topic and make it anew."""
        admin = AdminClient(self._config)
        admin.delete_topics([self.topic])[self.topic].result(30)
        with zookeeper_client(self.server.zookeeper_connect) as client:
            wait_until(lambda: client.exists(f"/brokers/topics/{self.topic}") is None, "the topic is gone")
        self._make_topic(self.server, name=self.topic)

    def options(self, mode: str) -> dict[str, str]:
        grouped = {} if mode == "off" else {"kafka.group.id": f"emptied-{self.topic}"}
        return {
            "kafka.bootstrap.servers": self.server.bootstrap_servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            **grouped,
        }


def available_now(options: dict[str, str], last: dict[str, Any]) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """One run of AvailableNow as Spark drives it: the ranges that it has read, and its last document."""
    run = Coordinator(parse_source(options, streaming=True))
    read: list[tuple[int, int]] = []
    try:
        run.prepare_available_now()
        while (document := run.latest_offset(last, limits=LimitOptions())) != last:
            read += [(r.range.start, r.range.until) for task in run.partitions(last, document) for r in task.ranges]
            last = document
    finally:
        run.stop()
    return read, last


@pytest.mark.parametrize("mode", ["member", "off"])
def test_available_now_does_not_pass_over_a_log_that_ends_below_its_position(
    kafka11: KafkaServer, make_topic: MakeTopic, mode: str
) -> None:
    log = Log(kafka11, make_topic)
    log.write(100)
    read, last = available_now(log.options(mode), to_value(INITIAL_DOCUMENT))
    assert read == [(0, 100)]
    log.empty()
    log.write(10)
    with pytest.raises(DataLossError, match="unknown number of records is lost from position 100 on: "):
        available_now(log.options(mode), last)
    read, last = available_now({**log.options(mode), "failOnDataLoss": "false"}, last)
    assert read == [(0, 10)]
    log.write(5)
    assert available_now(log.options(mode), last)[0] == [(10, 15)]
