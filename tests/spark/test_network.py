"""Two queries of one group whose connections are cut, in mid-frame too, stall and vanish while their batches run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamgroup.testing import Direction, End, Fault, KafkaServer, Which
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, assigned, committed, log_ends, repeated, under_load
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long]

PARTITIONS = 4
BATCH = 300
ROUNDS = 3
FAULTS = [
    (Fault(end=End.RESET), Direction.BOTH),
    (Fault(end=End.FIN), Direction.BOTH),
    (Fault(end=End.RESET, mid_frame=True, min_frame=1000), Direction.TO_CLIENT),
    (Fault(end=End.STALL, mid_frame=True), Direction.TO_CLIENT),
    (Fault(end=End.HALF_OPEN), Direction.BOTH),
]


@pytest.fixture
def proxied() -> Iterator[KafkaServer]:
    with KafkaServer(proxied=True) as server:
        yield server


@pytest.mark.timeout(300)
def test_a_network_that_fails_under_two_queries(streams: Streams, proxied: KafkaServer, make_topic: MakeTopic) -> None:
    topic, proxy = make_topic(proxied, PARTITIONS), proxied.proxies[0]
    load = Load(proxied, topic, PARTITIONS)
    options = {"maxOffsetsPerTrigger": BATCH, "kafka__request__timeout__ms": 2000}
    a, b = (streams.to_parquet(streams.read(proxied, topic, "faulty", **options), name) for name in "ab")

    def sunk() -> int:
        return len(a.rows("offset")) + len(b.rows("offset"))

    with under_load(load):
        wait_until(lambda: len(assigned(a.query)) == len(assigned(b.query)) == 2, "a split of 2-2", 60)
        for fault, direction in FAULTS * ROUNDS:
            before, reached = sunk(), proxy.ended
            # Workers come and go with their connections: a large answer may come on none of those open now.
            proxy.set(fault, direction, Which.ALL if fault.min_frame else Which.OPEN)
            wait_until(lambda reached=reached: proxy.ended > reached, f"it happens: {fault}", 60)
            if fault.min_frame:
                proxy.heal()
            wait_until(lambda before=before: sunk() > before + 50, f"batches after {fault}", 60)
            assert a.query.isActive
            assert b.query.isActive
    proxy.heal()
    wait_until(lambda: set(a.values() + b.values()) >= set(load.sent), "everything in the sinks", 60)
    wait_until(
        lambda: committed(proxied, "faulty", topic) == log_ends(proxied, topic, PARTITIONS), "everything committed", 30
    )
    values = a.values() + b.values()
    assert set(values) == set(load.sent)
    assert sum(count - 1 for count in repeated(values).values()) <= 2 * BATCH * ROUNDS
