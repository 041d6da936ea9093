"""The partitioners: they choose a partition for each record, by its key, or without a key by load or at random.

A partitioner consists of a hash function for keys and a choice for records without a key. Both handle an Arrow batch at
once.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.errors import EncodeError
from streamgroup.frozen import frozen
from streamgroup.model import NO_LEADER, TopicInfo

Hashes = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_FEW = 64
"""Below so many keys, a loop over the words of each key is faster than array operations."""
_CHUNK = 1 << 15
"""Bytes of keys to process at once, so that the arrays fit into the processor's cache."""

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
_MASK = 0xFFFFFFFF


@frozen
class KeyBytes:
    """The bytes of many keys in one array: key i is `data[offsets[i]:offsets[i + 1]]`. The first offset is 0."""

    data: npt.NDArray[np.uint8]
    offsets: Longs

    @classmethod
    def of(cls, keys: pa.Array) -> KeyBytes:
        """Return the bytes of an Arrow array of type (large) binary or string, without a copy of its data."""
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
        """Return the keys `[start, stop)`."""
        offsets = self.offsets[start : stop + 1]
        return KeyBytes(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def words(self) -> npt.NDArray[np.uint32]:
        """Return the little-endian 4-byte word that begins at each byte, except the last three."""
        return np.ndarray((max(0, len(self.data) - 3),), "<u4", self.data.data, strides=(1,))


def _array_steps(whole: Longs) -> int:
    """Return how many words to handle by array operations: as long as `_FEW` keys have one more word."""
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
    """Return the hash of each key by Java's `Utils.murmur2`, which Java's producer uses."""
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
    """Return the CRC-32 of each key, which librdkafka's `consistent` partitioners use."""
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
    """Return `java.util.Arrays.hashCode(byte[])` of each key, which ByteArrayPartitioner of Kafka 0.8 uses."""
    lengths = keys.lengths
    first = _powers(31, int(lengths.max(initial=0)) + 1)[lengths]  # the sum begins at 1, not at 0
    return first + _polynomials(keys.data.view(np.int8), keys.offsets)


def java_string_hash(keys: KeyBytes) -> Hashes:
    """Return `String.hashCode` of each key in UTF-8, which the default partitioner of 0.7 and 0.8 uses.

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
    if not begins[heads].all():  # two keys that are UTF-8 only together
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

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class ProducerTopic:
    """The partitions of a topic, at least one, and the data about them that partitioners need."""

    name: str
    numbers: Ints
    """The numbers of all partitions, ascending. A hash chooses one by its index."""
    available: Ints
    """The numbers of the partitions that have a leader, ascending. Records without a key go only to these."""
    queued: Longs | None = None
    """The queued batches of each available partition. If None, all partitions are equally likely."""
    nameable: Ints | None = None
    """The numbers that the column `partition` may have. None: `numbers`."""

    @classmethod
    def of(cls, info: TopicInfo, queued: Mapping[int, int] | None = None) -> ProducerTopic:
        """Return the `ProducerTopic` of a topic in the metadata. `queued` has the queued batches by partition.

        A partition that is missing in `queued` has no queued batches.
        """
        numbers = sorted(p.partition for p in info.partitions)
        available = sorted(p.partition for p in info.partitions if p.leader != NO_LEADER)
        if not numbers:
            raise ValueError(f"topic {info.name} has no partitions")
        waiting = None if queued is None else np.array([queued.get(p, 0) for p in available], np.int64)
        return cls(info.name, np.array(numbers, np.int32), np.array(available, np.int32), waiting)

    @property
    def choices(self) -> Ints:
        """The partitions for records without a key: the available ones, or all if none is available, as in Java."""
        return self.available if len(self.available) else self.numbers


# -- records with a key ------------------------------------------------------------------------------------------------


def _to_positive(hashes: Hashes) -> Hashes:
    """Return Java's `Utils.toPositive`, which clears the sign."""
    return hashes & np.uint32(0x7FFFFFFF)


def _abs(hashes: Hashes) -> Hashes:
    """Return 0.8's `Utils.abs`: the absolute value, and 0 for the smallest integer.

    0.7 has `math.abs`, which leaves the smallest integer negative: its producer fails for such a key.
    """
    signed = np.abs(hashes.view(np.int32))
    return np.where(signed < 0, 0, signed).astype(np.uint32)


def _murmur2(keys: KeyBytes) -> Hashes:
    return _to_positive(murmur2(keys))


def _java_string(keys: KeyBytes) -> Hashes:
    return _abs(java_string_hash(keys))


def _java_bytes(keys: KeyBytes) -> Hashes:
    return _abs(java_bytes_hash(keys))


# -- records without a key ---------------------------------------------------------------------------------------------


class UnkeyedChoice(ABC):
    """Chooses partitions for records without a key. Base class; it has a state per topic."""

    @abstractmethod
    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        """Return a partition for each record. `sizes` are the bytes of the records as encoded, in their order."""


class UniformChoice(UnkeyedChoice):
    """Chooses as Java's producer since 3.3 (KIP-794): one partition for `batch_size` bytes, then the next at random.

    With `adaptive`, a partition with fewer queued batches is more likely, in the proportions of Java's producer.
    """

    def __init__(self, batch_size: int, adaptive: bool, rng: np.random.Generator) -> None:
        self._batch_size = max(1, batch_size)
        self._adaptive = adaptive
        self._rng = rng
        self._current: dict[str, tuple[int, int]] = {}
        """The partition of each topic, and the bytes that it has taken since the last switch."""

    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        ends, chosen = np.cumsum(sizes), np.empty(len(sizes), np.int32)
        partition, taken = self._current.get(topic.name) or (self._next(topic, None), 0)
        if partition not in topic.choices:
            partition, taken = self._next(topic, partition), 0
        start = begin = 0  # the next record, and the bytes of the records before the last switch
        while start < len(sizes):
            stop = self._stop(ends, start, begin - taken)
            chosen[start:stop] = partition
            total = int(ends[stop - 1]) if stop else 0
            if stop < len(sizes) or self._is_full(taken + total - begin):
                partition, taken, begin = self._next(topic, partition), 0, total
            start = stop
        if start:
            taken += int(ends[-1]) - begin
        self._current[topic.name] = partition, taken
        return chosen

    def _stop(self, ends: Longs, start: int, begin: int) -> int:
        """Return the first record for another partition. The current one has taken records since the byte `begin`."""
        reaches = int(np.searchsorted(ends, begin + self._batch_size, "left"))
        return min(max(reaches, start) + 1, len(ends))

    def _is_full(self, taken: int) -> bool:
        """Return whether the partition gets no more records after `taken` bytes."""
        return taken >= self._batch_size

    def _next(self, topic: ProducerTopic, previous: int | None) -> int:
        """Return the next partition. It may be the same one."""
        choices, queued = topic.choices, topic.queued
        if not self._adaptive or queued is None or len(queued) != len(choices):
            return int(choices[self._rng.integers(len(choices))])
        weights = np.cumsum(queued.max() + 1 - queued)
        return int(choices[np.searchsorted(weights, self._rng.integers(weights[-1]), "right")])


class StickyChoice(UniformChoice):
    """Chooses as Java's producer from 2.4 to 3.2 (KIP-480): each batch goes to another partition than the last.

    A record that no longer fits into `batch_size` begins the next batch.
    """

    def __init__(self, batch_size: int, rng: np.random.Generator) -> None:
        super().__init__(batch_size, adaptive=False, rng=rng)

    def _stop(self, ends: Longs, start: int, begin: int) -> int:
        fitting = int(np.searchsorted(ends, begin + self._batch_size, "right"))
        is_new = begin == (int(ends[start - 1]) if start else 0)
        return max(fitting, start + 1) if is_new else max(fitting, start)

    def _is_full(self, taken: int) -> bool:
        return False  # only the next record shows whether it fits

    def _next(self, topic: ProducerTopic, previous: int | None) -> int:
        others = topic.choices[topic.choices != previous]
        if not len(others):
            return int(topic.choices[0])
        return int(others[self._rng.integers(len(others))])


class RandomChoice(UnkeyedChoice):
    """Chooses a random partition for each record, as the producer of 0.7 does."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        drawn: Ints = topic.choices[self._rng.integers(len(topic.choices), size=len(sizes))]
        return drawn


class RoundRobinChoice(UnkeyedChoice):
    """Chooses the available partitions in turn, as Java's RoundRobinPartitioner does."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        first = self._taken.get(topic.name, 0)
        self._taken[topic.name] = first + len(sizes)
        in_turn: Ints = topic.choices[(first + np.arange(len(sizes))) % len(topic.choices)]
        return in_turn


# -- both --------------------------------------------------------------------------------------------------------------


@frozen
class _Strategy:
    """A partitioner's hash function and its choice for records without a key.

    If the hash is None, keys are ignored. If the choice is None, a record without a key is hashed as an empty key.
    """

    hash: Callable[[KeyBytes], Hashes] | None
    unkeyed: str | None
    hashes_empty: bool = True
    """Whether it hashes an empty key. Otherwise a record with an empty key counts as a record without a key."""


PARTITIONERS: Mapping[str, _Strategy] = {
    "default": _Strategy(_murmur2, "uniform"),
    "sticky": _Strategy(_murmur2, "sticky"),
    "round_robin": _Strategy(None, "round_robin"),
    "random": _Strategy(None, "random"),
    "murmur2_random": _Strategy(_murmur2, "random"),
    "consistent": _Strategy(crc32, None),
    "consistent_random": _Strategy(crc32, "random", hashes_empty=False),
    "hashcode": _Strategy(_java_string, "random"),
    "hashcode_bytes": _Strategy(_java_bytes, "random"),
}
"""The partitioners by the word of the option `partitioner`.

Java's: `default` (3.3 and later), `sticky` (2.4 to 3.2), `round_robin`. librdkafka's: `consistent`,
`consistent_random`, `murmur2_random`, `random`. Those of Kafka 0.7 and 0.8: `hashcode` (DefaultPartitioner) and
`hashcode_bytes` (ByteArrayPartitioner).
"""


class Partitioner:
    """Chooses a partition for each record by the option `partitioner`. One object serves all topics of a producer."""

    def __init__(
        self,
        name: str = "default",
        *,
        batch_size: int,
        rng: np.random.Generator,
        ignore_keys: bool = False,
        adaptive: bool = True,
    ) -> None:
        strategy = PARTITIONERS[name]
        choices: dict[str, Callable[[], UnkeyedChoice]] = {
            "uniform": lambda: UniformChoice(batch_size, adaptive, rng),
            "sticky": lambda: StickyChoice(batch_size, rng),
            "random": lambda: RandomChoice(rng),
            "round_robin": RoundRobinChoice,
        }
        self._hash = None if ignore_keys and strategy.unkeyed is not None else strategy.hash
        self._unkeyed = None if strategy.unkeyed is None else choices[strategy.unkeyed]()
        self._hashes_empty = strategy.hashes_empty

    def partitions(self, topic: ProducerTopic, keys: pa.Array | None, sizes: Longs) -> Ints:
        """Return the partition of each record.

        `keys` are binary or string, None without keys. `sizes` are the bytes of each record as encoded. Raises
        EncodeError for a key that the partitioner cannot hash.
        """
        if self._unkeyed is None:
            none = pa.nulls(len(sizes), pa.binary()) if keys is None else keys
            return self._hashed(topic, none)
        if keys is None or self._hash is None:
            return self._unkeyed.partitions(topic, sizes)
        unkeyed = self._without_key(keys)
        if unkeyed is None:
            return self._hashed(topic, keys)
        chosen = np.empty(len(sizes), np.int32)
        chosen[unkeyed] = self._unkeyed.partitions(topic, sizes[unkeyed])
        chosen[~unkeyed] = self._hashed(topic, keys.filter(pa.array(~unkeyed)))
        return chosen

    def _without_key(self, keys: pa.Array) -> npt.NDArray[np.bool_] | None:
        """Return which records count as records without a key, or None if all have a key."""
        unkeyed = np.zeros(len(keys), np.bool_)
        if keys.null_count:
            unkeyed = pc.is_null(keys).to_numpy(zero_copy_only=False)
        if not self._hashes_empty:
            unkeyed = unkeyed | (KeyBytes.of(keys).lengths == 0)
        return unkeyed if unkeyed.any() else None

    def _hashed(self, topic: ProducerTopic, keys: pa.Array) -> Ints:
        assert self._hash is not None
        content = keys.fill_null(b"") if keys.null_count else keys
        chosen: Ints = topic.numbers[self._hash(KeyBytes.of(content)) % np.uint32(len(topic.numbers))]
        return chosen
