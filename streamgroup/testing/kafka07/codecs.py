"""gzip and snappy in the format of Kafka 0.7.

This module does not use `streamgroup.kafka.records`: broker and client must not share a bug.
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
"""Bytes that one message may expand to at most; the heap of a real broker sets a similar limit."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_CHUNK = 1 << 20
_SNAPPY_RATIO = 22
"""The maximum compression ratio of snappy: 3 bytes copy 64."""


def compress_gzip(data: bytes) -> bytes:
    """Compress into one gzip member, deterministically."""
    return gzip.compress(data, mtime=0)


def compress_snappy(data: bytes) -> bytes:
    """Compress into the blocks of snappy-java's streams, as Kafka's own clients do."""
    blocks = (data[at : at + _XERIAL_BLOCK] for at in range(0, len(data), _XERIAL_BLOCK))
    packed = (compress_snappy_raw(block) for block in blocks)
    return _XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in packed)


def compress_snappy_raw(data: bytes) -> bytes:
    """Compress into one block without framing."""
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(codec: int, data: bytes) -> bytes:
    """Decompress `data`. Raises UnsupportedCodec, TooLarge beyond MAX_INFLATED, DecodeError for damaged data."""
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise UnsupportedCodec(f"compressed by codec {codec}; Kafka 0.7 has 1 gzip and 2 snappy")
    return inflate(data)


def _gunzip(data: bytes) -> bytes:
    """Decompress all members; bytes after the last are ignored, as in Java's GZIPInputStream."""
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
    """Decompress framed or raw snappy: the broker accepts both."""
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
