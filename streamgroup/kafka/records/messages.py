"""Finds messages of magic 0 and 1 (Kafka 0.8 to 0.10) in fetched bytes: uncompressed messages and wrappers.

A wrapper is a compressed message that contains messages. It has the offset of its last inner message, so its header
shows the next offset. The offsets of its inner messages are absolute in magic 0. In magic 1 they are relative: they
count from 0 (KIP-31), or from another number because of compaction or the client. The difference of the last one to the
wrapper's offset shows the base.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from streamgroup.errors import ChecksumMismatch, DecodeError
from streamgroup.kafka.records import codecs, kernel
from streamgroup.kafka.records.message_sets import (
    CODEC_BITS,
    FRAME_SIZE,
    LEAST_SIZES,
    LOG_APPEND_TIME_BIT,
    NO_MESSAGES,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    MessageFaultKind,
)

CRC_COVERS = 16
MAX_DEPTH = 8
"""How deep wrappers may be nested. No broker has ever written a wrapper in a wrapper."""
HEADER = struct.Struct(">qiIBB")
"""Offset, size, checksum, magic, attributes: all that the two magics share."""
Header = tuple[int, int, int, int, int]
_TIMED_KEY = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_LONG = struct.Struct(">q")

E = TypeVar("E", bound=DecodeError)


def _about(what: str, kind: type[E], base_offset: int, next_offset: int) -> E:
    error = kind(what)
    error.base_offset, error.next_offset = base_offset, next_offset
    return error


class UncompressedMessages(NamedTuple):
    """A frame of consecutive uncompressed messages: the bytes `[begin, end)` of the fetched bytes."""

    base_offset: int
    last_offset: int
    begin: int
    end: int
    least_offset: int
    """The smallest offset that a message can have, after the previous frame."""

    def error(self, what: str, kind: type[E], offset: int | None = None) -> E:
        """Return an error of `kind` about the message at `offset`, by default the first.

        Its `next_offset` is the offset after the message.
        """
        offset = self.base_offset if offset is None else offset
        return _about(f"the message at offset {offset}: {what}", kind, offset, offset + 1)


class Wrapper(NamedTuple):
    """A frame that is one compressed message with messages in it: the bytes `[begin, end)` of the fetched bytes."""

    base_offset: int
    """The smallest offset that it can hold. Only decompressing shows the offset of its first message."""
    last_offset: int
    begin: int
    end: int
    least_offset: int
    magic: int
    crc: int
    attributes: int
    timestamp: int
    """Milliseconds, -1 in magic 0."""
    value_begin: int
    """The begin of the compressed set, which ends at `end`."""

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def timestamp_type(self) -> int:
        """The timestamp type of all inner messages, of either magic: 0 CreateTime, 1 LogAppendTime; none in magic 0."""
        return (self.attributes & LOG_APPEND_TIME_BIT) >> 3 if self.magic else NO_TIMESTAMP_TYPE

    def error(self, what: str, kind: type[E], offset: int | None = None) -> E:
        """Return an error of `kind` about this wrapper, with the offset after it."""
        what = f"the compressed messages up to offset {self.last_offset}: {what}"
        return _about(what, kind, self.base_offset, self.last_offset + 1)

    def verify(self, data: memoryview) -> None:
        """Check the CRC-32 of the wrapper. Raises ChecksumMismatch."""
        found = kernel.current().crc32(data[self.begin + CRC_COVERS : self.end])
        if found != self.crc:
            what = f"the CRC-32 is {found:#010x}, the header has {self.crc:#010x}; the bytes are damaged"
            raise self.error(what, ChecksumMismatch)

    def value(self, data: memoryview) -> memoryview:
        """Return the compressed messages. A wrong header checksum of lz4 is corrected.

        Raises DecodeError for a damaged lz4 header.
        """
        value = data[self.value_begin : self.end]
        return codecs.fix_lz4_checksum(value) if self.codec == codecs.LZ4 else value


def parse_wrapper(data: memoryview, begin: int, header: Header, least_offset: int, start: int) -> Wrapper:
    """Return the wrapper whose frame begins at `begin` with `header`. The frame must be complete.

    Raises DecodeError.
    """
    offset, size, crc, magic, attributes = header
    base_offset = min(max(least_offset, start), offset)
    end = begin + FRAME_SIZE + size
    if magic:
        timestamp, key_length = _TIMED_KEY.unpack_from(data, begin + HEADER.size)
        value_begin = begin + HEADER.size + _TIMED_KEY.size + 4
    else:
        timestamp, (key_length,) = NO_TIMESTAMP, _LENGTH.unpack_from(data, begin + HEADER.size)
        value_begin = begin + HEADER.size + _LENGTH.size + 4
    value_length = what = None
    if key_length > 0:  # a key, which is ignored
        value_begin += key_length
    if key_length < -1 or value_begin > end:
        what = f"a key of {key_length} bytes reaches beyond it"
    else:
        (value_length,) = _LENGTH.unpack_from(data, value_begin - 4)
        if value_length < 0:
            what = "it has no value to decompress"
        elif value_length != end - value_begin:
            what = f"its value has {value_length} bytes, but only {end - value_begin} are left"
    place = base_offset, offset, begin, end, least_offset
    wrapper = Wrapper(*place, magic, crc, attributes, timestamp, value_begin)
    if what is not None:
        raise wrapper.error(what, DecodeError)
    return wrapper


def flatten(data: memoryview, wrapper: Wrapper, limit: int, check_crcs: bool) -> bytes:
    """Return the messages of `wrapper` and of wrappers in it, as one uncompressed set with absolute offsets.

    No broker writes wrappers in wrappers, so this may be slow. It decompresses at most `limit` bytes. Raises
    DecodeError, or its subclasses TooLarge and ChecksumMismatch.
    """
    flat: list[bytes] = []
    _Flattening(limit, check_crcs, flat).add(data, wrapper, 1)
    return b"".join(flat)


class _Flattening:
    def __init__(self, limit: int, check_crcs: bool, flat: list[bytes]) -> None:
        self._left = limit
        self._check_crcs = check_crcs
        self._flat = flat

    def add(self, data: memoryview, wrapper: Wrapper, depth: int) -> None:
        """Add the messages in `wrapper`, at nesting depth `depth`. Raises TooLarge beyond the limit."""
        if depth > MAX_DEPTH:
            raise DecodeError(f"compressed messages are nested more than {MAX_DEPTH} deep")
        inner = codecs.inflated(wrapper.codec, wrapper.value(data), self._left)
        self._left -= len(inner)
        frames = list(_frames(inner))
        if not frames:
            raise DecodeError(NO_MESSAGES)
        base = wrapper.last_offset - frames[-1][0][0] if wrapper.magic else 0
        if base < 0:
            raise DecodeError(MessageFaultKind.OFFSET.text)
        for header, begin, end in frames:
            offset, nested = header[0], header[4] & CODEC_BITS
            if offset < 0 or not 0 <= base + offset <= wrapper.last_offset:
                raise DecodeError(MessageFaultKind.OFFSET.text)
            if nested:
                within = parse_wrapper(inner, begin, header, 0, 0)._replace(last_offset=base + offset)
                if self._check_crcs:
                    within.verify(inner)
                self.add(inner, within, depth + 1)
            else:
                self._flat.append(_LONG.pack(base + offset) + bytes(inner[begin + 8 : end]))


def _frames(data: memoryview) -> Iterator[tuple[Header, int, int]]:
    """Iterate over the messages: header, begin and end of each. Raises DecodeError."""
    position, size = 0, len(data)
    while position < size:
        if size - position < FRAME_SIZE + LEAST_SIZES[0]:
            raise DecodeError(MessageFaultKind.FRAME.text)
        header: Header = HEADER.unpack_from(data, position)
        _, length, _, magic, _ = header
        if magic > 1:
            raise DecodeError(MessageFaultKind.MAGIC.text)
        end = position + FRAME_SIZE + length
        if length < LEAST_SIZES[magic] or end > size:
            raise DecodeError(MessageFaultKind.FRAME.text)
        yield header, position, end
        position = end
