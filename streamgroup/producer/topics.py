"""The topics of a producer: what the metadata say of them, and when to read the metadata again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from streamgroup.backoff import Random
from streamgroup.model import NO_TOPIC_ID, TopicInfo
from streamgroup.producer.config import ProducerConfig


class Topics:
    """The topics that are written or looked for. Times are seconds on the caller's clock."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._known: dict[str, TopicInfo] = {}
        self._followed: set[str] = set()
        self._wanted: dict[str, float] = {}  # by topic, when it was first looked for
        self._pending = False
        self._urgent = False
        self._attempts = 0
        self._not_before = float("-inf")
        self._read_at = float("-inf")
        self.reason = "no answer so far"
        """Why the last metadata request failed. Empty after an answer."""

    def get(self, topic: str) -> TopicInfo | None:
        """Return the topic as the last metadata had it; None if they did not have it."""
        return self._known.get(topic)

    def ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of those of `topics` that have one."""
        known = ((topic, self._known.get(topic)) for topic in topics)
        return {topic: info.topic_id for topic, info in known if info is not None and info.topic_id != NO_TOPIC_ID}

    def look_for(self, topic: str, now: float, *, again: bool = False) -> TopicInfo | None:
        """Return the topic, or note that it is looked for. `again`: look for it even if it is known."""
        self.follow(topic)
        info = None if again else self._known.get(topic)
        if info is None:
            self._wanted.setdefault(topic, now)
        return info

    def follow(self, topic: str) -> None:
        """Read the topic with all later metadata."""
        if topic not in self._followed:
            self._followed.add(topic)
            self._urgent = True

    def refresh(self) -> None:
        """Read the metadata again as soon as the backoff allows."""
        self._urgent = True

    def read(self, topics: Mapping[str, TopicInfo], asked: frozenset[str], now: float) -> list[TopicInfo]:
        """Take metadata over. Return the topics that were looked for and are found."""
        self._pending, self._read_at, self.reason = False, now, ""
        for topic in asked:
            if topic in topics:
                self._known[topic] = topics[topic]
            # A topic that has gone stays known: its batches are retried until delivery.timeout.ms, as in Java.
        found = [topic for topic in self._wanted if topic in topics]
        for topic in found:
            del self._wanted[topic]
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
        return self._wanted.pop(topic, None) is not None

    def missing(self, now: float) -> Iterator[str]:
        """Stop looking for the topics that did not appear within max.block.ms, and yield them."""
        limit = self._config.max_block_ms / 1000
        for topic in [topic for topic, since in self._wanted.items() if now >= since + limit]:
            del self._wanted[topic]
            yield topic

    def take_due(self, unsettled: bool, now: float) -> frozenset[str]:
        """Return the topics to read metadata of now; empty if it is not time. `unsettled`: a leader is not known."""
        if not (self._urgent or self._wanted or unsettled):
            self._attempts = 0
        if self._pending or not self._followed or now < self._due_at(unsettled):
            return frozenset()
        self._pending, self._urgent = True, False
        return frozenset(self._followed)

    def wake_at(self, unsettled: bool) -> float:
        """Return when metadata are read, or a topic is given up; infinity where neither is to come."""
        next_read = float("inf") if self._pending or not self._followed else self._due_at(unsettled)
        given_up = (since + self._config.max_block_ms / 1000 for since in self._wanted.values())
        return min(next_read, *given_up) if self._wanted else next_read

    def _due_at(self, unsettled: bool) -> float:
        if self._urgent or self._wanted or unsettled:
            return self._not_before
        return self._read_at + self._config.metadata_max_age_ms / 1000
