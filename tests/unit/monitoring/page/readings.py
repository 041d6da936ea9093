"""Readings of clusters that tests make up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamgroup.model import (
    Broker,
    ClusterSnapshot,
    Dialect,
    GroupDescription,
    GroupState,
    MemberDescription,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.monitoring.page.history.batches import GroupReading, Reading
from streamgroup.monitoring.page.server import Read
from streamgroup.monitoring.query_totals import QueryFailure


def partitions(count: int, topic: str = "orders") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def snapshot(topics: Mapping[str, int], brokers: int = 1, dialect: Dialect = Dialect.KAFKA) -> ClusterSnapshot:
    nodes = {node: Broker(node, "localhost", 9092 + node) for node in range(1, brokers + 1)}
    described = {
        name: TopicInfo(
            name,
            tuple(PartitionInfo(n, 1 + n % brokers, 0, (1 + n % brokers,), (1 + n % brokers,)) for n in range(count)),
            internal=name.startswith("__"),
        )
        for name, count in topics.items()
    }
    return ClusterSnapshot(nodes, described, "cluster-1", 1, dialect=dialect)


def group(
    name: str = "etl",
    held: Mapping[str, Collection[TopicPartition]] | None = None,
    committed: Mapping[TopicPartition, int] | None = None,
    state: str = GroupState.STABLE,
) -> GroupReading:
    """A group whose members, by id, hold these partitions."""
    members = tuple(
        MemberDescription(member, f"client-{member}", "/127.0.0.1", assigned=tuple(sorted(assigned)))
        for member, assigned in (held or {}).items()
    )
    return GroupReading(GroupDescription(name, state, "consumer", "range", members), committed or {}, "localhost:9092")


def reading(
    at: float,
    *groups: GroupReading,
    ends: Mapping[TopicPartition, int] | None = None,
    topics: Mapping[str, int] | None = None,
    statuses: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    dialect: Dialect = Dialect.KAFKA,
    failures: Sequence[QueryFailure] = (),
    stable: Mapping[TopicPartition, int] | None = None,
) -> Reading:
    known = dict(ends or {})
    starts = dict.fromkeys(known, 0)
    described = snapshot(topics or {"orders": 4}, dialect=dialect)
    return Reading(
        at,
        described,
        tuple(groups),
        starts,
        known,
        tuple(statuses),
        tuple(notes),
        tuple(failures),
        stable=stable or {},
    )


def status(member: str, *, group: str = "etl", run: str = "r1", **fields: Any) -> dict[str, Any]:
    """The status of a coordinator process, with counters by kind in `trouble`."""
    return {
        "group": group,
        "member": member,
        "run": run,
        "name": "",
        "state": "stable",
        "generation": 3,
        "draining": False,
        "query": {"id": "q-1", "name": "orders"},
        "trouble": {},
        **fields,
    }


class Cluster:
    """Fails with the errors of `failures` first. Counts how often it was opened, read and closed."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.opened = self.closed = self.read = 0

    @contextmanager
    def open(self) -> Iterator[Read]:
        self.opened += 1
        try:
            yield self._read
        finally:
            self.closed += 1

    def _read(self) -> Reading:
        self.read += 1
        if self.failures:
            raise self.failures.pop(0)
        return reading(self.read, group())
