"""Groups to assign partitions in, and what the Java client's assignors make of them."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamgroup.group.assignors import ASSIGNORS, Assignment, GroupMember
from streamgroup.group.sticky import encode_user_data
from streamgroup.kafka.wire.consumer import ConsumerSubscription, TopicPartitions, encode_subscription
from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition
from streamgroup.testing import jars
from streamgroup.testing.releases import NEWEST

RELEASES = (pytest.param("3.9.1", marks=pytest.mark.long), NEWEST)
"""The releases of Java's clients that are asked: the parameters of tests."""
JAVA = Path(__file__).parent / "Assignors.java"
IDENTITY = b'{"streamgroup":1}'
"""The bytes that may follow the generation in a member's user data."""


@dataclass(frozen=True)
class Case:
    """One assignment: the members in JoinGroup's order, the topics with their partitions' leaders."""

    strategy: str
    members: dict[str, GroupMember]
    topics: dict[str, TopicInfo]
    old: frozenset[str] = field(default=frozenset())
    """Members whose subscription is v1, with the generation in the user data."""

    def ours(self) -> Assignment:
        return ASSIGNORS[self.strategy](self.members, self.topics)

    def line(self) -> str:
        """The case as Assignors.java reads it."""
        return "\t".join(
            (
                self.strategy,
                ",".join(f"{t.name}:{len(t.partitions)}" for t in self.topics.values()),
                ",".join(f"{m}={g.instance_id or ''}={self.subscription(m).hex()}" for m, g in self.members.items()),
            )
        )

    def subscription(self, member_id: str) -> bytes:
        member = self.members[member_id]
        row = (TopicPartitions(topic=tp.topic, partitions=(tp.partition,)) for tp in member.owned)
        old = member_id in self.old
        subscription = ConsumerSubscription(
            topics=member.topics,
            user_data=encode_user_data(member.generation, IDENTITY) if old else None,
            owned_partitions=tuple(row),
            generation_id=-1 if old else member.generation,
        )
        return encode_subscription(subscription, 1 if old else 3)


def topics(counts: dict[str, int], leaders: Sequence[int] = (0,)) -> dict[str, TopicInfo]:
    """Topics with so many partitions, led in turn by these brokers."""
    return {
        name: TopicInfo(name, tuple(PartitionInfo(p, leaders[p % len(leaders)]) for p in range(count)))
        for name, count in counts.items()
    }


def partitions(names: str) -> list[TopicPartition]:
    """`t-0 t-1` as partitions."""
    pairs = (name.rpartition("-") for name in names.split())
    return [TopicPartition(topic, int(number)) for topic, _, number in pairs]


def ask_java(release: str, lines: Sequence[str], *, program: Path = JAVA, module: str = "kafka-clients") -> list[str]:
    """One answer a line, all from one JVM with this release of the module."""
    classpath = ":".join(str(jar) for jar in jars.resolve("org.apache.kafka", module, release))
    java = subprocess.run(
        ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(program)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert java.returncode == 0, java.stderr
    answers = java.stdout.splitlines()
    assert len(answers) == len(lines), java.stderr
    return answers


def parse(answer: str) -> Assignment:
    """Java's answer; it fails where Java's assignor failed."""
    assert not answer.startswith("!"), answer
    pairs = (member.split("=") for member in answer.split(","))
    return {member: partitions(tps.replace("+", " ")) for member, tps in pairs}


def claimed_twice(members: Mapping[str, GroupMember]) -> set[TopicPartition]:
    """Partitions that more than one member says it owns."""
    claims = Counter(tp for member in members.values() for tp in set(member.owned))
    return {tp for tp, count in claims.items() if count > 1}


def less_what_others_hold(assignment: Assignment, members: Mapping[str, GroupMember]) -> Assignment:
    """Java's assignment without what it gives to one while another's claim of no earlier generation stands."""
    twice = claimed_twice(members)

    def free(tp: TopicPartition, owner: str) -> bool:
        claimants = [member_id for member_id, member in members.items() if tp in member.owned]
        latest = max((members[claimant].generation for claimant in claimants), default=-1)
        return tp not in twice or all(members[c].generation < latest for c in claimants if c != owner)

    return {owner: [tp for tp in share if free(tp, owner)] for owner, share in assignment.items()}


def as_java_fails(case: Case) -> bool:
    """Whether Java's would compare generations that it does not see, or give a partition to one that does not want it:
    a claim of a member with an old subscription that another contests, or a stale one of a topic that it left."""
    latest = max(member.generation for member in case.members.values())
    twice = claimed_twice(case.members)
    return any(
        (member_id in case.old and tp in twice)
        or (member.generation < latest and tp.topic in case.topics and tp.topic not in member.topics)
        for member_id, member in case.members.items()
        for tp in member.owned
    )
