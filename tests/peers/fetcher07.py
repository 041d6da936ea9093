"""The reading side of the imitated 0.7 consumer: one thread per broker fetches, one per stream hands messages out.

Offsets are those of the Scala consumer: after a message stands the position from which a new consumer would go on,
which within a compressed message is where that one begins, and after its last inner message where it ends.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streamgroup.kafka.wire.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    AnsweredRequest07,
    ErrorCode07,
    FetchRequest07,
    FetchResponse07,
    MultiFetchRequest07,
    MultiFetchResponse07,
    OffsetsRequest07,
    OffsetsResponse07,
    Response07,
    decode_response,
)
from streamgroup.testing.kafka07.codecs import NONE, decompress
from streamgroup.testing.kafka07.log import LogMessage, messages_of

_TIMEOUT_S = 30.0


class ConsumerError(Exception):
    """An exception of the Scala consumer."""


@dataclass
class Held:
    """One partition that this consumer owns (PartitionTopicInfo). `fetched` runs ahead of `consumed`."""

    topic: str
    broker: int
    partition: int
    thread: str
    fetched: int
    consumed: int
    valid: bool = field(default=True)
    """Until the next rebalance: what was fetched before that is not handed out after it."""

    @property
    def name(self) -> str:
        """As in ZooKeeper."""
        return f"{self.broker}-{self.partition}"


@dataclass(frozen=True)
class Chunk:
    """The part of one answer for one partition."""

    held: Held
    start: int
    records: bytes


def positions_after(records: bytes, start: int) -> Iterator[tuple[bytes, int]]:
    """Payloads of the whole messages in `records`, each with the offset to go on from after it.

    Raises DecodeError as the broker's own check: the Scala consumer then throws InvalidMessageException or
    InvalidMessageSizeException at its application.
    """
    at = start
    for message in messages_of(records):
        payloads = list(_payloads(message))
        end = at + message.size
        yield from ((payload, at) for payload in payloads[:-1])
        yield from ((payload, end) for payload in payloads[-1:])
        at = end


def valid_bytes(records: bytes) -> int:
    """How far whole messages reach, without a look into them."""
    at = 0
    while len(records) - at >= 4:
        (length,) = struct.unpack_from(">i", records, at)
        if length < 0 or length > len(records) - at - 4:
            break
        at += 4 + length
    return at


def _payloads(message: LogMessage) -> Iterator[bytes]:
    if message.codec == NONE:
        yield message.payload
        return
    for inner in messages_of(decompress(message.codec, message.payload)):
        yield from _payloads(inner)


class BrokerConnection:
    """A blocking connection (SimpleConsumer)."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), _TIMEOUT_S)

    def call(self, request: AnsweredRequest07) -> Response07:
        """Raises OSError where the broker hangs up."""
        self._socket.sendall(request.encode())
        (size,) = struct.unpack(">i", self._read(4))
        return decode_response(request, self._read(size))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(min(count - len(data), 1 << 16))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def close(self) -> None:
        """Wakes a thread that waits in `call`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def end_of_log(address: tuple[str, int], held_at: tuple[str, int], reset: str) -> int:
    """Where `autooffset.reset` (smallest, largest) starts a partition; a connection of its own."""
    time = {"smallest": EARLIEST_TIME, "largest": LATEST_TIME}[reset]
    connection = BrokerConnection(*address)
    try:
        answer = connection.call(OffsetsRequest07(*held_at, time, 1))
        assert isinstance(answer, OffsetsResponse07)
        return answer.offsets[0]
    finally:
        connection.close()


class FetcherRunnable(threading.Thread):
    """Fetches all partitions of one broker by one MULTIFETCH a round, and puts what came into their streams' queues."""

    def __init__(
        self,
        broker: tuple[str, int],
        partitions: list[Held],
        queues: dict[str, queue.Queue[Chunk | Exception]],
        *,
        fetch_size: int,
        backoff_s: float,
        reset: Callable[[Held], int],
    ) -> None:
        super().__init__(name=f"fetcher-{broker[1]}", daemon=True)
        self._broker = broker
        self._partitions = partitions
        self._queues = queues
        self._fetch_size = fetch_size
        self._backoff_s = backoff_s
        self._reset = reset
        self._stopped = threading.Event()
        self._connection: BrokerConnection | None = None

    def run(self) -> None:
        """A broker that is away is tried again; a damaged answer ends this thread, and its streams hear of it."""
        while not self._stopped.is_set():
            try:
                if self._connection is None:
                    self._connection = BrokerConnection(*self._broker)
                if not self._round(self._connection):
                    self._stopped.wait(self._backoff_s)
            except OSError:
                self._disconnect()
                self._stopped.wait(self._backoff_s)
            except Exception as error:
                for held in self._partitions:
                    self._queues[held.thread].put(error)
                break
        self._disconnect()

    def stop(self) -> None:
        """No chunk is put after this returns."""
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            connection.close()
        self.join(_TIMEOUT_S)

    def _round(self, connection: BrokerConnection) -> int:
        """Bytes that one MULTIFETCH brought."""
        fetches = tuple(FetchRequest07(h.topic, h.partition, h.fetched, self._fetch_size) for h in self._partitions)
        answer = connection.call(MultiFetchRequest07(fetches))
        assert isinstance(answer, MultiFetchResponse07)
        return sum(self._take(held, part) for held, part in zip(self._partitions, answer.parts, strict=True))

    def _take(self, held: Held, part: FetchResponse07) -> int:
        if part.error == ErrorCode07.OFFSET_OUT_OF_RANGE:
            # Reset, written to ZooKeeper at once, and fetched from there.
            held.fetched = held.consumed = self._reset(held)
            return 0
        if part.error:
            raise ConsumerError(f"{held.topic} {held.name} @{held.fetched}: error {part.error}")
        records = bytes(part.records)
        size = valid_bytes(records)
        if size == 0 and records:
            raise ConsumerError(
                f"{held.topic} {held.name} @{held.fetched}: no whole message in {len(records)} bytes: "
                "a message larger than fetch.size, or an offset off a boundary"
            )
        if size and not self._stopped.is_set():
            self._queues[held.thread].put(Chunk(held, held.fetched, records[:size]))
            held.fetched += size
        return size

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
