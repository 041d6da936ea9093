"""A Kafka 0.7 for planning: emulated brokers on real sockets, their registry in memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamgroup.cluster import kafka07 as module
from streamgroup.cluster.kafka07 import Kafka07Cluster
from streamgroup.driver.batch_read import offsets_of
from streamgroup.errors import ConfigError, TransportError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, Dialect, TopicPartition
from streamgroup.options.types import Isolation
from streamgroup.planning.starts import RangeBound
from tests.fakes.broker07 import OldBroker, tp, values
from tests.fakes.registry07 import FakeNodes, registered
from tests.waiting import soon

NONE = Isolation.READ_UNCOMMITTED
Start = Callable[..., OldBroker]
Of = Callable[..., Kafka07Cluster]


# -- ends of logs ------------------------------------------------------------------------------------------------------


def test_ends_and_segments_of_several_brokers(start: Start, cluster: Of) -> None:
    brokers = [start(node, segment=100) for node in (0, 3)]
    places = [broker.produce(1, *values(20)) for broker in brokers]
    opened = cluster(*brokers)
    assert opened.snapshot(None, soon()).dialect is Dialect.KAFKA07
    latest = opened.list_offsets(dict.fromkeys(places, LATEST), NONE, soon())
    earliest = opened.list_offsets(dict.fromkeys(places, EARLIEST), NONE, soon())
    for broker, where in zip(brokers, places, strict=True):
        assert latest[where].offset == broker.end(where)
        assert earliest[where].offset == 0
        assert list(earliest[where].segments) == broker.segments(where)
        assert len(earliest[where].segments) > 3


def test_a_log_without_appends_is_empty(start: Start, cluster: Of) -> None:
    opened = cluster(start())
    for at in (EARLIEST, LATEST, 5_000):
        assert opened.list_offsets({tp(0, 1): at}, NONE, soon())[tp(0, 1)].offset == 0


def test_after_retention_the_log_begins_at_a_later_segment(start: Start, cluster: Of) -> None:
    broker = start(segment=100)
    where = broker.produce(0, *values(20))
    begins = broker.forget(where, 2)
    listed = cluster(broker).list_offsets({where: EARLIEST}, NONE, soon())[where]
    assert listed.offset == begins
    assert listed.segments[0] == begins


def test_a_timestamp_means_a_segment_that_was_last_written_before_it_and_never_a_later_one(
    start: Start, cluster: Of, tmp_path: Path
) -> None:
    import os  # noqa: PLC0415

    broker = start(segment=100)
    where = broker.produce(0, *values(20))
    files = sorted((tmp_path / "broker-0" / "events-0").glob("*.kafka"))
    for age, file in enumerate(files):
        os.utime(file, (1_000 + age, 1_000 + age))
    opened = cluster(broker)
    starts = [int(file.stem) for file in files]

    def at(timestamp: int) -> int:
        return opened.list_offsets({where: timestamp}, NONE, soon())[where].offset

    assert at(1_001_000) == starts[1]
    assert at(1_001_999) == starts[1]
    assert at(500_000) == 0, "nothing is as old: the earliest"
    assert at(int(time.time() * 1000) + 60_000) == broker.end(where)


def test_an_ending_timestamp_is_refused_as_it_would_end_before_records_that_are_meant(
    start: Start, cluster: Of
) -> None:
    broker = start(segment=100)
    where, empty = broker.produce(0, *values(20)), tp(0, 1)
    opened, later = cluster(broker), int(time.time() * 1000) + 60_000
    for at in (500_000, later):
        for spec in (
            ConfiguredOffsets(LATEST, timestamp=at),
            ConfiguredOffsets(LATEST, timestamps={where: at, empty: at}),
        ):
            with pytest.raises(ConfigError, match=r"events-0, events-1: .*\(0\.7 among them\) .*Use endingOffsets"):
                offsets_of(opened, soon(), spec, [where, empty], isolation=NONE, bound=RangeBound.BATCH_END)
            assert offsets_of(opened, soon(), spec, [where], isolation=NONE).keys() == {where}, "a start is only early"
    for spec in (ConfiguredOffsets(LATEST), ConfiguredOffsets(LATEST, offsets={where: LATEST})):
        ends = offsets_of(opened, soon(), spec, [where], isolation=NONE, bound=RangeBound.BATCH_END)
        assert ends == {where: broker.end(where)}


def test_a_broker_that_hangs_up_at_one_partition_is_asked_for_the_others_first(start: Start, cluster: Of) -> None:
    """It has fewer partitions than ZooKeeper says, and hangs up on all that was asked behind such a one."""
    broker = start(partitions=4)
    places = [broker.produce(p, b"x") for p in range(4)]
    where = dict.fromkeys([tp(0, 7), tp(0, 8), *places], LATEST)
    nodes = FakeNodes(registered([broker], partitions=9))
    opened = cluster(nodes=nodes)
    found: dict[TopicPartition, Any] = {}
    for _ in range(4):
        listed, causes = opened.list_offsets_once(where, NONE, soon(), timeout=1.0, epoch=0)
        found |= listed
    assert found.keys() == set(places)
    assert any("hangs up on an OFFSETS" in cause for cause in causes)
    with pytest.raises(TransportError, match=r"cannot list offsets of events 0-7, events 0-8"):
        opened.list_offsets(where, NONE, soon(0.3))


def test_a_broker_that_is_away_holds_up_no_other(start: Start, cluster: Of) -> None:
    brokers = [start(node) for node in (0, 1)]
    places = [broker.produce(0, b"x") for broker in brokers]
    opened = cluster(*brokers)
    brokers[0].stop()
    listed, causes = opened.list_offsets_once(dict.fromkeys(places, LATEST), NONE, soon(), timeout=1.0, epoch=0)
    assert listed.keys() == {places[1]}
    assert len(causes) == 1
    brokers[0].restart()
    assert opened.list_offsets(dict.fromkeys(places, LATEST), NONE, soon()).keys() == set(places)


def test_a_partition_of_an_unregistered_broker_is_named(start: Start, cluster: Of) -> None:
    opened = cluster(start())
    listed, causes = opened.list_offsets_once({tp(5, 0): LATEST}, NONE, soon(), timeout=1.0, epoch=0)
    assert (listed, causes) == ({}, ["events 5-0: broker 5 is not registered"])


def test_there_are_no_leader_epochs(start: Start, cluster: Of) -> None:
    assert cluster(start()).epoch_ends({}, soon()) == {}


# -- the registry ------------------------------------------------------------------------------------------------------


def test_the_snapshot_is_kept_until_it_is_old_or_a_refresh_is_asked_for(start: Start, cluster: Of) -> None:
    broker = start()
    nodes = FakeNodes(registered([broker]))
    opened = cluster(nodes=nodes)
    for refresh in (False, False, True, False):
        opened.snapshot(["events"], soon(), refresh)
    assert len(nodes.looks) == 2


def test_while_zookeeper_is_away_the_last_snapshot_holds(
    start: Start, cluster: Of, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start()
    where = broker.produce(0, b"x")
    nodes = FakeNodes(registered([broker]))
    opened = cluster(nodes=nodes)
    before = opened.snapshot(["events"], soon())
    nodes.away = True
    with caplog.at_level(logging.WARNING):
        assert opened.snapshot(["events"], soon(), refresh=True) == before
        assert opened.snapshot(["events"], soon(), refresh=True) == before
    assert opened.list_offsets({where: LATEST}, NONE, soon())[where].offset == 11
    assert caplog.text.count("using the brokers and topics read") == 1
    with pytest.raises(TransportError, match="no connection"):
        opened.snapshot(["another"], soon())
    nodes.away = False
    assert opened.snapshot(["another"], soon()).topics == {}
    nodes.away = True
    assert opened.snapshot(["another", "events"], soon(), refresh=True).topics.keys() == {"events"}
    assert opened.snapshot(["events"], soon()).topics.keys() == {"events"}


def test_a_slow_zookeeper_is_read_again_and_its_changes_are_reported(
    start: Start, cluster: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event ends a slow answer, so nobody else would ask again for minutes."""
    monkeypatch.setattr(module, "_ZOOKEEPER_RETRY_INTERVAL_S", 0.0)
    brokers = [start(node) for node in (0, 1)]
    nodes = FakeNodes(registered(brokers[:1]))
    opened = cluster(nodes=nodes)
    opened.snapshot(["events"], soon())
    nodes.away = True
    opened.snapshot(["events"], soon(), refresh=True)
    nodes.data = registered(brokers)
    assert len(opened.snapshot(["events"], soon()).brokers) == 1
    nodes.away = False
    assert len(opened.snapshot(["events"], soon()).brokers) == 2
    assert nodes.changes == 1
    looks = len(nodes.looks)
    opened.snapshot(["events"], soon())
    assert (nodes.changes, len(nodes.looks)) == (1, looks), "once is budget_end"


def test_partitions_that_are_gone_are_suspected_no_more(start: Start, cluster: Of) -> None:
    opened = cluster(start())
    opened._suspects = {tp(0, 0), *(TopicPartition(f"day-{n}", 0) for n in range(10))}
    opened.snapshot(None, soon())
    assert opened._suspects == {tp(0, 0)}
