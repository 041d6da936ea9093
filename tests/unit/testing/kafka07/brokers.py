"""Emulated 0.7 brokers in this process: without sockets, or at a port of the loopback."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from streamgroup.kafka.wire import kafka07 as wire
from streamgroup.kafka.wire.kafka07 import LATEST_TIME, FetchResponse07, OffsetsRequest07, decode_response
from streamgroup.testing.kafka07 import BrokerConfig, Logs, Reply, RequestHandler, broker_config
from streamgroup.testing.ports import LOOPBACK

TIMEOUT_S = 20.0
PARTITIONS = 3

QUESTION = OffsetsRequest07("nobody-has-it", 0, LATEST_TIME, 1).encode()
ANSWER = wire.OffsetsResponse07((0,)).encode()


def config(directory: Path, **properties: object) -> BrokerConfig:
    """Of a broker without ZooKeeper that flushes at once; names with `_` for `.`."""
    given = {name.replace("_", "."): str(value) for name, value in properties.items()}
    usual = {"port": "0", "num.partitions": str(PARTITIONS), "log.flush.interval": "1"}
    own = {"brokerid": "0", "log.dir": str(directory), "enable.zookeeper": "false"}
    return broker_config({**usual, **given, **own})


class Broker:
    """A broker without sockets: a request in, its answer out."""

    def __init__(self, directory: Path, **properties: object) -> None:
        self.config = config(directory, **properties)
        self.logs = Logs(self.config)
        self.handler = RequestHandler(self.logs)

    def ask(self, request: wire.Request07) -> Reply:
        return self.handler.handle(request.encode()[4:])

    def produce(self, messages: bytes, topic: str = "t", partition: int = 0) -> Reply:
        return self.ask(wire.ProduceRequest07(topic, partition, messages))

    def fetch(self, offset: int, max_size: int = 1 << 20, topic: str = "t", partition: int = 0) -> FetchResponse07:
        request = wire.FetchRequest07(topic, partition, offset, max_size)
        reply = self.ask(request)
        assert not reply.close, reply
        answer = decode_response(request, reply.data[4:])
        assert isinstance(answer, FetchResponse07)
        return answer

    def offsets(self, time: int = LATEST_TIME, most: int = 100, topic: str = "t", partition: int = 0) -> list[int]:
        request = OffsetsRequest07(topic, partition, time, most)
        reply = self.ask(request)
        assert not reply.close, reply
        answer = decode_response(request, reply.data[4:])
        assert isinstance(answer, wire.OffsetsResponse07)
        return list(answer.offsets)

    def segments(self, topic: str = "t", partition: int = 0) -> list[Path]:
        return sorted((self.config.log_dir / f"{topic}-{partition}").glob("*.kafka"))


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    assert host == LOOPBACK
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def read(connection: socket.socket, count: int) -> bytes:
    """`count` bytes, fewer where the stream ends before."""
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


def read_frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read(connection, 4))
    return read(connection, size)


def is_open(connection: socket.socket) -> bool:
    """Whether a question is answered, and nothing comes before the answer."""
    try:
        connection.sendall(QUESTION)
        found = read(connection, len(ANSWER))
    except ConnectionError:
        return False
    assert found in (b"", ANSWER), found.hex()
    return found == ANSWER
