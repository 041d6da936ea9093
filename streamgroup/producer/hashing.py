"""Hashes of record keys, as partitioners compute them: murmur2, CRC-32 and Java's two `hashCode`.

All keys of an Arrow array are hashed together: a step handles one word of every key. Only keys that are much longer
than the others are finished one by one. Every function returns uint32, one hash per key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroup.errors import EncodeError

Hashes = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_FEW = 64
"""The number of keys below which a loop over the words of one key is faster than a step of arrays."""
_CHUNK = 1 << 15
"""The bytes of keys whose polynomial is computed together: their arrays stay in the processor's cache."""

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """The bytes of keys: key i is `data[offsets[i]:offsets[i + 1]]`. The offsets begin at 0."""

    data: npt.NDArray[np.uint8]
    offsets: Longs

    @classmethod
    def of(cls, keys: pa.Array) -> KeyBytes:
        """Return the bytes of an array of binary or string, also large ones, without a copy of its data."""
        width = np.int64 if pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type) else np.int32
        _, offsets, data = keys.buffers()
        if len(keys) == 0 or offsets is None:
            return cls(np.empty(0, np.uint8), np.zeros(len(keys) + 1, np.int64))
        ends = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
        size = int(ends[-1] - ends[0])
        content = np.frombuffer(data, np.uint8, size, int(ends[0])) if size else np.empty(0, np.uint8)
        return cls(content, ends - ends[0])

    @property
    def lengths(self) -> Longs:
        """The length of each key in bytes."""
        lengths: Longs = np.diff(self.offsets)
        return lengths

    def key(self, row: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of one key."""
        return self.data[self.offsets[row] : self.offsets[row + 1]]

    def slice(self, start: int, stop: int) -> KeyBytes:
        """Return the keys from `start` to `stop`."""
        offsets = self.offsets[start : stop + 1]
        return KeyBytes(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def words(self) -> npt.NDArray[np.uint32]:
        """Return the little-endian word that begins at each byte but the last three."""
        return np.ndarray((max(0, len(self.data) - 3),), "<u4", self.data.data, strides=(1,))


def _array_steps(whole: Longs) -> int:
    """Return how many words of the keys to handle in arrays, while at least `_FEW` keys have one more word."""
    return int(np.partition(whole, -_FEW)[-_FEW]) if len(whole) >= _FEW else 0


def _steps(keys: KeyBytes, whole: Longs, count: int) -> Iterator[tuple[Any, Hashes]]:
    """For each of `count` steps, yield the rows that have one more word, and the words.

    `whole` has the number of whole words of each key.
    """
    words, starts = keys.words(), keys.offsets[:-1]
    least = min(count, int(whole.min(initial=count)))
    for step in range(least):
        yield slice(None), words[starts + 4 * step]
    rows = np.flatnonzero(whole > least)
    for step in range(least, count):
        yield rows, words[starts[rows] + 4 * step]
        rows = rows[whole[rows] > step + 1]


def murmur2(keys: KeyBytes) -> Hashes:
    """Return the hashes of Java's `Utils.murmur2`, with which Java's producer chooses partitions."""
    lengths = keys.lengths
    hashes: Hashes = lengths.astype(np.uint32) ^ _SEED
    whole = lengths >> 2
    done = _array_steps(whole)
    for rows, words in _steps(keys, whole, done):
        hashes[rows] = hashes[rows] * _M ^ _mixed(words)
    for row in np.flatnonzero(whole > done).tolist():
        words = np.frombuffer(keys.key(row).tobytes(), "<u4", int(whole[row]) - done, 4 * done)
        one = int(hashes[row])
        for word in _mixed(words).tolist():
            one = (one * int(_M) & _MASK) ^ word
        hashes[row] = one
    rest, ends = lengths & 3, keys.offsets[:-1] + (lengths & ~3)
    for byte in range(3):
        rows = np.flatnonzero(rest > byte)
        hashes[rows] ^= keys.data[ends[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashes[np.flatnonzero(rest)] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mixed(words: Hashes) -> Hashes:
    mixed = words * _M
    mixed ^= mixed >> np.uint32(24)
    mixed *= _M
    return mixed


def _crc_tables() -> list[Hashes]:
    """Return the table of CRC-32 for the last byte of a word, and those for the bytes before it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    tables = [table]
    for _ in range(3):
        tables.append(tables[-1] >> np.uint32(8) ^ table[tables[-1] & 0xFF])
    return tables


_CRC = _crc_tables()


def crc32(keys: KeyBytes) -> Hashes:
    """Return the CRC-32 of each key, with which librdkafka's `consistent` partitioners choose partitions."""
    lengths = keys.lengths
    crc: Hashes = np.full(len(lengths), _MASK, np.uint32)
    whole = lengths >> 2
    done = _array_steps(whole)
    for rows, words in _steps(keys, whole, done):
        word = crc[rows] ^ words
        last, before, second, first = _CRC
        crc[rows] = first[word & 0xFF] ^ second[word >> 8 & 0xFF] ^ before[word >> 16 & 0xFF] ^ last[word >> 24]
    rest, ends = lengths & 3, keys.offsets[:-1] + (lengths & ~3)
    for byte in range(3):
        rows = np.flatnonzero(rest > byte)
        crc[rows] = _CRC[0][(crc[rows] ^ keys.data[ends[rows] + byte]) & 0xFF] ^ crc[rows] >> np.uint32(8)
    crc ^= np.uint32(_MASK)
    for row in np.flatnonzero(whole > done).tolist():
        crc[row] = zlib.crc32(keys.key(row).data)
    return crc


def java_bytes_hash(keys: KeyBytes) -> Hashes:
    """Return `java.util.Arrays.hashCode(byte[])`: with it 0.8's ByteArrayPartitioner chooses partitions."""
    lengths = keys.lengths
    first = _powers(31, int(lengths.max(initial=0)) + 1)[lengths]  # the sum begins at 1, not at 0
    return first + _polynomials(keys.data.view(np.int8), keys.offsets)


def java_string_hash(keys: KeyBytes) -> Hashes:
    """Return `String.hashCode` of keys in UTF-8: with it the default partitioner of 0.7 and 0.8 chooses partitions.

    Java hashes UTF-16 code units. Raises EncodeError for a key that is not UTF-8.
    """
    data, offsets = keys.data, keys.offsets
    if not len(data) or int(data.max()) < 0x80:
        return _polynomials(data, offsets)
    begins = (data & 0xC0) != 0x80
    heads = offsets[:-1][keys.lengths > 0]
    try:
        units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), "<u2")
    except UnicodeDecodeError:
        raise _not_text() from None
    if not begins[heads].all():  # two keys that are UTF-8 only when they are joined
        raise _not_text()
    # A code point above U+FFFF has four bytes in UTF-8, and two code units in UTF-16.
    at = np.concatenate(([0], np.cumsum(begins.astype(np.int64) + (data >= 0xF0))))
    return _polynomials(units, at[offsets])


def _not_text() -> EncodeError:
    return EncodeError(
        "cannot hash a key as a Java string: the key is not UTF-8. Choose the partitioner hashcode_bytes, which hashes "
        "bytes"
    )


def _polynomials(units: npt.NDArray[Any], offsets: Longs) -> Hashes:
    """Return the sum of `unit[i] * 31 ** (n - 1 - i)` modulo 2**32 over the n units of each key.

    31 has an inverse modulo 2**32. So one running sum of `unit[i] / 31 ** i` over all keys has all sums: the
    difference between both ends of a key, times a power of 31.
    """
    hashes = np.empty(len(offsets) - 1, np.uint32)
    start = 0
    while start < len(hashes):
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + _CHUNK, "right")) - 1)
        part = units[offsets[start] : offsets[stop]].astype(np.uint32)
        at = offsets[start : stop + 1] - offsets[start]
        sums = np.zeros(len(part) + 1, np.uint32)
        np.cumsum(part * _powers(_INVERSE, len(part)), dtype=np.uint32, out=sums[1:])
        scale = _powers(31, len(part) + 1)[at[1:]] * np.uint32(_INVERSE)
        hashes[start:stop] = (sums[at[1:]] - sums[at[:-1]]) * scale
        start = stop
    return hashes


def _powers(base: int, count: int) -> Hashes:
    """Return `base ** i` modulo 2**32 for each i below `count`."""
    known = _POWERS.get(base)
    if known is not None and count <= len(known):
        return known[:count]
    powers = np.full(count, base, np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)


_INVERSE = pow(31, -1, 1 << 32)
_POWERS: dict[int, Hashes] = {}
_POWERS.update({base: _powers(base, _CHUNK + 1) for base in (31, _INVERSE)})
