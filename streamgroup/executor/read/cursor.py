"""The progress of a task in one planned range."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamgroup.errors import KafkaError, StreamGroupError
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.model import UNKNOWN_EPOCH, Broker, FetchRange, TopicPartition

_BYTES_PER_OFFSET_AT_FIRST = 256.0
"""Bytes per offset before the first response. Too few cost one more pipelined request; too many are wasted."""
_MIN_ASKED_BYTES = 64 * 1024
_MARGIN = 1.25
SIZES: dict[str, float] = {}
"""By topic: the bytes per offset of the last response in this process, to size the first request of the next task."""
_MAX_SIZES = 10_000


@dataclass(slots=True)
class Cursor:
    """The progress of a task in one range: delivered up to `position`, fetched up to `ahead` (both exclusive).

    `failure` is the error of the last attempt to fetch. The next records clear it.
    """

    tp: TopicPartition
    start: int
    until: int
    position: int
    ahead: int
    topic_id: str
    leader: Broker | None
    leader_epoch: int
    log_format: LogFormat = KAFKA_LOG
    failure: KafkaError | StreamGroupError | None = None
    waiting_since: float | None = None
    """Since when no records have arrived, in seconds on the reader's clock; None while records arrive."""
    high_watermark: int = -1
    last_served: int = 0
    """The number of the last response that had records of it. The next request begins with the lowest numbers."""
    asked_bytes: int = 0
    """How many bytes the last request asked for."""
    min_bytes: int = 0
    """How many bytes the next request must ask for, because the next message is known to be that large."""
    empty_answers: int = 0
    """How many responses in a row had no records, although the leader's log continues after what is fetched."""
    readable: int = -1
    """The offset below which the last of these responses showed all records that the leader has."""
    replica: Broker | None = None
    """The follower to fetch from (KIP-392); None for the leader."""
    named_replica: int | None = None
    """The id of the follower that the leader has named, until `ReadReplicas` goes there."""
    named_leader: tuple[Broker, int] | None = None
    """The leader and its epoch that the last broker has named with its error (KIP-951)."""
    is_leader_only: bool = False
    """Whether requests tell the leader no rack, so that it names no follower: one has failed or lags behind."""
    review_at: float = math.inf
    """When to ask the leader again which replica to fetch from, in seconds on the reader's clock."""
    is_moving: bool = False
    """Whether the next fetch goes to another broker."""

    @classmethod
    def of(cls, planned: FetchRange, log_format: LogFormat = KAFKA_LOG) -> Cursor:
        start = planned.range.start
        return cls(
            planned.range.partition,
            start,
            planned.range.until,
            start,
            start,
            planned.topic_id,
            planned.leader,
            planned.leader_epoch,
            log_format,
        )

    @property
    def done(self) -> bool:
        return self.position >= self.until

    @property
    def wants_more(self) -> bool:
        """Whether records of the range are left to fetch from the current broker, and the last attempt did not fail."""
        return self.failure is None and not self.is_moving and self.ahead < self.until

    @property
    def source(self) -> Broker | None:
        """The broker to fetch from; None if the partition has no leader."""
        return self.replica or self.leader

    def mark_fetched(self, ahead: int, size: int) -> None:
        """Record that all records below the offset `ahead` have arrived, in `size` bytes."""
        if len(SIZES) >= _MAX_SIZES:
            SIZES.clear()
        SIZES[self.tp.topic] = size / (ahead - self.ahead)
        self.ahead = ahead
        self.min_bytes = 0
        self.waiting_since = None
        self.empty_answers = 0

    def mark_delivered(self, position: int) -> None:
        self.position = position

    def mark_waiting(self, now: float) -> None:
        if self.waiting_since is None:
            self.waiting_since = now

    def mark_failed(self, failure: KafkaError | StreamGroupError, now: float) -> None:
        """Record `failure`: the range is not fetched until it is resolved."""
        self.failure = failure
        self.mark_waiting(now)

    def move_to(self, leader: Broker | None, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """Fetch from `leader` from now on, beginning after the delivered records."""
        self.leader, self.leader_epoch, self.failure = leader, leader_epoch, None
        self.ahead = self.position

    def follow_named_leader(self) -> bool:
        """Move to the leader that the broker has named, if its epoch is newer; return whether it is."""
        named, self.named_leader = self.named_leader, None
        if named is None or named[1] <= self.leader_epoch:
            return False
        self.move_to(*named)
        return True

    def mark_redirected(self, node_id: int) -> None:
        """Record that the leader has named the follower `node_id` instead of sending records (KIP-392)."""
        self.named_replica = node_id
        self.is_moving = True

    def read_from(self, replica: Broker | None, review_at: float, *, is_leader_only: bool = False) -> None:
        """Fetch from the follower `replica` from now on (None: the leader), beginning after the delivered records.

        At `review_at` the leader is asked again which replica to use. With `is_leader_only`, requests contain no rack,
        so that the leader does not name a follower.
        """
        self.replica, self.review_at, self.is_leader_only = replica, review_at, is_leader_only
        self.named_replica = self.failure = None
        self.is_moving = False
        self.empty_answers = 0
        self.ahead = self.position

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`, and skip the records before it."""
        self.position = self.ahead = min(offset, self.until)
        self.failure = self.waiting_since = None
        self.empty_answers = 0

    def bytes_wanted(self, most: int) -> int:
        """Return how many bytes to request: an estimate for the rest of the range, from `min_bytes` to `most`.

        A broker does not stop at the end of the range: bytes after it would be fetched for nothing.
        """
        rest = int((self.until - self.ahead) * SIZES.get(self.tp.topic, _BYTES_PER_OFFSET_AT_FIRST) * _MARGIN)
        return max(min(most, max(rest, _MIN_ASKED_BYTES)), self.min_bytes)

    def __str__(self) -> str:
        where = f"{self.log_format.offset_noun} {self.position} of [{self.start}, {self.until})"
        return f"{self.log_format.name(self.tp)} at {where}"
