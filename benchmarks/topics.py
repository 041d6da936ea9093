"""Topics of the benchmarks: created anew, and ready before the clock starts."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.pairs import PARTITIONS
from streamgroup.testing import KafkaServer

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Case:
    """One topic: `share` of the requested records, of `size` bytes each."""

    name: str
    size: int
    share: float
    codec: str = "none"

    @property
    def topic(self) -> str:
        return f"bench-{self.name.replace(' ', '-').lower()}"


def admin_client(server: KafkaServer) -> AdminClient:
    """Return an admin client that logs errors alone."""
    return AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})


def create_topic(server: KafkaServer, topic: str, config: dict[str, str] | None = None) -> None:
    """Create a topic anew, and wait until a leader answers for each partition.

    Java's producer has been seen to wait for delivery.timeout.ms where it wrote to a topic that had just been created.
    Raises SystemExit after 30 seconds without all leaders.
    """
    admin = admin_client(server)
    with suppress(KafkaException):
        admin.delete_topics([topic], operation_timeout=20)[topic].result(20)
    deadline = time.monotonic() + TIMEOUT_S
    new = NewTopic(topic, PARTITIONS, 1, config=config or {})
    while True:  # the name is free when the broker has deleted the logs
        try:
            admin.create_topics([new], operation_timeout=20)[topic].result(20)
            break
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    while True:
        try:
            end_offsets(admin, topic)
            return
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"{topic}: no leader answers for each partition ({error})") from None
            time.sleep(0.2)


def end_offsets(admin: AdminClient, topic: str) -> int:
    """Return the sum of the end offsets of all partitions. Raises KafkaException where a leader does not answer."""
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    return sum(future.result(20).offset for future in admin.list_offsets(wanted).values())


def fill(server: KafkaServer, case: Case, records: int) -> None:
    """Write the records of one case; values compress as well as text."""
    create_topic(server, case.topic)
    producer = Producer(
        {
            "bootstrap.servers": server.direct_servers,
            "compression.type": case.codec,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 500_000,
        }
    )
    words = [f"{n * 2_654_435_761 % 2**32:08x}" for n in range(4096)]
    per_value = case.size // 8 + 1
    for n in range(records):
        value = "".join(words[(n * 31 + k * 7) % 4096] for k in range(per_value))[: case.size]
        while True:
            try:
                producer.produce(case.topic, value, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise SystemExit(f"{case.topic}: not all records were delivered")
