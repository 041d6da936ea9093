"""Whole groups: machines and a coordinator in memory come to a split, and to the next one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamgroup.group import events as ev
from streamgroup.group.membership import Membership
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.model import PartitionInfo, TopicInfo
from tests.fakes.coordinator import ScriptedCoordinator, through_bytes


class Group:
    """Machines, one coordinator, and the time that both live in."""

    def __init__(self, counts: dict[str, int], version: int | None = None) -> None:
        self.counts = counts
        self.version = version
        """The highest version of every API; None: the highest that we speak."""
        self.coordinator = ScriptedCoordinator()
        self.machines: dict[str, Membership] = {}
        self.assigned: dict[str, ev.Assigned] = {}
        self.log: dict[str, list[ev.Action]] = {}
        self.wake: dict[str, float] = {}
        self.now = 100.0
        self.queue: list[tuple[str, ev.Event]] = []

    def add(self, name: str, topics: tuple[str, ...] = ("t",), **config: Any) -> None:
        self.machines[name] = Membership(MemberConfig("g", **config), random.Random(name))
        self.log[name] = []
        self.tell(name, ev.Start(topics))

    def tell(self, name: str, event: ev.Event) -> None:
        self.queue.append((name, event))

    def run(self, seconds: float = 0.0) -> None:
        """Deliver everything, then let the time go on to each machine's wake-up, for so long."""
        end = self.now + seconds
        for _ in range(20_000):
            while self.queue:
                name, event = self.queue.pop(0)
                self.carry_out(name, self.machines[name].step(event, self.now))
            due = min(self.wake.items(), key=lambda item: item[1], default=None)
            if due is None or due[1] > end:
                self.now = end
                return
            self.now = max(self.now, due[1])
            self.tell(due[0], ev.Tick())
        raise AssertionError("the group does not come to rest")

    def carry_out(self, name: str, actions: list[ev.Action]) -> None:
        self.log[name] += actions
        self.wake.pop(name, None)
        for action in actions:
            match action:
                case ev.WakeAt(time):
                    self.wake[name] = time
                case ev.Send():
                    self.send(name, action)
                case ev.NeedTopics(topics, urgent=True):
                    self.tell_topics(name, topics)
                case ev.Assigned():
                    self.assigned[name] = action
                case ev.Joining() | ev.Left():
                    self.assigned.pop(name, None)

    def tell_topics(self, name: str, asked: frozenset[str]) -> None:
        infos = {t: tuple(PartitionInfo(p, p % 2) for p in range(n)) for t, n in self.counts.items() if t in asked}
        self.tell(name, ev.MetadataRefreshed({t: TopicInfo(t, partitions) for t, partitions in infos.items()}, asked))

    def send(self, name: str, send: ev.Send) -> None:
        limit = self.version
        version = send.api.VERSIONS[1] if limit is None else max(send.api.VERSIONS[0], min(send.api.VERSIONS[1], limit))
        answered = lambda response: self.tell(name, ev.RequestAnswered(send.token, response, version))  # noqa: E731
        through_bytes(self.coordinator, send.build(version), version, answered)

    def shares(self) -> dict[str, list[str]]:
        return {name: [str(tp) for tp in assigned.partitions] for name, assigned in self.assigned.items()}


@pytest.mark.parametrize("version", [None, 0, 1, 2, 3, 4, 5, 6, 9])
def test_three_members_come_to_an_even_split_whatever_the_version(version: int | None) -> None:
    group = Group({"t": 6}, version)
    for name in "ABC":
        group.add(name)
    group.run(20)
    assert {m.state for m in group.machines.values()} == {State.STABLE}
    assert sorted(tp for share in group.shares().values() for tp in share) == [f"t-{p}" for p in range(6)]
    assert {len(share) for share in group.shares().values()} == {2}
    assert {(a.members, a.total, a.strategy) for a in group.assigned.values()} == {(3, 6, "streamgroup-range")}
    assert len({a.generation for a in group.assigned.values()}) == 1
    assert [a.leader for a in group.assigned.values()].count(True) == 1
    assert all(machine.lease_at is not None for machine in group.machines.values())


def test_the_leader_notices_new_partitions_and_only_the_leader_rejoins_for_them() -> None:
    group = Group({"t": 2})
    for name in "AB":
        group.add(name)
    group.run(20)
    leader = next(name for name, a in group.assigned.items() if a.leader)
    follower = next(name for name, a in group.assigned.items() if not a.leader)
    group.counts["t"] = 4
    generation, acted = group.coordinator.generation, len(group.log[follower])
    group.tell_topics(follower, frozenset({"t"}))
    group.run(10)
    assert group.coordinator.generation == generation
    assert not any(isinstance(a, ev.Send) and a.api is JoinGroupRequest for a in group.log[follower][acted:])
    group.tell_topics(leader, frozenset({"t"}))
    group.run(10)
    assert {name: len(share) for name, share in group.shares().items()} == {"A": 2, "B": 2}
    joining = ev.Joining("partitions have changed (t: 2 -> 4)", abandoned=False, cause=ev.JoinCause.PARTITIONS)
    assert joining in group.log[leader]


def test_a_topic_that_appears_is_assigned() -> None:
    group = Group({})
    group.add("A", ("t",))
    group.run(5)
    assert group.shares() == {"A": []}
    assert any(isinstance(a, ev.Note) and "do not exist (yet): t" in a.text for a in group.log["A"])
    group.counts["t"] = 1
    group.tell_topics("A", frozenset({"t"}))
    group.run(5)
    assert group.shares() == {"A": ["t-0"]}


def test_members_with_unlike_topics_get_only_their_own() -> None:
    group = Group({"t": 2, "u": 2})
    group.add("A", ("t",))
    group.add("B", ("t", "u"))
    group.run(20)
    assert group.shares() == {"A": ["t-0"], "B": ["t-1", "u-0", "u-1"]}


def test_a_group_takes_the_strategy_that_all_know() -> None:
    group = Group({"t": 4})
    group.add("A")
    group.add("B", strategies=("roundrobin",))
    group.run(20)
    assert {a.strategy for a in group.assigned.values()} == {"roundrobin"}
