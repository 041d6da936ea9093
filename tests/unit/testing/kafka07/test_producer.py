from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError, EncodeError, TransportError
from streamgroup.kafka.wire.kafka07 import FetchRequest07, message07, message_set07
from streamgroup.testing.kafka07 import BrokerServer, Producer07
from streamgroup.testing.kafka07.codecs import decompress
from streamgroup.testing.ports import LOOPBACK, free_ports
from tests.unit.testing.kafka07.brokers import config, connect, read_frame


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerServer]:
    with BrokerServer(config(tmp_path)) as server:
        yield server


def fetched(broker: BrokerServer, topic: str, partition: int = 0) -> bytes:
    with connect(broker.address) as connection:
        connection.sendall(FetchRequest07(topic, partition, 0, 1 << 22).encode())
        return read_frame(connection)[2:]


# What is written


def test_messages_are_in_the_log_when_produce_returns(broker: BrokerServer) -> None:
    with Producer07(broker.address) as producer:
        producer.produce("t", [b"a", b"b"], partition=1)
        assert fetched(broker, "t", 1) == message_set07([b"a", b"b"])
        producer.produce("t", [b"c"], partition=1, magic=0)
        assert fetched(broker, "t", 1) == message_set07([b"a", b"b"]) + message07(b"c", magic=0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "snappy-raw"])
def test_a_codec_makes_one_message_of_all(broker: BrokerServer, codec: str) -> None:
    with Producer07(broker.address) as producer:
        producer.produce("t", [b"a", b"b"], codec=codec, partition=0, magic=0)
    data = fetched(broker, "t")
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert decompress(data[5] & 3, data[10:]) == message_set07([b"a", b"b"], magic=0)


def test_several_partitions_in_one_request(broker: BrokerServer) -> None:
    with Producer07(broker.address) as producer:
        producer.produce_many([("t", 0, [b"a"]), ("u", 2, [b"b", b"c"]), ("t", 0, [b"d"])])
        producer.produce_many([])
    assert fetched(broker, "t") == message_set07([b"a", b"d"])
    assert fetched(broker, "u", 2) == message_set07([b"b", b"c"])


# What goes wrong


def test_a_refusal_is_an_error_and_the_next_call_connects_again(broker: BrokerServer) -> None:
    with Producer07(broker.address) as producer:
        producer.produce("t", [b"a"], partition=0)
        with pytest.raises(TransportError, match=rf"cannot produce to a/b at broker {broker.address}: .*log"):
            producer.produce("a/b", [b"x"])
        producer.produce("t", [b"b"], partition=0)
    assert fetched(broker, "t") == message_set07([b"a", b"b"])


def test_a_broker_that_closes_the_connection_is_named() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener, Producer07(f"{LOOPBACK}:{port_of(listener)}") as producer:

        def close_after_the_request() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)

        broker = threading.Thread(target=close_after_the_request, daemon=True)
        broker.start()
        with pytest.raises(TransportError, match=r"at broker 127\.0\.0\.1:\d+: it closed the connection\. Its log"):
            producer.produce("t", [b"a"])
        broker.join(10)


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_no_broker_is_an_error() -> None:
    with (
        Producer07(f"127.0.0.1:{free_ports(1)[0]}", timeout_s=2) as producer,
        pytest.raises(TransportError, match="Connection refused"),
    ):
        producer.produce("t", [b"a"])


def test_a_message_that_the_broker_would_drop_is_an_error(broker: BrokerServer) -> None:
    with Producer07(broker.address, max_message_size=100) as producer:
        with pytest.raises(EncodeError, match="cannot produce a message of 101 bytes: the broker drops more than 100"):
            producer.produce("t", [b"x", bytes(101)], partition=0)
        producer.produce("t", [bytes(100)], partition=0)
        producer.produce("t", [bytes(100)] * 100, codec="gzip", partition=0)


@pytest.mark.parametrize("given", [{}, {"address": "a:1", "zookeeper": "b:2"}])
def test_a_producer_goes_to_one_broker_or_to_those_of_a_zookeeper(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="either the address of a broker or a ZooKeeper"):
        Producer07(**given)


def test_an_unknown_codec_is_an_error(broker: BrokerServer) -> None:
    with Producer07(broker.address) as producer, pytest.raises(ConfigError, match="unknown codec zstd"):
        producer.produce("t", [b"a"], codec="zstd")
