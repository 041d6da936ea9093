"""Compression of encoded records, each codec in the framing that Java's producer writes.

- gzip: one member.
- snappy: the blocks of snappy-java's SnappyOutputStream, 32 KiB each.
- lz4: one frame of independent blocks, 64 KiB each, without checksums of the content. For magic 0 the header's checksum
  covers the frame's magic as well, as brokers before 0.10 demand (KIP-57).
- zstd: one frame.

Only gzip, lz4 and zstd have levels (KIP-390).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cramjam

from streamgroup.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from streamgroup.records.xxhash import xxh32

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""The numbers of the codecs in a batch's attributes, by the names that `compression.type` has."""
LEVELS = {"gzip": range(1, 10), "lz4": range(1, 18), "zstd": range(-131_072, 23)}
DEFAULT_LEVELS = {"gzip": 6, "lz4": 9, "zstd": 3}
"""Java's defaults. Its default of gzip is written -1, which is zlib's 6."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
_LZ4_HEADER = struct.pack("<IBB", 0x184D2204, 0x60, 0x40)
"""Magic, flags (version 1, independent blocks), descriptor (blocks of 64 KiB)."""
_LZ4_CHECKED = 4
"""The bytes that the header's checksum covers begin behind the magic."""
_LZ4_BLOCK = 64 << 10
_LZ4_BLOCK_CHECKSUM = 0x10
"""The bit of the flags for a checksum after each block."""
_LZ4_STORED = 1 << 31
"""The bit of a block's length for a block that is not compressed."""


@dataclass(frozen=True, slots=True)
class Compressor:
    """One codec at one level."""

    number: int
    """The codec's number in the attributes."""
    compress: Callable[[memoryview], bytes]


def compressor(codec: str, level: int | None, *, broken_lz4: bool = False) -> Compressor | None:
    """Return what compresses by `codec` at `level` (None is Java's default), or None for `none`.

    With `broken_lz4` the checksum of an lz4 frame's header is the one that brokers before 0.10 demand.
    Raises ValueError for an unknown codec or level.
    """
    if codec not in CODECS:
        raise ValueError(f"unknown codec {codec!r}: known are {', '.join(CODECS)}")
    levels = LEVELS.get(codec)
    if level is not None and (levels is None or level not in levels):
        known = "no levels" if levels is None else f"the levels {levels[0]} to {levels[-1]}"
        raise ValueError(f"level {level} of codec {codec}: the codec has {known}")
    if codec == "none":
        return None
    chosen = DEFAULT_LEVELS.get(codec, 0) if level is None else level
    compress: Callable[[memoryview], bytes] = {
        "gzip": lambda data: bytes(cramjam.gzip.compress(data, chosen)),
        "snappy": _snappy,
        "lz4": lambda data: _lz4(data, chosen, broken_lz4),
        "zstd": lambda data: bytes(cramjam.zstd.compress(data, chosen)),
    }[codec]
    return Compressor(CODECS[codec], compress)


def _blocks(data: memoryview, size: int) -> Iterator[memoryview]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _snappy(data: memoryview) -> bytes:
    pieces: list[Any] = [_XERIAL_HEADER]
    for block in _blocks(data, _XERIAL_BLOCK):
        compressed = memoryview(cramjam.snappy.compress_raw(block))
        pieces += (struct.pack(">i", len(compressed)), compressed)
    return b"".join(pieces)


def _lz4(data: memoryview, level: int, broken: bool) -> bytes:
    checksum = xxh32(_LZ4_HEADER if broken else _LZ4_HEADER[_LZ4_CHECKED:]) >> 8 & 0xFF
    pieces: list[Any] = [_LZ4_HEADER, bytes([checksum])]
    # As in Java the default level is the fast compressor, and every other one the high compressor.
    pieces += _lz4_fast(data) if level == DEFAULT_LEVELS["lz4"] else _lz4_high(data, level)
    pieces.append(bytes(4))
    return b"".join(pieces)


def _lz4_fast(data: memoryview) -> Iterator[Any]:
    """Iterate over lengths and blocks."""
    for block in _blocks(data, _LZ4_BLOCK):
        compressed = memoryview(cramjam.lz4.compress_block(block, store_size=False))
        if len(compressed) < len(block):
            yield from (struct.pack("<I", len(compressed)), compressed)
        else:
            yield from (struct.pack("<I", len(block) | _LZ4_STORED), block)


def _lz4_high(data: memoryview, level: int) -> Iterator[Any]:
    """Iterate over lengths and blocks.

    cramjam compresses at a level only into frames, in which a checksum may follow each block. Levels above 12 are 12.
    """
    stream = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    stream.compress(bytes(data))
    frame = memoryview(stream.finish())
    checksum = 4 if frame[_LZ4_CHECKED] & _LZ4_BLOCK_CHECKSUM else 0
    position = len(_LZ4_HEADER) + 1
    while length := int.from_bytes(frame[position : position + 4], "little"):
        end = position + 4 + (length & ~_LZ4_STORED)
        yield frame[position:end]
        position = end + checksum
