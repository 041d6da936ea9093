"""Brokers and topics as ZooKeeper has them: which cluster that is, and what is invalid_topics."""

from __future__ import annotations

import logging

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.cluster.registry_reader import read_brokers
from streamgroup.model import Broker, Dialect, TopicPartition
from tests.fakes.nodes import nodes_of
from tests.fakes.registry07 import FakeNodes

OLD = {"/brokers/ids/0": b"h0-17:h0:9092", "/brokers/ids/7": b"h7-17:h7:9093"}
NEW = {"/brokers/ids/3": b'{"host":"h3","port":9094,"jmx_port":-1,"version":1}'}
SOON = 1e9


def nodes(*parts: dict[str, bytes]) -> FakeNodes:
    return FakeNodes({path: data for part in parts for path, data in part.items()})


@pytest.mark.parametrize(
    ("data", "dialect", "brokers"),
    [
        (OLD, Dialect.KAFKA07, [Broker(0, "h0", 9092), Broker(7, "h7", 9093)]),
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


def test_a_zookeeper_where_no_broker_is_registered_at_the_moment_may_have_some_later() -> None:
    with pytest.raises(TransportError, match=r"no brokers in ZooKeeper zk1:2181/kafka: no registration below"):
        nodes({"/brokers/ids": b""}).brokers(SOON)


def test_brokers_of_both_dialects_are_two_clusters_in_one_place() -> None:
    with pytest.raises(
        ConfigError, match=r"Kafka 0\.7: h0:9092 \(id 0\), h7:9093 \(id 7\); Kafka 0\.8 or later: h3:9094"
    ):
        nodes(OLD, NEW).brokers(SOON)


def test_two_brokers_at_one_address_would_be_read_twice() -> None:
    with pytest.raises(TransportError, match=r"0 and 1 are registered at h0:9092"):
        nodes(OLD, {"/brokers/ids/1": b"h0-18:h0:9092"}).brokers(SOON)


@pytest.mark.parametrize("garbage", [b"", b"h1", b"h1-17:h1:port", b"\xff\xfe", b"h1-17:h1:99999"])
def test_a_broker_with_an_invalid_node_is_absent_and_logged_once(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reading = nodes(OLD, {"/brokers/ids/1": garbage})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert set(reading.brokers(SOON).brokers) == {0, 7}
    (said,) = caplog.messages
    assert "/brokers/ids/1" in said
    assert "Its partitions are not read" in said


def test_a_broker_under_another_spelling_of_its_id_is_absent_and_the_other_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    again = {"/brokers/ids/00": b"h1-17:h1:9092", "/brokers/topics/t/0": b"2", "/brokers/topics/t/00": b"3"}
    with caplog.at_level(logging.WARNING):
        snapshot = nodes(OLD, again).snapshot07(None, SOON)
    assert snapshot.brokers == {0: Broker(0, "h0", 9092), 7: Broker(7, "h7", 9093)}
    assert [p.partition for p in snapshot.topics["t"].partitions] == [0, 1]
    assert [("/brokers/ids/00" in said, "/brokers/topics/t/00" in said) for said in caplog.messages] == [
        (True, False),
        (False, True),
    ]


def test_invalid_registrations_alone_are_not_a_cluster() -> None:
    with pytest.raises(TransportError, match="no valid registration"):
        nodes({"/brokers/ids/1": b"?"}).brokers(SOON)


def test_a_topic_has_the_partitions_of_the_brokers_that_have_registered_some() -> None:
    topics = {"/brokers/topics/t/0": b"2", "/brokers/topics/t/7": b"1", "/brokers/topics/nobody": b""}
    snapshot = nodes(OLD, topics).snapshot07(None, SOON)
    assert [(p.partition, p.leader) for p in snapshot.topics["t"].partitions] == [(0, 0), (1, 0), (70_000, 7)]
    assert snapshot.topics["nobody"].partitions == ()
    assert snapshot.dialect is Dialect.KAFKA07
    assert snapshot.leader(TopicPartition("t", 70_000)) == Broker(7, "h7", 9093)


def test_a_partition_whose_broker_has_gone_has_no_leader_while_its_node_lingers() -> None:
    snapshot = nodes(OLD, {"/brokers/topics/t/5": b"1"}).snapshot07(["t"], SOON)
    assert snapshot.leader(TopicPartition("t", 50_000)) is None


def test_only_the_topics_asked_for_are_read() -> None:
    reading = nodes(OLD, {"/brokers/topics/a/0": b"1", "/brokers/topics/b/0": b"1"})
    assert reading.snapshot07(["b", "missing", "no/topic"], SOON).topics.keys() == {"b"}
    assert reading.looks == [["/brokers/ids", "/brokers/topics/b", "/brokers/topics/missing"]]


def test_a_topic_node_that_is_garbage_loses_no_other(caplog: pytest.LogCaptureFixture) -> None:
    topics = {"/brokers/topics/t/0": b"many", "/brokers/topics/t/7": b"2"}
    with caplog.at_level(logging.WARNING):
        snapshot = nodes(OLD, topics).snapshot07(None, SOON)
    assert [p.partition for p in snapshot.topics["t"].partitions] == [70_000, 70_001]
    assert "/brokers/topics/t/0" in caplog.text


def test_no_broker_at_the_moment_is_a_snapshot_too() -> None:
    snapshot = nodes({"/brokers/ids": b"", "/brokers/topics/t": b""}).snapshot07(None, SOON)
    assert (snapshot.brokers, snapshot.topics["t"].partitions) == ({}, ())


def test_a_cluster_that_has_become_another_is_not_read_on() -> None:
    with pytest.raises(ConfigError, match="are now of Kafka 0"):
        nodes(NEW).snapshot07(None, SOON)
