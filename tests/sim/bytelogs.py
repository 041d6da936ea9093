"""The logs of Kafka 0.7: offsets are byte positions, and only the start of a message can be read from (R34).

Each broker that has a topic has so many partitions of it, which nobody else has. A log is of bytes as producers write
them: messages of different sizes with their checksums, in segments. Retention deletes whole segments.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from streamgroup.logformat import broker_partition, partition_number
from streamgroup.model import LogRange, PartitionInfo, TopicInfo, TopicPartition
from tests.sim.broker import Logs

SEGMENT_BYTES = 400
PAYLOAD_MOST = 40
MESSAGE_BYTES = 30
"""Of a message with its length and header, on average."""


def message_of(payload: bytes) -> bytes:
    """One uncompressed message of magic 1: its length, magic, attributes, checksum and payload."""
    body = bytes((1, 0)) + zlib.crc32(payload).to_bytes(4, "big") + payload
    return len(body).to_bytes(4, "big") + body


class Logs07(Logs):
    """See the module. `chance` draws the sizes of messages."""

    def __init__(self, counts: Mapping[str, int], brokers: int, chance: random.Random) -> None:
        super().__init__({})
        self._chance = chance
        self._data: dict[TopicPartition, bytearray] = {}
        """All bytes that were ever written, from position 0 on."""
        self._messages: dict[TopicPartition, list[int]] = {}
        """Where messages begin, ascending; the last is the end of the log."""
        self._segments: dict[TopicPartition, list[int]] = {}
        """Where segments start, ascending; the first is the start of the log."""
        self.counts = dict(counts)
        self.hosts: dict[str, list[int]] = {topic: [] for topic in counts}
        self.away: set[int] = set()
        self.back_at: dict[int, float] = {}
        """By broker that was away: when it was registered again."""
        for topic in counts:
            for broker in range(brokers):
                self.add_broker(topic, broker)

    def add_broker(self, topic: str, broker: int) -> None:
        """A broker gets its first record of the topic."""
        self.hosts[topic].append(broker)
        for partition in range(self.counts[topic]):
            tp = TopicPartition(topic, partition_number(broker, partition))
            self.ends[tp] = 0
            self._data[tp], self._messages[tp], self._segments[tp] = bytearray(), [0], [0]

    def add_partitions(self, topic: str, count: int) -> None:
        self.add_broker(topic, max(self.hosts[topic]) + 1)

    # -- bytes --------------------------------------------------------------------------------------------------------

    def produce(self, tp: TopicPartition, count: int) -> None:
        data, messages, segments = self._data[tp], self._messages[tp], self._segments[tp]
        for _ in range(count):
            if len(data) - segments[-1] >= SEGMENT_BYTES:
                segments.append(len(data))
            data += message_of(self._chance.randbytes(self._chance.randint(1, PAYLOAD_MOST)))
            messages.append(len(data))
        self.ends[tp] = len(data)

    def delete_segment(self, tp: TopicPartition, below: int) -> None:
        """Retention deletes the oldest segment, if it ends at or before `below`."""
        segments = self._segments[tp]
        if len(segments) > 1 and segments[1] <= below:
            del segments[0]

    def fetch(self, tp: TopicPartition, position: int, size: int) -> bytes | None:
        """The bytes of one segment that a broker sends from `position` on. None: out of range."""
        segments = self._segments[tp]
        if not segments[0] <= position <= self.ends[tp]:
            return None
        segment_end = next((start for start in segments if start > position), self.ends[tp])
        return bytes(self._data[tp][position : min(segment_end, position + size)])

    def range(self, tp: TopicPartition) -> LogRange:
        segments = self._segments[tp]
        return LogRange(segments[0], self.ends[tp], tuple(segments))

    def behind(self, tp: TopicPartition, offset: int, count: int) -> int:
        messages = self._messages[tp]
        return messages[min(len(messages) - 1, bisect_left(messages, offset) + count)]

    def record_at(self, tp: TopicPartition, offset: int) -> int:
        messages = self._messages[tp]
        return messages[bisect_right(messages, max(offset, self._segments[tp][0])) - 1]

    def records(self, tp: TopicPartition, start: int, until: int) -> Sequence[int]:
        messages = self._messages[tp]
        return messages[bisect_left(messages, start) : bisect_left(messages, until)]

    def is_boundary(self, tp: TopicPartition, offset: int) -> bool:
        messages = self._messages[tp]
        return messages[bisect_left(messages, offset) % len(messages)] == offset

    def limit(self, records: int | None) -> int | None:
        return None if records is None else records * MESSAGE_BYTES

    # -- partitions ---------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicInfo]:
        return {topic: TopicInfo(topic, tuple(self._infos_of(topic))) for topic in self.counts}

    def was_away(self, tp: TopicPartition, since: float) -> bool:
        broker, _ = broker_partition(tp.partition)
        return broker in self.away or self.back_at.get(broker, -1.0) >= since

    def _infos_of(self, topic: str) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(partition_number(broker, partition), broker)
            for broker in sorted(self.hosts[topic])
            if broker not in self.away
            for partition in range(self.counts[topic])
        ]
