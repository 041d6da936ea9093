"""A cluster in memory, that is a few numbers: what the driver and the commands ask of `streamgroup.kafka.cluster`.

The simulation has no cluster: its logs grow and are cut by themselves (`tests/sim/broker.py`), and its processes answer
what the planner asks, at simulated times. Sockets, frames and codes are the scripted broker's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streamgroup.errors import TransportError
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.model import (
    EARLIEST,
    LATEST,
    Broker,
    ClusterSnapshot,
    Dialect,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions, Isolation

NODES = {0: Broker(0, "b0", 9092), 1: Broker(1, "b1", 9092)}
MOST_S = 5.0
"""Seconds that a call tries at the most, whatever its deadline."""


@dataclass
class Logs:
    """Topics and what their logs hold. `failures` are raised by the next calls; `hook` runs in each listing."""

    nodes: Mapping[int, Broker] = field(default_factory=lambda: NODES)
    described: dict[str, TopicInfo] = field(default_factory=dict)
    """Topics as the metadata has them, where that is more than follows from `ends`."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    """Last stable offsets, where they differ from the ends."""
    leaderless: set[TopicPartition] = field(default_factory=set)
    slow: set[TopicPartition] = field(default_factory=set)
    """Partitions whose leaders do not answer in time."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Leader epochs in the metadata; 1 of partitions that are not here."""
    epochs_listed: dict[TopicPartition, int] = field(default_factory=dict)
    """Leader epochs that come with the ends of logs; unknown of partitions that are not here."""
    segments: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """The offsets that come with the earliest one, in Kafka 0.7."""
    unregistered: set[int] = field(default_factory=set)
    """Brokers that are away, in Kafka 0.7; their partitions are not in `ends`."""
    empty: tuple[str, ...] = ()
    """Topics without partitions: in Kafka 0.7, where none of their brokers is registered."""
    dialect: Dialect = Dialect.KAFKA
    failures: list[Exception] = field(default_factory=list)
    hook: Callable[[], None] | None = None
    snapshots: int = 0
    listings: list[tuple[int, tuple[TopicPartition, ...]]] = field(default_factory=list)
    closed: int = 0
    distrusted: int = 0
    """How often another broker was to be asked for the metadata."""

    def of(self, options: ClientOptions, on_change: object = None) -> FakeCluster:
        return FakeCluster(self)

    def topics(self, wanted: Collection[str] | None) -> dict[str, TopicInfo]:
        names = sorted({tp.topic for tp in self.ends} | set(self.empty) | self.described.keys())
        return {name: self._topic(name) for name in names if wanted is None or name in wanted}

    def _topic(self, name: str) -> TopicInfo:
        if name in self.described:
            return self.described[name]
        partitions = sorted(tp for tp in self.ends if tp.topic == name)
        infos = tuple(
            PartitionInfo(tp.partition, -1 if tp in self.leaderless else tp.partition % 2, self.epochs.get(tp, 1))
            for tp in partitions
        )
        return TopicInfo(name, infos, self.topic_ids.get(name, ""))


class FakeCluster:
    """As `Cluster`, of `Logs`."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    def deadline(self, timeout_ms: int | None = None) -> float:
        return time.monotonic() + (timeout_ms or 0) / 1000

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        self.logs.snapshots += 1
        self._fail()
        nodes = {node: broker for node, broker in self.logs.nodes.items() if node not in self.logs.unregistered}
        return ClusterSnapshot(nodes, self.logs.topics(topics), dialect=self.logs.dialect)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        logs = self.logs
        logs.listings += [
            (at, tuple(sorted(tp for tp in wanted if wanted[tp] == at))) for at in sorted(set(wanted.values()))
        ]
        if logs.hook is not None:
            logs.hook()
        self._fail()
        if stuck := logs.leaderless & set(wanted):  # as the real one, which tries until the deadline
            time.sleep(max(0.0, min(deadline - time.monotonic(), MOST_S)))
            raise TransportError(f"offsets: {sorted(stuck)} have no leader")
        epochs = logs.epochs_listed
        return {
            tp: ListedOffset(
                self._offset(tp, at, isolation),
                -1,
                epochs.get(tp, -1),
                logs.segments.get(tp, ()) if at == EARLIEST else (),
            )
            for tp, at in wanted.items()
        }

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Leaders in `slow` do not answer within the timeout."""
        listed = self.list_offsets(
            {tp: at for tp, at in wanted.items() if tp not in self.logs.slow}, isolation, deadline
        )
        return listed, [f"{tp}: its leader is late" for tp in sorted(wanted.keys() & self.logs.slow)]

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        return {}

    def distrust_metadata(self) -> None:
        self.logs.distrusted += 1

    def close(self) -> None:
        self.logs.closed += 1

    def _offset(self, tp: TopicPartition, at: int, isolation: Isolation) -> int:
        if at == LATEST:
            end = self.logs.ends[tp]
            return self.logs.stable.get(tp, end) if isolation is Isolation.READ_COMMITTED else end
        return self.logs.starts.get(tp, 0) if at == EARLIEST else at

    def _fail(self) -> None:
        if self.logs.failures:
            raise self.logs.failures.pop(0)


def logs_of(ends: Iterable[int], topic: str = "t") -> Logs:
    return Logs(ends={TopicPartition(topic, n): end for n, end in enumerate(ends)}, topic_ids={topic: "id"})
