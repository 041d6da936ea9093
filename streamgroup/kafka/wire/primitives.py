"""The primitive types of the Kafka protocol: a bounds-checked `Reader`, and functions that append to a bytearray.

Numbers are big-endian. Every length is checked against the bytes left before memory is allocated, so invalid bytes
raise a typed error and cost no memory. Sources: "A Guide To The Kafka Protocol", KIP-482 (compact types and tagged
fields).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from typing import Any, TypeAlias

from streamgroup.errors import DecodeError, EncodeError, TooLarge, Truncated
from streamgroup.model import NO_TOPIC_ID

Bytes: TypeAlias = bytes | bytearray | memoryview
"""The value of a `bytes` or `records` field: decoding returns a memoryview of the frame, encoding takes any."""

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
BOOL = struct.Struct(">?")

MAX_STRING = 2**15 - 1
"""The longest string in bytes, compact or not: brokers refuse more (KIP-482 keeps the old bound)."""
MAX_BYTES = 2**31 - 1
_ZERO_UUID = bytes(16)


class Reader:
    """Reads primitives from `data`, in order, never beyond its end.

    Every method raises Truncated if a value or its declared length passes the end. It raises DecodeError for a negative
    length, a null in a field that is not nullable, an overlong varint and invalid UTF-8. `position` is the index of
    the next value.
    """

    __slots__ = ("data", "end", "position")

    def __init__(self, data: Bytes) -> None:
        view = memoryview(data)
        self.data = view if view.readonly else view.toreadonly()
        self.position = 0
        self.end = len(self.data)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def take(self, count: int) -> memoryview:
        """Read `count` bytes as a view, without a copy."""
        start = self.position
        stop = start + count
        if count < 0:
            raise DecodeError(f"invalid length {count} at byte {start}: expected 0 or more")
        if stop > self.end:
            raise Truncated(
                f"truncated value at byte {start}: it has {count} bytes, but only {self.end - start} are left"
            )
        self.position = stop
        return self.data[start:stop]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read all values of a fixed layout at once."""
        start = self.position
        stop = start + layout.size
        if stop > self.end:
            raise Truncated(
                f"truncated value at byte {start}: it has {layout.size} bytes, but only {self.end - start} are left"
            )
        self.position = stop
        return layout.unpack_from(self.data, start)

    def int8(self) -> int:
        return int(self.unpack(INT8)[0])

    def int16(self) -> int:
        return int(self.unpack(INT16)[0])

    def int32(self) -> int:
        return int(self.unpack(INT32)[0])

    def int64(self) -> int:
        return int(self.unpack(INT64)[0])

    def uvarint(self) -> int:
        """Read an unsigned number of at most 32 bits from groups of 7 bits, the lowest first: at most 5 bytes."""
        data, start, end = self.data, self.position, self.end
        value = shift = 0
        for at in range(start, min(start + 5, end)):
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                self.position = at + 1
                return value
            shift += 7
        else:
            if end - start < 5:
                raise Truncated(f"truncated varint at byte {start}")
        raise DecodeError(f"invalid varint at byte {start}: it has more than 32 bits")

    def uuid(self) -> str:
        """Read a uuid of 16 bytes as canonical text, `""` for the zero id."""
        raw = self.take(16)
        if raw == _ZERO_UUID:
            return NO_TOPIC_ID
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def text(self, length: int) -> str:
        """Read `length` bytes of UTF-8."""
        start = self.position
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"invalid string at byte {start}: its {length} bytes are not UTF-8: {error}") from None

    def length(self, layout: struct.Struct) -> int | None:
        """Read a length in the format of `layout`. Return None for -1, the null."""
        start = self.position
        value: int = self.unpack(layout)[0]
        if value >= 0:
            return value
        if value == -1:
            return None
        raise DecodeError(f"invalid length {value} at byte {start}: expected -1 or more")

    def compact_length(self) -> int | None:
        """Read a compact length (KIP-482), which is the varint of length + 1. Return None for 0, the null."""
        value = self.uvarint()
        if value > MAX_BYTES + 1:
            raise TooLarge(f"invalid length {value - 1} at byte {self.position}: the limit is {MAX_BYTES}")
        return value - 1 if value else None

    def skip_tags(self) -> None:
        for _ in range(self.tag_count()):
            self.uvarint()
            self.take(self.uvarint())

    def tag_count(self) -> int:
        """Read the number of tagged fields, each of which has at least 2 bytes."""
        count = self.uvarint()
        if count > self.remaining // 2:
            raise Truncated(
                f"invalid count of {count} tagged fields at byte {self.position}: only {self.remaining} bytes are left"
            )
        return count


def append_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint; `value` must not be negative."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def append_uuid(out: bytearray, text: str) -> None:
    """Append the 16 bytes of a uuid's text, zeros for `""`. Raises EncodeError for an invalid uuid."""
    try:
        out += uuid.UUID(text).bytes if text else _ZERO_UUID
    except ValueError:
        raise EncodeError(f"invalid uuid {text!r}") from None


def append_length(out: bytearray, length: int | None, layout: struct.Struct) -> None:
    """Append a length in the format of `layout`, -1 for null."""
    out += layout.pack(-1 if length is None else length)


def append_compact_length(out: bytearray, length: int | None) -> None:
    """Append a compact length (KIP-482), the varint of length + 1; 0 for null."""
    append_uvarint(out, 0 if length is None else length + 1)


def encoded_text(value: str) -> bytes:
    """Return the UTF-8 of a string field. Raises EncodeError beyond 32 767 bytes."""
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EncodeError(f"invalid string: {error}") from None
    if len(data) > MAX_STRING:
        raise EncodeError(f"string too long: it has {len(data)} bytes, the limit is {MAX_STRING}")
    return data


def append_tags(out: bytearray, tagged: Iterable[tuple[int, bytes | bytearray]]) -> None:
    """Append a section of tagged fields; `tagged` must be in ascending order of the tags."""
    rows = list(tagged)
    append_uvarint(out, len(rows))
    for tag, payload in rows:
        append_uvarint(out, tag)
        append_uvarint(out, len(payload))
        out += payload
