"""Two queries on three brokers, one of which dies and comes back: leaders and the coordinator move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, assigned, committed, log_ends, repeated, under_load
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long]

PARTITIONS = 6
BATCH = 300
PATIENT = {"message.timeout.ms": 60_000, "log_level": 0}


@pytest.fixture
def three_brokers() -> Iterator[KafkaServer]:
    with KafkaServer(brokers=3, config={"min.insync.replicas": 1}) as server:
        yield server


@pytest.mark.timeout(400)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_broker_dies_and_comes_back(
    streams: Streams, three_brokers: KafkaServer, make_topic: MakeTopic, victim: int
) -> None:
    topic = make_topic(three_brokers, PARTITIONS, replication=3)
    load = Load(three_brokers, topic, PARTITIONS, PATIENT)
    options = {"maxOffsetsPerTrigger": BATCH, "kafka__request__timeout__ms": 3000}
    a, b = (streams.to_parquet(streams.read(three_brokers, topic, "three", **options), name) for name in "ab")

    def sunk() -> int:
        return len(a.rows("offset")) + len(b.rows("offset"))

    def goes_on(what: str) -> None:
        before = sunk()
        wait_until(lambda: sunk() > before + 50, what, 60)
        assert a.query.isActive
        assert b.query.isActive

    with under_load(load):
        wait_until(lambda: len(assigned(a.query)) == len(assigned(b.query)) == 3, "a split of 3-3", 60)
        goes_on("batches on three brokers")
        three_brokers.brokers[victim].kill()
        goes_on("batches on two")
        three_brokers.brokers[victim].restart()
        goes_on("batches on three again")
    wait_until(lambda: set(a.values() + b.values()) >= set(load.sent), "everything in the sinks", 60)
    ends = log_ends(three_brokers, topic, PARTITIONS)
    wait_until(lambda: committed(three_brokers, "three", topic) == ends, "everything committed", 30)
    values = a.values() + b.values()
    assert set(values) == set(load.sent)
    assert sum(count - 1 for count in repeated(values).values()) <= 2 * BATCH
