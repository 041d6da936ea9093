"""How far the reading of one planned range has come."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamgroup.errors import KafkaError, StreamGroupError
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.model import UNKNOWN_EPOCH, Broker, FetchRange, TopicPartition

_BYTES_PER_OFFSET_AT_FIRST = 256.0
"""Bytes per offset before any answer. Too few cost one more request, which is pipelined; too many are wasted."""
_MIN_ASKED_BYTES = 64 * 1024
_MARGIN = 1.25
SIZES: dict[str, float] = {}
"""By topic: the bytes per offset of the last answer in this process, to size the first request of the next task."""
_MAX_SIZES = 10_000


@dataclass(slots=True)
class Cursor:
    """The progress of one range: all below `position` is delivered, all below `ahead` is fetched.

    `failure` is the error of the last attempt. Progress clears it.
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
    """Seconds on the reader's clock since when nothing has come; None while records come."""
    high_watermark: int = -1
    last_served: int = 0
    """The number of the answer that served it last. The cursors with the lowest numbers are asked for first."""
    asked_bytes: int = 0
    """How many bytes the last request asked for."""
    min_bytes: int = 0
    """How many bytes the next request has to ask for, since the next message is known to be that large."""
    empty_answers: int = 0
    """How many answers in a row had nothing, although the leader's log goes on behind what is fetched."""
    readable: int = -1
    """The offset below which the last of those answers showed all that the leader has."""
    replica: Broker | None = None
    """The follower to fetch from (KIP-392); None for the leader."""
    named_replica: int | None = None
    """The id of the follower that the leader has named, until `ReadReplicas` goes there."""
    is_leader_only: bool = False
    """Whether the leader is asked not to name a follower, since one has failed or was behind."""
    review_at: float = math.inf
    """Seconds on the reader's clock when the leader is asked again which replica to fetch from."""
    is_moving: bool = False
    """Whether the next fetch goes to another broker."""

    @classmethod
    def of(cls, planned: FetchRange, log_format: LogFormat = KAFKA_LOG) -> Cursor:
        """Return the cursor at the start of a planned range."""
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
        """Whether all of the range is delivered."""
        return self.position >= self.until

    @property
    def wants_more(self) -> bool:
        """Whether something is left to fetch where it is fetched now, and no failure is in the way."""
        return self.failure is None and not self.is_moving and self.ahead < self.until

    @property
    def source(self) -> Broker | None:
        """The broker to fetch from; None where the partition has no leader."""
        return self.replica or self.leader

    def mark_fetched(self, ahead: int, size: int) -> None:
        """Note that all below `ahead` has come, in `size` bytes."""
        if len(SIZES) >= _MAX_SIZES:
            SIZES.clear()
        SIZES[self.tp.topic] = size / (ahead - self.ahead)
        self.ahead = ahead
        self.min_bytes = 0
        self.waiting_since = None
        self.empty_answers = 0

    def mark_delivered(self, position: int) -> None:
        """Note that all below `position` is delivered."""
        self.position = position

    def mark_waiting(self, now: float) -> None:
        """Note that nothing came."""
        if self.waiting_since is None:
            self.waiting_since = now

    def mark_failed(self, failure: KafkaError | StreamGroupError, now: float) -> None:
        """Note that nothing can come before `failure` is mended."""
        self.failure = failure
        self.mark_waiting(now)

    def move_to(self, leader: Broker | None, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """Fetch from `leader` from now on, behind what is delivered."""
        self.leader, self.leader_epoch, self.failure = leader, leader_epoch, None
        self.ahead = self.position

    def mark_redirected(self, node_id: int) -> None:
        """Note that the leader has named the follower `node_id` in place of sending records."""
        self.named_replica = node_id
        self.is_moving = True

    def read_from(self, replica: Broker | None, review_at: float, *, is_leader_only: bool = False) -> None:
        """Fetch from the follower `replica`, or from the leader, behind what is delivered."""
        self.replica, self.review_at, self.is_leader_only = replica, review_at, is_leader_only
        self.named_replica = self.failure = None
        self.is_moving = False
        self.empty_answers = 0
        self.ahead = self.position

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`, without what lies before it."""
        self.position = self.ahead = min(offset, self.until)
        self.failure = self.waiting_since = None
        self.empty_answers = 0

    def bytes_wanted(self, most: int) -> int:
        """Return how many bytes to ask for: what the rest of the range may take, from `min_bytes` to `most`.

        A broker sends all that it has, also behind the range; the task would throw that away.
        """
        rest = int((self.until - self.ahead) * SIZES.get(self.tp.topic, _BYTES_PER_OFFSET_AT_FIRST) * _MARGIN)
        return max(min(most, max(rest, _MIN_ASKED_BYTES)), self.min_bytes)

    def __str__(self) -> str:
        where = f"{self.log_format.offset_noun} {self.position} of [{self.start}, {self.until})"
        return f"{self.log_format.name(self.tp)} at {where}"
