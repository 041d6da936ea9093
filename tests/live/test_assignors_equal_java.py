"""`range` and `roundrobin` against the Java client's own assignors, on random groups, in one JVM."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from streamgroup.group.assignors import ASSIGNORS, Assignment, GroupMember
from streamgroup.model import PartitionInfo, TopicInfo
from streamgroup.testing import jars

pytestmark = pytest.mark.live

JAVA = Path(__file__).parent / "java" / "Assignors.java"
CASES = 400

Case = tuple[str, dict[str, GroupMember], dict[str, TopicInfo]]


def random_case(rng: random.Random) -> Case:
    counts = {f"t{i}": rng.choice([1, 1, 2, 3, 7, 12]) for i in range(rng.randrange(5))}
    topics = {
        name: TopicInfo(name, tuple(PartitionInfo(p, rng.randrange(3)) for p in range(count)))
        for name, count in counts.items()
    }
    names = [*topics, "absent"]
    members: dict[str, GroupMember] = {}
    for instance in rng.sample(range(20), rng.randint(1, 7)):
        member_id = rng.choice(["a", "Z", "_", "~", "é", "\uff5e", "😀"]) + str(rng.randrange(1000))
        topic_names = tuple(rng.sample(names, rng.randint(0, len(names))))
        members[member_id] = GroupMember(topic_names, f"i{instance}" if rng.random() < 0.4 else None)
    return rng.choice(["range", "roundrobin"]), members, topics


def line_of(case: Case) -> str:
    strategy, members, topics = case
    return "\t".join(
        (
            strategy,
            ",".join(f"{t.name}:{len(t.partitions)}" for t in topics.values()),
            ",".join(f"{m}={g.instance_id or ''}={'+'.join(g.topics)}" for m, g in members.items()),
        )
    )


def parse(line: str) -> dict[str, list[str]]:
    pairs = (member.split("=") for member in line.split(","))
    return {member: tps.split("+") if tps else [] for member, tps in pairs}


def by_topic(assignment: Assignment) -> dict[str, list[str]]:
    return {member: [str(tp) for tp in tps] for member, tps in assignment.items()}


def test_range_and_roundrobin_are_those_of_the_java_client() -> None:
    rng = random.Random(20)
    cases = [random_case(rng) for _ in range(CASES)]
    classpath = ":".join(str(jar) for jar in jars.resolve("org.apache.kafka", "kafka-clients", "4.1.1"))
    java = subprocess.run(
        ["java", "-Xmx256m", "-cp", classpath, str(JAVA)],
        input="\n".join(map(line_of, cases)) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert java.returncode == 0, java.stderr
    answers = java.stdout.splitlines()
    assert len(answers) == CASES
    for case, answer in zip(cases, answers, strict=True):
        strategy, members, topics = case
        ours = by_topic(ASSIGNORS[strategy](members, topics))
        theirs = parse(answer)
        if (
            strategy == "range"
        ):  # Java's range walks topics in the order of a hash map: only the order within one counts
            ours, theirs = ({m: sorted(tps, key=topic_of) for m, tps in a.items()} for a in (ours, theirs))
        assert ours == theirs, line_of(case)


def topic_of(partition: str) -> str:
    """`sorted` is stable: the order of partitions within a topic stays as it was."""
    return partition.rpartition("-")[0]
