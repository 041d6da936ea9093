"""Emulated 0.7 brokers as processes, with a real ZooKeeper."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from streamgroup.errors import TransportError
from streamgroup.kafka.wire.kafka07 import (
    LATEST_TIME,
    FetchRequest07,
    OffsetsRequest07,
    OffsetsResponse07,
    ProduceRequest07,
    decode_response,
    message07,
)
from streamgroup.testing import ServerStartError, ZooKeeperServer
from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07, message_set
from tests.kafka07_replay import PROPERTIES, replay
from tests.unit.testing.kafka07.brokers import connect, is_open, read_frame
from tests.waiting import wait_until

pytestmark = pytest.mark.live

SESSION_MS = 1_000
CONFIG = {"num.partitions": 3, "zk.sessiontimeout.ms": SESSION_MS}


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> str:
    """A part of ZooKeeper for this test alone, two levels down; nobody has made it yet."""
    return f"{zookeeper.connect_string}/tests/{request.node.name[:60]}"


@pytest.fixture
def kafka(chroot: str) -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config=CONFIG, zookeeper=chroot) as server:
        yield server


@pytest.fixture
def nodes(kafka: Kafka07Server) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def producer(kafka: Kafka07Server) -> Iterator[Producer07]:
    with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        yield producer


def brokers_of(nodes: KazooClient, topic: str) -> dict[str, bytes]:
    """The registration of a topic: broker ids, and the data of their nodes."""
    path = f"/brokers/topics/{topic}"
    if not nodes.exists(path):
        return {}
    return {name: nodes.get(f"{path}/{name}")[0] for name in nodes.get_children(path)}


def await_topic(nodes: KazooClient, topic: str, expected: dict[str, bytes]) -> None:
    wait_until(lambda: brokers_of(nodes, topic) == expected, f"{topic} registered as {expected}")


def end_of(address: str, topic: str, partition: int = 0) -> int:
    with connect(address) as connection:
        request = OffsetsRequest07(topic, partition, LATEST_TIME, 1)
        connection.sendall(request.encode())
        answer = decode_response(request, read_frame(connection))
        assert isinstance(answer, OffsetsResponse07)
        return answer.offsets[0]


def records_of(address: str, topic: str, partition: int = 0) -> bytes:
    with connect(address) as connection:
        connection.sendall(FetchRequest07(topic, partition, 0, 1 << 20).encode())
        return read_frame(connection)[2:]


def test_a_process_answers_every_captured_sample_byte_by_byte(chroot: str) -> None:
    with Kafka07Server(config=PROPERTIES, zookeeper=chroot) as kafka:
        assert replay(kafka.brokers[0].address) == []


# What stands in ZooKeeper


def test_a_broker_is_registered_with_its_creator_host_and_port(kafka: Kafka07Server, nodes: KazooClient) -> None:
    assert sorted(nodes.get_children("/brokers/ids")) == ["0", "1"]
    for broker in kafka.brokers:
        data, stat = nodes.get(f"/brokers/ids/{broker.node_id}")
        found = re.fullmatch(r"127\.0\.0\.1-(\d{13}):127\.0\.0\.1:(\d+)", data.decode())
        assert found is not None
        assert int(found[2]) == broker.port
        assert abs(int(found[1]) / 1000 - time.time()) < 120
        assert stat.ephemeralOwner


def test_a_topic_is_registered_by_the_broker_that_gets_its_first_set(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    producer.produce("one", [b"x"], broker=1, partition=2)
    await_topic(nodes, "one", {"1": b"3"})
    _, stat = nodes.get("/brokers/topics/one/1")
    assert stat.ephemeralOwner == nodes.get("/brokers/ids/1")[1].ephemeralOwner
    producer.produce("one", [b"x"], broker=0, partition=0)
    await_topic(nodes, "one", {"0": b"3", "1": b"3"})


def test_parents_are_persistent_and_have_null_data(nodes: KazooClient, producer: Producer07) -> None:
    producer.produce("t", [b"x"], broker=0, partition=0)
    await_topic(nodes, "t", {"0": b"3"})
    for path in ("/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/t"):
        data, stat = nodes.get(path)
        assert (data, stat.ephemeralOwner) == (None, 0)


def test_neither_fetch_nor_offsets_register_a_topic(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    address = kafka.brokers[0].address
    assert records_of(address, "asked") == b""
    assert end_of(address, "asked") == 0
    producer.produce("produced", [b"x"], broker=0, partition=0)
    await_topic(nodes, "produced", {"0": b"3"})  # later than the others would have been
    assert nodes.get_children("/brokers/topics") == ["produced"]


@pytest.mark.parametrize("messages", [b"", message07(b"x")[:-1] + b"y"], ids=["empty", "damaged"])
def test_a_set_that_leaves_nothing_registers_its_topic(
    kafka: Kafka07Server, nodes: KazooClient, messages: bytes
) -> None:
    with connect(kafka.brokers[0].address) as connection:
        connection.sendall(ProduceRequest07("t", 0, messages).encode())
        await_topic(nodes, "t", {"0": b"3"})


def test_partitions_differ_by_broker_and_topic(chroot: str) -> None:
    config = {**CONFIG, "topic.partition.count.map": "wide:8"}
    with (
        Kafka07Server(2, config, broker_configs={1: {"num.partitions": 2}}, zookeeper=chroot) as kafka,
        Producer07(zookeeper=chroot) as producer,
    ):
        for topic in ("t", "wide"):
            for broker in (0, 1):
                producer.produce(topic, [b"x"], broker=broker, partition=0)
        producer.produce("wide", [b"x"], broker=1, partition=7)
        with pytest.raises(TransportError, match="cannot produce to t at broker"):
            producer.produce("t", [b"x"], broker=1, partition=2)
        client = KazooClient(kafka.zookeeper_connect)
        client.start()
        await_topic(client, "t", {"0": b"3", "1": b"2"})
        await_topic(client, "wide", {"0": b"8", "1": b"8"})
        client.stop()
        client.close()


def test_a_proxied_broker_registers_its_proxy(chroot: str) -> None:
    with (
        Kafka07Server(config=CONFIG, zookeeper=chroot, proxied=True) as kafka,
        Producer07(zookeeper=chroot) as producer,
    ):
        producer.produce("t", [b"x"], partition=0)
        (broker,), (proxy,) = kafka.brokers, kafka.proxies
        assert broker.address == f"127.0.0.1:{proxy.port}" != broker.direct_address
        assert end_of(broker.direct_address, "t") == 11
        proxy.stop()
        with pytest.raises(TransportError):
            producer.produce("t", [b"x"], partition=0)


# A broker goes and comes back


def test_a_broker_that_stops_is_gone_at_once_and_its_topics_stay_empty(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    producer.produce("t", [b"x"], broker=1, partition=0)
    await_topic(nodes, "t", {"1": b"3"})
    kafka.brokers[1].stop()
    assert nodes.get_children("/brokers/ids") == ["0"]
    assert brokers_of(nodes, "t") == {}
    assert nodes.exists("/brokers/topics/t")


def test_a_broker_that_comes_back_registers_every_topic_that_it_has_on_disk(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    for topic in ("a", "b-2"):
        producer.produce(topic, [b"x"], broker=0, partition=1)
    kafka.brokers[0].stop()
    before = brokers_of(nodes, "a")
    kafka.brokers[0].restart()
    assert before == {}
    assert brokers_of(nodes, "a") == brokers_of(nodes, "b-2") == {"0": b"3"}
    assert end_of(kafka.brokers[0].address, "b-2", 1) == 11


def test_a_killed_broker_restarts_when_its_session_has_expired(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    producer.produce("t", [b"x"], broker=0, partition=0)
    await_topic(nodes, "t", {"0": b"3"})
    broker = kafka.brokers[0]
    session = nodes.get("/brokers/ids/0")[1].ephemeralOwner
    broker.kill()
    broker.restart()
    assert nodes.get("/brokers/ids/0")[1].ephemeralOwner != session
    assert kafka.registered() == {0, 1}
    assert brokers_of(nodes, "t") == {"0": b"3"}
    assert records_of(broker.address, "t") == message07(b"x")


def test_two_brokers_with_one_id_are_one_too_many(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07, zookeeper: ZooKeeperServer
) -> None:
    first, _ = nodes.get("/brokers/ids/0")
    with Kafka07Server(config=CONFIG, zookeeper=f"{zookeeper.connect_string}/another") as other:
        (second,) = other.brokers
        second.stop()
        text = second.properties.read_text()
        second.properties.write_text(text.replace(other.zookeeper_connect, kafka.zookeeper_connect))
        with pytest.raises(ServerStartError, match="A broker is already registered on the path /brokers/ids/0"):
            second.process.start()
    assert nodes.get("/brokers/ids/0")[0] == first
    producer.produce("t", [b"x"], broker=0, partition=0)
    assert records_of(kafka.brokers[0].address, "t") == message07(b"x")


def test_a_cluster_whose_ids_are_taken_is_not_started(kafka: Kafka07Server, chroot: str, tmp_path: Path) -> None:
    second = Kafka07Server(config=CONFIG, zookeeper=chroot, start_timeout_s=1, data_dir=tmp_path)
    with pytest.raises(
        ServerStartError, match=r"cannot start broker 0: it is still registered in ZooKeeper at .* by a running broker"
    ):
        second.start()
    assert kafka.brokers[0].alive


def test_what_was_not_flushed_is_visible_after_a_crash(chroot: str) -> None:
    config = {**CONFIG, "log.flush.interval": 100, "log.default.flush.scheduler.interval.ms": 3_600_000}
    with Kafka07Server(config=config, zookeeper=chroot) as kafka, Producer07(zookeeper=chroot) as producer:
        producer.produce("t", [b"x"], partition=0)
        (broker,) = kafka.brokers
        assert end_of(broker.address, "t") == 0
        broker.kill()
        broker.restart()
        assert end_of(broker.address, "t") == 11


def test_a_paused_broker_loses_its_session_and_registers_again(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    producer.produce("t", [b"x"], broker=1, partition=0)
    await_topic(nodes, "t", {"1": b"3"})
    first, _ = nodes.get("/brokers/ids/1")
    kafka.brokers[1].pause()
    wait_until(lambda: nodes.get_children("/brokers/ids") == ["0"], "the end of its session")
    kafka.brokers[1].resume()
    wait_until(lambda: "1" in nodes.get_children("/brokers/ids"), "its new session")
    await_topic(nodes, "t", {"1": b"3"})
    second, _ = nodes.get("/brokers/ids/1")
    assert second != first  # the creator has another time
    assert second.split(b":")[1:] == first.split(b":")[1:]


def test_a_zookeeper_that_pauses_for_long_has_all_registered_again() -> None:
    with Kafka07Server(brokers=2, config=CONFIG) as kafka, Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        producer.produce("t", [b"x"], broker=0, partition=0)
        assert kafka.zookeeper is not None
        client = KazooClient(kafka.zookeeper_connect, timeout=20)
        client.start()
        await_topic(client, "t", {"0": b"3"})

        def sessions() -> set[int]:
            found = [client.exists(f"/brokers/ids/{broker}") for broker in (0, 1)]
            return {stat.ephemeralOwner for stat in found if stat is not None}

        first = sessions()
        # Whether a session has ended, where its client comes back in that moment, hangs on which of the server's
        # threads wakes first.
        for attempt in range(6):
            kafka.zookeeper.pause()
            time.sleep((2 + attempt * 0.3) * SESSION_MS / 1000)
            assert end_of(kafka.brokers[0].address, "t") == 11  # it serves on without ZooKeeper
            kafka.zookeeper.resume()
            time.sleep(SESSION_MS / 1000)  # what has ended is known by then
            wait_until(lambda: len(sessions()) == 2, "both brokers are registered")
            if first.isdisjoint(sessions()):
                break
        assert first.isdisjoint(sessions()), "each has come in a new session"
        await_topic(client, "t", {"0": b"3"})
        client.stop()
        client.close()


def test_a_broker_without_zookeeper_does_not_start(zookeeper: ZooKeeperServer) -> None:
    with ZooKeeperServer() as other:
        connect_string = other.connect_string
    server = Kafka07Server(config={**CONFIG, "zk.connectiontimeout.ms": 300}, zookeeper=f"{zookeeper.connect_string}/x")
    with server as kafka:
        (broker,) = kafka.brokers
        broker.stop()
        text = broker.properties.read_text()
        broker.properties.write_text(re.sub(r"zk\.connect=.*", f"zk.connect={connect_string}", text))
        with pytest.raises(ServerStartError, match=f"cannot connect to ZooKeeper at {connect_string} within 300 ms"):
            broker.process.start()


def test_a_chroot_that_nobody_has_made_is_named(kafka: Kafka07Server, zookeeper: ZooKeeperServer) -> None:
    (broker, _) = kafka.brokers
    broker.stop()
    text = broker.properties.read_text()
    broker.properties.write_text(text.replace(kafka.zookeeper_connect, f"{zookeeper.connect_string}/nowhere"))
    with pytest.raises(ServerStartError, match="the chroot /nowhere does not exist in ZooKeeper"):
        broker.process.start()


def test_a_data_directory_is_kept_and_started_again(tmp_path: Path) -> None:
    for count in (1, 2):
        with (
            Kafka07Server(config=CONFIG, data_dir=tmp_path) as kafka,
            Producer07(zookeeper=kafka.zookeeper_connect) as producer,
        ):
            producer.produce("t", [b"x"], partition=0)
            assert end_of(kafka.brokers[0].address, "t") == 11 * count
            assert (kafka.log_dir(0) / "t-0" / f"{0:020}.kafka").read_bytes() == message07(b"x") * count


# The producer


def test_the_producer_finds_brokers_and_partitions_in_zookeeper(
    kafka: Kafka07Server, nodes: KazooClient, producer: Producer07
) -> None:
    for _ in range(4):
        producer.produce("new", [b"x"])
    (first, *_) = brokers_of(nodes, "new") or ["0"]
    wait_until(lambda: brokers_of(nodes, "new"), "the topic")
    for _ in range(100):
        producer.produce("new", [b"x"])
    ends = {
        (broker, partition): end_of(kafka.brokers[broker].address, "new", partition)
        for broker in map(int, brokers_of(nodes, "new"))
        for partition in range(3)
    }
    assert sum(ends.values()) == 104 * 11
    assert all(ends[int(first), partition] for partition in range(3))


def test_the_producer_writes_plain_compressed_and_nested_messages(kafka: Kafka07Server, producer: Producer07) -> None:
    payloads = [b"a", Compressed("gzip", [b"b", Compressed("snappy", [b"c"], magic=0)]), b"d"]
    producer.produce("t", payloads, broker=0, partition=0)
    producer.produce("t", [b"e", b"f"], codec="snappy-raw", broker=0, partition=0)
    producer.produce("t", [b"g"], magic=0, broker=0, partition=0)
    expected = message_set(payloads) + message_set([Compressed("snappy-raw", [b"e", b"f"])]) + message07(b"g", magic=0)
    assert records_of(kafka.brokers[0].address, "t") == expected


def test_a_producer_with_an_address_needs_no_zookeeper(kafka: Kafka07Server) -> None:
    address = kafka.brokers[1].address
    with Producer07(address) as producer:
        producer.produce_many([("p", 0, [b"x"]), ("q", 2, [b"y"])])
        with pytest.raises(TransportError, match=f"cannot produce to p at broker {address}"):
            producer.produce_many([("p", 0, [b"x"]), ("p", 3, [b"never"]), ("q", 2, [b"never"])])
        producer.produce("q", [b"after that"], partition=2)
    assert [end_of(address, "p"), end_of(address, "q", 2)] == [22, 11 + 20]


def test_a_producer_says_which_brokers_there_are(producer: Producer07) -> None:
    with pytest.raises(TransportError, match=r"cannot produce to broker 7: only \[0, 1\] are registered"):
        producer.produce("t", [b"x"], broker=7, partition=0)


def test_brokers_are_open_to_several_clients_at_once(kafka: Kafka07Server) -> None:
    with connect(kafka.brokers[0].address) as one, connect(kafka.brokers[0].address) as two:
        assert is_open(one)
        assert is_open(two)
