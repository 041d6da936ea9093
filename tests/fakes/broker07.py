"""Brokers of Kafka 0.7 in this process, without ZooKeeper: what they hold, message by message."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgroup.logformat import broker_partition, partition_number
from streamgroup.model import Broker, TopicPartition
from streamgroup.testing.kafka07 import BrokerConfig, BrokerServer, Producer07
from streamgroup.testing.kafka07.producer import Payload, message_set

TOPIC = "events"


def tp(broker: int, partition: int, topic: str = TOPIC) -> TopicPartition:
    """The partition that Kafka 0.7 calls `<broker>-<partition>`."""
    return TopicPartition(topic, partition_number(broker, partition))


class OldBroker:
    """One broker, all whose messages are flushed at once; `segment` bytes begin a new segment."""

    def __init__(
        self, directory: Path, node: int = 0, partitions: int = 2, segment: int = 1 << 30, **others: Any
    ) -> None:
        self.node = node
        self.ends: dict[TopicPartition, list[int]] = {}
        """Where the outer messages end, of each partition."""
        config = {"num_partitions": partitions, "log_file_size": segment, "flush_interval": 1, **others}
        self._config = BrokerConfig(node, directory / f"broker-{node}", port=0, use_zookeeper=False, **config)
        self._server = BrokerServer(self._config)
        self._server.start().open()
        self.port = self._server.port
        self.up = True

    @property
    def broker(self) -> Broker:
        return Broker(self.node, "127.0.0.1", self.port)

    @property
    def connections(self) -> int:
        """How many are open: what came by the others is handled."""
        return self._server.connections

    @property
    def logs(self) -> Any:
        return self._server.logs

    def produce(self, partition: int, *payloads: Payload, topic: str = TOPIC, magic: int = 1) -> TopicPartition:
        """Write each payload as a message set of its own."""
        where = tp(self.node, partition, topic)
        with Producer07(f"127.0.0.1:{self.port}") as producer:
            for payload in payloads:
                producer.produce(topic, [payload], partition=partition, magic=magic)
                ends = self.ends.setdefault(where, [0])
                ends.append(ends[-1] + len(message_set([payload], magic)))
        return where

    def end(self, where: TopicPartition) -> int:
        return self.ends[where][-1]

    def segments(self, where: TopicPartition) -> list[int]:
        """Where the segments start, as the files say."""
        directory = self._config.log_dir / f"{where.topic}-{broker_partition(where.partition)[1]}"
        return sorted(int(file.stem) for file in directory.iterdir() if file.suffix == ".kafka")

    def forget(self, where: TopicPartition, segments: int) -> int:
        """Retention removes the oldest segments; where the log starts then. The broker is restarted."""
        starts = self.segments(where)
        directory = self._config.log_dir / f"{where.topic}-{broker_partition(where.partition)[1]}"
        self.stop()
        for start in starts[:segments]:
            (directory / f"{start:020}.kafka").unlink()
        self.restart()
        return starts[segments]

    def lose(self, where: TopicPartition) -> None:
        """The broker has lost the whole log. It is restarted."""
        directory = self._config.log_dir / f"{where.topic}-{broker_partition(where.partition)[1]}"
        self.stop()
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        self.restart()

    def cut(self, where: TopicPartition, end: int) -> None:
        """The log's last segment loses what lies behind `end`. The broker is restarted."""
        last = self.segments(where)[-1]
        directory = self._config.log_dir / f"{where.topic}-{broker_partition(where.partition)[1]}"
        self.stop()
        os.truncate(directory / f"{last:020}.kafka", end - last)
        self.restart()

    def stop(self) -> None:
        if self.up:
            self._server.stop()
            self.up = False

    def restart(self) -> None:
        """Come back at the same port."""
        self.stop()
        self._server = BrokerServer(dataclasses.replace(self._config, port=self.port))
        self._server.start().open()
        self.up = True


def values(count: int, size: int = 20, first: int = 0) -> list[bytes]:
    """Payloads that differ."""
    return [b"%0*d" % (size, first + i) for i in range(count)]


@pytest.fixture(name="start")
def start_broker07(tmp_path: Path) -> Iterator[Callable[..., OldBroker]]:
    """Start a broker `(node, **others)`; all are stopped at the end."""
    brokers: list[OldBroker] = []

    def start(node: int = 0, **others: Any) -> OldBroker:
        brokers.append(OldBroker(tmp_path, node, **others))
        return brokers[-1]

    yield start
    for each in brokers:
        each.stop()
