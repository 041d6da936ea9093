"""The wire protocol of Kafka 0.7: five requests, the three answers there are, and the framing of messages.

    request  = int32 size, int16 type, body          response = int32 size, int16 error, body

Numbers are big-endian, a size counts what follows it. There is no correlation id, no client id and no version: the
broker answers in the order of the requests, PRODUCE and MULTIPRODUCE never. Offsets are byte positions in a
partition's log. Sources: the wiki page "Writing a Driver for Kafka", and a running 0.7.2 where the two differ.

Requests and responses have `encode() -> bytes`, the whole frame with its size. `decode_response` reads a frame as a
client does, strictly; `decode_request` as the broker does, which ignores bytes behind a request's end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from streamgroup.errors import DecodeError, EncodeError, KafkaError, Refresh
from streamgroup.wire.primitives import INT16, INT32, MAX_BYTES, Bytes, Reader, encoded_text

_HEADER = struct.Struct(">ih")
"""Of every frame: its size, then a request's type or a response's error."""
_FETCH = struct.Struct(">iqi")
_OFFSETS = _FETCH
_PRODUCE = struct.Struct(">ii")
_LEAST_FETCH = INT16.size + _FETCH.size
_LEAST_PRODUCE = INT16.size + _PRODUCE.size
_ERROR_SIZE = INT16.size
_EMPTY = memoryview(b"")

LATEST_TIME = -1
"""OFFSETS: the end of the log, then the starts of its segments, the newest first."""
EARLIEST_TIME = -2
"""OFFSETS: the start of the oldest segment, alone."""

RANDOM_PARTITION = -1
"""PRODUCE: the broker takes one of its own."""


class RequestType07(IntEnum):
    """The type of a request, behind its size."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class ErrorCode07(IntEnum):
    """The error of a response. Beyond 0 and 1 the numbers mean something else than Kafka's from 0.8 on."""

    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


NEVER_SENT = frozenset({ErrorCode07.INVALID_MESSAGE, ErrorCode07.INVALID_FETCH_SIZE})
"""Documented, but no request makes a 0.7 broker answer so: it closes the connection, or a client finds it by itself."""

_FINAL = (False, Refresh.NONE)
_ROWS = (
    (ErrorCode07.UNKNOWN, _FINAL, "the broker refused the request, as a rule since the topic's name is not valid"),
    (ErrorCode07.NO_ERROR, _FINAL, "no error"),
    (ErrorCode07.OFFSET_OUT_OF_RANGE, _FINAL, "the log does not hold this offset, or has not flushed it yet"),
    (ErrorCode07.INVALID_MESSAGE, _FINAL, "a message is damaged"),
    (ErrorCode07.WRONG_PARTITION, (True, Refresh.METADATA), "the broker does not have this partition of the topic"),
    (ErrorCode07.INVALID_FETCH_SIZE, _FINAL, "a message is larger than the fetch size"),
)

ERRORS07: dict[int, KafkaError] = {
    code: KafkaError(int(code), code.name, retriable, refresh, text) for code, (retriable, refresh), text in _ROWS
}
"""What the codes mean, in the same terms as those of Kafka from 0.8 on: for BrokerError."""


def error07_of(code: int) -> KafkaError:
    """The row of a code of 0.7; one made up for a code that is unknown, never retriable."""
    row = ERRORS07.get(code)
    return row or KafkaError(code, f"UNKNOWN_{code}", False, Refresh.NONE, "Kafka 0.7 does not have this error code")


@dataclass(frozen=True, slots=True)
class FetchRequest07:
    """Messages of one partition from `offset` (bytes) on, `max_size` bytes at most: the last one may be cut."""

    TYPE: ClassVar = RequestType07.FETCH
    topic: str
    partition: int
    offset: int
    max_size: int

    def encode(self) -> bytes:
        """The request with its size. Raises EncodeError where a value does not fit."""
        return _framed(self.TYPE, self._body())

    def _body(self) -> bytes:
        return _topic(self.topic) + _packed(_FETCH, self.partition, self.offset, self.max_size)

    @classmethod
    def _read(cls, reader: Reader) -> FetchRequest07:
        return cls(_read_topic(reader), *reader.unpack(_FETCH))


@dataclass(frozen=True, slots=True)
class MultiFetchRequest07:
    """Several FETCHes, answered by one response with a part for each, in their order."""

    TYPE: ClassVar = RequestType07.MULTIFETCH
    fetches: tuple[FetchRequest07, ...]

    def encode(self) -> bytes:
        """The request with its size. Raises EncodeError where a value does not fit."""
        parts = (fetch._body() for fetch in self.fetches)
        return _framed(self.TYPE, _packed(INT16, len(self.fetches)) + b"".join(parts))

    @classmethod
    def _read(cls, reader: Reader) -> MultiFetchRequest07:
        count = _read_count(reader, _LEAST_FETCH)
        return cls(tuple(FetchRequest07._read(reader) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class OffsetsRequest07:
    """Boundaries of one partition's log as of `time` (ms since 1970, LATEST_TIME or EARLIEST_TIME), newest first."""

    TYPE: ClassVar = RequestType07.OFFSETS
    topic: str
    partition: int
    time: int
    max_offsets: int

    def encode(self) -> bytes:
        """The request with its size. Raises EncodeError where a value does not fit."""
        return _framed(self.TYPE, _topic(self.topic) + _packed(_OFFSETS, self.partition, self.time, self.max_offsets))

    @classmethod
    def _read(cls, reader: Reader) -> OffsetsRequest07:
        return cls(_read_topic(reader), *reader.unpack(_OFFSETS))


@dataclass(frozen=True, slots=True)
class ProduceRequest07:
    """A message set for one partition (RANDOM_PARTITION: any). There is no answer, not even to a bad one."""

    TYPE: ClassVar = RequestType07.PRODUCE
    topic: str
    partition: int
    messages: Bytes

    def encode(self) -> bytes:
        """The request with its size. Raises EncodeError where a value does not fit."""
        return _framed(self.TYPE, self._body())

    def _body(self) -> bytes:
        head = _topic(self.topic) + _packed(_PRODUCE, self.partition, len(self.messages))
        return b"".join((head, self.messages))

    @classmethod
    def _read(cls, reader: Reader) -> ProduceRequest07:
        topic = _read_topic(reader, null="")
        partition, size = reader.unpack(_PRODUCE)
        return cls(topic, partition, reader.take(size))


@dataclass(frozen=True, slots=True)
class MultiProduceRequest07:
    """Several PRODUCEs, done in their order up to the first bad one. There is no answer."""

    TYPE: ClassVar = RequestType07.MULTIPRODUCE
    produces: tuple[ProduceRequest07, ...]

    def encode(self) -> bytes:
        """The request with its size. Raises EncodeError where a value does not fit."""
        parts = (produce._body() for produce in self.produces)
        return _framed(self.TYPE, _packed(INT16, len(self.produces)) + b"".join(parts))

    @classmethod
    def _read(cls, reader: Reader) -> MultiProduceRequest07:
        count = _read_count(reader, _LEAST_PRODUCE)
        return cls(tuple(ProduceRequest07._read(reader) for _ in range(count)))


Request07: TypeAlias = (
    FetchRequest07 | MultiFetchRequest07 | OffsetsRequest07 | ProduceRequest07 | MultiProduceRequest07
)
"""Any request."""

AnsweredRequest07: TypeAlias = FetchRequest07 | MultiFetchRequest07 | OffsetsRequest07
"""A request that the broker answers."""

_REQUESTS: dict[int, type[Request07]] = {
    kind.TYPE: kind
    for kind in (FetchRequest07, MultiFetchRequest07, OffsetsRequest07, ProduceRequest07, MultiProduceRequest07)
}


@dataclass(frozen=True, slots=True)
class FetchResponse07:
    """The answer to a FETCH: `records` is a view of the message set's bytes, unchanged; the last one may be cut."""

    error: int
    records: Bytes = _EMPTY

    def encode(self) -> bytes:
        """The response with its size."""
        return b"".join((_HEADER.pack(_ERROR_SIZE + len(self.records), self.error), self.records))


@dataclass(frozen=True, slots=True)
class MultiFetchResponse07:
    """The answer to a MULTIFETCH: each part has its own error; the outer one is always 0."""

    parts: tuple[FetchResponse07, ...]
    error: int = ErrorCode07.NO_ERROR

    def encode(self) -> bytes:
        """The response with its size."""
        body = b"".join(part.encode() for part in self.parts)
        return _HEADER.pack(_ERROR_SIZE + len(body), self.error) + body


@dataclass(frozen=True, slots=True)
class OffsetsResponse07:
    """The answer to an OFFSETS, descending. The broker sends no error: where it would, it closes the connection."""

    offsets: tuple[int, ...]
    error: int = ErrorCode07.NO_ERROR

    def encode(self) -> bytes:
        """The response with its size."""
        body = struct.pack(f">i{len(self.offsets)}q", len(self.offsets), *self.offsets)
        return _HEADER.pack(_ERROR_SIZE + len(body), self.error) + body


Response07: TypeAlias = FetchResponse07 | MultiFetchResponse07 | OffsetsResponse07
"""Any response."""


def decode_request(frame: Bytes) -> Request07:
    """The request in `frame` (without its size), as the broker reads it: bytes behind its end are ignored.

    `messages` of a PRODUCE are a view of the frame and not looked at. A null topic of a PRODUCE is read as "": the
    broker refuses both when it writes, so that parts before it stay. Raises DecodeError for an unknown type, any other
    null topic or a negative length, Truncated where the body is too short.
    """
    reader = Reader(frame)
    number = reader.int16()
    kind = _REQUESTS.get(number)
    if kind is None:
        raise DecodeError(f"a request of type {number}, which Kafka 0.7 does not have")
    return kind._read(reader)


def decode_response(request: Request07, frame: Bytes) -> Response07:
    """The answer to `request` in `frame` (without its size).

    Raises DecodeError where it does not fit the request or has bytes behind its end, Truncated where it is too short,
    EncodeError for a request that is never answered.
    """
    reader = Reader(frame)
    if isinstance(request, FetchRequest07):
        return FetchResponse07(reader.int16(), reader.take(reader.remaining))
    if isinstance(request, MultiFetchRequest07):
        return _read_multifetch(reader, len(request.fetches))
    if isinstance(request, OffsetsRequest07):
        return _read_offsets(reader)
    raise EncodeError(f"a Kafka 0.7 broker never answers {request.TYPE.name}")


def message07(payload: Bytes, magic: int = 1, codec: int = 0) -> bytes:
    """One message with its length. `codec` is the whole attributes byte: 0 none, 1 gzip, 2 snappy of `payload`.

    Magic 0 has no attributes. The CRC-32 covers the payload alone, in both.
    """
    head = struct.pack(">bB", magic, codec) if magic else struct.pack(">b", magic)
    crc = zlib.crc32(payload)
    return b"".join((INT32.pack(len(head) + 4 + len(payload)), head, crc.to_bytes(4, "big"), payload))


def message_set07(payloads: Iterable[Bytes], magic: int = 1) -> bytes:
    """Messages one behind the other: what PRODUCE carries, and what a compressed message holds, compressed."""
    return b"".join(message07(payload, magic) for payload in payloads)


def _framed(kind: RequestType07, body: bytes) -> bytes:
    size = INT16.size + len(body)
    if size > MAX_BYTES:
        raise EncodeError(f"{kind.name}: a request of {size} bytes, a frame has at most {MAX_BYTES}")
    return _HEADER.pack(size, kind) + body


def _topic(name: str) -> bytes:
    data = encoded_text(name)
    return INT16.pack(len(data)) + data


def _packed(layout: struct.Struct, *values: int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise EncodeError(f"{values} do not fit Kafka 0.7's fields: {error}") from None


def _read_topic(reader: Reader, null: str | None = None) -> str:
    length = reader.int16()
    if length < 0 and null is not None:
        return null
    # As Java reads it: what is no UTF-8 becomes U+FFFD, and that stands in no valid topic's name.
    return str(reader.take(length), "utf-8", "replace")


def _read_count(reader: Reader, least: int) -> int:
    """How many parts follow, each of `least` bytes at least."""
    count = reader.int16()
    if count < 0 or count * least > reader.remaining:
        raise DecodeError(f"{count} parts are announced in {reader.remaining} bytes")
    return count


def _read_multifetch(reader: Reader, expected: int) -> MultiFetchResponse07:
    error = reader.int16()
    if error:
        return MultiFetchResponse07((), error)
    parts = []
    while reader.remaining:
        size = reader.int32()
        part = Reader(reader.take(size))
        parts.append(FetchResponse07(part.int16(), part.take(part.remaining)))
    if len(parts) != expected:
        raise DecodeError(f"a MULTIFETCH of {expected} parts was answered with {len(parts)}")
    return MultiFetchResponse07(tuple(parts))


def _read_offsets(reader: Reader) -> OffsetsResponse07:
    error = reader.int16()
    if error:
        return OffsetsResponse07((), error)
    count = reader.int32()
    if count < 0 or count * 8 != reader.remaining:
        raise DecodeError(f"{count} offsets are announced in {reader.remaining} bytes")
    return OffsetsResponse07(reader.unpack(struct.Struct(f">{count}q")))
