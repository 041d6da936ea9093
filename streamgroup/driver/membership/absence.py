"""Whether a partition that OffsetFetch v0 calls unknown has no commit: a broker that has just started calls all so.

Brokers of 0.8.2 and later say UNKNOWN_TOPIC_OR_PARTITION in v0 for a partition without a commit in ZooKeeper, and for
each partition of a topic that they have not heard of yet. Taken for "no commit", the second would make a query begin
at `startingOffsets` in a group that has commits (R7). So the broker is asked, on the same connection, for the topics
that it knows, and the offsets once more after that.
"""

from __future__ import annotations

from collections.abc import Collection

from streamgroup.errors import ErrorCode
from streamgroup.wire.messages.cluster import MetadataRequest, MetadataResponse


def all_topics(version: int) -> MetadataRequest:
    """Which topics does this broker know? By none of them is one created."""
    return MetadataRequest(topics=() if version == 0 else None)


class Absence:
    """What one connection's broker is known to know. `reset` it with the connection."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: frozenset[str] | None = None

    @property
    def told(self) -> bool:
        """Whether the broker has told its topics."""
        return self._known is not None

    def reset(self) -> None:
        """Another broker may answer next."""
        self._known = None

    def believes(self, topics: Collection[str]) -> bool:
        """Whether "unknown" means "no commit" for partitions of these topics, in an answer to what was asked since."""
        return not topics or (self._known is not None and self._known.issuperset(topics))

    def heard(self, response: MetadataResponse) -> None:
        """The broker has told its topics."""
        self._known = frozenset(t.name or "" for t in response.topics if t.error_code == ErrorCode.NONE)
