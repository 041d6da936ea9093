"""A Kafka 0.7 for planning: emulated brokers on real sockets, and the brokers of any Kafka as ZooKeeper has them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.coordinator.batch_read import offsets_of
from streamgroup.coordinator.planning.starts import RangeBound
from streamgroup.errors import BrokerError, ConfigError, DecodeError, TransportError
from streamgroup.kafka.cluster import kafka07
from streamgroup.kafka.cluster import registered as module
from streamgroup.kafka.cluster.interface import kafka07_of, kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.cluster.registry_reader import read_brokers
from streamgroup.model import (
    EARLIEST,
    LATEST,
    Broker,
    ClusterSnapshot,
    ConfiguredOffsets,
    Dialect,
    OffsetRange,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.testing.kafka07 import Compressed, Producer07
from tests.clock import Clock
from tests.fakes.broker07 import OldBroker, tp, values
from tests.fakes.nodes import nodes_of
from tests.fakes.registry07 import ZOOKEEPER, FakeNodes, client07, registered
from tests.unit.kafka.cluster.conftest import produced
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
    broker, where = produced(start, *values(20), segment=100)
    begins = broker.forget(where, 2)
    listed = cluster(broker).list_offsets({where: EARLIEST}, NONE, soon())[where]
    assert listed.offset == begins
    assert listed.segments[0] == begins


def test_a_timestamp_means_a_segment_that_was_last_written_before_it_and_never_a_later_one(
    start: Start, cluster: Of, tmp_path: Path
) -> None:
    broker, where = produced(start, *values(20), segment=100)
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
            with pytest.raises(ConfigError, match=r"events-0, events-1: .*\(Kafka 0\.7, too\) .*Use endingOffsets"):
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
    broker, where = produced(start, b"x")
    nodes = FakeNodes(registered([broker]))
    opened = cluster(nodes=nodes)
    before = opened.snapshot(["events"], soon())
    nodes.away = True
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


def test_a_slow_zookeeper_is_read_again(start: Start, cluster: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event ends a slow answer, so nobody else would ask again for minutes."""
    monkeypatch.setattr(kafka07, "_ZOOKEEPER_RETRY_INTERVAL_S", 0.0)
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
    broker, where = produced(
        start, b"a", Compressed("gzip", values(9)), *values(100), Compressed("snappy", values(3)), segment=1_000
    )
    ends = broker.ends[where]
    opened = cluster(broker)
    assert walked(opened, where, 0, ends[-1]) == tuple(ends[1:])
    assert walked(opened, where, ends[3], ends[40] - 1) == tuple(ends[4:40])


@pytest.mark.parametrize("size", [5_000, 100_000, 950_000])
def test_the_first_message_is_always_found_however_large(size: int, start: Start, cluster: Of) -> None:
    broker, where = produced(start, b"x" * size, b"behind")
    assert walked(cluster(broker), where, 0, 10) == (size + 10,)


def test_large_messages_are_stepped_over_without_being_read(start: Start, cluster: Of, monkeypatch: Any) -> None:
    monkeypatch.setattr(kafka07, "PIECE", 64 * 1024)
    broker, where = produced(start, b"a", b"x" * 300_000, b"b", b"y" * 300_000, b"c")
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
    broker, where = produced(start, *values(100))
    opened = cluster(broker)
    monkeypatch.setattr(kafka07, "PIECE", 64)
    monkeypatch.setattr(kafka07, "_MIN_PIECE", 64)
    assert walked(opened, where, 0, broker.end(where)) == tuple(broker.ends[where][1:5])


@pytest.mark.parametrize("shift", [1, 4, 5, 9, 10, 25])
def test_a_start_that_is_not_a_boundary_is_an_error_with_the_position(shift: int, start: Start, cluster: Of) -> None:
    broker, where = produced(start, *values(10))
    with pytest.raises(DecodeError, match=rf"events 0-0: position {30 + shift}\b.*byte positions") as raised:
        walked(cluster(broker), where, 30 + shift, 200)
    assert raised.value.base_offset == 30 + shift


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_damaged_message_is_a_message(first: int, start: Start, cluster: Of, tmp_path: Path) -> None:
    """The task that reads it reports its damage, and how to skip it."""
    broker, where = produced(start, *values(5))
    ends = broker.ends[where]
    damage(tmp_path, ends[3] - 1)
    assert walked(cluster(broker), where, ends[first], ends[-1]) == tuple(ends[first + 1 :])


def test_damage_of_unknown_length_ends_the_scan(start: Start, cluster: Of, tmp_path: Path) -> None:
    broker, where = produced(start, *values(5))
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
    broker, where = produced(start, b"a", b"\0\0\0\x01\x86\xa0" + b"\0" * 300_000, b"b")
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
    broker, where = produced(start, *values(20), segment=100)
    broker.forget(where, 2)
    assert cluster(broker).boundaries([OffsetRange(where, 0, 50)], soon(), 1.0) == {}


def test_a_partition_that_the_broker_refuses_is_an_error(start: Start, cluster: Of) -> None:
    broker = start(partitions=1)
    with pytest.raises(BrokerError, match=r"cannot scan events 0-7 .*WRONG_PARTITION"):
        cluster(nodes=FakeNodes(registered([broker], partitions=9))).boundaries(
            [OffsetRange(tp(0, 7), 0, 50)], soon(), 1.0
        )


def test_a_slow_scan_returns_its_boundaries_and_the_rest_later(start: Start, cluster: Of) -> None:
    broker, where = produced(start, *values(5))
    opened = cluster(broker)
    assert opened.boundaries([OffsetRange(where, 0, 100)], soon(), 0.0) == {}
    wait_until(
        lambda: opened.boundaries([OffsetRange(where, 0, 100)], soon(), 0.2).get(where) == (30, 60, 90),
        "all boundaries are found",
    )


def test_message_starts_are_recognised(start: Start, cluster: Of) -> None:
    broker, where = produced(start, *values(3), b"x" * 200_000, Compressed("gzip", values(3)))
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


# -- a query with only ZooKeeper's address reaches its brokers, and follows them when they move -----------------------

OLD = {"/brokers/ids/0": b"h-1:127.0.0.1:9092", "/brokers/topics/t/0": b"1"}


def new(*ports: int) -> dict[str, bytes]:
    return {f"/brokers/ids/{n}": b'{"host":"127.0.0.1","port":%d,"version":1}' % port for n, port in enumerate(ports)}


class StubbedCluster(KafkaCluster):
    """Knows its servers; fails as long as `dead` has them. A real one otherwise, as `ClusterFromZooKeeper` makes it."""

    dead: ClassVar[set[tuple[str, int]]] = set()

    def snapshot(self, topics: object, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        if self.dead >= set(self.options.bootstrap_servers):
            raise TransportError("all brokers are gone")
        return ClusterSnapshot({}, {})


Orphaned = tuple[FakeNodes, ClusterFromZooKeeper, KafkaCluster]


@pytest.fixture
def orphaned(monkeypatch: pytest.MonkeyPatch) -> Orphaned:
    """A ZooKeeper, a cluster of it whose only broker died, as was noticed, and the cluster that asked that broker."""
    monkeypatch.setattr(module, "KafkaCluster", StubbedCluster)
    monkeypatch.setattr(StubbedCluster, "dead", {("127.0.0.1", 9092)})
    nodes = FakeNodes(new(9092))
    cluster = ClusterFromZooKeeper(client07(), nodes)
    inner = kafka_of(cluster, soon())
    with pytest.raises(TransportError):
        cluster.snapshot(None, soon())
    return nodes, cluster, inner


def test_a_kafka_07_is_read_through_its_registry() -> None:
    cluster = ClusterFromZooKeeper(client07(), FakeNodes(OLD))
    assert isinstance(kafka07_of(cluster, soon()), Kafka07Cluster)
    assert [p.partition for p in cluster.snapshot(["t"], soon()).topics["t"].partitions] == [0]
    assert cluster.epoch_ends({}, soon()) == {}
    with pytest.raises(ConfigError, match="cannot use groups of the brokers"):
        kafka_of(cluster, soon())
    cluster.close()


def test_a_later_kafka_is_reached_through_the_brokers_found() -> None:
    cluster = ClusterFromZooKeeper(client07(), FakeNodes(new(9092, 9093)))
    inner = kafka_of(cluster, soon())
    assert inner.options.bootstrap_servers == (("127.0.0.1", 9092), ("127.0.0.1", 9093))
    with pytest.raises(ConfigError, match=r"the brokers are Kafka 0\.8 or later"):
        kafka07_of(cluster, soon())


def test_registrations_are_read_again_when_all_known_brokers_are_gone(orphaned: Orphaned) -> None:
    nodes, cluster, _ = orphaned
    nodes.data = new(9099)
    cluster.snapshot(None, soon())
    assert kafka_of(cluster, soon()).options.bootstrap_servers == (("127.0.0.1", 9099),)


def test_while_zookeeper_is_away_the_brokers_known_are_asked_on(orphaned: Orphaned) -> None:
    nodes, cluster, _ = orphaned
    nodes.away = True
    StubbedCluster.dead.clear()
    cluster.snapshot(None, soon())


def test_brokers_that_have_not_changed_keep_their_connections(orphaned: Orphaned) -> None:
    _, cluster, inner = orphaned
    assert kafka_of(cluster, soon()) is inner


def test_a_registry_that_has_become_another_clusters_ends_the_run(orphaned: Orphaned) -> None:
    nodes, cluster, _ = orphaned
    nodes.data = OLD
    with pytest.raises(ConfigError, match="Restart the query"):
        cluster.snapshot(None, soon())


def test_brokers_that_come_late_are_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, clock, slept = FakeNodes({"/brokers/ids": b""}), Clock(time.monotonic()), []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        slept.append(seconds)
        if len(slept) == 3:
            nodes.data.update(OLD)

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    cluster = ClusterFromZooKeeper(client07(), nodes, clock)
    with pytest.raises(TransportError, match="no registration below"):
        cluster.snapshot(None, clock() + 0.3)
    assert cluster.snapshot(None, clock() + 20).brokers
    assert len(slept) == 3
    assert caplog.text.count("waiting for brokers to register") == 2


def test_deadlines_are_those_of_the_options() -> None:
    cluster = ClusterFromZooKeeper(client07(default_api_timeout_ms=7_000), FakeNodes(OLD), clock=lambda: 100.0)
    assert (cluster.deadline(), cluster.deadline(500)) == (107.0, 100.5)


def test_a_security_protocol_that_kafka_07_lacks_is_refused() -> None:
    cluster = ClusterFromZooKeeper(client07(security_protocol="SASL_PLAINTEXT"), FakeNodes(OLD))
    with pytest.raises(ConfigError, match="supports only PLAINTEXT"):
        cluster.snapshot(None, soon())


def test_bootstrap_servers_are_taken_at_their_word() -> None:
    servers = (("127.0.0.1", 9092),)
    assert isinstance(open_cluster(ClientOptions(servers)), KafkaCluster)
    assert isinstance(open_cluster(ClientOptions(servers, zookeeper=ZOOKEEPER)), KafkaCluster)


def test_with_zookeeper_alone_nothing_connects_before_the_first_request() -> None:
    cluster = open_cluster(client07())
    assert isinstance(cluster, ClusterFromZooKeeper)
    cluster.close()


# -- brokers and topics as ZooKeeper has them --------------------------------------------------------------------------

TWO = {"/brokers/ids/0": b"h0-17:h0:9092", "/brokers/ids/7": b"h7-17:h7:9093"}
NEW = {"/brokers/ids/3": b'{"host":"h3","port":9094,"jmx_port":-1,"version":1}'}
SOON = 1e9


def nodes(*parts: dict[str, bytes]) -> FakeNodes:
    return FakeNodes({path: data for part in parts for path, data in part.items()})


@pytest.mark.parametrize(
    ("data", "dialect", "brokers"),
    [
        (TWO, Dialect.KAFKA07, [Broker(0, "h0", 9092), Broker(7, "h7", 9093)]),
        (NEW, Dialect.KAFKA, [Broker(3, "h3", 9094)]),
    ],
    ids=["text", "JSON"],
)
def test_the_registrations_show_the_dialect(data: dict[str, bytes], dialect: Dialect, brokers: list[Broker]) -> None:
    found = nodes(data).brokers(SOON)
    assert (found.dialect, list(found.brokers.values())) == (dialect, brokers)


def test_the_listeners_of_the_protocol_are_found() -> None:
    data = b'{"host":null,"port":-1,"endpoints":["PLAINTEXT://h:9092","SSL://h:9093"],"version":4}'
    for protocol, port in (("PLAINTEXT", 9092), ("SSL", 9093)):
        read, invalid = read_brokers(nodes_of({"/brokers/ids/3": data}), protocol)
        assert (list(read), invalid) == ([Broker(3, "h", port)], [])
        assert FakeNodes({"/brokers/ids/3": data}, protocol=protocol).brokers(SOON).brokers == {3: Broker(3, "h", port)}


def test_a_zookeeper_without_the_node_is_not_the_brokers_or_has_another_chroot() -> None:
    with pytest.raises(
        ConfigError, match=r"no brokers in ZooKeeper zk1:2181/kafka: node .*Check that zookeeper.connect has"
    ):
        FakeNodes({}).brokers(SOON)


@pytest.mark.parametrize(
    ("ids", "why"),
    [({"/brokers/ids": b""}, "no registration below"), ({"/brokers/ids/1": b"?"}, "no valid registration")],
)
def test_a_zookeeper_without_registered_brokers_may_have_some_later(ids: dict[str, bytes], why: str) -> None:
    with pytest.raises(TransportError, match=f"no brokers in ZooKeeper zk1:2181/kafka: {why}"):
        nodes(ids).brokers(SOON)


def test_brokers_of_both_dialects_are_two_clusters_in_one_place() -> None:
    with pytest.raises(
        ConfigError, match=r"Kafka 0\.7: h0:9092 \(id 0\), h7:9093 \(id 7\); Kafka 0\.8 or later: h3:9094"
    ):
        nodes(TWO, NEW).brokers(SOON)


def test_two_brokers_at_one_address_would_be_read_twice() -> None:
    with pytest.raises(TransportError, match=r"0 and 1 are registered at h0:9092"):
        nodes(TWO, {"/brokers/ids/1": b"h0-18:h0:9092"}).brokers(SOON)


@pytest.mark.parametrize("garbage", [b"", b"h1", b"h1-17:h1:port", b"\xff\xfe", b"h1-17:h1:99999"])
def test_a_broker_with_an_invalid_node_is_absent_and_logged_once(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reading = nodes(TWO, {"/brokers/ids/1": garbage})
    for _ in range(3):
        assert set(reading.brokers(SOON).brokers) == {0, 7}
    (said,) = caplog.messages
    assert "/brokers/ids/1" in said
    assert "Its partitions are not read" in said


def test_a_broker_under_another_spelling_of_its_id_is_absent_and_the_other_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    again = {"/brokers/ids/00": b"h1-17:h1:9092", "/brokers/topics/t/0": b"2", "/brokers/topics/t/00": b"3"}
    snapshot = nodes(TWO, again).snapshot07(None, SOON)
    assert snapshot.brokers == {0: Broker(0, "h0", 9092), 7: Broker(7, "h7", 9093)}
    assert [p.partition for p in snapshot.topics["t"].partitions] == [0, 1]
    paths = ("/brokers/ids/00", "/brokers/topics/t/00")
    assert [[path in said for path in paths] for said in caplog.messages] == [[True, False], [False, True]]


def test_a_topic_has_the_partitions_of_the_brokers_that_have_registered_some() -> None:
    topics = {"/brokers/topics/t/0": b"2", "/brokers/topics/t/7": b"1", "/brokers/topics/nobody": b""}
    snapshot = nodes(TWO, topics).snapshot07(None, SOON)
    assert [(p.partition, p.leader) for p in snapshot.topics["t"].partitions] == [(0, 0), (1, 0), (70_000, 7)]
    assert snapshot.topics["nobody"].partitions == ()
    assert snapshot.dialect is Dialect.KAFKA07
    assert snapshot.leader(TopicPartition("t", 70_000)) == Broker(7, "h7", 9093)


def test_a_partition_whose_broker_has_gone_has_no_leader_while_its_node_lingers() -> None:
    snapshot = nodes(TWO, {"/brokers/topics/t/5": b"1"}).snapshot07(["t"], SOON)
    assert snapshot.leader(TopicPartition("t", 50_000)) is None


def test_only_the_topics_asked_for_are_read() -> None:
    reading = nodes(TWO, {"/brokers/topics/a/0": b"1", "/brokers/topics/b/0": b"1"})
    assert reading.snapshot07(["b", "missing", "no/topic"], SOON).topics.keys() == {"b"}
    assert reading.looks == [["/brokers/ids", "/brokers/topics/b", "/brokers/topics/missing"]]


def test_a_topic_node_that_is_garbage_loses_no_other(caplog: pytest.LogCaptureFixture) -> None:
    topics = {"/brokers/topics/t/0": b"many", "/brokers/topics/t/7": b"2"}
    snapshot = nodes(TWO, topics).snapshot07(None, SOON)
    assert [p.partition for p in snapshot.topics["t"].partitions] == [70_000, 70_001]
    assert "/brokers/topics/t/0" in caplog.text


def test_no_broker_at_the_moment_is_a_snapshot_too() -> None:
    snapshot = nodes({"/brokers/ids": b"", "/brokers/topics/t": b""}).snapshot07(None, SOON)
    assert (snapshot.brokers, snapshot.topics["t"].partitions) == ({}, ())


def test_a_cluster_that_has_become_another_is_not_read_on() -> None:
    with pytest.raises(ConfigError, match="are now of Kafka 0"):
        nodes(NEW).snapshot07(None, SOON)
