"""A query with only ZooKeeper's address reaches its brokers, of Kafka 0.7 or later, and follows them when they move."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.cluster import registered as module
from streamgroup.kafka.cluster.interface import kafka07_of, kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.model import ClusterSnapshot
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.registry07 import ZOOKEEPER, FakeNodes, client07
from tests.waiting import soon

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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KafkaCluster", StubbedCluster)
    monkeypatch.setattr(StubbedCluster, "dead", set())


def its_broker_dies(cluster: ClusterFromZooKeeper) -> None:
    """The one of `new(9092)`; that has been noticed."""
    StubbedCluster.dead.add(("127.0.0.1", 9092))
    with pytest.raises(TransportError):
        cluster.snapshot(None, soon())


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
    with pytest.raises(ConfigError, match="not of Kafka 0"):
        kafka07_of(cluster, soon())


def test_registrations_are_read_again_when_all_known_brokers_are_gone(fake: None) -> None:
    nodes = FakeNodes(new(9092))
    cluster = ClusterFromZooKeeper(client07(), nodes)
    cluster.snapshot(None, soon())
    its_broker_dies(cluster)
    nodes.data = new(9099)
    cluster.snapshot(None, soon())
    assert kafka_of(cluster, soon()).options.bootstrap_servers == (("127.0.0.1", 9099),)


def test_while_zookeeper_is_away_the_brokers_known_are_asked_on(fake: None) -> None:
    nodes = FakeNodes(new(9092))
    cluster = ClusterFromZooKeeper(client07(), nodes)
    cluster.snapshot(None, soon())
    its_broker_dies(cluster)
    nodes.away = True
    StubbedCluster.dead.clear()
    cluster.snapshot(None, soon())


def test_brokers_that_have_not_changed_keep_their_connections(fake: None) -> None:
    cluster = ClusterFromZooKeeper(client07(), FakeNodes(new(9092)))
    inner = kafka_of(cluster, soon())
    its_broker_dies(cluster)
    assert kafka_of(cluster, soon()) is inner


def test_a_registry_that_has_become_another_clusters_ends_the_run(fake: None) -> None:
    nodes = FakeNodes(new(9092))
    cluster = ClusterFromZooKeeper(client07(), nodes)
    cluster.snapshot(None, soon())
    its_broker_dies(cluster)
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
    assert caplog.text.count("waiting for them") == 2


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
