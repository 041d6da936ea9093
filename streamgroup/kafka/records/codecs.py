"""Compression, and decompression into buffers of a limited size.

Every codec has a `bound`: the most bytes that given data can expand to, computed from its headers. A codec writes only
to a buffer of that size, or of the limit if that is smaller. So neither a decompression bomb nor a false header takes
more memory. The system assigns pages to such a buffer only as the codec writes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec
from streamgroup.frozen import frozen

Bytes = npt.NDArray[np.uint8]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_READ = 16
"""The magic, a version and the oldest compatible version."""

_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_ZSTD_BLOCK_MAX = 1 << 17
_DEFLATE_RATIO = 1032
"""The highest expansion of a deflate stream."""
_SNAPPY_RATIO = 22
"""A copy of 64 bytes takes 3."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEAST = 18
"""Header and trailer of a member."""
_CHUNK = 1 << 16
"""Bytes that zlib holds in addition to its output."""


class Codec(NamedTuple):
    """One compression codec.

    `bound(data)` returns the most bytes that `data` can expand to. `inflate(data, out)` returns the number of bytes
    written.
    """

    name: str
    bound: Callable[[memoryview], int]
    inflate: Callable[[memoryview, Bytes], int]


def codec_of(number: int) -> Codec:
    """Return the codec with this `number` in a batch's attributes. Raises UnsupportedCodec."""
    codec = CODECS_BY_NUMBER.get(number)
    if codec is None:
        known = ", ".join(f"{n} {c.name}" for n, c in CODECS_BY_NUMBER.items())
        raise UnsupportedCodec(f"compressed by codec {number}; supported: {known}")
    return codec


def bound(number: int, data: memoryview) -> int:
    """Return the most bytes that `data` can expand to. Raises DecodeError if its headers are damaged."""
    codec = codec_of(number)
    try:
        return codec.bound(data)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"its {codec.name} data ends too early") from error


def inflate(number: int, data: memoryview, out: Bytes) -> int:
    """Decompress `data` into the front of `out` and return the number of bytes written.

    Raises TooLarge if `out` is too small, DecodeError if the data is damaged.
    """
    codec = codec_of(number)
    try:
        return codec.inflate(data, out)
    except cramjam.DecompressionError as error:
        # Rust's message for a full buffer, the same for each codec. A test fails if it changes.
        if "write whole buffer" in str(error):
            raise TooLarge(f"its {codec.name} data expands beyond {len(out)} bytes") from error
        raise DecodeError(f"its {codec.name} data is damaged: {error}") from error


def inflated(number: int, data: memoryview, limit: int) -> memoryview:
    """Return `data` decompressed, at most `limit` bytes. Raises as `bound` and `inflate` do."""
    out = np.empty(min(bound(number, data), max(limit, 0)), np.uint8)
    return out[: inflate(number, data, out)].data


# Only for uncompressed batches in a fetch with compressed ones.


def _inflate_none(data: memoryview, out: Bytes) -> int:
    if len(data) > len(out):
        raise TooLarge(f"its records take {len(data)} bytes, beyond {len(out)}")
    out[: len(data)] = np.frombuffer(data, np.uint8)
    return len(data)


# gzip (RFC 1952)


def _bound_gzip(data: memoryview) -> int:
    if len(data) < _GZIP_LEAST:
        raise DecodeError("its gzip data ends too early")
    return len(data) * _DEFLATE_RATIO


def _inflate_gzip(data: memoryview, out: Bytes) -> int:
    """Decompress with the size in the trailer, which is fast; if that fails, member by member."""
    (declared,) = struct.unpack_from("<I", data, len(data) - 4)
    if declared <= len(out):
        try:
            return int(cramjam.gzip.decompress_into(data, out[:declared].data))
        except cramjam.DecompressionError:
            pass  # several members, bytes after the last member, or damage
    return _inflate_gzip_members(data, out)


def _inflate_gzip_members(data: memoryview, out: Bytes) -> int:
    """Decompress member by member. Like Java's GZIPInputStream, ignore other bytes after the last member."""
    written = 0
    rest: memoryview | bytes = data
    while rest is data or bytes(rest[:2]) == _GZIP_MAGIC:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            room = len(out) - written
            try:
                piece = member.decompress(rest, min(_CHUNK, room + 1))
            except zlib.error as error:
                raise DecodeError(f"its gzip data is damaged: {error}") from error
            if len(piece) > room:
                raise TooLarge(f"its gzip data expands beyond {len(out)} bytes")
            if not piece and not member.eof:
                raise DecodeError("its gzip data ends too early")
            out[written : written + len(piece)] = np.frombuffer(piece, np.uint8)
            written += len(piece)
            rest = member.unconsumed_tail
        rest = member.unused_data
    return written


# snappy: Java writes xerial's blocks; librdkafka and other clients write raw snappy or the same blocks


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield data
        return
    position = 0
    while position < len(data):
        if bytes(data[position : position + len(_XERIAL)]) == _XERIAL:
            position += _XERIAL_READ  # several streams may follow each other
            if position > len(data):
                raise DecodeError("its snappy data ends too early")
            continue
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise DecodeError(f"a snappy block has {length} bytes, but only {len(data) - position} are left")
        yield data[position : position + length]
        position += length


def _snappy_length(block: memoryview) -> int:
    """Return the decompressed size that a block declares in its first bytes: a little-endian 32-bit varint."""
    length = 0
    for index in range(5):
        byte = block[index]
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if length > len(block) * _SNAPPY_RATIO:
                raise DecodeError(f"{len(block)} bytes of snappy cannot expand to {length}")
            return length
    raise DecodeError("a snappy block without a length")


def _bound_snappy(data: memoryview) -> int:
    return sum(map(_snappy_length, _snappy_blocks(data)))


def _inflate_snappy(data: memoryview, out: Bytes) -> int:
    written = 0
    for block in _snappy_blocks(data):
        length = _snappy_length(block)
        if length > len(out) - written:
            raise TooLarge(f"its snappy data expands beyond {len(out)} bytes")
        # A block of length 0 is decompressed as well: the codec rejects bytes after the length.
        written += int(cramjam.snappy.decompress_raw_into(block, out[written : written + length].data))
    return written


# lz4 frames: like Java, read one and ignore everything after it


def _lz4_frame(data: memoryview) -> tuple[int, int]:
    """Return the size of the first frame, and the most bytes that its blocks can expand to."""
    magic, flags, descriptor = struct.unpack_from("<IBB", data, 0)
    size = _LZ4_BLOCK_SIZES.get(descriptor >> 4 & 7)
    if magic != _LZ4_MAGIC or flags >> 6 != 1 or size is None:
        raise DecodeError("its lz4 data has no frame")
    block_checksum, content_size, content_checksum = flags & 0x10, flags & 0x08, flags & 0x04
    position = 7 + (8 if content_size else 0) + (4 if flags & 0x01 else 0)
    expanded = 0
    while True:
        (word,) = struct.unpack_from("<I", data, position)
        position += 4
        if word == 0:
            break
        length = word & 0x7FFFFFFF
        if length > len(data) - position:
            raise DecodeError("its lz4 data ends too early")
        expanded += min(size, length if word >> 31 else 255 * length)
        position += length + (4 if block_checksum else 0)
    return position + (4 if content_checksum else 0), expanded


def _bound_lz4(data: memoryview) -> int:
    return _lz4_frame(data)[1]


def _inflate_lz4(data: memoryview, out: Bytes) -> int:
    return int(cramjam.lz4.decompress_into(data[: _lz4_frame(data)[0]], out.data))


def fix_lz4_checksum(data: memoryview) -> memoryview:
    """Return the frame with the correct header checksum instead of the one that Java's clients wrote before 0.10.

    The latter covers the frame's magic as well (KIP-57). Raises DecodeError if the frame has neither of the two.
    """
    if len(data) < _LZ4_LEAST_HEADER:
        raise DecodeError("its lz4 data ends too early")
    flags = data[_LZ4_FLAGS]
    checksum = _LZ4_LEAST_HEADER - 1 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if checksum >= len(data):
        raise DecodeError("its lz4 data ends too early")
    right = xxh32(bytes(data[_LZ4_FLAGS:checksum])) >> 8 & 0xFF
    if data[checksum] == right:
        return data
    if data[checksum] != xxh32(bytes(data[:checksum])) >> 8 & 0xFF:
        raise DecodeError("its lz4 data has a frame with a damaged header")
    fixed = bytearray(data)
    fixed[checksum] = right
    return memoryview(fixed)


_LZ4_FLAGS = 4
_LZ4_LEAST_HEADER = 7
"""Magic, flags, descriptor, checksum."""


# zstd frames (RFC 8878)


def _bound_zstd(data: memoryview) -> int:
    position = expanded = 0
    while position < len(data):
        (magic,) = struct.unpack_from("<I", data, position)
        if magic in _ZSTD_SKIPPABLE:
            (length,) = struct.unpack_from("<I", data, position + 4)
            position += 8 + length
        elif magic == _ZSTD_MAGIC:
            position, size = _zstd_frame(data, position + 4)
            expanded += size
        else:
            raise DecodeError("its zstd data has no frame")
    return expanded


def _zstd_frame(data: memoryview, position: int) -> tuple[int, int]:
    """Return the end of the frame whose magic ends at `position`, and the most that its blocks can expand to."""
    descriptor = data[position]
    single, checksum = descriptor & 0x20, descriptor & 0x04
    position += 1 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    position += (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    expanded, last = 0, 0
    while not last:
        (low, high) = struct.unpack_from("<HB", data, position)
        header = low | high << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == 1 else size)
        expanded += _ZSTD_BLOCK_MAX if kind == 2 else min(size, _ZSTD_BLOCK_MAX)
    return position + (4 if checksum else 0), expanded


def _into(module: Any) -> Callable[[memoryview, Bytes], int]:
    return lambda data, out: int(module.decompress_into(data, out.data))


CODECS_BY_NUMBER = {
    NONE: Codec("none", len, _inflate_none),
    GZIP: Codec("gzip", _bound_gzip, _inflate_gzip),
    SNAPPY: Codec("snappy", _bound_snappy, _inflate_snappy),
    LZ4: Codec("lz4", _bound_lz4, _inflate_lz4),
    ZSTD: Codec("zstd", _bound_zstd, _into(cramjam.zstd)),
}


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF
_STRIPE = struct.Struct("<4I")


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK


@lru_cache(maxsize=64)
def xxh32(data: bytes) -> int:
    """Return XXH32 of `data`, as the xxHash specification describes it.

    Plain Python with a cache is enough: headers are short, and few of them differ.
    """
    size, position = len(data), 0
    if size >= _STRIPE.size:
        lanes = [_P1 + _P2, _P2, 0, -_P1]
        while size - position >= _STRIPE.size:
            stripe = _STRIPE.unpack_from(data, position)
            lanes = [_rotated(lane + word * _P2, 13) * _P1 for lane, word in zip(lanes, stripe, strict=True)]
            position += _STRIPE.size
        total = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = _P5
    total += size
    while size - position >= 4:
        (word,) = struct.unpack_from("<I", data, position)
        total = _rotated(total + word * _P3, 17) * _P4
        position += 4
    for byte in data[position:]:
        total = _rotated(total + byte * _P5, 11) * _P1
    total &= _MASK
    total = (total ^ total >> 15) * _P2 & _MASK
    total = (total ^ total >> 13) * _P3 & _MASK
    return total ^ total >> 16


CODEC_NUMBERS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""The numbers of the codecs in a batch's attributes, by their names in `compression.type`."""
LEVELS = {"gzip": range(1, 10), "lz4": range(1, 18), "zstd": range(-131_072, 23)}
DEFAULT_LEVELS = {"gzip": 6, "lz4": 9, "zstd": 3}
"""Java's defaults. Its default for gzip is -1, which means 6."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
_LZ4_HEADER = struct.pack("<IBB", 0x184D2204, 0x60, 0x40)
"""Magic, flags (version 1, independent blocks), descriptor (blocks of 64 KiB)."""
_LZ4_CHECKED = 4
"""The header's checksum covers the bytes after the magic."""
_LZ4_BLOCK = 64 << 10
_LZ4_BLOCK_CHECKSUM = 0x10
"""The bit of the flags for a checksum after each block."""
_LZ4_STORED = 1 << 31
"""The bit of a block's length for a block that is not compressed."""


@frozen
class Compressor:
    """Compresses with one codec at one level."""

    number: int
    """The codec's number in the attributes."""
    compress: Callable[[memoryview], bytes]


def compressor(codec: str, level: int | None, *, broken_lz4: bool = False) -> Compressor | None:
    """Return the compressor for `codec` at `level` (None: Java's default); None for `none`.

    With `broken_lz4` an lz4 frame has the header checksum that brokers before 0.10 require. Raises ValueError for an
    unknown codec or level.
    """
    if codec not in CODEC_NUMBERS:
        raise ValueError(f"unknown codec {codec!r}: supported are {', '.join(CODEC_NUMBERS)}")
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
    return Compressor(CODEC_NUMBERS[codec], compress)


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
