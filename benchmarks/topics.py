"""Topics of the benchmarks: created anew, and ready before the clock starts."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.pairs import PARTITIONS
from streamgroup.testing import KafkaServer

TIMEOUT_S = 30.0


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
