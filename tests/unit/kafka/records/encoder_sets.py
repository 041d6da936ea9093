"""Writes message sets, of magic 0 and 1 and of Kafka 0.7, sound ones and others: by the published formats."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cramjam

from streamgroup.kafka.records.codecs import xxh32
from tests.unit.kafka.records.encoder import xerial

CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "snappy-raw": 2, "lz4": 3, "lz4-broken": 3}


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its offset as it is written, key and value (None is null), timestamp in ms."""

    offset: int
    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = 0


def lz4_broken(data: bytes) -> bytes:
    """An lz4 frame as Java's clients wrote it before 0.10: its header checksum covers the magic, too (KIP-57)."""
    frame = bytearray(cramjam.lz4.compress(data))
    checksum = 6 + (8 if frame[4] & 8 else 0)
    frame[checksum] = xxh32(bytes(frame[:checksum])) >> 8 & 0xFF
    return bytes(frame)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "snappy": xerial,
    "snappy-raw": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
    "lz4-broken": lz4_broken,
}


def sized(value: bytes | None) -> bytes:
    """A length and the bytes, -1 for null."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def seal(offset: int, covered: bytes) -> bytes:
    """A frame around everything that the checksum covers, whatever it is."""
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def reseal(message: bytes) -> bytes:
    """The same message with a right checksum."""
    return message[:12] + struct.pack(">I", zlib.crc32(message[16:])) + message[16:]


def encode_message(message: Message, magic: int, attributes: int = 0) -> bytes:
    """One message with its frame."""
    stamp = struct.pack(">q", message.timestamp) if magic else b""
    return seal(
        message.offset, struct.pack(">bB", magic, attributes) + stamp + sized(message.key) + sized(message.value)
    )


def encode_set(messages: Sequence[Message], magic: int, attributes: int = 0) -> bytes:
    """Uncompressed messages one behind the other, with the offsets that they have."""
    return b"".join(encode_message(message, magic, attributes) for message in messages)


def encode_wrapper(
    messages: Sequence[Message],
    codec: str,
    magic: int,
    *,
    relative: bool = True,
    offset: int | None = None,
    log_append_time: int | None = None,
    inner: bytes | None = None,
) -> bytes:
    """`messages`, whose offsets are those in the log, in one compressed message.

    In magic 1 the inner offsets count from the first one's, unless `relative` is off. `offset` is the wrapper's own, by
    default the last one's. `inner` is the set to compress instead.
    """
    base = messages[0].offset if magic == 1 and relative and messages else 0
    if inner is None:
        inner = encode_set([Message(m.offset - base, m.value, m.key, m.timestamp) for m in messages], magic)
    attributes = CODEC_NUMBERS[codec] | (log_append_time is not None) << 3
    latest = max((m.timestamp for m in messages), default=0) if log_append_time is None else log_append_time
    offset = (messages[-1].offset if messages else 0) if offset is None else offset
    return encode_message(Message(offset, COMPRESS[codec](inner), None, latest), magic, attributes)


def message07(payload: bytes, magic: int = 1, attributes: int = 0) -> bytes:
    """A message of Kafka 0.7."""
    head = bytes([magic, attributes]) if magic else bytes([magic])
    return struct.pack(">i", len(head) + 4 + len(payload)) + head + struct.pack(">I", zlib.crc32(payload)) + payload


def wrapper07(inner: bytes, codec: str) -> bytes:
    """A set of messages of Kafka 0.7 in one."""
    return message07(COMPRESS[codec](inner), 1, CODEC_NUMBERS[codec])
