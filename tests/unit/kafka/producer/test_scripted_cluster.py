"""The scripted cluster answers as a real one does, but where the script says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamgroup.errors import ErrorCode, TransportError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.wire.messages import produce as produce_api
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from streamgroup.kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from streamgroup.options.types import ClientOptions
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.kafka.producer.broker import Era
from tests.unit.kafka.records.encoder import Record, crc32c, encode_batch
from tests.unit.kafka.records.encoder_sets import Message, encode_set, encode_wrapper
from tests.waiting import soon, wait_until

ID, EPOCH = 7, 0
Start = Callable[..., ScriptedCluster]


@pytest.fixture
def start() -> Iterator[Start]:
    clusters: list[ScriptedCluster] = []

    def make(brokers: int = 1, **others: Any) -> ScriptedCluster:
        clusters.append(ScriptedCluster(brokers, {"orders": 2}, **others))
        return clusters[-1]

    yield make
    for each in clusters:
        each.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., Connection]]:
    opened: list[Connection] = []

    def make(cluster: ScriptedCluster, node: int = 0) -> Connection:
        host, port = cluster.addresses[node]
        opened.append(Connection(host, port, ClientOptions(((host, port),))))
        opened[-1].connect(soon())
        return opened[-1]

    yield make
    for each in opened:
        each.close()


Connect = Callable[..., Connection]


def batch(*values: bytes, sequence: int = -1, epoch: int = EPOCH, codec: str = "none") -> bytes:
    """A batch; with a sequence it is of the producer ID."""
    data = bytearray(encode_batch([Record(i, value=value) for i, value in enumerate(values)], codec=codec))
    if sequence >= 0:
        data[43:57] = ID.to_bytes(8, "big") + epoch.to_bytes(2, "big") + sequence.to_bytes(4, "big")
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def request(data: bytes, partition: int = 0, acks: int = -1, topic: str = "orders") -> ProduceRequest:
    rows = (PartitionProduceData(index=partition, records=data),)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(TopicProduceData(name=topic, partition_data=rows),))


def produce(
    connection: Connection, data: bytes, partition: int = 0, *, version: int = 9, acks: int = -1, topic: str = "orders"
) -> produce_api.PartitionProduceResponse:
    response = connection.call(request(data, partition, acks, topic), soon(), version)
    return response.responses[0].partition_responses[0]


def test_batches_are_appended_at_the_leader(start: Start, connect: Connect) -> None:
    cluster = start(2)
    first, second = connect(cluster, 0), connect(cluster, 1)
    assert produce(first, batch(b"a", b"b")).base_offset == 0
    assert produce(first, batch(b"c")).base_offset == 2
    assert produce(second, batch(b"d"), 1).base_offset == 0
    assert (cluster.values("orders", 0), cluster.values("orders", 1)) == ([b"a", b"b", b"c"], [b"d"])
    assert produce(second, batch(b"e"), 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = second.call(request(batch(b"e")), soon(), 10)
    assert answer.responses[0].partition_responses[0].current_leader.leader_id == 0
    assert answer.node_endpoints[0].port == cluster.brokers[0].port
    cluster.move("orders", 0, 1)
    assert produce(second, batch(b"e")).base_offset == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_are_those_of_requests_before_v3(start: Start, connect: Connect, magic: int, codec: str) -> None:
    cluster = start()
    messages = [Message(i, b"%d" % i) for i in range(3)]
    data = encode_set(messages, magic) if codec == "none" else encode_wrapper(messages, codec, magic)
    assert produce(connect(cluster), data, version=2).base_offset == 0
    assert cluster.values("orders", 0) == [b"0", b"1", b"2"]


def test_sequences_are_checked_as_real_brokers_do(start: Start, connect: Connect) -> None:
    cluster = start(era=Era.MIDDLE)
    connection = connect(cluster)
    assert produce(connection, batch(b"x", sequence=4)).error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert produce(connection, batch(b"a", b"b", sequence=0)).base_offset == 0
    assert produce(connection, batch(b"d", sequence=3)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = produce(connection, batch(b"a", b"b", sequence=0))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert produce(connection, batch(b"c", sequence=2)).base_offset == 2
    assert cluster.values("orders", 0) == [b"a", b"b", b"c"]
    cluster.forget_producers()
    assert produce(connection, batch(b"d", sequence=3)).error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert produce(connection, batch(b"d", sequence=0, epoch=1)).base_offset == 3


def test_without_acks_nothing_is_answered_and_an_error_ends_the_connection(start: Start, connect: Connect) -> None:
    cluster = start()
    connection = connect(cluster)
    for value in (b"a", b"b"):
        connection.send(request(batch(value), acks=0), 9)
    wait_until(lambda: cluster.values("orders", 0) == [b"a", b"b"], "both are appended")
    assert not connection.arrived()
    connection.send(request(batch(b"c"), 7, acks=0), 9)
    with pytest.raises(TransportError):
        connection.receive(soon())


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (batch(b"a")[:-1] + b"!", 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a") * 2, 9, ErrorCode.CORRUPT_MESSAGE),
        (encode_set([Message(0, b"a")], 1), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", codec="zstd"), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(b"x" * 200), 9, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_bad_batches_are_refused(start: Start, connect: Connect, data: bytes, version: int, code: int) -> None:
    cluster = start(max_message_bytes=200)
    assert produce(connect(cluster), data, version=version).error_code == code
    assert cluster.values("orders", 0) == []


def test_bad_requests_are_refused(start: Start, connect: Connect) -> None:
    connection = connect(start())
    assert produce(connection, batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert produce(connection, batch(b"a"), 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, batch(b"a"), topic="nosuch").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_described_created_and_refused(start: Start, connect: Connect) -> None:
    cluster = start(2, auto_create=3)
    cluster.refuse_topic("orders", ErrorCode.LEADER_NOT_AVAILABLE)
    connection = connect(cluster)

    def described(name: str, create: bool = True) -> tuple[int, list[int]]:
        asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=create)
        (found,) = connection.call(asked, soon()).topics
        return found.error_code, [each.leader_id for each in found.partitions]

    assert described("orders") == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    assert described("orders") == (0, [0, 1])
    assert described("new", create=False) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert described("new") == (0, [0, 1, 0])


def test_topics_have_ids_from_v13_on(start: Start, connect: Connect) -> None:
    cluster = start()
    connection = connect(cluster)
    (found,) = connection.call(MetadataRequest(topics=None), soon()).topics
    rows = (PartitionProduceData(index=0, records=batch(b"a")),)
    by_id = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=(TopicProduceData(topic_id=found.topic_id, partition_data=rows),)
    )
    answer = connection.call(by_id, soon(), 13).responses[0]
    assert (answer.topic_id, answer.partition_responses[0].error_code) == (found.topic_id, 0)
    assert cluster.values("orders", 0) == [b"a"]


def test_a_cluster_of_an_older_release_speaks_as_configured(start: Start, connect: Connect) -> None:
    cluster = start(
        versions={ProduceRequest: (0, 2), produce_api.InitProducerIdRequest: (0, -1)}, log_append_time_ms=123
    )
    connection = connect(cluster)
    answer = connection.call(request(encode_set([Message(0, b"a")], 1)), soon()).responses[0].partition_responses[0]
    assert answer.log_append_time_ms == 123
    assert [version for _, _, version in cluster.requests] == [2]
    assert not connection.versions.supports(produce_api.InitProducerIdRequest, 0)
