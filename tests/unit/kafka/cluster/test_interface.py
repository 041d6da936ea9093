"""The options decide how a cluster is reached: through bootstrap servers, or through ZooKeeper's registrations."""

from __future__ import annotations

from streamgroup.kafka.cluster.interface import open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.options.types import ClientOptions
from tests.fakes.registry07 import ZOOKEEPER, client07


def test_bootstrap_servers_are_taken_at_their_word() -> None:
    servers = (("127.0.0.1", 9092),)
    assert isinstance(open_cluster(ClientOptions(servers)), KafkaCluster)
    assert isinstance(open_cluster(ClientOptions(servers, zookeeper=ZOOKEEPER)), KafkaCluster)


def test_with_zookeeper_alone_nothing_connects_before_the_first_request() -> None:
    cluster = open_cluster(client07())
    assert isinstance(cluster, ClusterFromZooKeeper)
    cluster.close()
