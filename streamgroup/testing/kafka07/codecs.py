"""gzip and snappy as Kafka 0.7 has them.

Apart from `streamgroup.records` on purpose: broker and client must not share a fault.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec

NONE, GZIP, SNAPPY = range(3)

MAX_INFLATED = 256 << 20
"""Bytes that one message may expand to; Java's heap would set a bound about there."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_CHUNK = 1 << 20
_SNAPPY_RATIO = 22
"""A copy of 64 bytes takes 3."""


def compress_gzip(data: bytes) -> bytes:
    """Return one member; the same bytes each time."""
    return gzip.compress(data, mtime=0)


def compress_snappy(data: bytes) -> bytes:
    """In the blocks of snappy-java's streams, as Kafka's own clients write it."""
    blocks = (data[at : at + _XERIAL_BLOCK] for at in range(0, len(data), _XERIAL_BLOCK))
    packed = (compress_snappy_raw(block) for block in blocks)
    return _XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in packed)


def compress_snappy_raw(data: bytes) -> bytes:
    """Return one block without a frame."""
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(codec: int, data: bytes) -> bytes:
    """What `data` holds. Raises UnsupportedCodec, TooLarge beyond MAX_INFLATED, DecodeError where it is damaged."""
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise UnsupportedCodec(f"compressed by codec {codec}; Kafka 0.7 has 1 gzip and 2 snappy")
    return inflate(data)


def _gunzip(data: bytes) -> bytes:
    """Return all members; what follows the last one is ignored, as by Java's GZIPInputStream."""
    inflated, rest = bytearray(), data
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            try:
                piece = member.decompress(rest, _CHUNK)
            except zlib.error as error:
                raise DecodeError(f"its gzip data is damaged: {error}") from error
            if not piece and not member.eof:
                raise DecodeError("its gzip data ends too early")
            inflated += piece
            if len(inflated) > MAX_INFLATED:
                raise TooLarge(f"its gzip data expands beyond {MAX_INFLATED} bytes")
            rest = member.unconsumed_tail
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":
            return bytes(inflated)


def _unsnap(data: bytes) -> bytes:
    """Framed or raw: the broker takes both."""
    if not data.startswith(_XERIAL):
        return _unsnap_block(data)
    if len(data) < len(_XERIAL_HEADER):
        raise DecodeError("its snappy data ends within its header")
    inflated, at = bytearray(), len(_XERIAL_HEADER)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if not 0 <= size <= len(data) - at:
            raise DecodeError(f"a snappy block of {size} bytes where {len(data) - at} are left")
        inflated += _unsnap_block(data[at : at + size])
        if len(inflated) > MAX_INFLATED:
            raise TooLarge(f"its snappy data expands beyond {MAX_INFLATED} bytes")
        at += size
    return bytes(inflated)


def _unsnap_block(block: bytes) -> bytes:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
        if size > min(MAX_INFLATED, len(block) * _SNAPPY_RATIO):
            raise TooLarge(f"{len(block)} bytes of snappy announce {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"its snappy data is damaged: {error}") from error


_INFLATE: dict[int, Callable[[bytes], bytes]] = {GZIP: _gunzip, SNAPPY: _unsnap}
