"""Decodes message sets message by message, the plain way: what the vectorised decoders are held against.

It shares no code with them, and takes and refuses the same bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from tests.unit.kafka.records import reference
from tests.unit.kafka.records.reference import Refused, Row

DEEPEST = 8


class Message:
    """One message of magic 0 or 1, whose frame is known to be whole."""

    def __init__(self, frame: bytes) -> None:
        self.offset, _, self.crc, self.magic, self.attributes = struct.unpack_from(">qiIBB", frame)
        self.frame = frame
        self.codec = self.attributes & 7

    def check(self) -> None:
        if zlib.crc32(self.frame[16:]) != self.crc:
            raise Refused("checksum")

    def parse(self) -> Message:
        reader = reference.Reader(self.frame[18:])
        self.timestamp = struct.unpack(">q", reader.take(8))[0] if self.magic else -1
        self.key, self.value = (sized(reader) for _ in range(2))
        if not reader.done():
            raise Refused("bytes left")
        return self

    def row(self, offset: int, kind: int | None, moment: int) -> Row:
        """`kind`: the timestamp type that a wrapper prescribes, and with it `moment` where that is LogAppendTime."""
        self.parse()
        if self.magic == 0:
            kind, moment = -1 if kind is None else kind, -1
        else:
            kind = self.attributes >> 3 & 1 if kind is None else kind
            moment = moment if kind == 1 and moment is not OWN else self.timestamp
        return Row(self.key, self.value, offset, reference.microseconds(moment), kind, None)


OWN = -(2**70)


def sized(reader: reference.Reader) -> bytes | None:
    (size,) = struct.unpack(">i", reader.take(4))
    return None if size == -1 else reader.take(size)


def frames(data: bytes) -> list[Message]:
    """The messages of an inner set, which must be whole."""
    found, position = [], 0
    while position < len(data):
        if len(data) - position < 26:
            raise Refused("frame")
        size, magic = struct.unpack_from(">i4xB", data, position + 8)
        if magic > 1 or size < (14, 22)[magic] or position + 12 + size > len(data):
            raise Refused("frame")
        found.append(Message(data[position : position + 12 + size]))
        position += 12 + size
    return found


def inflate(codec: int, data: bytes | None) -> bytes:
    if data is None:
        raise Refused("null")
    if codec == 1 and not data:
        raise Refused("not even a gzip header")
    if codec != 3:
        return reference.inflate(codec, data)
    at = 6 + (8 if data[4:5] and data[4] & 8 else 0)
    for checksum in [*data[at : at + 1], *range(256)]:  # whatever it should be: without knowing how it is computed
        try:
            return reference.inflate(3, data[:at] + bytes([checksum]) + data[at + 1 :])
        except Refused:
            continue
    raise Refused("lz4")


def leaves(wrapper: Message, offset: int, check: bool, depth: int = 1) -> Iterator[tuple[int, Message]]:
    """The uncompressed messages in a wrapper, with their offsets in the log."""
    if depth > DEEPEST:
        raise Refused("depth")
    inner = frames(inflate(wrapper.codec, wrapper.parse().value))
    if not inner:
        raise Refused("no message")
    base = offset - inner[-1].offset if wrapper.magic else 0
    if base < 0:
        raise Refused("offset")
    for message in inner:
        if message.offset < 0 or not 0 <= base + message.offset <= offset:
            raise Refused("offset")
        if check:
            message.check()
        if message.codec:
            yield from leaves(message, base + message.offset, check, depth + 1)
        else:
            yield base + message.offset, message


def wrapper_rows(wrapper: Message, least: int, check: bool) -> list[Row]:
    kind = wrapper.attributes >> 3 & 1 if wrapper.magic else -1
    found = [
        message.row(offset, kind, wrapper.timestamp if kind == 1 else OWN)
        for offset, message in leaves(wrapper, wrapper.offset, check)
    ]
    offsets = [row.offset for row in found]
    if offsets != sorted(set(offsets)) or offsets[0] < least or offsets[-1] != wrapper.offset:
        raise Refused("offset")
    return found


def decode(  # noqa: PLR0912 - one case after the other, as a reader of the format would
    data: bytes, start: int, until: int, *, check_crcs: bool = True
) -> tuple[list[Row], int]:
    """The rows of `[start, until)`, of batches and messages alike, and the offset to go on at."""
    rows: list[Row] = []
    position, least, next_offset = 0, 0, start
    while position + 17 <= len(data) and least < until:
        base, size, _, magic = struct.unpack_from(">qiib", data, position)
        rest = data[position:]
        if magic not in (0, 1):
            if base >= until:
                next_offset = max(next_offset, base)
                break
            if magic != 2 or size < 49 or base < 0:
                raise Refused("frame")
            if len(rest) < 61 or 12 + size > len(rest):
                break
            batch = rest[: 12 + size]
            header, _ = next(reference.split(batch))
            if base < least:
                raise Refused("order")
            rows += reference.decode(batch, start, until, check_crcs=check_crcs)[0]
            least, position = header.last + 1, position + len(batch)
            next_offset = max(next_offset, least)
            continue
        if len(rest) < 18:
            break
        plain = not rest[17] & 7
        if plain and base >= until:
            next_offset = max(next_offset, base)
            break
        if size < (14, 22)[magic] or not 0 <= base <= 2**63 - 2:
            raise Refused("frame")
        if size > len(rest) - 12:
            break
        if base < least:
            raise Refused("order")
        message = Message(rest[: 12 + size])
        if not plain and message.parse().value is None:
            raise Refused("null")
        if base >= start:
            if check_crcs:
                message.check()
            rows += [message.row(base, None, OWN)] if plain else wrapper_rows(message, least, check_crcs)
        least, position = base + 1, position + 12 + size
        next_offset = max(next_offset, least)
    return [row for row in rows if start <= row.offset < until], next_offset


class Row07(tuple[bytes, int, int]):
    """Payload, offset, inner index."""


def decode07(data: bytes, start: int, until: int, *, check_crcs: bool = True) -> tuple[list[Row07], int]:
    """The rows of the messages that begin at the positions `[start, until)`, and the position to go on at."""
    rows: list[Row07] = []
    position = start
    while position < until and (frame := frame07(data[position - start :])) is not None:
        codec, crc, payload, size = frame
        if check_crcs and zlib.crc32(payload) != crc:
            raise Refused("checksum")
        found = [payload] if codec == 0 else leaves07(codec, payload, check_crcs, 1)
        rows += [Row07((value, position, index)) for index, value in enumerate(found)]
        position += size
        if position > until:
            raise Refused("until")
    return rows, position


def frame07(data: bytes) -> tuple[int, int, bytes, int] | None:
    """Codec, checksum, payload and size of the first message; None where it is cut off."""
    if len(data) < 5:
        return None
    length, magic = struct.unpack_from(">iB", data)
    if magic > 1 or not 5 + magic <= length <= 100 << 20:
        raise Refused("frame")
    if 4 + length > len(data):
        return None
    codec = data[5] & 3 if magic else 0
    return codec, struct.unpack_from(">I", data, 5 + magic)[0], data[9 + magic : 4 + length], 4 + length


def leaves07(codec: int, payload: bytes, check: bool, depth: int) -> list[bytes]:
    if depth > DEEPEST or codec == 3:
        raise Refused("depth or codec")
    inner = inflate(codec, payload)
    if not inner:
        raise Refused("no message")
    found: list[bytes] = []
    while inner:
        frame = frame07(inner)
        if frame is None:
            raise Refused("frame")
        nested, crc, value, size = frame
        if check and zlib.crc32(value) != crc:
            raise Refused("checksum")
        found += [value] if nested == 0 else leaves07(nested, value, check, depth + 1)
        inner = inner[size:]
    return found
