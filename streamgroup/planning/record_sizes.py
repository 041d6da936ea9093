"""The bytes that an offset of each partition takes, estimated from samples of the logs (`maxBytesPerTrigger`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from streamgroup.model import TopicPartition

UNIT: Final = 1024
"""A density is the bytes of this many offsets: a whole number, and small records count with their fractions."""
KEPT: Final = 5
"""The samples of a partition that count, each of another position. The largest of them is the estimate."""
UNKNOWN: Final = UNIT * 1024 * 1024
"""The density of a partition without any sample: a record of 1 MiB for each offset, the default of Kafka's
`max.message.bytes`. A batch of such a partition is small until the first sample comes."""


class RecordSizes:
    """The estimates of one run, for the partitions that it holds.

    A sample is of the log where a batch begins. The largest of the last KEPT counts, so one batch of small records does
    not make the next one large, and after KEPT batches of smaller records the estimate has followed them.
    """

    def __init__(self) -> None:
        self._samples: dict[TopicPartition, deque[int]] = {}
        self._sampled: dict[TopicPartition, int] = {}
        """The position of the newest sample of each partition."""

    def wanted(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return those of `positions` that have no sample, partitions without any first, then the oldest samples.

        Forgets all other partitions.
        """
        self._samples = {tp: kept for tp, kept in self._samples.items() if tp in positions}
        self._sampled = {tp: at for tp, at in self._sampled.items() if tp in positions}
        age = {tp: number for number, tp in enumerate(self._sampled)}  # `add` puts the newest at the end
        new = (tp for tp, position in positions.items() if self._sampled.get(tp) != position)
        return {tp: positions[tp] for tp in sorted(new, key=lambda tp: (age.get(tp, -1), tp))}

    def add(self, tp: TopicPartition, position: int, size: int, offsets: int) -> None:
        """Take a sample: from `position` on, `offsets` offsets take `size` bytes. Both are positive."""
        self._sampled.pop(tp, None)
        self._sampled[tp] = position
        self._samples.setdefault(tp, deque(maxlen=KEPT)).append(max(1, -(-size * UNIT // offsets)))

    def densities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes of UNIT offsets of each partition.

        A partition without a sample has the largest density of its topic, and UNKNOWN if that has none.
        """
        known = {tp: max(kept) for tp, kept in self._samples.items()}
        by_topic: dict[str, int] = {}
        for tp, density in known.items():
            by_topic[tp.topic] = max(density, by_topic.get(tp.topic, 0))
        return {tp: known.get(tp, by_topic.get(tp.topic, UNKNOWN)) for tp in partitions}
