"""A model of Kafka's brokers as far as a producer meets them: the rules of sequence numbers, and leaders."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from streamgroup.errors import ErrorCode
from streamgroup.model import TopicPartition

REMEMBERED = 5
"""The batches of a producer that a broker remembers in each partition."""


class Era(Enum):
    """How brokers of a time answer a producer of which they have no state."""

    FIRST = "0.11"
    """Any sequence but 0 is out of order. These alone tell a sequence that is past from one with a gap before it."""
    MIDDLE = "1.0.2 to 2.4"
    """Any sequence but 0 is of an unknown producer."""
    MODERN = "2.5 and later"
    """They accept any sequence."""


@dataclass(frozen=True)
class Sealed:
    """A batch as a request carries it: `uids` are its records."""

    partition: TopicPartition
    uids: tuple[int, ...]
    producer_id: int
    epoch: int
    sequence: int


@dataclass
class ProducerEntry:
    """A partition's memory of one producer: the last batches as (first sequence, last sequence, offset)."""

    epoch: int
    last: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


@dataclass
class Partition:
    """A log and its leader. `min_isr_until`: until then too few replicas are in sync."""

    leader: int
    leader_epoch: int = 0
    log: list[int] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    min_isr_until: float = 0.0
    most_records: int = 1_000

    def restart(self) -> None:
        """The broker starts again: the snapshot of its producers has only the last batch of each."""
        for entry in self.producers.values():
            while len(entry.last) > 1:
                entry.last.popleft()

    def append(self, batch: Sealed, era: Era) -> tuple[int, int]:
        """Append the batch if the rules allow it; the error code and the base offset."""
        if len(batch.uids) > self.most_records:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if batch.producer_id < 0:
            self.log += batch.uids
            return ErrorCode.NONE, len(self.log) - len(batch.uids)
        first, last = batch.sequence, (batch.sequence + len(batch.uids) - 1) % 2**31
        entry = self.producers.get(batch.producer_id)
        if entry is not None and entry.epoch == batch.epoch:
            for seen_first, seen_last, offset in entry.last:
                if (seen_first, seen_last) == (first, last):
                    return ErrorCode.NONE, offset
        code = self.refusal(entry, batch, era)
        if code:
            return code, -1
        if entry is None or entry.epoch < batch.epoch:
            entry = self.producers[batch.producer_id] = ProducerEntry(batch.epoch)
        offset = len(self.log)
        entry.last.append((first, last, offset))
        self.log += batch.uids
        return ErrorCode.NONE, offset

    @staticmethod
    def refusal(entry: ProducerEntry | None, batch: Sealed, era: Era) -> int:
        """Kafka's ProducerAppendInfo: the error code, 0 where the sequence is right."""
        if entry is None:
            if batch.sequence == 0 or era is Era.MODERN:
                return ErrorCode.NONE
            return ErrorCode.UNKNOWN_PRODUCER_ID if era is Era.MIDDLE else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        follows = (entry.last[-1][1] + 1) % 2**31 if entry.last else 0
        expected = follows if batch.epoch == entry.epoch else 0
        if batch.sequence == expected:
            return ErrorCode.NONE
        seen = era is Era.FIRST and batch.sequence < expected  # gone since KAFKA-6683 (1.0.2, 1.1.0)
        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if seen else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
