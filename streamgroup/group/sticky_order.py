"""The order in which Java walks its hash tables, where a Java assignor's result depends on it.

A table of Java's `HashMap` or `HashSet` has 16 buckets at first and doubles when it is more than three quarters full;
it never shrinks. It is walked bucket by bucket, and within one in the order of insertion, which doubling keeps. (From
nine keys in one bucket on, Java does otherwise. Member ids end with a random UUID: that is one bucket in 10^7.)
"""

from __future__ import annotations

from collections.abc import Iterable

from streamgroup.model import TopicPartition

_BUCKETS = 16


def string_hash(text: str) -> int:
    """Return Java's `String.hashCode` as an unsigned number of 32 bits, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for i in range(0, len(units), 2):
        result = (31 * result + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return result


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the order in which Java walks a `HashMap` that they were put into in this order."""
    distinct = list(dict.fromkeys(keys))
    buckets = _grown(_BUCKETS, len(distinct))
    return sorted(distinct, key=lambda key: _bucket(string_hash(key), buckets))


class PartitionHashSet:
    """A `HashSet` of partitions of one topic, of which only the first matters."""

    __slots__ = ("_buckets", "_partitions", "_topic_hash")

    def __init__(self, topic: str) -> None:
        self._topic_hash = string_hash(topic)
        self._partitions: dict[TopicPartition, None] = {}
        self._buckets = _BUCKETS

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, tp: TopicPartition) -> None:
        self._partitions[tp] = None
        self._buckets = _grown(self._buckets, len(self._partitions))

    def remove(self, tp: TopicPartition) -> None:
        del self._partitions[tp]

    def first(self) -> TopicPartition:
        """Return the partition at which Java's iterator starts: the first one added of those in the lowest bucket."""
        return min(self._partitions, key=lambda tp: _bucket(31 * (31 + tp.partition) + self._topic_hash, self._buckets))


def _grown(buckets: int, size: int) -> int:
    while size > buckets * 3 // 4:
        buckets *= 2
    return buckets


def _bucket(hash_code: int, buckets: int) -> int:
    hash_code &= 0xFFFFFFFF
    return (hash_code ^ hash_code >> 16) & (buckets - 1)
