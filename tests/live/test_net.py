"""Connection, Poller and KafkaCluster against real brokers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from streamgroup.errors import BrokerError, TransportError
from streamgroup.kafka.cluster.admin import committed, describe_groups, list_groups
from streamgroup.kafka.cluster.changes import create_topics, delete_topics, grow_topics, refused_configs
from streamgroup.kafka.cluster.configs import broker_config, topic_configs
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster
from streamgroup.kafka.cluster.requests import NO_OFFSET
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.poller import ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.wire.messages.admin import ListGroupsRequest
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.model import EARLIEST, LATEST, CommittedOffset, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.testing import KafkaServer
from tests.peers.librdkafka import commit
from tests.servers import address_of, each_of
from tests.waiting import soon

pytestmark = pytest.mark.live
MakeTopic = Callable[..., str]


kafka = each_of("kafka4", long=("kafka39",))


def options_for(server: KafkaServer, **others: Any) -> ClientOptions:
    return ClientOptions(bootstrap_servers=(address_of(server),), **others)


@pytest.fixture
def cluster(kafka: KafkaServer) -> Iterator[KafkaCluster]:
    made = KafkaCluster(options_for(kafka))
    yield made
    made.close()


def produce(server: KafkaServer, topic: str, partition: int, count: int, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for i in range(count):
        producer.produce(topic, f"v{i}".encode(), partition=partition, timestamp=timestamp + i if timestamp else 0)
    assert producer.flush(30) == 0


def test_every_version_of_metadata_that_the_broker_speaks_is_read(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 2)
    connection = Connection(*options_for(kafka).bootstrap_servers[0], options_for(kafka))
    connection.connect(soon(30))
    highest = connection.versions.highest(MetadataRequest)
    lowest = max(1, connection.versions.ranges[MetadataRequest.API_KEY][0])
    asked = {connection.send(MetadataRequest(topics=None), version): version for version in range(lowest, highest + 1)}
    for correlation_id, version in asked.items():
        answer = connection.receive(soon(30))
        assert answer.correlation_id == correlation_id
        (found,) = [t for t in answer.response.topics if t.name == topic]
        assert [p.partition_index for p in found.partitions] == [0, 1]
        assert bool(found.topic_id) == (version >= 10)
    connection.close()


def test_a_snapshot_shows_brokers_leaders_and_topic_ids_and_creates_nothing(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka, 3)
    snapshot = cluster.snapshot([topic, "does-not-exist"], soon(30))
    assert set(snapshot.topics) == {topic}
    assert [p.partition for p in snapshot.topics[topic].partitions] == [0, 1, 2]
    assert snapshot.topics[topic].topic_id
    leader = snapshot.leader(TopicPartition(topic, 1))
    assert leader is not None
    assert f"{leader.host}:{leader.port}" == kafka.bootstrap_servers
    assert "does-not-exist" not in cluster.snapshot(None, soon(30), refresh=True).topics


def test_a_bootstrap_server_that_is_down_is_passed_over(kafka: KafkaServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = closed.getsockname()
    servers = (down, *options_for(kafka).bootstrap_servers)
    cluster = KafkaCluster(ClientOptions(bootstrap_servers=servers))
    assert cluster.snapshot((), soon(30)).brokers
    cluster.close()


def test_offsets_at_both_ends_and_at_timestamps(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka, 2)
    produce(kafka, topic, 0, 10, timestamp=1_700_000_000_000)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ends = cluster.list_offsets({first: LATEST, second: LATEST}, Isolation.READ_COMMITTED, soon(30))
    assert {tp: listed.offset for tp, listed in ends.items()} == {first: 10, second: 0}
    starts = cluster.list_offsets({first: EARLIEST, second: EARLIEST}, Isolation.READ_UNCOMMITTED, soon(30))
    assert {tp: listed.offset for tp, listed in starts.items()} == {first: 0, second: 0}
    at = {first: 1_700_000_000_004, second: 1_700_000_000_004}
    found = cluster.list_offsets(at, Isolation.READ_UNCOMMITTED, soon(30))
    assert (found[first].offset, found[first].timestamp) == (4, 1_700_000_000_004)
    assert found[second].offset == NO_OFFSET


def test_offsets_of_a_partition_that_does_not_exist_end_at_the_deadline_with_its_name(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka, 1)
    with pytest.raises(TransportError, match=rf"{topic}-7 does not exist"):
        cluster.list_offsets({TopicPartition(topic, 7): LATEST}, Isolation.READ_UNCOMMITTED, soon(2))


def test_groups_are_listed_described_and_their_commits_read(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka, 2)
    group = f"g-{topic}"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    deadline = soon(30)
    while len(consumer.assignment()) < 2 and time.monotonic() < deadline:
        consumer.poll(0.1)
    commit(consumer, [LibrdkafkaPartition(topic, 1, 42, metadata="by librdkafka")])
    assert list_groups(cluster, soon(30))[group].protocol_type == "consumer"
    described = describe_groups(cluster, [group, "nobody"], soon(30))
    assert described[group].state == "Stable"
    assert len(described[group].members) == 1
    assert (described["nobody"].state, described["nobody"].members) == ("Dead", ())
    found = committed(cluster, group, soon(30))
    assert found.keys() == {TopicPartition(topic, 1)}
    (commit_found,) = found.values()
    # confluent-kafka counts the terminating zero of the C string to the metadata.
    assert commit_found == CommittedOffset(42, "by librdkafka\0", commit_found.leader_epoch)
    assert committed(cluster, "nobody", soon(30)) == {}
    consumer.close()


def test_topics_are_made_once_and_have_leaders(kafka: KafkaServer, cluster: KafkaCluster) -> None:
    configs = {"made-here": {"retention.ms": "60000"}}
    assert create_topics(cluster, {"made-here": 3}, soon(30), configs=configs) == {"made-here"}
    assert create_topics(cluster, {"made-here": 3}, soon(30)) == frozenset()
    assert len(cluster.snapshot(["made-here"], soon(30)).topics["made-here"].partitions) == 3
    with pytest.raises(BrokerError, match="no/slash"):
        create_topics(cluster, {"no/slash": 1}, soon(30))


def test_the_configuration_of_a_topic_is_tried_set_and_described(kafka: KafkaServer, cluster: KafkaCluster) -> None:
    own = {"retention.ms": "60000", "cleanup.policy": "compact,delete"}
    tried = {"configured": own | {"no.such.one": "1"}}
    refused = refused_configs(cluster, {"configured": 1}, soon(30), configs=tried)
    assert refused.keys() == {"configured"}
    assert refused["configured"].keys() == {"no.such.one"}
    assert cluster.snapshot(["configured"], soon(30), refresh=True).topics == {}, "it was only tried"
    create_topics(cluster, {"configured": 1}, soon(30), configs={"configured": own})
    found = topic_configs(cluster, ["configured"], soon(30))["configured"]
    assert {name: config.value for name, config in found.items() if config.is_own} == own
    assert not found["max.message.bytes"].is_own


def test_a_broker_describes_its_configuration(kafka: KafkaServer, cluster: KafkaCluster) -> None:
    (node,) = cluster.snapshot((), soon(30)).brokers
    assert broker_config(cluster, node, "offsets.topic.replication.factor", soon(30)) == "1"
    assert broker_config(cluster, node, "no.such.one", soon(30)) is None


def test_topics_grow_and_are_deleted(kafka: KafkaServer, cluster: KafkaCluster) -> None:
    create_topics(cluster, {"grows": 1}, soon(30))
    grow_topics(cluster, {"grows": 3}, soon(30))
    assert len(cluster.snapshot(["grows"], soon(30), refresh=True).topics["grows"].partitions) == 3
    with pytest.raises(BrokerError, match="cannot change topic 'grows'"):
        grow_topics(cluster, {"grows": 2}, soon(30))
    delete_topics(cluster, ["grows"], soon(30))
    assert cluster.snapshot(["grows"], soon(30), refresh=True).topics == {}
    with pytest.raises(BrokerError, match="cannot delete topic 'grows'"):
        delete_topics(cluster, ["grows"], soon(30))


def test_the_poller_speaks_with_a_real_broker(kafka: KafkaServer) -> None:
    options = options_for(kafka)
    poller = Poller(options)
    handles = [poller.connect(*options.bootstrap_servers[0], f"link {i}") for i in range(3)]
    for handle in handles:
        poller.send(handle, MetadataRequest(topics=()))
    seen: list[Any] = []
    deadline = soon(30)
    while len(seen) < 6 and time.monotonic() < deadline:
        seen += poller.wait(1)
    assert {e.handle for e in seen if isinstance(e, ConnectionReady)} == set(handles)
    assert {e.handle for e in seen if isinstance(e, ResponseReceived)} == set(handles)
    poller.close()


def test_any_broker_answers_a_call(kafka: KafkaServer, cluster: KafkaCluster) -> None:
    assert cluster.call(ListGroupsRequest(), ANY, soon(30)).error_code == 0
    coordinator = cluster.coordinator("anything", soon(30))
    assert f"{coordinator.host}:{coordinator.port}" == kafka.bootstrap_servers
