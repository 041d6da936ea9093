"""A cluster that commands look at, without a broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroup.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.model import EARLIEST, Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import Isolation

BROKERS = {1: Broker(1, "one", 9092), 2: Broker(2, "two", 9093)}


class FakeCluster:
    """`orders` with four partitions on two brokers, the last of which has no leader; and topics of the names in `more`.

    Logs hold [10, 100).
    """

    def __init__(self, dialect: Dialect = Dialect.KAFKA, more: Collection[str] = ()) -> None:
        self.closed = False
        numbers = (10000, 10001, 20000, 30000) if dialect is Dialect.KAFKA07 else range(4)
        leaders = (1, 1, 2, 3)
        partitions = tuple(
            PartitionInfo(number, leader, 5, (leader, 1), (leader,))
            for number, leader in zip(numbers, leaders, strict=True)
        )
        topics = (
            TopicInfo("orders", partitions, "id-1"),
            TopicInfo("__own", partitions[:1], internal=True),
            *(TopicInfo(name, partitions[:1], internal=True) for name in more),
        )
        self._snapshot = ClusterSnapshot(BROKERS, {t.name: t for t in topics}, dialect=dialect)

    def deadline(self, timeout_ms: int | None = None) -> float:
        return (timeout_ms or 0) / 1000

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        known = self._snapshot.topics
        wanted = known if topics is None else {name: known[name] for name in topics if name in known}
        return ClusterSnapshot(BROKERS, wanted, dialect=self._snapshot.dialect)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        led = {tp for tp in wanted if self._snapshot.leader(tp) is not None}
        assert led == wanted.keys(), "would be asked for until the deadline"
        return {tp: ListedOffset(10 if at == EARLIEST else 100) for tp, at in wanted.items()}

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        return self.list_offsets(wanted, isolation, deadline), []

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        return {}

    def close(self) -> None:
        self.closed = True
