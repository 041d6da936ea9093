"""An offset store that answers at once, in place of Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    PartitionVerdict,
)
from streamgroup.model import CommittedOffset, TopicPartition


class KafkaOffsets(OffsetStore):
    """Answers with `committed`, or with `refusal`; `asked` has the commits."""

    is_the_groups = True
    wake_at: float | None = None

    def __init__(self) -> None:
        self.committed: Mapping[TopicPartition, CommittedOffset] = {}
        self.refusal: PartitionVerdict | None = None
        self.asked: list[CommitOffsets] = []
        self.fetches: list[FetchOffsets] = []

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        self.fetches.append(request)
        offsets = {} if self.refusal else self.committed
        return Outcome(answers=(OffsetsFetched(request.token, offsets, self.refusal),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        self.asked.append(request)
        return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))
