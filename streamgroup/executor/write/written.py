"""Counts the records, bytes and offsets that a task has written, for the commit message of the sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from streamgroup.kafka.producer.batch import NO_IDENTITY, ProducerIdentity
from streamgroup.model import TopicPartition
from streamgroup.text import counted


@dataclass(slots=True)
class PartitionWritten:
    """How many records and bytes a task has written to one partition, and their offsets."""

    records: int = 0
    bytes: int = 0
    """Bytes of the records as encoded, before compression. For Kafka 0.7, bytes as sent."""
    first_offset: int = -1
    last_offset: int = -1
    """The offsets of the first and the last record; -1 if the broker returns none, as Kafka 0.7. Records of other
    producers may be between them."""
    log_append_time_ms: int = -1
    """The latest time at which the leader has appended a batch; -1 if the topic keeps the producer's timestamps."""

    def merge(self, other: PartitionWritten) -> None:
        self.records += other.records
        self.bytes += other.bytes
        known = [offset for offset in (self.first_offset, other.first_offset) if offset >= 0]
        self.first_offset = min(known, default=-1)
        self.last_offset = max(self.last_offset, other.last_offset)
        self.log_append_time_ms = max(self.log_append_time_ms, other.log_append_time_ms)


@dataclass(slots=True)
class WriteTotals:
    """How many records and bytes a task has written to each partition, and their offsets."""

    partitions: dict[TopicPartition, PartitionWritten] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)
    """Sentences for the log, such as that the broker has no producer ids."""
    producers: set[ProducerIdentity] = field(default_factory=set)
    """The ids and epochs under which brokers have the records; empty without idempotence. A transactional producer
    would name here the transactions that the driver has to end."""

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions.values())

    @property
    def bytes(self) -> int:
        """The bytes of the records as encoded, before compression."""
        return sum(each.bytes for each in self.partitions.values())

    def add(
        self,
        partition: TopicPartition,
        records: int,
        size: int,
        base_offset: int,
        *,
        log_append_time_ms: int = -1,
        producer: ProducerIdentity = NO_IDENTITY,
    ) -> None:
        """Add a batch that a broker has acknowledged."""
        last_offset = base_offset + records - 1 if base_offset >= 0 else -1
        self._merge(partition, PartitionWritten(records, size, base_offset, last_offset, log_append_time_ms))
        if producer != NO_IDENTITY:
            self.producers.add(producer)

    def merge(self, other: WriteTotals) -> None:
        self.notes |= other.notes
        self.producers |= other.producers
        for partition, part in other.partitions.items():
            self._merge(partition, part)

    def _merge(self, partition: TopicPartition, part: PartitionWritten) -> None:
        self.partitions.setdefault(partition, PartitionWritten()).merge(part)

    def details(self) -> Iterator[str]:
        """Yield one line for the log for each partition, then one with the producer ids."""
        for partition, part in sorted(self.partitions.items(), key=lambda item: item[0]):
            text = f"{partition}: {counted(part.records, 'record')} ({part.bytes} bytes)"
            if part.first_offset >= 0:
                text += f" at offsets {part.first_offset} to {part.last_offset}"
            if part.log_append_time_ms >= 0:
                text += f", last appended at {part.log_append_time_ms} ms (LogAppendTime)"
            yield text
        if self.producers:
            ids = ", ".join(f"{each.producer_id} (epoch {each.epoch})" for each in sorted(self.producers))
            yield f"producer ids: {ids}"
