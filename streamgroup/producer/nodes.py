"""The brokers of a producer: requests in flight, throttling, and the backoff after a lost connection."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamgroup.producer.batch import ProducerBatch


@dataclass(slots=True)
class PendingProduce:
    """A Produce request without an answer yet."""

    node: int
    batches: tuple[ProducerBatch, ...]
    topic_ids: dict[str, str]
    overdue_at: float


@dataclass(slots=True)
class Node:
    """One broker. Times are seconds on the caller's clock."""

    tokens: set[int] = field(default_factory=set)
    """The pending requests."""
    muted_until: float = float("-inf")
    """The end of the throttle time that the broker has asked for (KIP-219)."""
    retry_at: float = float("-inf")
    """The end of the backoff after a lost connection."""
    failures: int = 0
    """Lost connections since the last answer."""

    def available_at(self) -> float:
        """Return when the broker may get its next request, as far as throttling and backoff go."""
        return max(self.muted_until, self.retry_at)
