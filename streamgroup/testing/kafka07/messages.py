"""Message sets as the broker checks them before it appends them, one message at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from streamgroup.errors import ChecksumMismatch, TooLarge, Truncated, UnsupportedMagic
from streamgroup.testing.kafka07.codecs import NONE, decompress
from streamgroup.wire.primitives import Bytes

_LENGTH = 4
_MAGICS = {0: 5, 1: 6}
"""Bytes before the payload, the checksum last."""
_LEAST_HEADER = min(_MAGICS.values())
_CODEC_MASK = 3
_MOST_LEVELS = 32
"""Wrappers within wrappers; the broker's own bound is its stack."""


class Message(NamedTuple):
    """`size` counts the length field too: the next message stands so many bytes further."""

    codec: int
    payload: bytes
    size: int


class Checked(NamedTuple):
    """`valid` bytes of whole messages stand at the front of the set, which make `messages` for a consumer."""

    valid: int
    messages: int


def check_set(data: Bytes, max_payload: int) -> Checked | None:
    """Check a set as PRODUCE brings it; None where a payload is beyond `max_payload` bytes: the set is to be dropped.

    A message cut off at the end is left out. Raises DecodeError where anything, at any depth, is not as it should be.
    The size is that of the outer messages, and comes before any look into them.
    """
    outer = []
    for message in messages_of(data):
        if len(message.payload) > max_payload:
            return None
        outer.append(message)
    return Checked(sum(message.size for message in outer), sum(_count(message, _MOST_LEVELS) for message in outer))


def messages_of(data: Bytes) -> Iterator[Message]:
    """Return the whole messages of a set, not unpacked, each checked when it is reached.

    Raises Truncated where there is but a part of one, ChecksumMismatch, UnsupportedMagic, DecodeError.
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
    """Return how many messages a consumer gets out of this one."""
    if message.codec == NONE:
        return 1
    if not levels:
        raise TooLarge(f"compressed messages within each other, more than {_MOST_LEVELS} levels deep")
    inner = messages_of(decompress(message.codec, message.payload))
    return sum(_count(each, levels - 1) for each in inner)
