"""The partitioners: they choose the partition of each record by its key, or without a key by load or chance.

A partitioner has a hash for keys and a choice for records without one. Both handle a whole Arrow batch at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.model import NO_LEADER, TopicInfo
from streamgroup.producer.hashing import (
    Hashes,
    KeyBytes,
    Longs,
    crc32,
    java_bytes_hash,
    java_string_hash,
    murmur2,
)

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class ProducerTopic:
    """The partitions of a topic, as partitioners see them. It has one partition at least."""

    name: str
    numbers: Ints
    """The numbers of all partitions, ascending. A hash chooses one by its index."""
    available: Ints
    """The numbers of the partitions that have a leader, ascending. Records without a key go only to these."""
    queued: Longs | None = None
    """How many batches wait for each available partition. None leaves all partitions equally likely."""
    nameable: Ints | None = None
    """The numbers that the column `partition` may have. None: `numbers`."""

    @classmethod
    def of(cls, info: TopicInfo, queued: Mapping[int, int] | None = None) -> ProducerTopic:
        """Return a topic of the metadata. `queued` has the waiting batches by partition; a missing one has none."""
        numbers = sorted(p.partition for p in info.partitions)
        available = sorted(p.partition for p in info.partitions if p.leader != NO_LEADER)
        if not numbers:
            raise ValueError(f"topic {info.name} has no partitions")
        waiting = None if queued is None else np.array([queued.get(p, 0) for p in available], np.int64)
        return cls(info.name, np.array(numbers, np.int32), np.array(available, np.int32), waiting)

    @property
    def choices(self) -> Ints:
        """The partitions for records without a key: the available ones, or all where none is available, as in Java."""
        return self.available if len(self.available) else self.numbers


# -- records with a key ------------------------------------------------------------------------------------------------


def _to_positive(hashes: Hashes) -> Hashes:
    """Return Java's `Utils.toPositive`, which clears the sign."""
    return hashes & np.uint32(0x7FFFFFFF)


def _abs(hashes: Hashes) -> Hashes:
    """Return 0.8's `Utils.abs`: the absolute value, and 0 for the smallest integer.

    0.7 has `math.abs`, which leaves that one negative: its producer fails there.
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
    """Chooses the partitions of records without a key. It keeps its state per topic."""

    @abstractmethod
    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        """Return a partition for each record. `sizes` are the bytes of the records as encoded, in their order."""


class UniformChoice(UnkeyedChoice):
    """KIP-794: stays with a partition for `batch_size` bytes, then draws the next one.

    With `adaptive`, a partition with fewer queued batches is more likely, in the proportions of Java's producer.
    """

    def __init__(self, batch_size: int, adaptive: bool, rng: np.random.Generator) -> None:
        self._batch_size = max(1, batch_size)
        self._adaptive = adaptive
        self._rng = rng
        self._current: dict[str, tuple[int, int]] = {}
        """The partition of each topic, and the bytes that it has taken since the last switch."""

    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        """Return a partition for each record."""
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
        """Return whether the partition takes no more records after `taken` bytes."""
        return taken >= self._batch_size

    def _next(self, topic: ProducerTopic, previous: int | None) -> int:
        """Return the next partition. It may be the same one."""
        choices, queued = topic.choices, topic.queued
        if not self._adaptive or queued is None or len(queued) != len(choices):
            return int(choices[self._rng.integers(len(choices))])
        weights = np.cumsum(queued.max() + 1 - queued)
        return int(choices[np.searchsorted(weights, self._rng.integers(weights[-1]), "right")])


class StickyChoice(UniformChoice):
    """KIP-480, the default of Java's producer from 2.4 to 3.2: each batch goes to another partition than the last.

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
    """Draws a partition for each record, as the producer of 0.7 does."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        """Return a partition for each record."""
        drawn: Ints = topic.choices[self._rng.integers(len(topic.choices), size=len(sizes))]
        return drawn


class RoundRobinChoice(UnkeyedChoice):
    """Takes the available partitions in turn, as Java's RoundRobinPartitioner does."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def partitions(self, topic: ProducerTopic, sizes: Longs) -> Ints:
        """Return a partition for each record."""
        first = self._taken.get(topic.name, 0)
        self._taken[topic.name] = first + len(sizes)
        in_turn: Ints = topic.choices[(first + np.arange(len(sizes))) % len(topic.choices)]
        return in_turn


# -- both --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Strategy:
    """A partitioner's hash (None: it ignores keys), and its choice for records without a key (None: an empty key)."""

    hash: Callable[[KeyBytes], Hashes] | None
    unkeyed: str | None
    hashes_empty: bool = True
    """Whether it hashes an empty key. If not, a record with an empty key counts as one without."""


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
    """Chooses a partition for each record of a topic. One partitioner serves all topics of a producer."""

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
        """Return which records count as records without a key, or None where all have one."""
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
