"""The records of a topic as librdkafka reads them, and as this project's source does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streamgroup.coordinator.batch_read import plan_batch
from streamgroup.executor.read.fetcher import read
from streamgroup.options.parse import parse_source
from streamgroup.testing import KafkaServer
from tests.old_kafka import librdkafka
from tests.waiting import soon, wait_until

_TIMEOUT_S = 60
_TRANSIENT = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE)


def read_back(
    server: KafkaServer, topic: str, at_least: int = 0, settings: Mapping[str, Any] | None = None
) -> list[list[Message]]:
    """Return all records of each partition, in their order. The topic has none of transactions.

    `at_least` says how many records to wait for where they may be on their way still, as with acks=0. `settings` are
    librdkafka's.
    """
    deadline = soon(_TIMEOUT_S)
    consumer = Consumer({**librdkafka(server), "group.id": "unused", "check.crcs": True, **(settings or {})})
    with closing(consumer):
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        wanted = [TopicPartition(topic, partition, 0) for partition in range(len(partitions))]
        ends = sum(_end(consumer, tp) for tp in wanted)
        consumer.assign(wanted)
        found: list[list[Message]] = [[] for _ in wanted]
        while (missing := max(ends, at_least) - sum(map(len, found))) > 0:
            assert deadline > soon(0), f"librdkafka has not read {missing} records of {topic}"
            for message in consumer.consume(min(missing, 10_000), 0.2):
                assert message.error() is None, message.error()
                found[message.partition()].append(message)
    return found


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end of a log. A broker that was restarted may have to become its leader, and know the end, before."""

    def end() -> list[int]:
        try:
            return [consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)[1]]
        except KafkaException as error:
            if error.args[0].code() not in _TRANSIENT:
                raise
            return []

    (found,) = wait_until(end, f"{partition.topic}-{partition.partition} has a leader", _TIMEOUT_S)
    return found


def consumed(config: Mapping[str, str], topic: str, count: int) -> list[bytes]:
    """Return the first `count` values of partition 0, or those that have come in half of _TIMEOUT_S.

    `config` has librdkafka's names. A client with ACLs needs READ on the group `readers`.
    """
    consumer = Consumer({**config, "group.id": "readers", "enable.auto.commit": False, "log_level": 0})
    values: list[bytes] = []
    deadline = soon(_TIMEOUT_S / 2)
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(values) < count and soon(0) < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
    return values


def read_by_the_source(topic: str, **options: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Return key and value of all records of each partition, as `spark.read` plans and reads them.

    `options` name the brokers, with `__` for the points in their names.
    """
    given = {name.replace("__", "."): value for name, value in options.items()}
    parsed = parse_source({"subscribe": topic, "startingOffsets": "earliest", **given}, streaming=False)
    found = defaultdict(list)
    for task in plan_batch(parsed):
        for batch in read(task, parsed.client, parsed.fetch):
            for row in batch.select(["partition", "key", "value"]).to_pylist():
                found[row["partition"]].append((row["key"], row["value"]))
    return dict(found)
