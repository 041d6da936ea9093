"""A batch of Kafka 0.7 ends where a message ends: a scan of the log finds these positions, on real sockets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.cluster import boundary_scan
from streamgroup.cluster.kafka07 import Kafka07Cluster
from streamgroup.errors import BrokerError, DecodeError
from streamgroup.model import OffsetRange, TopicPartition
from streamgroup.testing.kafka07 import Compressed, Producer07
from tests.fakes.broker07 import OldBroker, tp, values
from tests.fakes.registry07 import FakeNodes, client07, registered
from tests.waiting import soon, wait_until

Start = Callable[..., OldBroker]
Of = Callable[..., Kafka07Cluster]


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
    monkeypatch.setattr(boundary_scan, "PIECE", 64 * 1024)
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
    monkeypatch.setattr(boundary_scan, "MAX_BYTES", 100)
    broker = start()
    where = broker.produce(0, *values(100))
    opened = cluster(broker)
    monkeypatch.setattr(boundary_scan, "PIECE", 64)
    monkeypatch.setattr(boundary_scan, "_MIN_PIECE", 64)
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
