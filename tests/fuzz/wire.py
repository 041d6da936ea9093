"""The decoders of `kafka/wire/` and `kafka/net/`: messages of each version, frames, connections, Kafka 0.7."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, cast

from streamgroup.errors import BrokerError, DecodeError, TransportError, UnsupportedVersionError
from streamgroup.kafka.net.frames import FrameReader
from streamgroup.kafka.net.protocol import CorrelatedResponse, FramedStream, Protocol
from streamgroup.kafka.net.protocol07 import Protocol07
from streamgroup.kafka.wire import kafka07
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
    decode_subscription,
)
from streamgroup.kafka.wire.fields import FieldSpec, Struct, specs_of
from streamgroup.kafka.wire.frames import decode_response
from streamgroup.kafka.wire.kafka07 import FetchRequest07, MultiFetchRequest07, OffsetsRequest07
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.offsets import OffsetFetchRequest, fetched_offsets
from streamgroup.kafka.wire.primitives import Reader
from streamgroup.kafka.wire.schema import Message, Request, decode, encode, read
from tests.fuzz.decoder import Decoder, Sample
from tests.kafka07_samples import frames as frames_of
from tests.kafka07_samples import samples as samples07
from tests.unit.kafka.wire.declared import REQUESTS
from tests.unit.kafka.wire.test_vectors import RELEASES, exchanges

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_MAX_FRAME = 1 << 20


class _Marking(Reader):
    """A reader that notes where lengths and counts begin."""

    __slots__ = ("marks",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.marks: list[int] = []

    def length(self, layout: Any) -> int | None:
        self.marks.append(self.position)
        return super().length(layout)

    def uvarint(self) -> int:
        self.marks.append(self.position)
        return super().uvarint()


def marks_of(cls: type[Message], data: bytes, version: int, begin: int = 0) -> tuple[int, ...]:
    """Return the positions of the lengths and counts of a message that lies behind `begin` bytes of `data`."""
    reader = _Marking(data)
    reader.take(begin)
    read(cls, reader, version)
    return tuple(reader.marks)


def filled(cls: type[Struct], version: int, chance: Random) -> Any:
    """Return a message with a value in each field of `version`. No array is empty, so all that is nested is there."""
    given = {s.name: _value(s, version, chance) for s in specs_of(cls) if version in s.versions}
    return cast(Any, cls)(**given)


def _value(spec: FieldSpec, version: int, chance: Random) -> Any:
    if spec.is_array:
        return tuple(_item(spec.type, version, chance) for _ in range(1 + int(chance.random() * 3)))
    return _item(spec.type, version, chance)


def _item(type_: str | type[Struct], version: int, chance: Random) -> Any:
    if not isinstance(type_, str):
        return filled(type_, version, chance)
    if type_ in _INTEGERS:
        return chance.choice([0, 1, -1, chance.randrange(2 ** (_INTEGERS[type_] - 1))])
    return {
        "bool": chance.random() < 0.5,
        "string": "orders-é"[: chance.randrange(9)],
        "bytes": chance.randbytes(9),
        "records": chance.randbytes(40),
        "uuid": "0c1d2e3f-4a5b-6c7d-8e9f-0a1b2c3d4e5f",
    }[type_]


# -- messages ----------------------------------------------------------------------------------------------------------


def _messages(cls: type[Request[Any]]) -> list[Sample]:
    """Return what real brokers and clients sent, and filled messages of every version that is declared."""
    chance, found = Random(cls.NAME), []
    for release in RELEASES:
        for version, (asked, answer) in exchanges(release, cls).items():
            found.append(Sample(f"response {version}", answer, _response_marks(cls, version, answer)))
            head = _request_head(cls, asked, version)
            found.append(Sample(f"request {version}", asked[head:], marks_of(cls, asked[head:], version)))
    for version in range(cls.SCHEMA.first, cls.SCHEMA.last + 1):
        asked = encode(filled(cls, version, chance), version)
        found.append(Sample(f"request {version}", asked, marks_of(cls, asked, version)))
        answer = (
            bytes(4)
            + (b"\0" if _has_tags(cls, version) else b"")
            + encode(filled(cls.RESPONSE, version, chance), version)
        )
        found.append(Sample(f"response {version}", answer, _response_marks(cls, version, answer)))
    return found


def _has_tags(cls: type[Request[Any]], version: int) -> bool:
    return cls.is_flexible(version) and not issubclass(cls, ApiVersionsRequest)


def _response_marks(cls: type[Request[Any]], version: int, answer: bytes) -> tuple[int, ...]:
    reader = _Marking(answer)
    reader.int32()
    if _has_tags(cls, version):
        reader.skip_tags()
    return (*reader.marks, *marks_of(cls.RESPONSE, answer, version, reader.position))


def _request_head(cls: type[Request[Any]], asked: bytes, version: int) -> int:
    """Return the size of a captured request's header."""
    reader = Reader(asked)
    reader.take(8)
    reader.text(reader.int16())
    if cls.is_flexible(version):
        reader.skip_tags()
    return reader.position


def _read_message(cls: type[Request[Any]], kind: str, data: bytes) -> object:
    side, version = kind.split()
    if side == "request":
        return decode(cls, data, int(version))
    response = decode_response(cls, int(version), data)[1]
    if issubclass(cls, OffsetFetchRequest):
        group = response.groups[0].group_id if response.groups else ""
        return fetched_offsets(response, int(version), group)
    return response


def _subscription_samples(cls: type[Message]) -> list[Sample]:
    chance = Random(cls.__name__)
    found = []
    for version in range(4):
        data = version.to_bytes(2, "big") + encode(filled(cls, version, chance), version)
        found.append(Sample("", data, marks_of(cls, data, version, 2)))
    return found


# -- frames and connections --------------------------------------------------------------------------------------------


def _feed(stream: FrameReader | FramedStream, data: bytes, take: Callable[[int], object]) -> None:
    """Give the bytes to a reader of frames in pieces, whose sizes follow from the bytes."""
    at = turn = 0
    while at < len(data):
        space = stream.space()
        count = min(len(space), len(data) - at, 1 + data[turn % len(data)] * (1 + turn % 5))
        space[:count] = data[at : at + count]
        take(count)
        at, turn = at + count, turn + 1


def _read_frames(_: str, data: bytes) -> list[memoryview]:
    reader = FrameReader(_MAX_FRAME)
    frames: list[memoryview] = []
    _feed(reader, data, lambda count: frames.extend(reader.received(count)))
    assert reader.missing >= 0
    assert all(4 <= len(frame) <= _MAX_FRAME for frame in frames)
    return frames


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _answers() -> dict[type[Request[Any]], bytes]:
    return {
        cls: exchanges(RELEASES[-1], cls)[0 if cls is ApiVersionsRequest else max(exchanges(RELEASES[-1], cls))][1]
        for cls in REQUESTS
    }


def _frame_samples() -> list[Sample]:
    answers = list(_answers().values())
    return [
        Sample("", b"".join(map(_framed, answers[at : at + 3])), (0, 4 + len(answers[at])))
        for at in range(len(answers) - 2)
    ]


def _handshake_answer(kind: str) -> bytes:
    """Return the answer to ApiVersions that a broker of this release sent, with the id that the handshake expects."""
    answer = exchanges(kind, ApiVersionsRequest)
    return _framed(bytes(4) + answer[max(answer)][1][4:])


def _connection_samples() -> list[Sample]:
    found = []
    for release in RELEASES:
        answers = exchanges(release, MetadataRequest)
        hello = _handshake_answer(release)
        behind = _framed((1).to_bytes(4, "big") + answers[max(answers)][1][4:])
        found.append(Sample(release, hello + behind, (0, 4, 8, len(hello), len(hello) + 4)))
    return found


def _converse(_: str, data: bytes) -> list[CorrelatedResponse]:
    protocol = Protocol("b:9092", "fuzz", _MAX_FRAME)
    answers: list[CorrelatedResponse] = []
    # The handshake remembers releases, but only after a connection was closed.
    protocol.send(MetadataRequest(topics=None))
    _feed(protocol, data, lambda count: protocol.received(count, answers))
    assert protocol.describe_pending() is not None
    assert protocol.describe_eof()
    return answers


# -- Kafka 0.7 ---------------------------------------------------------------------------------------------------------

_ASKED = {
    "FETCH": FetchRequest07("t", 0, 0, 1 << 20),
    "MULTIFETCH": MultiFetchRequest07((FetchRequest07("t", 0, 0, 1 << 20),) * 2),
    "OFFSETS": OffsetsRequest07("t", 0, -1, 10),
}


@functools.cache
def _wire07() -> tuple[list[Sample], list[Sample]]:
    """Return the requests and the responses that were captured, and some more responses."""
    asked, answered = [], []
    for sample in samples07():
        asked += [Sample("", frame, (2, 4)) for frame in _whole(sample.sent)]
        word = re.split(r"\W", sample.name)[0]
        if word in _ASKED:
            for frame in _whole(sample.got):
                try:
                    kafka07.decode_response(_ASKED[word], frame)
                except DecodeError:
                    continue  # a MULTIFETCH of another number of parts
                answered.append(Sample(word, frame, (0, 2, 6)))
    part = kafka07.FetchResponse07(0, kafka07.message_set07([b"a", b"bc"]))
    answered.append(Sample("MULTIFETCH", kafka07.MultiFetchResponse07((part, part)).encode()[4:], (2, 6, 10)))
    return [s for s in asked if _is_request(s.data)], answered


def _whole(data: bytes) -> list[bytes]:
    try:
        return frames_of(data)
    except AssertionError:
        return []  # a sample of a connection that was cut


def _is_request(frame: bytes) -> bool:
    try:
        kafka07.decode_request(frame)
    except DecodeError:
        return False
    return True


def _converse07(kind: str, data: bytes) -> list[CorrelatedResponse]:
    protocol = Protocol07("b:9092", "fuzz", _MAX_FRAME)
    answers: list[CorrelatedResponse] = []
    for _ in range(2):
        protocol.send(_ASKED[kind])
    _feed(protocol, data, lambda count: protocol.received(count, answers))
    assert protocol.describe_eof()
    return answers


def decoders() -> Iterable[Decoder]:
    """Return the decoders of `kafka/wire/` and `kafka/net/`."""
    for cls in REQUESTS:
        yield Decoder(f"wire/{cls.NAME}", functools.partial(_messages, cls), functools.partial(_read_message, cls))
    for message, take in ((ConsumerSubscription, decode_subscription), (ConsumerAssignment, decode_assignment)):
        yield Decoder(
            f"wire/{message.__name__}",
            functools.partial(_subscription_samples, message),
            lambda _, data, take=take: take(data),
        )
    yield Decoder("net/frames", _frame_samples, _read_frames, cap=_MAX_FRAME)
    refuses = (DecodeError, UnsupportedVersionError, BrokerError, TransportError)
    yield Decoder("net/connection", _connection_samples, _converse, refuses, cap=_MAX_FRAME, enough=1_000)
    yield Decoder("wire/kafka07-request", lambda: _wire07()[0], lambda _, data: kafka07.decode_request(data))
    yield Decoder(
        "wire/kafka07-response", lambda: _wire07()[1], lambda kind, data: kafka07.decode_response(_ASKED[kind], data)
    )
    yield Decoder(
        "net/connection07",
        lambda: [Sample(s.kind, _framed(s.data) * 2, (0, 4, len(s.data) + 4)) for s in _wire07()[1]],
        _converse07,
        cap=_MAX_FRAME,
        enough=2_000,
    )
