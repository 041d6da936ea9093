"""The state of a producer that does not belong to one partition: brokers, topics, producer id and epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum

from streamgroup.backoff import Random
from streamgroup.kafka.producer.batch import NO_IDENTITY, ProducerBatch, ProducerIdentity
from streamgroup.kafka.producer.config import ProducerConfig
from streamgroup.kafka.wire.messages.produce import NO_ACKS
from streamgroup.model import NO_TOPIC_ID, TopicInfo
from streamgroup.transitions import Transition, TransitionTable


@dataclass(slots=True)
class PendingProduce:
    """A Produce request that the broker has not answered yet."""

    node: int
    batches: tuple[ProducerBatch, ...]
    topic_ids: dict[str, str]
    overdue_at: float


@dataclass(slots=True)
class Node:
    """What the producer knows about one broker. Times are seconds on the caller's clock."""

    tokens: set[int] = field(default_factory=set)
    """The pending requests."""
    muted_until: float = float("-inf")
    """The end of the throttle time that the broker has set (KIP-219)."""
    retry_at: float = float("-inf")
    """The end of the backoff after a lost connection."""
    failures: int = 0
    """Lost connections since the last answer."""

    def available_at(self) -> float:
        """Return the time at which throttling and backoff allow the next request to the broker."""
        return max(self.muted_until, self.retry_at)


class ProducerState(Enum):
    """The states of a `Producer`."""

    NO_ID = "no id"
    """Idempotent, and without records so far."""
    ASKING_ID = "requesting an id"
    """InitProducerId is pending or waits for its backoff. No partition without an identity sends a batch."""
    READY = "ready"
    """Has an identity, and no partition lacks a sequence number."""
    BUMPING = "bumping"
    """A partition lacks a sequence number. It sends no new batch until every batch that it has sent is resolved or
    rejected. Then its sequence starts again at 0 under a higher epoch. Other partitions continue to send."""
    WITHOUT_ID = "without id"
    """Not idempotent."""
    FAILED = "failed"
    """Every batch fails, and so does every later append."""


class ProducerCue(Enum):
    """The events that change the state of a `Producer`."""

    RECORDS = "records to write"
    IN_TRANSACTION = "task of a transaction"
    ID_GIVEN = "id given"
    UNSUPPORTED = "broker without ids"
    BROKEN = "sequence broken"
    BUMPED = "epoch raised"
    ID_SPENT = "epochs used up, or id fenced"
    FATAL = "fatal error"


_NO_ID, _ASKING, _READY = ProducerState.NO_ID, ProducerState.ASKING_ID, ProducerState.READY
_BUMPING, _WITHOUT, _FAILED = ProducerState.BUMPING, ProducerState.WITHOUT_ID, ProducerState.FAILED

TABLE = TransitionTable(
    "producer",
    {ProducerState.NO_ID: "idempotent", ProducerState.WITHOUT_ID: "not idempotent"},
    (
        Transition(_NO_ID, ProducerCue.RECORDS, _ASKING),
        Transition(_NO_ID, ProducerCue.IN_TRANSACTION, _READY),
        Transition(_READY, ProducerCue.IN_TRANSACTION, _READY),
        Transition(_ASKING, ProducerCue.ID_GIVEN, _READY),
        Transition(_ASKING, ProducerCue.UNSUPPORTED, _WITHOUT),
        Transition(_ASKING, ProducerCue.FATAL, _FAILED),
        Transition(_READY, ProducerCue.BROKEN, _BUMPING),
        Transition(_READY, ProducerCue.FATAL, _FAILED),
        Transition(_BUMPING, ProducerCue.BUMPED, _READY),
        Transition(_BUMPING, ProducerCue.ID_SPENT, _ASKING),
        Transition(_BUMPING, ProducerCue.FATAL, _FAILED),
        Transition(_WITHOUT, ProducerCue.FATAL, _FAILED),
    ),
)


_LATE_S = 3.0
"""Seconds without a topic in the metadata until the producer warns. A broker creates a topic within a second."""


class Topics:
    """The metadata of the topics that a producer writes, and when to read them again. Times are seconds.

    Each Metadata request may create the topics in it (`auto.create.topics.enable`). So it contains only topics that the
    producer looks for or has records for: a deleted topic is not created again unless it is written.
    """

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._known: dict[str, TopicInfo] = {}
        self._used_at: dict[str, float] = {}  # by topic, when it was last looked for or written
        self._read_at: dict[str, float] = {}  # by topic, when metadata had it last
        self._wanted: dict[str, float] = {}  # by topic, when it was first looked for
        self._late: set[str] = set()
        """The topics of `_wanted` that the metadata have lacked for `_LATE_S`."""
        self._limits: dict[str, int] = {}
        self._wants_limit: set[str] = set()
        """The topics for which a broker has rejected a batch as too large."""
        self._no_limit: set[str] = set()
        """The topics whose limit cannot be read."""
        self._pending = False
        self._urgent = False
        self._attempts = 0
        self._not_before = float("-inf")
        self.reason = "no answer so far"
        """Why the last metadata request failed. Empty after an answer."""

    def get(self, topic: str) -> TopicInfo | None:
        """Return the topic from the last metadata; None if it is not in them."""
        return self._known.get(topic)

    def limit(self, topic: str) -> int | None:
        """Return the size limit of the topic's batches in bytes (max.message.bytes); None if unknown."""
        return self._limits.get(topic)

    def want_limit(self, topic: str) -> None:
        """Read the topic's batch size limit with the next metadata, unless the user may not read it."""
        if topic not in self._no_limit:
            self._wants_limit.add(topic)
            self.refresh()

    def limits_to_read(self, asked: frozenset[str]) -> frozenset[str]:
        """Return the topics in `asked` whose batch size limit must be read.

        With acks=0 these are all, because no broker reports a batch that is too large.
        """
        return (asked if self._config.acks == NO_ACKS else asked & self._wants_limit) - self._no_limit

    def read_limits(self, limits: Mapping[str, int], no_limits: Iterable[str]) -> None:
        """Store the batch size limits of topics. Those of `no_limits` cannot be read."""
        self._limits.update(limits)
        self._no_limit.update(no_limits)
        self._wants_limit.difference_update(limits, no_limits)

    def ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        known = ((topic, self._known.get(topic)) for topic in topics)
        return {topic: info.topic_id for topic, info in known if info is not None and info.topic_id != NO_TOPIC_ID}

    def look_for(self, topic: str, now: float, *, again: bool = False) -> TopicInfo | None:
        """Return the topic if it is known, else request its metadata and return None.

        With `again` its metadata are requested even if it is known.
        """
        self.use(topic, now)
        info = None if again else self._known.get(topic)
        if info is None:
            self._wanted.setdefault(topic, now)
        return info

    def use(self, topic: str, now: float) -> None:
        self._used_at[topic] = now

    def forget_idle(self, waiting: Set[str], now: float) -> list[str]:
        """Forget the topics that were not used for metadata.max.idle.ms, and return them.

        Topics in `waiting` (they have unsent or unacknowledged records) count as used.
        """
        limit = now - self._config.metadata_max_idle_ms / 1000
        in_use = waiting | self._wanted.keys()
        idle = [topic for topic, used_at in self._used_at.items() if used_at <= limit and topic not in in_use]
        for topic in idle:
            del self._used_at[topic]
            self._known.pop(topic, None)
            self._read_at.pop(topic, None)
            self._limits.pop(topic, None)
            for topics in (self._wants_limit, self._no_limit):
                topics.discard(topic)
        return idle

    def refresh(self) -> None:
        """Read the metadata again as soon as the backoff allows."""
        self._urgent = True

    def read(self, topics: Mapping[str, TopicInfo], asked: frozenset[str], now: float) -> list[TopicInfo]:
        """Store the metadata of the topics `asked`. Return the topics that were looked for and now exist."""
        self._pending, self.reason = False, ""
        for topic in asked:
            self._read_at[topic] = now
            if topic in topics:
                self._known[topic] = topics[topic]
            # A deleted topic stays known: its batches are retried until delivery.timeout.ms, as in Java.
        found = [topic for topic in self._wanted if topic in topics]
        for topic in found:
            self.drop(topic)
        self._attempts += 1
        self._not_before = now + self._config.backoff_s(self._attempts, self._random)
        return [topics[topic] for topic in found]

    def failed(self, reason: str, now: float) -> None:
        """Record a failed Metadata request. It is sent again after a backoff."""
        self._pending, self._urgent, self.reason = False, True, reason
        self._attempts += 1
        self._not_before = now + self._config.backoff_s(self._attempts, self._random)

    def drop(self, topic: str) -> bool:
        """Stop looking for a topic. Return whether the producer was looking for it."""
        self._late.discard(topic)
        return self._wanted.pop(topic, None) is not None

    def late(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield each topic that was missing for `_LATE_S`, once, with the seconds until it is given up."""
        limit = self._config.max_block_ms / 1000
        for topic, since in self._wanted.items():
            if topic not in self._late and since + _LATE_S <= now < since + limit:
                self._late.add(topic)
                yield topic, since + limit - now

    def missing(self, now: float) -> Iterator[str]:
        """Yield the topics that did not appear within max.block.ms. The producer stops looking for them."""
        limit = self._config.max_block_ms / 1000
        for topic in [topic for topic, since in self._wanted.items() if now >= since + limit]:
            self.drop(topic)
            yield topic

    def take_due(self, waiting: Set[str], unsettled: bool, now: float) -> frozenset[str]:
        """Return the topics to read the metadata of now; empty if no request is due.

        `waiting` are the topics with unsent or unacknowledged records. `unsettled`: one of them has a partition without
        a leader.
        """
        if not (self._urgent or self._wanted or unsettled):
            self._attempts = 0
        asked = frozenset(waiting | self._wanted.keys())
        if self._pending or not asked or now < self._due_at(waiting, unsettled):
            return frozenset()
        self._pending, self._urgent = True, False
        return asked

    def wake_at(self, waiting: Set[str], unsettled: bool) -> float:
        """Return when the next Metadata request is due, or a topic is late or given up; infinity if nothing is due."""
        is_idle = self._pending or not (waiting or self._wanted)
        next_read = float("inf") if is_idle else self._due_at(waiting, unsettled)
        limit = self._config.max_block_ms / 1000
        times = [since + (limit if t in self._late else min(limit, _LATE_S)) for t, since in self._wanted.items()]
        return min([next_read, *times])

    def _due_at(self, waiting: Set[str], unsettled: bool) -> float:
        if self._urgent or self._wanted or unsettled:
            return self._not_before
        oldest = min((self._read_at.get(topic, float("-inf")) for topic in waiting), default=float("inf"))
        return oldest + self._config.metadata_max_age_ms / 1000


_LAST_EPOCH = 2**15 - 1


class IdentitySource:
    """The current producer id and epoch, and the state of InitProducerId. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self.current = NO_IDENTITY
        """The newest identity, NO_IDENTITY without one. A partition may still use an earlier one."""
        self.reason = ""
        """Why the last request failed."""
        self.attempts = 0
        """Failed requests since the last success."""
        self.pending = False
        self.retry_at = float("-inf")
        self._fenced = False

    def take_due(self, now: float) -> bool:
        """Return whether to send InitProducerId now. If True, the request counts as pending."""
        due = not self.pending and now >= self.retry_at
        self.pending |= due
        return due

    def given(self, identity: ProducerIdentity) -> None:
        self.current, self.pending, self._fenced = identity, False, False
        self.attempts, self.reason = 0, ""

    def refused(self, reason: str) -> None:
        self.pending, self.reason = False, f"no producer id: {reason}"
        self.attempts += 1

    def fenced(self, identity: ProducerIdentity) -> None:
        """Record that another producer uses the producer id of `identity`."""
        self._fenced |= identity.producer_id == self.current.producer_id

    def retire(self, used: ProducerIdentity) -> bool:
        """Make sure that no partition starts with the identity `used` from now on. Return False if that needs a new id.

        A producer without transactional id raises its own epoch, as in Java: brokers accept a higher epoch at sequence
        0, and reject late requests of lower epochs. InitProducerId would return a new id (KIP-360).
        """
        if self.current != used:
            return True
        if used.epoch == _LAST_EPOCH:
            return False
        self.current = used._replace(epoch=used.epoch + 1)
        return True

    def renew(self, used: ProducerIdentity) -> bool:
        """Replace the current identity if it is `used`. Return False if that needs InitProducerId."""
        if self._fenced or not self.retire(used):
            self.current, self.retry_at = NO_IDENTITY, float("-inf")
            return False
        return True
