"""Validation of message sets before the broker appends them, one message at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from streamgroup.errors import ChecksumMismatch, TooLarge, Truncated, UnsupportedMagic
from streamgroup.testing.kafka07.codecs import NONE, decompress
from streamgroup.wire.primitives import Bytes

_LENGTH = 4
_MAGICS = {0: 5, 1: 6}
"""Size of the header by magic; the checksum comes last."""
_LEAST_HEADER = min(_MAGICS.values())
_CODEC_MASK = 3
_MOST_LEVELS = 32
"""Limit of nested compressed messages; the real broker's limit is its stack."""


class Message(NamedTuple):
    """One message. `size` includes the length field."""

    codec: int
    payload: bytes
    size: int


class Checked(NamedTuple):
    """The result for a set: `valid` bytes of complete messages, which contain `messages` for a consumer."""

    valid: int
    messages: int


def check_set(data: Bytes, max_payload: int) -> Checked | None:
    """Validate the set of a PRODUCE. Return None if a payload exceeds `max_payload` bytes, which drops the set.

    A partial message at the end is left out. Raises DecodeError for a damaged message at any depth. The size limit
    applies to the outer messages and is checked first.
    """
    outer = []
    for message in messages_of(data):
        if len(message.payload) > max_payload:
            return None
        outer.append(message)
    return Checked(sum(message.size for message in outer), sum(_count(message, _MOST_LEVELS) for message in outer))


def messages_of(data: Bytes) -> Iterator[Message]:
    """Yield the complete messages of a set without decompressing them, validating each.

    Raises Truncated if the set is a single partial message, ChecksumMismatch, UnsupportedMagic, DecodeError.
    """
    view, at = memoryview(data), 0
    while len(view) - at >= _LENGTH:
        length = int.from_bytes(view[at : at + _LENGTH], "big", signed=True)
        left = len(view) - at - _LENGTH
        if length < 0 or (length > left and at == 0):
            raise Truncated(f"at byte {at}: a message of {length} bytes, {left} are left")
        if length > left:
            return
        yield _message(bytes(view[at + _LENGTH : at + _LENGTH + length]), at)
        at += _LENGTH + length


def _message(body: bytes, at: int) -> Message:
    header = _MAGICS.get(body[0]) if len(body) >= _LEAST_HEADER else _LEAST_HEADER
    if header is None:
        raise UnsupportedMagic(f"at byte {at}: magic {body[0]}; Kafka 0.7 has 0 and 1")
    if len(body) < header:
        raise Truncated(f"at byte {at}: a message of {len(body)} bytes")
    payload = body[header:]
    if zlib.crc32(payload) != int.from_bytes(body[header - 4 : header], "big"):
        raise ChecksumMismatch(f"at byte {at}: the payload's checksum does not fit")
    return Message(body[1] & _CODEC_MASK if body[0] else NONE, payload, _LENGTH + len(body))


def _count(message: Message, levels: int) -> int:
    """Return the number of messages that a consumer reads from this one."""
    if message.codec == NONE:
        return 1
    if not levels:
        raise TooLarge(f"compressed messages are nested more than {_MOST_LEVELS} levels deep")
    inner = messages_of(decompress(message.codec, message.payload))
    return sum(_count(each, levels - 1) for each in inner)
