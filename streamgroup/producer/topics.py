"""The topics of a producer: what the metadata say of them, and when to read the metadata again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from streamgroup.backoff import Random
from streamgroup.model import NO_TOPIC_ID, TopicInfo
from streamgroup.producer.config import ProducerConfig
from streamgroup.wire.messages.produce import NO_ACKS

_LATE_S = 3.0
"""After so many seconds a topic that is looked for is worth a warning. A broker creates one within a second."""


class Topics:
    """The topics that are written or looked for. Times are seconds on the caller's clock.

    Each request for metadata may create the topics that it names (`auto.create.topics.enable`). So it names only topics
    that are looked for or that have records waiting: a deleted topic does not come back unless it is written again.
    """

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._known: dict[str, TopicInfo] = {}
        self._used_at: dict[str, float] = {}  # by topic, when it was last looked for or written
        self._read_at: dict[str, float] = {}  # by topic, when metadata had it last
        self._wanted: dict[str, float] = {}  # by topic, when it was first looked for
        self._late: set[str] = set()
        """The topics among these that were looked for in vain for `_LATE_S`."""
        self._limits: dict[str, int] = {}
        self._wants_limit: set[str] = set()
        """The topics of which a broker has refused a batch as too large."""
        self._no_limit: set[str] = set()
        """The topics whose limit cannot be read."""
        self._pending = False
        self._urgent = False
        self._attempts = 0
        self._not_before = float("-inf")
        self.reason = "no answer so far"
        """Why the last metadata request failed. Empty after an answer."""

    def get(self, topic: str) -> TopicInfo | None:
        """Return the topic as the last metadata had it; None if they did not have it."""
        return self._known.get(topic)

    def limit(self, topic: str) -> int | None:
        """Return the bytes of the largest batch that the topic takes, None if they are not known."""
        return self._limits.get(topic)

    def want_limit(self, topic: str) -> None:
        """Read the limit of the topic with the next metadata, unless it cannot be read."""
        if topic not in self._no_limit:
            self._wants_limit.add(topic)
            self.refresh()

    def limits_to_read(self, asked: frozenset[str]) -> frozenset[str]:
        """Return those of `asked` whose limits are to be read: all with acks=0, since no broker refuses a batch."""
        return (asked if self._config.acks == NO_ACKS else asked & self._wants_limit) - self._no_limit

    def read_limits(self, limits: Mapping[str, int], no_limits: Iterable[str]) -> None:
        """Take over the limits of topics. Those of `no_limits` cannot be read."""
        self._limits.update(limits)
        self._no_limit.update(no_limits)
        self._wants_limit.difference_update(limits, no_limits)

    def ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of those of `topics` that have one."""
        known = ((topic, self._known.get(topic)) for topic in topics)
        return {topic: info.topic_id for topic, info in known if info is not None and info.topic_id != NO_TOPIC_ID}

    def look_for(self, topic: str, now: float, *, again: bool = False) -> TopicInfo | None:
        """Return the topic, or note that it is looked for. `again`: look for it even if it is known."""
        self.use(topic, now)
        info = None if again else self._known.get(topic)
        if info is None:
            self._wanted.setdefault(topic, now)
        return info

    def use(self, topic: str, now: float) -> None:
        """Note that records of the topic are written now."""
        self._used_at[topic] = now

    def forget_idle(self, waiting: Set[str], now: float) -> list[str]:
        """Forget the topics that were not used for metadata.max.idle.ms, and return them. `waiting` are in use."""
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
        """Take metadata over. Return the topics that were looked for and are found."""
        self._pending, self.reason = False, ""
        for topic in asked:
            self._read_at[topic] = now
            if topic in topics:
                self._known[topic] = topics[topic]
            # A topic that has gone stays known: its batches are retried until delivery.timeout.ms, as in Java.
        found = [topic for topic in self._wanted if topic in topics]
        for topic in found:
            self.drop(topic)
        self._attempts += 1
        self._not_before = now + self._config.backoff_s(self._attempts, self._random)
        return [topics[topic] for topic in found]

    def failed(self, reason: str, now: float) -> None:
        """Note that no broker has answered: read again after a backoff."""
        self._pending, self._urgent, self.reason = False, True, reason
        self._attempts += 1
        self._not_before = now + self._config.backoff_s(self._attempts, self._random)

    def drop(self, topic: str) -> bool:
        """Stop looking for a topic. Return whether it was looked for."""
        self._late.discard(topic)
        return self._wanted.pop(topic, None) is not None

    def late(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield each topic once that was looked for in vain for `_LATE_S`, and for how many seconds it still is."""
        limit = self._config.max_block_ms / 1000
        for topic, since in self._wanted.items():
            if topic not in self._late and since + _LATE_S <= now < since + limit:
                self._late.add(topic)
                yield topic, since + limit - now

    def missing(self, now: float) -> Iterator[str]:
        """Stop looking for the topics that did not appear within max.block.ms, and yield them."""
        limit = self._config.max_block_ms / 1000
        for topic in [topic for topic, since in self._wanted.items() if now >= since + limit]:
            self.drop(topic)
            yield topic

    def take_due(self, waiting: Set[str], unsettled: bool, now: float) -> frozenset[str]:
        """Return the topics to read metadata of now; empty if it is not time.

        `waiting` are the topics that have records waiting. `unsettled`: the leader of one of these is not known.
        """
        if not (self._urgent or self._wanted or unsettled):
            self._attempts = 0
        asked = frozenset(waiting | self._wanted.keys())
        if self._pending or not asked or now < self._due_at(waiting, unsettled):
            return frozenset()
        self._pending, self._urgent = True, False
        return asked

    def wake_at(self, waiting: Set[str], unsettled: bool) -> float:
        """Return when metadata are read, or a topic is late or given up; infinity if none of these is to come."""
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
