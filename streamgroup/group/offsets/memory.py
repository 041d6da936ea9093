"""Offsets of a query that no group knows of (`group.mode=off`), in memory for as long as the query runs.

The ledger commits and fetches as in the other modes, so the rules about positions are one code. A restart finds nothing
in this store and goes by the checkpoint alone.
"""

from __future__ import annotations

from streamgroup.group.offsets.store import (
    COMMITTED,
    NOTHING,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    Outcome,
)
from streamgroup.model import CommittedOffset, TopicPartition


class MemoryOffsetStore:
    """Answers every request at once. Used under the coordinator's lock."""

    is_the_groups = False

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, CommittedOffset] = {}
        """Bounded by the partitions that the query has ever held."""

    @property
    def wake_at(self) -> float | None:
        """None: nothing is ever pending."""
        return None

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Answer with all that was committed."""
        return Outcome(answers=(OffsetsFetched(request.token, dict(self._offsets)),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Commit, whoever asks."""
        self._offsets |= request.offsets
        return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))

    def follow(self, action: object) -> Outcome:
        """Do nothing: no commit is ever under way."""
        return NOTHING

    def takes(self, event: object) -> bool:
        """Return False: this store asks nobody."""
        return False

    def hear(self, event: object, now: float) -> Outcome:
        """Do nothing: this store asks nobody."""
        return NOTHING
