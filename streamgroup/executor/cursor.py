"""How far the reading of one planned range has come."""

from __future__ import annotations

from dataclasses import dataclass

from streamgroup.errors import KafkaError, StreamGroupError
from streamgroup.model import UNKNOWN_EPOCH, Broker, FetchRange, TopicPartition

_FIRST_GUESS = 256.0
"""Bytes per offset before anything is known. Too few costs one more request, which is pipelined; too many is waste."""
_LEAST_ASKED = 64 * 1024
_MARGIN = 1.25
SIZES: dict[str, float] = {}
"""Bytes per offset as this process has seen them last, by topic: a guess for the next task's first request."""
_MOST_SIZES = 10_000


@dataclass(slots=True)
class Cursor:
    """One range's progress: all below `position` is delivered, all below `ahead` is fetched.

    A trouble is what the last attempt failed with; it is cleared by progress, and `waiting_since` (seconds on the
    reader's clock) says since when there has been none.
    """

    tp: TopicPartition
    start: int
    until: int
    position: int
    ahead: int
    topic_id: str
    leader: Broker | None
    leader_epoch: int
    trouble: KafkaError | StreamGroupError | None = None
    waiting_since: float | None = None
    high_watermark: int = -1
    turn: int = 0
    """When it was served last; those that were not served for longest are asked for first."""
    asked: int = 0
    """How many bytes the last request asked for."""
    least: int = 0
    """How many are to be asked for at least: the first message is known to be that large."""
    empty_answers: int = 0
    """How many answers in a row had nothing although the leader's log goes on behind what is fetched."""
    readable: int = -1
    """The offset below which the last of those answers showed all that the leader has."""

    @classmethod
    def of(cls, planned: FetchRange) -> Cursor:
        """At the start of a planned range."""
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
        )

    @property
    def done(self) -> bool:
        """Whether all of the range is delivered."""
        return self.position >= self.until

    @property
    def wants_more(self) -> bool:
        """Whether there is something left to fetch, and nothing in the way."""
        return self.trouble is None and self.ahead < self.until

    def fetched(self, ahead: int, size: int) -> None:
        """`size` bytes hold everything below `ahead`."""
        if len(SIZES) >= _MOST_SIZES:
            SIZES.clear()
        SIZES[self.tp.topic] = size / (ahead - self.ahead)
        self.ahead = ahead
        self.least = 0
        self.waiting_since = None
        self.empty_answers = 0

    def delivered(self, position: int) -> None:
        """All below `position` is delivered."""
        self.position = position

    def waits(self, now: float) -> None:
        """Nothing came."""
        if self.waiting_since is None:
            self.waiting_since = now

    def fails(self, trouble: KafkaError | StreamGroupError, now: float) -> None:
        """Nothing can come before the `trouble` is over."""
        self.trouble = trouble
        self.waits(now)

    def moves(self, leader: Broker | None, leader_epoch: int = UNKNOWN_EPOCH) -> None:
        """Go on at `leader`, behind what is delivered."""
        self.leader, self.leader_epoch, self.trouble = leader, leader_epoch, None
        self.ahead = self.position

    def skip(self, offset: int) -> None:
        """Go on at `offset`; what lies before it is lost."""
        self.position = self.ahead = min(offset, self.until)
        self.trouble = self.waiting_since = None
        self.empty_answers = 0

    def bytes_wanted(self, most: int) -> int:
        """How many bytes to ask for: what the rest of the range may take, `most` at most, but `least`.

        A broker sends all that it has behind the range, too; what is not asked for need not be thrown away.
        """
        rest = int((self.until - self.ahead) * SIZES.get(self.tp.topic, _FIRST_GUESS) * _MARGIN)
        return max(min(most, max(rest, _LEAST_ASKED)), self.least)

    def __str__(self) -> str:
        return f"{self.tp} at offset {self.position} of [{self.start}, {self.until})"
