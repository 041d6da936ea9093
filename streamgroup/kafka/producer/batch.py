"""A batch of the producer: records of one partition that are sent, acknowledged or failed together."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol

from streamgroup.kafka.wire.messages.produce import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from streamgroup.model import TopicPartition

_SEQUENCES = 2**31
"""Sequence numbers are non-negative int32, and 0 follows the largest."""


class Payload(Protocol):
    """Records of one partition, in the type of the caller.

    The producer reads only their number and size, and returns them unchanged.
    """

    @property
    def count(self) -> int:
        """The number of records."""

    @property
    def size(self) -> int:
        """The bytes of the encoded records. An upper bound before compression is enough."""


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch. Brokers check sequence numbers per identity and partition."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_IDENTITY = ProducerIdentity()
"""The identity of a producer that is not idempotent."""


class BatchState(Enum):
    """The states of a `ProducerBatch`."""

    QUEUED = "queued"
    """Not sent yet. Only in this state may payloads be added."""
    IN_FLIGHT = "in flight"
    """A Produce request with the batch is pending."""
    RETRY = "retry"
    """To be sent again, with the same identity and sequence, from `retry_at` on."""
    SPLITTING = "splitting"
    """Waits until the shell has split it, or has chosen other partitions for its records."""
    UNRECOGNIZED = "unrecognized"
    """The broker rejects its sequence number as out of order, but may have the batch. The answer to a later batch shows
    whether it does."""
    REJECTED = "rejected"
    """No broker has it or can still receive it. It waits until its partition has a new identity."""
    RESOLVED = "resolved"
    """Delivered or failed."""


class ProducerBatch:
    """One batch of records of one partition, with its state. Times are seconds on the caller's clock.

    The caller reads `payloads`, `identity` and `base_sequence` each time it sends the batch: the last two may change
    between two attempts. `encoded` is for the caller, to keep the encoded records; the producer does not read it.
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
        """True if no more payloads are added."""
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at = now
        self.node = -1
        """The broker of the last attempt."""
        self.sent_first = False
        """Whether every earlier batch of the partition was resolved or unrecognized when the last attempt was sent."""
        self.doubtful = False
        """True if a broker may have the batch, or may still receive it: an attempt has no answer, or one that does not
        say. Such a batch never gets another sequence number, because the broker could not recognize the duplicate."""
        self.followed = False
        """Whether the broker has this doubtful batch, because it has acknowledged a later one of the partition."""
        self.code = 0
        self.cause = ""
        """The last error code, and the reason of the last failed attempt, for errors."""

    def __repr__(self) -> str:
        return f"ProducerBatch({self.partition}, {self.count} records, {self.state.value}, {self.base_sequence})"

    @property
    def maybe_written(self) -> bool:
        """Whether a broker may have the batch, or may still receive it by the pending request."""
        return self.doubtful or self.state is BatchState.IN_FLIGHT

    def add(self, payload: Payload) -> None:
        self.payloads.append(payload)
        self.count += payload.count
        self.size += payload.size

    def number(self, identity: ProducerIdentity, sequence: int) -> int:
        """Set the identity and the first sequence number of the batch.

        Return the sequence number after its last record.
        """
        self.identity, self.base_sequence = identity, sequence
        return (sequence + self.count) % _SEQUENCES

    def part(self, payload: Payload) -> ProducerBatch:
        """Return a new batch of `payload`, a part of this batch. It keeps this batch's age, attempts and doubts."""
        part = ProducerBatch(self.partition, payload, self.created_at)
        part.full = True
        part.attempts, part.node = self.attempts, self.node
        part.doubtful, part.followed = self.doubtful, self.followed
        part.code, part.cause = self.code, self.cause
        return part
