"""Writes record batches v2, sound ones and others: for the tests of whoever needs the bytes of a partition."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
import crcmod.predefined

Header = tuple[str | bytes, bytes | None]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ABORT, COMMIT = 0, 1

crc32c: Callable[[bytes], int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


@dataclass(frozen=True, slots=True)
class Record:
    """A record: offset, timestamp in ms, key and value (None is null), headers."""

    offset: int
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


def varint(value: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    return unsigned_varint((value << 1) ^ (value >> 63))


def unsigned_varint(value: int) -> bytes:
    """A varint, seven bits a byte, lowest first."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(value: bytes | None) -> bytes:
    """A length and the bytes, -1 for null."""
    return varint(-1) if value is None else varint(len(value)) + value


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """One record of a batch."""
    delta = (record.timestamp - base_timestamp + 2**63) % 2**64 - 2**63  # wraps around as in Java
    body = b"\0" + varint(delta) + varint(record.offset - base_offset)
    body += field(record.key) + field(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += field(name.encode() if isinstance(name, str) else name) + field(value)
    return varint(len(body)) + body


def xerial(data: bytes, block: int = 32 * 1024) -> bytes:
    """Snappy as snappy-java's SnappyOutputStream writes it."""
    pieces = [b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), block):
        piece = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        pieces += (struct.pack(">i", len(piece)), piece)
    return b"".join(pieces)


_COMPRESS: dict[str, Callable[[bytes], Any]] = {
    "none": bytes,
    "gzip": cramjam.gzip.compress,
    "snappy": xerial,
    "snappy-raw": cramjam.snappy.compress_raw,
    "lz4": cramjam.lz4.compress,
    "zstd": cramjam.zstd.compress,
}


def compress(codec: str, data: bytes) -> bytes:
    """`data` by one of CODECS, or by `snappy-raw`: snappy without xerial's frame."""
    return bytes(_COMPRESS[codec](data))


def encode_batch(
    records: Sequence[Record],
    *,
    codec: str = "none",
    base_offset: int | None = None,
    last_offset: int | None = None,
    base_timestamp: int | None = None,
    log_append_time: int | None = None,
    producer_id: int = -1,
    transactional: bool = False,
    control: bool = False,
    count: int | None = None,
) -> bytes:
    """A batch of `records`, whose offsets may leave gaps, as compaction does.

    `base_offset` and `last_offset` are by default those of the first and the last record; with `log_append_time` (ms)
    all records have that time. `count` is what the header says, by default the truth.
    """
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = (records[-1].offset if records else base_offset) if last_offset is None else last_offset
    base_timestamp = (records[0].timestamp if records else -1) if base_timestamp is None else base_timestamp
    latest = max((record.timestamp for record in records), default=-1)
    attributes = CODECS.index(codec.removesuffix("-raw"))
    attributes |= (log_append_time is not None) << 3 | transactional << 4 | control << 5
    body = b"".join(encode_record(record, base_offset, base_timestamp) for record in records)
    return seal(
        base_offset,
        compress(codec, body),
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=latest if log_append_time is None else log_append_time,
        producer_id=producer_id,
        count=len(records) if count is None else count,
    )


def seal(
    base_offset: int,
    body: bytes,
    *,
    attributes: int,
    last_offset_delta: int,
    count: int,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer_id: int = -1,
) -> bytes:
    """A batch around the bytes `body`, with a right checksum whatever they are."""
    producer = (producer_id, -1 if producer_id < 0 else 0, -1 if producer_id < 0 else 0)
    covered = struct.pack(">hiqqqhi", attributes, last_offset_delta, base_timestamp, max_timestamp, *producer)
    covered += struct.pack(">i", count) + body
    return struct.pack(">qiibI", base_offset, len(covered) + 9, 0, 2, crc32c(covered)) + covered


def reseal(batch: bytes) -> bytes:
    """The same batch with a right checksum."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def end_marker(offset: int, producer_id: int, kind: int, timestamp: int = 0) -> bytes:
    """The control batch at the end of a transaction: `kind` is ABORT or COMMIT."""
    record = Record(offset, timestamp, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return encode_batch([record], producer_id=producer_id, transactional=True, control=True)
