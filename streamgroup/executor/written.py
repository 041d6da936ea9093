"""Counts the records, bytes and offsets that a task has written, for the commit message of the sink."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamgroup.model import TopicPartition


@dataclass(slots=True)
class PartitionWritten:
    """The records, bytes and offsets that a task has written to one partition."""

    records: int = 0
    bytes: int = 0
    """Bytes of the records as encoded, before compression. For Kafka 0.7, bytes as sent."""
    first_offset: int = -1
    last_offset: int = -1
    """The offsets of the first and the last record; -1 where the broker does not say, as Kafka 0.7. Those of other
    producers may lie between them."""


@dataclass(slots=True)
class WriteTotals:
    """The records, bytes and offsets that a task has written, by partition."""

    partitions: dict[TopicPartition, PartitionWritten] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)
    """Sentences for the log, such as that the broker has no producer ids."""

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(each.records for each in self.partitions.values())

    @property
    def bytes(self) -> int:
        """The bytes of the records as encoded, before compression."""
        return sum(each.bytes for each in self.partitions.values())

    def add(self, partition: TopicPartition, records: int, size: int, base_offset: int) -> None:
        """Note a batch that a broker has acknowledged."""
        each = self.partitions.setdefault(partition, PartitionWritten())
        each.records += records
        each.bytes += size
        if base_offset >= 0:
            each.first_offset = base_offset if each.first_offset < 0 else min(each.first_offset, base_offset)
            each.last_offset = max(each.last_offset, base_offset + records - 1)

    def merge(self, other: WriteTotals) -> None:
        """Add what another task has written."""
        self.notes |= other.notes
        for partition, part in other.partitions.items():
            each = self.partitions.setdefault(partition, PartitionWritten())
            each.records += part.records
            each.bytes += part.bytes
            firsts = [offset for offset in (each.first_offset, part.first_offset) if offset >= 0]
            each.first_offset = min(firsts, default=-1)
            each.last_offset = max(each.last_offset, part.last_offset)
