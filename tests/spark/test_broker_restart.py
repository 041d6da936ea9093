"""A broker that crashes, and one that stops answering, under a running query."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, Sunk, committed, log_ends, repeated, under_load
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(180)]

PARTITIONS = 3
BATCH = 150
PATIENT = {"message.timeout.ms": 60_000, "enable.idempotence": True, "log_level": 0}
"""The load outlives the broker's absence, and sends nothing twice."""
OPTIONS = {"maxOffsetsPerTrigger": BATCH, "kafka__request__timeout__ms": 3000}


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server


def goes_on(sunk: Sunk, what: str) -> None:
    seen = len(sunk.rows("offset"))
    wait_until(lambda: not sunk.query.isActive or len(sunk.rows("offset")) > seen, what, 60)
    assert sunk.query.exception() is None


def all_is_there(sunk: Sunk, load: Load, group: str) -> None:
    """Nothing lost, at most a batch repeated, everything committed."""
    wait_until(lambda: set(sunk.values()) >= set(load.sent), "all records in the sink", 60)
    ends = log_ends(load.server, load.topic, PARTITIONS)
    wait_until(lambda: committed(load.server, group, load.topic) == ends, "the log's ends committed", 30)
    values = sunk.values()
    assert set(values) == set(load.sent)
    assert sum(count - 1 for count in repeated(values).values()) <= BATCH
    assert sunk.query.isActive


def test_a_broker_that_crashes_and_comes_back(streams: Streams, own_broker: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(own_broker, make_topic(own_broker, PARTITIONS), PARTITIONS, PATIENT)
    sunk = streams.to_parquet(streams.read(own_broker, load.topic, "crash", **OPTIONS))
    with under_load(load):
        goes_on(sunk, "first batches")
        own_broker.brokers[0].kill()
        time.sleep(2)  # how long it is away: batches are planned and tasks run meanwhile
        assert sunk.query.exception() is None
        own_broker.brokers[0].restart()
        goes_on(sunk, "batches after the crash")
    all_is_there(sunk, load, "crash")


@pytest.mark.long
def test_a_broker_that_is_silent_for_longer_than_a_session(
    streams: Streams, own_broker: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(own_broker, make_topic(own_broker, PARTITIONS), PARTITIONS, PATIENT)
    sunk = streams.to_parquet(streams.read(own_broker, load.topic, "silence", **OPTIONS))
    with under_load(load):
        goes_on(sunk, "first batches")
        own_broker.brokers[0].pause()
        try:
            time.sleep(12)  # two sessions of 6 s
        finally:
            own_broker.brokers[0].resume()
        goes_on(sunk, "batches after the silence")
    all_is_there(sunk, load, "silence")
