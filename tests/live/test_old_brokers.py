"""The protocol of real brokers before 0.10, which know no ApiVersions: 0.8.2.2 and 0.9.0.1."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from streamgroup.errors import ChecksumMismatch, StreamGroupError, TlsError, TransportError, UnsupportedVersionError
from streamgroup.executor.read.fetcher import read
from streamgroup.kafka.cluster.admin import committed, describe_groups, list_groups
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster, Node
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.wire.messages import group as m
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from streamgroup.model import EARLIEST, LATEST, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.testing import KafkaServer, Proxy
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.conftest import MakeTopic
from tests.old_kafka import committed_by_tool, java_produce, librdkafka
from tests.servers import address_of, each_of
from tests.waiting import soon, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240), pytest.mark.usefixtures("fresh_process")]

RELEASES = {"kafka08": "0.8.2", "kafka09": "0.9"}


kafka = each_of(*RELEASES)


def options_for(server: KafkaServer) -> ClientOptions:
    return ClientOptions(bootstrap_servers=(address_of(server),))


@pytest.fixture
def cluster(kafka: KafkaServer) -> Iterator[KafkaCluster]:
    made = KafkaCluster(options_for(kafka))
    yield made
    made.close()


def release(server: KafkaServer) -> str:
    return "0.9" if server.version.startswith("0.9") else "0.8.2"


def test_a_broker_is_recognised_once_and_remembered(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    make_topic(kafka)
    with Proxy(address_of(kafka)) as proxy:
        for attempt in range(3):
            connection = Connection(*proxy.address, options_for(kafka))
            connection.connect(soon(30))
            assert connection.versions.release == release(kafka)
            assert connection.call(MetadataRequest(topics=()), soon(30)).brokers
            connection.close()
            # 0.8.2: ApiVersions, ListGroups, FindCoordinator, in use; 0.9.0: all on one.
            assert proxy.accepted == {"0.8.2": 4, "0.9": 1}[release(kafka)] + attempt


@pytest.mark.parametrize(
    ("server", "error", "said"),
    [
        ("kafka09", TransportError, "in the TLS handshake: .* It may be a listener without TLS"),
        ("kafka010", TlsError, "the listener is plaintext"),
        ("kafka11", TlsError, "the listener is plaintext"),
    ],
)
def test_tls_at_a_plaintext_port_is_reported_from_0_10_on(
    server: str, error: type[StreamGroupError], said: str, request: pytest.FixtureRequest
) -> None:
    started: KafkaServer = request.getfixturevalue(server)
    with pytest.raises(error, match=said):
        Connection(*address_of(started), replace(options_for(started), security_protocol="SSL")).connect(soon(30))


def test_recognising_a_broker_changes_nothing_on_it(make_topic: MakeTopic) -> None:
    """FindCoordinator for a group would have made the topic of the offsets."""
    with KafkaServer("0.8.2.2") as fresh:
        make_topic(fresh, name="orders")
        cluster = KafkaCluster(options_for(fresh))
        assert set(cluster.snapshot(None, soon(30), refresh=True).topics) == {"orders"}
        assert set(cluster.snapshot(["missing"], soon(30), refresh=True).topics) == set()
        assert set(cluster.snapshot(None, soon(30), refresh=True).topics) == {"orders"}
        cluster.close()


@pytest.mark.parametrize("scala", [False, True], ids=["Java producer", "Scala producer"])
def test_records_are_read_from_end_to_end(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic, scala: bool
) -> None:
    topic = make_topic(kafka)
    values = [f"v{i}" for i in range(1000)] + ["x" * 200_000]
    java_produce(kafka, topic, [(None, value) for value in values], "gzip", scala=scala)
    tp = TopicPartition(topic, 0)
    for isolation in Isolation:
        starts = cluster.list_offsets({tp: EARLIEST}, isolation, soon(30))
        ends = cluster.list_offsets({tp: LATEST}, isolation, soon(30))
        assert (starts[tp].offset, ends[tp].offset) == (0, len(values))
    long_ago, yet_to_come = 1_000, int(time.time() * 1000) + 60_000
    assert cluster.list_offsets({tp: long_ago}, Isolation.READ_UNCOMMITTED, soon(30))[tp].offset == 0
    assert cluster.list_offsets({tp: yet_to_come}, Isolation.READ_UNCOMMITTED, soon(30))[tp].offset == len(values)
    snapshot = cluster.snapshot([topic], soon(30))
    task = FetchTask((FetchRange(OffsetRange(tp, 0, len(values)), snapshot.leader(tp)),))
    fetch = FetchOptions(max_partition_bytes=64 * 1024, isolation=Isolation.READ_COMMITTED)
    rows = [row for batch in read(task, options_for(kafka), fetch) for row in batch.to_pylist()]
    assert [row["value"].decode() for row in rows] == values
    assert [row["offset"] for row in rows] == list(range(len(values)))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_message_that_is_damaged_in_the_log_is_a_row_with_its_bytes(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(kafka)
    producer = Producer({**librdkafka(kafka), "compression.codec": codec, "linger.ms": 1000})
    for number in range(30):
        producer.produce(topic, b"%d" % number)
        if number % 10 == 9:
            assert producer.flush(30) == 0
    begin, end = damage_first(kafka, topic, behind=10)
    tp = TopicPartition(topic, 0)
    task = FetchTask((FetchRange(OffsetRange(tp, 0, 30), cluster.snapshot([topic], soon(30)).leader(tp)),))
    with pytest.raises(ChecksumMismatch, match=f"{topic}-0: the .* at offset|{topic}-0: the compressed messages"):
        list(read(task, options_for(kafka), FetchOptions()))
    fetch = FetchOptions(include_damaged_batches=True)
    rows = [row for batch in read(task, options_for(kafka), fetch) for row in batch.to_pylist()]
    (bad,) = (row for row in rows if row["damage"] is not None)
    assert (bad["offset"], len(bad["value"])) == (10, end - begin)
    gone = range(10, 11 if codec == "none" else 20)
    assert [row["value"] for row in rows if row is not bad] == [b"%d" % n for n in range(30) if n not in gone]


def damage_first(server: KafkaServer, topic: str, *, behind: int) -> tuple[int, int]:
    """Flip a bit of the first message whose offset is not below `behind`, and return where it begins and ends."""
    segment = server.data_dir / "broker-0" / "data" / f"{topic}-0" / f"{0:020}.log"
    with segment.open("r+b") as file:
        begin = 0
        while True:
            file.seek(begin)
            offset, size = struct.unpack(">qi", file.read(12))
            end = begin + 12 + size
            if offset >= behind:
                break
            begin = end
        file.seek(end - 1)
        last = file.read(1)[0]
        file.seek(end - 1)
        file.write(bytes([last ^ 1]))
    return begin, end


def commit(cluster: KafkaCluster, version: int, node: Node, group: str, at: dict[TopicPartition, int]) -> int:
    ((tp, offset),) = at.items()
    row = OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset, committed_metadata="who")
    request = OffsetCommitRequest(group_id=group, topics=(OffsetCommitRequestTopic(name=tp.topic, partitions=(row,)),))
    response = cluster.call(request, node, soon(30), version=version)
    return response.topics[0].partitions[0].error_code


def test_offsets_are_kept_in_zookeeper_and_in_kafka_apart(
    kafka: KafkaServer, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(kafka, 2), f"apart-{release(kafka)}"
    tp = TopicPartition(topic, 1)
    assert committed(cluster, group, soon(30), in_zookeeper=True) == {}
    assert commit(cluster, 0, ANY, group, {tp: 5}) == 0
    coordinator = cluster.coordinator(group, soon(30))
    newest = 2 if release(kafka) == "0.9" else 1
    wait_until(lambda: commit(cluster, newest, coordinator, group, {tp: 7}) == 0, "the coordinator takes the commit")
    in_zookeeper = committed(cluster, group, soon(30), in_zookeeper=True)
    in_kafka = committed(cluster, group, soon(30))
    assert {at: found.offset for at, found in in_zookeeper.items()} == {tp: 5}
    assert {at: (found.offset, found.metadata) for at, found in in_kafka.items()} == {tp: (7, "who")}
    with zookeeper_client(kafka.zookeeper_connect) as client:
        assert client.get(f"/consumers/{group}/offsets/{topic}/1")[0] == b"5"
    if release(kafka) == "0.8.2":
        assert committed_by_tool(kafka, group, [topic]) == {(topic, 1): 7}, "it looks in Kafka first"


def test_the_group_protocol_of_0_9(kafka09: KafkaServer, make_topic: MakeTopic) -> None:
    """Join, sync, heartbeat, commit, leave, in the oldest version of each."""
    cluster, group = KafkaCluster(options_for(kafka09)), "members"
    tp = TopicPartition(make_topic(kafka09), 0)
    coordinator = cluster.coordinator(group, soon(30))
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"subscription")

    def join(member: str = "") -> m.JoinGroupResponse:
        request = m.JoinGroupRequest(
            group_id=group, session_timeout_ms=10_000, member_id=member, protocol_type="consumer", protocols=(protocol,)
        )
        return cluster.call(request, coordinator, soon(30))

    too_long = m.JoinGroupRequest(
        group_id=group, session_timeout_ms=45_000, protocol_type="consumer", protocols=(protocol,)
    )
    wait_until(lambda: cluster.call(too_long, coordinator, soon(30)).error_code == 26, "INVALID_SESSION_TIMEOUT (R26)")
    joined = join()
    assert (joined.error_code, joined.leader, len(joined.members)) == (0, joined.member_id, 1)
    me = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    assignment = m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    synced = cluster.call(m.SyncGroupRequest(**me, assignments=(assignment,)), coordinator, soon(30))  # type: ignore[arg-type]
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
    assert cluster.call(m.HeartbeatRequest(**me), coordinator, soon(30)).error_code == 0  # type: ignore[arg-type]
    assert set(list_groups(cluster, soon(30))) >= {group}
    assert describe_groups(cluster, [group], soon(30))[group].state == "Stable"
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    fenced = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=(OffsetCommitRequestTopic(name=tp.topic, partitions=(row,)),),
    )
    assert cluster.call(fenced, coordinator, soon(30)).topics[0].partitions[0].error_code == 0
    assert committed(cluster, group, soon(30))[tp].offset == 3
    assert commit(cluster, 2, coordinator, group, {tp: 9}) == 25, "of no member, while there is one"
    leave = m.LeaveGroupRequest(group_id=group, member_id=joined.member_id)
    assert cluster.call(leave, coordinator, soon(30)).error_code == 0
    assert cluster.call(m.HeartbeatRequest(**me), coordinator, soon(30)).error_code == 25  # type: ignore[arg-type]
    cluster.close()


def test_what_0_8_cannot_do_is_reported_with_its_release(kafka08: KafkaServer, make_topic: MakeTopic) -> None:
    make_topic(kafka08)
    cluster = KafkaCluster(options_for(kafka08))
    with pytest.raises(UnsupportedVersionError, match=r"ListGroups .*\(Kafka 0\.8\.2\) does not have it"):
        list_groups(cluster, soon(30))
    cluster.close()
