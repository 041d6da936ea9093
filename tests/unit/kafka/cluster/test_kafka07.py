"""A Kafka 0.7 for planning: emulated brokers on real sockets, their registry in memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.coordinator.batch_read import offsets_of
from streamgroup.coordinator.planning.starts import RangeBound
from streamgroup.errors import BrokerError, ConfigError, DecodeError, TransportError
from streamgroup.kafka.cluster import kafka07
from streamgroup.kafka.cluster import kafka07 as module
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, Dialect, OffsetRange, TopicPartition
from streamgroup.options.types import Isolation
from streamgroup.testing.kafka07 import Compressed, Producer07
from tests.fakes.broker07 import OldBroker, tp, values
from tests.fakes.registry07 import FakeNodes, client07, registered
from tests.waiting import soon, wait_until

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
    assert any("closes the connection on an OFFSETS" in cause for cause in causes)
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


def walked(opened: Kafka07Cluster, where: TopicPartition, first: int, limit: int) -> tuple[int, ...]:
    return opened.boundaries([OffsetRange(where, first, limit)], soon(), 2.0)[where]


def test_a_scan_finds_the_boundaries_up_to_the_limit(start: Start, cluster: Of) -> None:
    broker = start(segment=1_000)
    where = broker.produce(0, b"a", Compressed("gzip", values(9)), *values(100), Compressed("snappy", values(3)))
    ends = broker.ends[where]
    opened = cluster(broker)
    assert walked(opened, where, 0, ends[-1]) == tuple(ends[1:])
    assert walked(opened, where, ends[3], ends[40] - 1) == tuple(ends[4:40])


@pytest.mark.parametrize("size", [5_000, 100_000, 950_000])
def test_the_first_message_is_always_found_however_large(size: int, start: Start, cluster: Of) -> None:
    broker = start()
    where = broker.produce(0, b"x" * size, b"behind")
    assert walked(cluster(broker), where, 0, 10) == (size + 10,)


def test_large_messages_are_stepped_over_without_being_read(start: Start, cluster: Of, monkeypatch: Any) -> None:
    monkeypatch.setattr(kafka07, "PIECE", 64 * 1024)
    broker = start()
    where = broker.produce(0, b"a", b"x" * 300_000, b"b", b"y" * 300_000, b"c")
    assert walked(cluster(broker), where, 0, broker.end(where)) == tuple(broker.ends[where][1:])


def test_a_scan_of_many_messages_keeps_a_selection_with_first_and_last(start: Start, cluster: Of) -> None:
    broker = start()
    where = tp(0, 0)
    payloads = values(3_000)
    with Producer07(f"127.0.0.1:{broker.port}") as producer:
        producer.produce("events", payloads, partition=0)
    found = walked(cluster(broker), where, 0, 30 * 3_000)
    assert len(found) == 512
    assert (found[0], found[-1]) == (30, 90_000)
    assert all(end % 30 == 0 for end in found)


def test_a_scan_stops_at_its_maximum_of_bytes(start: Start, cluster: Of, monkeypatch: Any) -> None:
    monkeypatch.setattr(kafka07, "MAX_BYTES", 100)
    broker = start()
    where = broker.produce(0, *values(100))
    opened = cluster(broker)
    monkeypatch.setattr(kafka07, "PIECE", 64)
    monkeypatch.setattr(kafka07, "_MIN_PIECE", 64)
    assert walked(opened, where, 0, broker.end(where)) == tuple(broker.ends[where][1:5])


@pytest.mark.parametrize("shift", [1, 4, 5, 9, 10, 25])
def test_a_start_that_is_not_a_boundary_is_an_error_with_the_position(shift: int, start: Start, cluster: Of) -> None:
    broker = start()
    where = broker.produce(0, *values(10))
    with pytest.raises(DecodeError, match=rf"events 0-0: position {30 + shift}\b.*byte positions") as raised:
        walked(cluster(broker), where, 30 + shift, 200)
    assert raised.value.base_offset == 30 + shift


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_damaged_message_is_a_message(first: int, start: Start, cluster: Of, tmp_path: Path) -> None:
    """The task that reads it reports its damage, and how to skip it."""
    broker = start()
    where = broker.produce(0, *values(5))
    ends = broker.ends[where]
    damage(tmp_path, ends[3] - 1)
    assert walked(cluster(broker), where, ends[first], ends[-1]) == tuple(ends[first + 1 :])


def test_damage_of_unknown_length_ends_the_scan(start: Start, cluster: Of, tmp_path: Path) -> None:
    broker = start()
    where = broker.produce(0, *values(5))
    ends = broker.ends[where]
    damage(tmp_path, ends[2] + 1)  # the length
    assert walked(cluster(broker), where, 0, ends[-1]) == tuple(ends[1:3])
    with pytest.raises(DecodeError, match=rf"position {ends[2]}\b"):
        walked(cluster(broker), where, ends[2], ends[-1])


def damage(logs: Path, at: int) -> None:
    """Flip a bit on the disk of the only broker."""
    (file,) = logs.glob("*/events-0/*.kafka")
    data = bytearray(file.read_bytes())
    data[at] ^= 64
    file.write_bytes(data)


@pytest.mark.parametrize("sound", [True, False])
def test_a_check_reads_a_large_message_as_a_whole(sound: bool, start: Start, cluster: Of) -> None:
    """Bytes of a message that look like the length of a large one are found out by the checksum."""
    broker = start()
    where = broker.produce(0, b"a", b"\0\0\0\x01\x86\xa0" + b"\0" * 300_000, b"b")
    position = broker.ends[where][1] + (0 if sound else 12)  # 10 bytes of header and 2 of the payload
    opened = cluster(broker)
    asked = [OffsetRange(where, position, position + 1)]
    if sound:
        assert opened.boundaries(asked, soon(), 2.0, check_crc=True) == {where: (broker.ends[where][2],)}
        return
    assert opened.boundaries(asked, soon(), 2.0), "a length alone is believed"
    with pytest.raises(DecodeError, match=rf"position {position}\b"):
        opened.boundaries(asked, soon(), 2.0, check_crc=True)


def test_a_removed_segment_is_not_scanned(start: Start, cluster: Of) -> None:
    broker = start(segment=100)
    where = broker.produce(0, *values(20))
    broker.forget(where, 2)
    assert cluster(broker).boundaries([OffsetRange(where, 0, 50)], soon(), 1.0) == {}


def test_a_partition_that_the_broker_refuses_is_an_error(start: Start, cluster: Of) -> None:
    broker = start(partitions=1)
    with pytest.raises(BrokerError, match=r"cannot scan events 0-7 .*WRONG_PARTITION"):
        cluster(nodes=FakeNodes(registered([broker], partitions=9))).boundaries(
            [OffsetRange(tp(0, 7), 0, 50)], soon(), 1.0
        )


def test_a_slow_scan_returns_its_boundaries_and_the_rest_later(start: Start, cluster: Of) -> None:
    broker = start()
    where = broker.produce(0, *values(5))
    opened = cluster(broker)
    assert opened.boundaries([OffsetRange(where, 0, 100)], soon(), 0.0) == {}
    wait_until(
        lambda: opened.boundaries([OffsetRange(where, 0, 100)], soon(), 0.2).get(where) == (30, 60, 90),
        "all boundaries are found",
    )


def test_message_starts_are_recognised(start: Start, cluster: Of) -> None:
    broker = start()
    where = broker.produce(0, *values(3), b"x" * 200_000, Compressed("gzip", values(3)))
    opened = cluster(broker)
    ends = broker.ends[where]
    assert all(opened.is_message_start(where, end, soon()) for end in ends[:-1])
    assert not any(opened.is_message_start(where, end + shift, soon()) for end in ends[:-1] for shift in (1, 5, 10))
    assert not opened.is_message_start(where, ends[-1], soon()), "the end of the log: nothing begins there yet"
    assert not opened.is_message_start(where, ends[-1] + 1, soon())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30), limit=st.integers(1, 4_000))
def test_a_scan_returns_whole_messages_within_the_limit_except_the_first(
    sizes: list[int], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broker = OldBroker(tmp_path_factory.mktemp("logs"), segment=700)
    opened = Kafka07Cluster(client07(), FakeNodes(registered([broker])))
    try:
        where = broker.produce(0, *(b"v" * size for size in sizes))
        found = walked(opened, where, 0, limit)
        ends = broker.ends[where]
        assert found == (tuple(end for end in ends[1:] if end <= limit) or (ends[1],))
    finally:
        opened.close()
        broker.stop()
