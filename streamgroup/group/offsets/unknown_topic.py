"""Tell a partition without a commit from a topic that the broker has not heard of yet, in OffsetFetch v0.

Brokers of 0.8.2 and later answer UNKNOWN_TOPIC_OR_PARTITION in v0 for a partition without a commit in ZooKeeper. A
broker that has just started answers so for every topic that it has not heard of yet. Taken for "no commit", the second
answer makes a query begin at `startingOffsets` in a group that has commits (R7). So the broker is asked for its topics
on the same connection, and for the offsets once more after that.
"""

from __future__ import annotations

from collections.abc import Collection

from streamgroup.errors import ErrorCode
from streamgroup.wire.messages.cluster import MetadataRequest, MetadataResponse


def all_topics(version: int) -> MetadataRequest:
    """Build a Metadata request for all topics of the broker. It names none, so the broker creates none."""
    return MetadataRequest(topics=() if version == 0 else None)


class UnknownTopicCheck:
    """The topics that the broker of one connection knows. `reset` it with the connection."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: frozenset[str] | None = None

    @property
    def has_topics(self) -> bool:
        """Whether the broker has answered with its topics."""
        return self._topics is not None

    def reset(self) -> None:
        """Forget the topics: another broker may answer next."""
        self._topics = None

    def knows(self, topics: Collection[str]) -> bool:
        """Whether the broker knows all of `topics`, so that "unknown" in a later answer means "no commit"."""
        return not topics or (self._topics is not None and self._topics.issuperset(topics))

    def learn(self, response: MetadataResponse) -> None:
        """Take the broker's answer to `all_topics`."""
        self._topics = frozenset(t.name or "" for t in response.topics if t.error_code == ErrorCode.NONE)
