"""A batch: the records of one partition that travel, succeed and fail together."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol

from streamgroup.kafka.wire.messages.produce import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from streamgroup.model import TopicPartition

_SEQUENCES = 2**31
"""Sequence numbers are non-negative int32, and 0 follows the largest."""


class Payload(Protocol):
    """Records of one partition. The producer reads only their number and size, and hands them back as they are."""

    @property
    def count(self) -> int:
        """The number of records."""

    @property
    def size(self) -> int:
        """The bytes of the encoded records; before compression an upper bound will do."""


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch. Sequence numbers count within one identity and partition."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_IDENTITY = ProducerIdentity()
"""Of a producer that is not idempotent."""


class BatchState(Enum):
    """Where a batch is."""

    QUEUED = "queued"
    """Not sent yet. Only in this state may payloads be added."""
    IN_FLIGHT = "in flight"
    """A request with it is pending."""
    RETRY = "retry"
    """To be sent again, with the same identity and sequence, from `retry_at` on."""
    SPLITTING = "splitting"
    """Waits for its parts, or for other partitions of its records."""
    UNRECOGNIZED = "unrecognized"
    """The broker refuses its number as out of order, but may have it. The answer to a later batch will tell."""
    REJECTED = "rejected"
    """No broker has it or can get it any more. It waits for a new identity of its partition."""
    RESOLVED = "resolved"
    """Delivered or failed."""


class ProducerBatch:
    """The records of one partition in one batch. Times are seconds on the caller's clock.

    The shell reads `payloads`, and the identity and `base_sequence` whenever it sends the batch: these may change
    between two attempts. `encoded` is the shell's own, for the encoded records; the producer does not look at it.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "cause",
        "code",
        "count",
        "created_at",
        "doubtful",
        "encoded",
        "followed",
        "full",
        "identity",
        "node",
        "partition",
        "payloads",
        "retry_at",
        "sent_first",
        "size",
        "state",
    )

    def __init__(self, partition: TopicPartition, payload: Payload, now: float) -> None:
        self.partition = partition
        self.payloads: list[Payload] = [payload]
        self.count = payload.count
        self.size = payload.size
        self.created_at = now
        self.encoded: Any = None
        self.state = BatchState.QUEUED
        self.full = False
        """Whether no payload is added any more."""
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at = now
        self.node = -1
        """The broker of the last attempt."""
        self.sent_first = False
        """Whether every earlier batch of the partition was resolved or unrecognized when the last attempt was sent."""
        self.doubtful = False
        """Whether a broker may have the batch, or may still get it: an attempt has no answer, or one that leaves it
        open. Such a batch never gets another sequence, because a broker could not recognize the duplicate."""
        self.followed = False
        """Whether the broker has this doubtful batch, because it has acknowledged a later one of the partition."""
        self.code = 0
        self.cause = ""
        """The last error code, and the reason of the last failed attempt, for errors."""

    def __repr__(self) -> str:
        return f"ProducerBatch({self.partition}, {self.count} records, {self.state.value}, {self.base_sequence})"

    @property
    def maybe_written(self) -> bool:
        """Whether a broker may have the batch, or get it by the attempt under way."""
        return self.doubtful or self.state is BatchState.IN_FLIGHT

    def add(self, payload: Payload) -> None:
        """Append `payload` to the batch."""
        self.payloads.append(payload)
        self.count += payload.count
        self.size += payload.size

    def number(self, identity: ProducerIdentity, sequence: int) -> int:
        """Give the batch its identity and its first sequence number; return the number after its last."""
        self.identity, self.base_sequence = identity, sequence
        return (sequence + self.count) % _SEQUENCES

    def part(self, payload: Payload) -> ProducerBatch:
        """Return a batch of `payload`, which is a part of this one: it has this one's age, attempts and doubts."""
        part = ProducerBatch(self.partition, payload, self.created_at)
        part.full = True
        part.attempts, part.node = self.attempts, self.node
        part.doubtful, part.followed = self.doubtful, self.followed
        part.code, part.cause = self.code, self.cause
        return part
