"""Several queries in one group: who holds what, and what happens when one comes or goes."""

from __future__ import annotations

import pytest

import streamgroup
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams, Sunk, assigned, committed, log_ends, repeated, under_load
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

PARTITIONS = 7
BATCH = 200


def owners_are(queries: list[Sunk], *shares: int) -> bool:
    """Whether the queries hold contiguous chunks of these sizes, all partitions once, in any order of the queries."""
    held = [assigned(q.query) for q in queries]
    contiguous = all(h == list(range(h[0], h[0] + len(h))) for h in held if h)
    everyone = sorted(p for h in held for p in h)
    return contiguous and everyone == list(range(PARTITIONS)) and sorted(map(len, held), reverse=True) == list(shares)


def start(streams: Streams, load: Load, group: str, name: str) -> Sunk:
    return streams.to_parquet(streams.read(load.server, load.topic, group, maxOffsetsPerTrigger=BATCH), name)


@pytest.mark.timeout(240)
def test_members_come_and_go_and_nothing_is_lost(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    group = "comings-and-goings"
    with under_load(load):
        a, b = start(streams, load, group, "a"), start(streams, load, group, "b")
        wait_until(lambda: owners_are([a, b], 4, 3), "a split of 4-3", 60)
        c = start(streams, load, group, "c")
        wait_until(lambda: owners_are([a, b, c], 3, 2, 2), "a split of 3-2-2", 60)

        drained = streamgroup.drain(c.query, 60)
        assert drained.drained
        assert drained.groups == (group,)
        assert not c.query.isActive
        wait_until(lambda: owners_are([a, b], 4, 3), "a split of 4-3 again", 60)
        after_drain = repeated(a.values() + b.values() + c.values())
        assert after_drain == {}

        b.query.stop()
        wait_until(lambda: owners_are([a], PARTITIONS), "all with a", 60)
    ends = log_ends(kafka4, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka4, group, load.topic) == ends, "all committed", 60)
    wait_until(lambda: set(a.values() + b.values() + c.values()) == set(load.sent), "all in the sinks", 60)
    assert sum(count - 1 for count in repeated(a.values() + b.values() + c.values()).values()) <= BATCH


@pytest.mark.long  # a drain is above, the start after it in fault/test_processes_stopped.py
@pytest.mark.timeout(180)
def test_a_rolling_restart_of_drained_queries_repeats_nothing(
    streams: Streams, kafka39: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka39, make_topic(kafka39, PARTITIONS), PARTITIONS)
    with under_load(load):
        running = {name: start(streams, load, "rolling", name) for name in ("a", "b")}
        wait_until(lambda: owners_are(list(running.values()), 4, 3), "a split of 4-3", 60)
        for name in ("a", "b"):
            assert streamgroup.drain(running[name].query, 60).drained
            running[name] = start(streams, load, "rolling", name)
            wait_until(lambda: owners_are(list(running.values()), 4, 3), f"a split of 4-3 with {name} back", 60)
    ends = log_ends(kafka39, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka39, "rolling", load.topic) == ends, "all committed", 60)
    everything = [value for sunk in running.values() for value in sunk.values()]
    assert sorted(everything) == sorted(load.sent)


@pytest.mark.timeout(120)
def test_more_members_than_partitions(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    a, b = start(streams, load, "fanout", "a"), start(streams, load, "fanout", "b")
    load.send(50)
    wait_until(lambda: sorted(a.values() + b.values()) == sorted(load.sent), "all rows once", 60)


@pytest.mark.timeout(120)
def test_a_topic_that_grows_is_read_from_the_beginning_of_its_new_partitions(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # noqa: PLC0415

    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(20)
    frame = streams.read(kafka4, load.topic, "growing", startingOffsets="latest")
    sunk = streams.to_parquet(frame)
    wait_until(lambda: committed(kafka4, "growing", load.topic) == {0: 10, 1: 10}, "started at latest", 60)
    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap_servers})
    admin.create_partitions([NewPartitions(load.topic, 5)])[load.topic].result(20)
    load.partitions = 5
    new = load.send(50)
    wait_until(lambda: sorted(sunk.values()) == sorted(new), "what came to the new partitions too", 60)
