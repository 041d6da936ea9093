"""A producer for Kafka 0.7, with which tests and users fill emulated brokers."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from streamgroup.errors import ConfigError, EncodeError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.kafka07 import (
    EARLIEST_TIME,
    RANDOM_PARTITION,
    MultiProduceRequest07,
    OffsetsRequest07,
    ProduceRequest07,
    message07,
)
from streamgroup.testing.kafka07.codecs import compress_gzip, compress_snappy, compress_snappy_raw
from streamgroup.testing.kafka07.registry import IDS, TOPICS
from streamgroup.testing.ports import receive_exactly
from streamgroup.testing.zookeeper_mode import node_data

TIMEOUT_S = 10.0
MAX_MESSAGE_SIZE = 1_000_000
"""The default of a broker's `max.message.size`: bytes of a payload, after compression."""

_HEADER = 10
"""Header size of magic 1."""

_CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, compress_gzip),
    "snappy": (2, compress_snappy),
    "snappy-raw": (2, compress_snappy_raw),
}


@frozen
class Compressed:
    """One message that contains others, compressed: `gzip`, `snappy` (in blocks, as Kafka's clients) or `snappy-raw`.

    Its payloads may be compressed messages too. `magic` is that of its direct payloads; the wrapper itself has 1.
    """

    codec: str
    payloads: Sequence[Payload]
    magic: int = 1


Payload: TypeAlias = bytes | Compressed


def message_set(payloads: Iterable[Payload], magic: int = 1) -> bytes:
    """Return the bytes of a message set. Raises ConfigError for an unknown codec."""
    return b"".join(_message(payload, magic) for payload in payloads)


def _message(payload: Payload, magic: int) -> bytes:
    if isinstance(payload, bytes):
        return message07(payload, magic)
    if payload.codec not in _CODECS:
        raise ConfigError(f"unknown codec {payload.codec}: Kafka 0.7 has {', '.join(_CODECS)}")
    number, compress = _CODECS[payload.codec]
    return message07(compress(message_set(payload.payloads, payload.magic)), codec=number)


class Producer07:
    """Writes to one broker (`address`), or to all brokers registered in a ZooKeeper.

        with Producer07(zookeeper="127.0.0.1:2181") as producer:
            producer.produce("events", [b"plain", Compressed("gzip", [b"a", b"b"])], partition=2, broker=0)

    The broker never answers a PRODUCE, so each call sends a second request, whose response confirms the PRODUCE. The
    broker silently drops messages beyond its `max.message.size`: `max_message_size` must not be larger.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        zookeeper: str | None = None,
        timeout_s: float = TIMEOUT_S,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        if (address is None) == (zookeeper is None):
            raise ConfigError("invalid Producer07: give either the address of a broker or a ZooKeeper")
        self._address = address
        self._timeout_s = timeout_s
        self._max_message_size = max_message_size
        self._connections: dict[str, socket.socket] = {}
        self._client: KazooClient | None = None
        if zookeeper is not None:
            self._client = KazooClient(zookeeper, timeout=timeout_s)
            self._client.start(timeout_s)

    def produce(
        self,
        topic: str,
        payloads: Iterable[Payload],
        *,
        codec: str | None = None,
        partition: int = RANDOM_PARTITION,
        broker: int | None = None,
        magic: int = 1,
    ) -> None:
        """Write one message set, compressed into one message if `codec` is given, and return when it is in the log.

        Without a partition any is chosen. With ZooKeeper, as in the real producer, an unknown topic goes to partition 0
        of any broker. Raises TransportError if the broker refuses the set (it closes the connection), is offline or
        does not answer, EncodeError for a message that is too large, and ConfigError for an unknown codec.
        """
        sent = list(payloads)
        data = self._message_set([Compressed(codec, sent, magic)] if codec else sent, magic)
        address, partition = self._place(topic, broker, partition)
        self._send(address, topic, ProduceRequest07(topic, partition, data).encode())

    def produce_many(self, parts: Iterable[tuple[str, int, Iterable[Payload]]], *, broker: int | None = None) -> None:
        """Write several sets (topic, partition, payloads) in one MULTIPRODUCE to one broker. Raises as `produce`."""
        produces = tuple(
            ProduceRequest07(topic, partition, self._message_set(each, 1)) for topic, partition, each in parts
        )
        topic = produces[0].topic if produces else "-"
        address, _ = self._place(topic, broker, 0)
        self._send(address, topic, MultiProduceRequest07(produces).encode())

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._client is not None:
            self._client.stop()
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _message_set(self, payloads: Iterable[Payload], magic: int) -> bytes:
        messages = [_message(payload, magic) for payload in payloads]
        largest = max(map(len, messages), default=0) - _HEADER
        if largest > self._max_message_size:
            raise EncodeError(
                f"cannot produce a message of {largest} bytes: the broker drops more than {self._max_message_size}. "
                "Send fewer payloads in one compressed message, or raise max.message.size and max_message_size"
            )
        return b"".join(messages)

    def _send(self, address: str, topic: str, request: bytes) -> None:
        # Every broker has partition 0. For an invalid name it has closed the connection by then.
        confirmation = OffsetsRequest07(topic, 0, EARLIEST_TIME, 1).encode()
        try:
            connection = self._connect(address)
            connection.sendall(request + confirmation)
            receive_exactly(connection, int.from_bytes(receive_exactly(connection, 4), "big"))
        except OSError as error:
            self._connections.pop(address).close() if address in self._connections else None
            raise TransportError(
                f"cannot produce to {topic} at broker {address}: {error}. Its log has the reason"
            ) from error

    def _connect(self, address: str) -> socket.socket:
        connection = self._connections.get(address)
        if connection is None:
            host, _, port = address.rpartition(":")
            connection = socket.create_connection((host, int(port)), self._timeout_s)
            self._connections[address] = connection
        return connection

    def _place(self, topic: str, broker: int | None, partition: int) -> tuple[str, int]:
        """Return the address and partition to write to."""
        if self._client is None:
            assert self._address is not None
            return self._address, partition
        brokers = self._brokers(self._client)
        if broker is not None and broker not in brokers:
            raise TransportError(
                f"cannot produce to broker {broker}: only {sorted(brokers)} are registered in ZooKeeper"
            )
        if partition != RANDOM_PARTITION:
            chosen = broker if broker is not None else random.choice(list(brokers))
            return brokers[chosen], partition
        known = [(b, p) for b, p in self._partitions(self._client, topic) if b in brokers and broker in (None, b)]
        chosen, partition = random.choice(known or [(b, 0) for b in brokers if broker in (None, b)])
        return brokers[chosen], partition

    @staticmethod
    def _brokers(client: KazooClient) -> dict[int, str]:
        found = {}
        for name in _children(client, IDS):
            value = node_data(client, f"{IDS}/{name}")
            if value is not None:
                _, host, port = value.decode().rsplit(":", 2)
                found[int(name)] = f"{host}:{port}"
        if not found:
            raise TransportError(f"no broker is registered in ZooKeeper below {client.chroot}{IDS}")
        return found

    @staticmethod
    def _partitions(client: KazooClient, topic: str) -> list[tuple[int, int]]:
        found = []
        for name in _children(client, f"{TOPICS}/{topic}"):
            count = node_data(client, f"{TOPICS}/{topic}/{name}")
            if count is not None:
                found += [(int(name), partition) for partition in range(int(count))]
        return found


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []
