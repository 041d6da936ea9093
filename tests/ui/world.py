"""Simulated clusters for the page: readings of groups that read, lag, and rebalance, without a broker."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from streamgroup.model import GroupDescription, GroupState, MemberDescription, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading, Reading
from tests.unit.monitoring.page.readings import snapshot

_NAMES = ("orders", "payments", "clicks", "stock", "sessions", "invoices", "returns", "prices", "alerts", "shipments")
_JOBS = ("ingest", "etl", "fraud", "search", "mailer")


@dataclass
class Simulated:
    """One group: its topic's partitions are written at `rate` records a second each and read by `members`."""

    name: str
    topic: str
    partitions: int
    members: list[str]
    rate: float = 120.0
    speed: float = 1.0
    """How much of what is written the group reads: below 1 the lag grows."""
    rebalances: Sequence[int] = ()
    """The readings at which a member joins (even) or leaves (odd)."""
    local: bool = False
    """Whether its members run on this machine."""
    ends: list[float] = field(default_factory=list)
    committed: list[float] = field(default_factory=list)
    rebalancing: int = 0
    batch: int = 0

    def __post_init__(self) -> None:
        self.ends = [5_000.0 + 40 * n for n in range(self.partitions)]
        self.committed = [end - 300 * (1 + n % 7) for n, end in enumerate(self.ends)]

    def step(self, number: int, interval: float, chance: random.Random) -> None:
        if number in self.rebalances:
            self.rebalancing = 2
            if self.rebalances.index(number) % 2:
                self.members.pop()
            else:
                self.members.append(_id(self.name, len(self.members)))
        wave = 1 + 0.6 * math.sin(number / 17 + sum(map(ord, self.name)))
        for n in range(self.partitions):
            skew = 1 + (n % 5) / 4
            self.ends[n] += self.rate * skew * wave * interval * chance.uniform(0.7, 1.3)
            if not self.rebalancing and self.members:
                behind = self.ends[n] - self.committed[n]
                self.committed[n] += behind * min(1.0, 0.45 * self.speed) * chance.uniform(0.5, 1.0)
        self.rebalancing = max(0, self.rebalancing - 1)

    def held(self) -> dict[str, tuple[TopicPartition, ...]]:
        every = [TopicPartition(self.topic, n) for n in range(self.partitions)]
        if self.rebalancing:
            return dict.fromkeys(self.members, ())
        count = max(1, len(self.members))
        bounds = [self.partitions * n // count for n in range(count + 1)]
        return {member: tuple(every[bounds[n] : bounds[n + 1]]) for n, member in enumerate(self.members)}

    def reading(self) -> GroupReading:
        state = GroupState.PREPARING_REBALANCE if self.rebalancing else GroupState.STABLE
        members = tuple(
            MemberDescription(member, member.rpartition("-")[0][:-24], "/10.0.0.7", assigned=held)
            for member, held in self.held().items()
        )
        committed = {TopicPartition(self.topic, n): int(offset) for n, offset in enumerate(self.committed)}
        description = GroupDescription(
            self.name, state if members else GroupState.EMPTY, "consumer", "streamgroup-range", members
        )
        return GroupReading(description, committed, "broker-2:9092 (2)")

    def statuses(self, at: float, chance: random.Random) -> Iterator[dict[str, Any]]:
        if not self.local:
            return
        self.batch += 1
        began = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        for n, member in enumerate(self.members):
            add = round(900 * chance.uniform(0.6, 1.4))
            phases = {"addBatch": add, "latestOffset": 40, "queryPlanning": 25, "walCommit": 60, "commitOffsets": 45}
            yield {
                "group": self.name,
                "member": member,
                "run": f"run-{n}",
                "name": ("east", "west", "north", "south")[n % 4],
                "state": "rejoining" if self.rebalancing else "stable",
                "source": f"streamgroup[Subscribe[{self.topic}], group={self.name}, mode=member]",
                "generation": 4,
                "draining": False,
                "idle": False,
                "in_flight_s": 0.4,
                "query": {"id": f"q-{n}", "name": f"{self.name}-{n}"},
                "trouble": {"rebalance": {"count": 2}, "fence": {"count": 0}, "data_loss": {"count": 0}},
                "batches": [
                    {
                        "batch": self.batch,
                        "began": began,
                        "rows": round(self.rate * self.partitions * 2),
                        "durations_ms": {**phases, "getBatch": 5, "triggerExecution": sum(phases.values()) + 35},
                    }
                ],
            }


def _id(group: str, number: int) -> str:
    tail = f"{0x3F2A81C4 + number * 7919:08x}-5b1e-4c7d-9a60-{0x7D10C2AA5B00 + number * 4099:012x}"
    return f"{group}-{number}-{tail}"


def members(group: str, count: int) -> list[str]:
    return [_id(group, number) for number in range(count)]


class SimulatedCluster:
    """A cluster of such groups, read every `interval` seconds up to `until`."""

    def __init__(self, groups: Sequence[Simulated], *, until: float, readings: int, interval: float = 5.0) -> None:
        self.groups = groups
        self._chance = random.Random(7)
        self._interval = interval
        self._until = until
        self._readings = readings

    def readings(self) -> Iterator[Reading]:
        topics: dict[str, int] = {"__consumer_offsets": 50}
        for group in self.groups:
            topics[group.topic] = max(group.partitions, topics.get(group.topic, 0))
        described = snapshot(topics, brokers=3)
        for number in range(self._readings):
            at = self._until - (self._readings - 1 - number) * self._interval
            for group in self.groups:
                group.step(number, self._interval, self._chance)
            ends = {
                TopicPartition(group.topic, n): int(end) for group in self.groups for n, end in enumerate(group.ends)
            }
            yield Reading(
                at,
                described,
                tuple(group.reading() for group in self.groups),
                dict.fromkeys(ends, 0),
                ends,
                tuple(status for group in self.groups for status in group.statuses(at, self._chance)),
            )


def nothing(until: float) -> SimulatedCluster:
    return SimulatedCluster([], until=until, readings=3)


def one(until: float, rebalances: Sequence[int] = (40, 95)) -> SimulatedCluster:
    name = "orders-ingest"
    group = Simulated(name, "orders", 12, members(name, 2), rebalances=rebalances, local=True)
    return SimulatedCluster([group], until=until, readings=140)


def fifty(until: float) -> SimulatedCluster:
    groups = []
    for number in range(50):
        topic, job = _NAMES[number % 10], _JOBS[number // 10]
        name = f"{topic}-{job}"
        speed = (1.0, 0.9, 0.02, 1.0, 0.5)[number % 5]
        count = 0 if number % 13 == 12 else 1 + number % 4
        groups.append(Simulated(name, topic, 6 + number % 10 % 3 * 6, members(name, count), speed=speed))
    groups[7].rebalances = (119,)
    return SimulatedCluster(groups, until=until, readings=120)


def wide(until: float) -> SimulatedCluster:
    name = "clicks-etl"
    group = Simulated(name, "clicks", 500, members(name, 9), rate=30, rebalances=(60, 100))
    return SimulatedCluster([group], until=until, readings=140)
