"""The wire protocol of Kafka 0.7: five requests, three responses, and the framing of messages.

    request  = int32 size, int16 type, body          response = int32 size, int16 error, body

Numbers are big-endian. A size counts the bytes that follow. There is no correlation id, client id or version: the
broker answers in the order of the requests. It never answers PRODUCE and MULTIPRODUCE. Offsets are byte positions in a
partition's log. Sources: the wiki page "Writing a Driver for Kafka", and a running 0.7.2 where the two differ.

Requests and responses have `encode() -> bytes`, which returns the frame with its size. A request raises EncodeError if
a value does not fit its field. `decode_response` reads a frame strictly. `decode_request` reads one as the broker
does, which ignores bytes after the end of a request.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, TypeAlias

from streamgroup.errors import DecodeError, EncodeError, KafkaError, Refresh
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.primitives import INT16, INT32, MAX_BYTES, Bytes, Reader, encoded_text

_HEADER = struct.Struct(">ih")
"""The head of every frame: its size, then the type of a request or the error of a response."""
_FETCH = struct.Struct(">iqi")
_OFFSETS = _FETCH
_PRODUCE = struct.Struct(">ii")
_LEAST_FETCH = INT16.size + _FETCH.size
_LEAST_PRODUCE = INT16.size + _PRODUCE.size
_ERROR_SIZE = INT16.size
_EMPTY = memoryview(b"")

LATEST_TIME = -1
"""Asks OFFSETS for the end of the log, then for the starts of its segments, the newest first."""
EARLIEST_TIME = -2
"""Asks OFFSETS for the start of the oldest segment only."""

RANDOM_PARTITION = -1
"""Lets the broker choose the partition of a PRODUCE."""


class RequestType07(IntEnum):
    """The types of requests of Kafka 0.7. The value is the number after the size in a request."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class ErrorCode07(IntEnum):
    """The error codes in responses of Kafka 0.7. Only 0 and 1 have the same meaning in Kafka 0.8 and later."""

    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


NEVER_SENT = frozenset({ErrorCode07.INVALID_MESSAGE, ErrorCode07.INVALID_FETCH_SIZE})
"""Documented errors that a 0.7 broker never sends: it closes the connection, or the client detects the case itself."""

_FINAL = (False, Refresh.NONE)
_ROWS = (
    (ErrorCode07.UNKNOWN, _FINAL, "the broker refused the request; usually the topic name is invalid"),
    (ErrorCode07.NO_ERROR, _FINAL, "no error"),
    (ErrorCode07.OFFSET_OUT_OF_RANGE, _FINAL, "the log does not hold this offset, or has not flushed it yet"),
    (ErrorCode07.INVALID_MESSAGE, _FINAL, "a message is damaged"),
    (ErrorCode07.WRONG_PARTITION, (True, Refresh.METADATA), "the broker does not have this partition of the topic"),
    (ErrorCode07.INVALID_FETCH_SIZE, _FINAL, "a message is larger than the fetch size"),
)

ERRORS07: dict[int, KafkaError] = {
    code: KafkaError(int(code), code.name, retriable, refresh, text) for code, (retriable, refresh), text in _ROWS
}
"""The error table of Kafka 0.7, for BrokerError."""


def error07_of(code: int) -> KafkaError:
    """Return the error of a code of Kafka 0.7. An unknown code is UNKNOWN_<code>, which is not retriable."""
    row = ERRORS07.get(code)
    return row or KafkaError(code, f"UNKNOWN_{code}", False, Refresh.NONE, "Kafka 0.7 does not have this error code")


@frozen
class FetchRequest07:
    """FETCH: requests messages of one partition from byte `offset` on, at most `max_size` bytes.

    The last message of the response may be incomplete.
    """

    TYPE: ClassVar = RequestType07.FETCH
    topic: str
    partition: int
    offset: int
    max_size: int

    def encode(self) -> bytes:
        return _framed(self.TYPE, self._body())

    def _body(self) -> bytes:
        return _topic(self.topic) + _packed(_FETCH, self.partition, self.offset, self.max_size)

    @classmethod
    def _read(cls, reader: Reader) -> FetchRequest07:
        return cls(_read_topic(reader), *reader.unpack(_FETCH))


@frozen
class MultiFetchRequest07:
    """MULTIFETCH: several FETCHes in one request. The response has one part for each, in their order."""

    TYPE: ClassVar = RequestType07.MULTIFETCH
    fetches: tuple[FetchRequest07, ...]

    def encode(self) -> bytes:
        parts = (fetch._body() for fetch in self.fetches)
        return _framed(self.TYPE, _packed(INT16, len(self.fetches)) + b"".join(parts))

    @classmethod
    def _read(cls, reader: Reader) -> MultiFetchRequest07:
        count = _read_count(reader, _LEAST_FETCH)
        return cls(tuple(FetchRequest07._read(reader) for _ in range(count)))


@frozen
class OffsetsRequest07:
    """OFFSETS: requests segment boundaries of a log at `time`, newest first.

    `time` is in ms since 1970, LATEST_TIME or EARLIEST_TIME.
    """

    TYPE: ClassVar = RequestType07.OFFSETS
    topic: str
    partition: int
    time: int
    max_offsets: int

    def encode(self) -> bytes:
        return _framed(self.TYPE, _topic(self.topic) + _packed(_OFFSETS, self.partition, self.time, self.max_offsets))

    @classmethod
    def _read(cls, reader: Reader) -> OffsetsRequest07:
        return cls(_read_topic(reader), *reader.unpack(_OFFSETS))


@frozen
class ProduceRequest07:
    """PRODUCE: a message set for one partition (RANDOM_PARTITION: any). The broker never answers, not even an error."""

    TYPE: ClassVar = RequestType07.PRODUCE
    topic: str
    partition: int
    messages: Bytes

    def encode(self) -> bytes:
        return _framed(self.TYPE, self._body())

    def _body(self) -> bytes:
        head = _topic(self.topic) + _packed(_PRODUCE, self.partition, len(self.messages))
        return b"".join((head, self.messages))

    @classmethod
    def _read(cls, reader: Reader) -> ProduceRequest07:
        topic = _read_topic(reader, null="")
        partition, size = reader.unpack(_PRODUCE)
        return cls(topic, partition, reader.take(size))


@frozen
class MultiProduceRequest07:
    """MULTIPRODUCE: several PRODUCEs in one request. The broker never answers.

    It appends them in order, up to the first invalid one.
    """

    TYPE: ClassVar = RequestType07.MULTIPRODUCE
    produces: tuple[ProduceRequest07, ...]

    def encode(self) -> bytes:
        parts = (produce._body() for produce in self.produces)
        return _framed(self.TYPE, _packed(INT16, len(self.produces)) + b"".join(parts))

    @classmethod
    def _read(cls, reader: Reader) -> MultiProduceRequest07:
        count = _read_count(reader, _LEAST_PRODUCE)
        return cls(tuple(ProduceRequest07._read(reader) for _ in range(count)))


Request07: TypeAlias = (
    FetchRequest07 | MultiFetchRequest07 | OffsetsRequest07 | ProduceRequest07 | MultiProduceRequest07
)
AnsweredRequest07: TypeAlias = FetchRequest07 | MultiFetchRequest07 | OffsetsRequest07
"""The requests that the broker answers."""

_REQUESTS: dict[int, type[Request07]] = {
    kind.TYPE: kind
    for kind in (FetchRequest07, MultiFetchRequest07, OffsetsRequest07, ProduceRequest07, MultiProduceRequest07)
}


@frozen
class FetchResponse07:
    """The response to a FETCH. `records` is a view of the message set. Its last message may be incomplete."""

    error: int
    records: Bytes = _EMPTY

    def encode(self) -> bytes:
        return b"".join((_HEADER.pack(_ERROR_SIZE + len(self.records), self.error), self.records))


@frozen
class MultiFetchResponse07:
    """The response to a MULTIFETCH. Each part has its own error; the outer error is always 0."""

    parts: tuple[FetchResponse07, ...]
    error: int = ErrorCode07.NO_ERROR

    def encode(self) -> bytes:
        body = b"".join(part.encode() for part in self.parts)
        return _HEADER.pack(_ERROR_SIZE + len(body), self.error) + body


@frozen
class OffsetsResponse07:
    """The response to an OFFSETS: offsets in descending order.

    It never has an error: the broker closes the connection instead.
    """

    offsets: tuple[int, ...]
    error: int = ErrorCode07.NO_ERROR

    def encode(self) -> bytes:
        body = struct.pack(f">i{len(self.offsets)}q", len(self.offsets), *self.offsets)
        return _HEADER.pack(_ERROR_SIZE + len(body), self.error) + body


Response07: TypeAlias = FetchResponse07 | MultiFetchResponse07 | OffsetsResponse07


def decode_request(frame: Bytes) -> Request07:
    """Decode the request in `frame` (without its size) as the broker does: it ignores bytes after the end.

    The `messages` of a PRODUCE are a view of the frame and are not validated. A null topic of a PRODUCE is read as "":
    the broker refuses both only when it appends, after the parts before it. Raises DecodeError for an unknown type, any
    other null topic or a negative length, and Truncated if the body is too short.
    """
    reader = Reader(frame)
    number = reader.int16()
    kind = _REQUESTS.get(number)
    if kind is None:
        raise DecodeError(f"unknown request type {number}: Kafka 0.7 has types 0 to 4")
    return kind._read(reader)


def decode_response(request: Request07, frame: Bytes) -> Response07:
    """Decode the response to `request` in `frame` (without its size).

    Raises DecodeError if it does not match the request or has bytes left over, Truncated if it is too short, and
    EncodeError for a request that the broker never answers.
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
    """Return one message with its length field. `payload` is compressed if `codec` says so: 0 none, 1 gzip, 2 snappy.

    Magic 0 has no attributes, and therefore no codec. In both magics the CRC-32 covers only the payload.
    """
    head = struct.pack(">bB", magic, codec) if magic else struct.pack(">b", magic)
    crc = zlib.crc32(payload)
    return b"".join((INT32.pack(len(head) + 4 + len(payload)), head, crc.to_bytes(4, "big"), payload))


def message_set07(payloads: Iterable[Bytes], magic: int = 1) -> bytes:
    """Return a message set: the content of a PRODUCE, or of a compressed message before compression."""
    return b"".join(message07(payload, magic) for payload in payloads)


def _framed(kind: RequestType07, body: bytes) -> bytes:
    size = INT16.size + len(body)
    if size > MAX_BYTES:
        raise EncodeError(f"cannot send {kind.name}: it has {size} bytes, a frame has at most {MAX_BYTES}")
    return _HEADER.pack(size, kind) + body


def _topic(name: str) -> bytes:
    data = encoded_text(name)
    return INT16.pack(len(data)) + data


def _packed(layout: struct.Struct, *values: int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise EncodeError(
            f"cannot encode a request of Kafka 0.7: the numbers {values} do not fit its fields: {error}"
        ) from None


def _read_topic(reader: Reader, null: str | None = None) -> str:
    length = reader.int16()
    if length < 0 and null is not None:
        return null
    # Java replaces invalid UTF-8 by U+FFFD, which no valid topic name contains.
    return str(reader.take(length), "utf-8", "replace")


def _read_count(reader: Reader, least: int) -> int:
    """Read the number of parts that follow, each of which has at least `least` bytes."""
    count = reader.int16()
    if count < 0 or count * least > reader.remaining:
        raise DecodeError(f"invalid count of parts {count}: {reader.remaining} bytes are left")
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
        raise DecodeError(f"invalid count of offsets {count}: {reader.remaining} bytes are left")
    return OffsetsResponse07(reader.unpack(struct.Struct(f">{count}q")))
