"""Offsets of a query that no group knows of (`group.mode=off`), in memory for as long as the query runs.

The ledger commits and fetches as in the other modes, so the rules about positions are one code. A restart finds nothing
in this store and goes by the checkpoint alone.
"""

from __future__ import annotations

from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
)
from streamgroup.model import CommittedOffset, TopicPartition


class MemoryOffsetStore(OffsetStore):
    """Answers every request at once. Used under the coordinator's lock."""

    is_the_groups = False

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, CommittedOffset] = {}
        """Bounded by the partitions that the query has ever held."""

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Answer with all that was committed."""
        return Outcome(answers=(OffsetsFetched(request.token, dict(self._offsets)),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Commit, whoever asks."""
        self._offsets |= request.offsets
        return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))
