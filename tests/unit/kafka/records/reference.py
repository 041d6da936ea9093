"""Decodes record batches v2 record by record, the plain way: what the vectorised decoders are held against.

It shares no code with them, and takes and refuses the same bytes.
"""

from __future__ import annotations

import codecs
import gzip
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import cramjam
import snappy

from tests.unit.kafka.records.encoder import crc32c


class Row(NamedTuple):
    """A row: timestamp in microseconds, None where they do not fit a long; headers None where there are none."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int | None
    timestamp_type: int
    headers: list[tuple[str, bytes | None]] | None


class Refused(Exception):
    """The bytes are not what they should be."""


class Reader:
    """Takes values from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise Refused(f"{size} bytes wanted")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, bits: int = 32) -> int:
        raw = shift = 0
        while True:
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << shift
            if raw >= 1 << bits or (shift + 7 >= bits and byte >= 0x80):
                raise Refused("varint too long")
            if byte < 0x80:
                return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2
            shift += 7

    def field(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)

    def done(self) -> bool:
        return self.position == len(self.data)


class Header(NamedTuple):
    """A batch's header, field by field."""

    base: int
    size: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_time: int
    max_time: int
    producer: int
    producer_epoch: int
    sequence: int
    count: int

    @property
    def last(self) -> int:
        return self.base + self.last_delta


def split(data: bytes) -> Iterator[tuple[Header, bytes]]:
    """The whole batches and their bytes."""
    expected = -1
    while len(data) >= 17:
        base, size, _, magic = struct.unpack_from(">qiib", data)
        if base < 0 or size < 49 or magic != 2:
            raise Refused("frame")
        if len(data) < 12 + size:
            return
        batch, data = data[: 12 + size], data[12 + size :]
        header = Header(*struct.unpack_from(">qiibIhiqqqhii", batch))
        if not 0 <= header.count <= header.last_delta + 1 or base < expected or header.last > 2**63 - 2:
            raise Refused("header")
        expected = header.last + 1
        yield header, batch


def upto(data: bytes, until: int) -> tuple[bytes, int]:
    """The bytes before the first batch that has nothing before `until`, and its base offset (-1 where it is not seen).

    A cut header tells its base offset only where the magic is there, which says that it is one.
    """
    position = expected = 0
    while position + 17 <= len(data) and expected < until:
        base, size, _, _ = struct.unpack_from(">qiib", data, position)
        if base >= until:
            return data[:position], base
        if position + 27 > len(data) or size < 0:
            break
        expected = base + int.from_bytes(data[position + 23 : position + 27], "big", signed=True) + 1
        position += 12 + size
    return data[:position] if expected >= until else data, -1


def decode(
    data: bytes,
    start: int,
    until: int,
    *,
    check_crcs: bool = True,
    read_committed: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
) -> tuple[list[Row], int]:
    """The rows of `[start, until)` and the offset to go on at. `aborted` are (producer id, first offset)."""
    rows: list[Row] = []
    next_offset = start
    ahead = sorted(aborted, key=lambda a: a[1])
    open_aborted: set[int] = set()
    data, beyond = upto(data, until)
    for header, batch in split(data):
        next_offset = max(next_offset, header.last + 1)
        if header.last < start and not read_committed:
            continue
        if check_crcs and crc32c(batch[21:]) != header.crc:
            raise Refused("checksum")
        control, transactional = header.attributes & 0x20, header.attributes & 0x10
        if read_committed and header.producer != -1:
            while ahead and ahead[0][1] <= header.last:
                open_aborted.add(ahead.pop(0)[0])
            hidden = header.producer in open_aborted
            if control and hidden and header.count and marker(header, batch) == 0:
                open_aborted.discard(header.producer)
            if transactional and hidden:
                continue
        if not control and header.last >= start and (header.count or len(batch) > 61):
            rows += batch_rows(header, batch)
    return [row for row in rows if start <= row.offset < until], max(next_offset, beyond)


def marker(header: Header, batch: bytes) -> int:
    key = batch_rows(header, batch)[0].key
    if key is None or len(key) < 4 or key[0] > 0x7F:
        raise Refused("control record")
    return int.from_bytes(key[2:4], "big", signed=True)


def batch_rows(header: Header, batch: bytes) -> list[Row]:
    reader = Reader(inflate(header.attributes & 7, batch[61:]))
    rows: list[Row] = []
    for _ in range(header.count):
        row = read_record(Reader(reader.take(reader.varint())), header)
        if rows and row.offset <= rows[-1].offset:
            raise Refused("offset")
        rows.append(row)
    if not reader.done():
        raise Refused("bytes left")
    return rows


def read_record(reader: Reader, header: Header) -> Row:
    reader.take(1)
    time_delta, offset_delta = reader.varint(64), reader.varint()
    append = bool(header.attributes & 8)
    moment = header.max_time if append else (header.first_time + time_delta + 2**63) % 2**64 - 2**63
    if not 0 <= offset_delta <= header.last_delta:
        raise Refused("offset")
    key, value = reader.field(), reader.field()
    headers = []
    for _ in range(count := reader.varint()):
        name = reader.field()
        if name is None:
            raise Refused("header key")
        headers.append((name.decode("utf-8", "as java"), reader.field()))
    if count < 0 or not reader.done():
        raise Refused("record")
    return Row(key, value, header.base + offset_delta, microseconds(moment), int(append), headers or None)


def microseconds(milliseconds: int) -> int | None:
    return milliseconds * 1000 if abs(milliseconds) <= (2**63 - 1) // 1000 else None


def replaced(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for what Java's decoder replaces at once: as Python, but for surrogates, whole or cut."""
    assert isinstance(error, UnicodeDecodeError)
    rest = error.object[error.start : error.start + 3]
    if rest[0] != 0xED or not 0xA0 <= int.from_bytes(rest[1:2]) <= 0xBF:
        return "\ufffd", error.end
    return "\ufffd", error.start + (3 if 0x80 <= int.from_bytes(rest[2:]) <= 0xBF else 2)


codecs.register_error("as java", replaced)


def inflate(codec: int, data: bytes) -> bytes:
    """Without any bound: the tests bring no bombs here."""
    if codec == 0:
        return data
    try:
        if codec == 1:
            return gzip.decompress(data)
        if codec == 2:
            return inflate_snappy(data)
        if codec == 3:
            return bytes(cramjam.lz4.decompress(data))
        if codec == 4:
            return bytes(cramjam.zstd.decompress(data))
    except Exception as error:
        raise Refused("damaged") from error
    raise Refused("codec")


def inflate_snappy(data: bytes) -> bytes:
    if not data.startswith(b"\x82SNAPPY\0"):
        return bytes(snappy.uncompress(data))
    reader, out = Reader(data[16:]), b""
    while not reader.done():
        out += snappy.uncompress(reader.take(struct.unpack(">i", reader.take(4))[0]))
    return out
