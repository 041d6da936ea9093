"""The strategies that Java has, too, against the Java client's own assignors, on many groups, in one JVM a release."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import pytest

from streamgroup.group.assignors import Assignment, GroupMember
from streamgroup.group.sticky import decode_user_data, encode_user_data
from streamgroup.group.sticky_order import PartitionHashSet, hash_map_order
from streamgroup.model import TopicPartition
from streamgroup.wire.consumer import ConsumerSubscription, encode_subscription
from tests.live.java.cases import (
    IDENTITY,
    RELEASES,
    Case,
    as_java_fails,
    ask_java,
    claimed_twice,
    less_what_others_hold,
    parse,
    topics,
)
from tests.live.java.sticky_histories import histories, snapshots
from tests.live.java.sticky_scenarios import DEVIATIONS, read
from tests.live.java.write_sticky_vectors import VECTORS, rows

pytestmark = pytest.mark.live

CASES = 400
BOTH_RELEASES = pytest.mark.parametrize("release", RELEASES)


def random_case(rng: random.Random) -> Case:
    counts = {f"t{i}": rng.choice([1, 1, 2, 3, 7, 12]) for i in range(rng.randrange(5))}
    names = [*counts, "absent"]
    members: dict[str, GroupMember] = {}
    for instance in rng.sample(range(20), rng.randint(1, 7)):
        member_id = rng.choice(["a", "Z", "_", "~", "é", "\uff5e", "😀"]) + str(rng.randrange(1000))
        topic_names = tuple(rng.sample(names, rng.randint(0, len(names))))
        members[member_id] = GroupMember(topic_names, f"i{instance}" if rng.random() < 0.4 else None)
    return Case(rng.choice(["range", "roundrobin"]), members, topics(counts, leaders=(1, 0, 2)))


@BOTH_RELEASES
def test_range_and_roundrobin_are_those_of_the_java_client(release: str) -> None:
    rng = random.Random(20)
    cases = [random_case(rng) for _ in range(2 * CASES)]
    assert {case.strategy for case in cases} == {"range", "roundrobin"}
    for case, answer in zip(cases, ask_java(release, [case.line() for case in cases]), strict=True):
        ours, theirs = case.ours(), parse(answer)
        if case.strategy == "range":  # Java walks the topics in the order of a hash map: the order within one counts
            ours, theirs = by_topic(ours), by_topic(theirs)
        assert ours == theirs, case


def by_topic(assignment: Assignment) -> Assignment:
    """`sorted` is stable: the order of partitions within a topic stays as it was."""
    return {member: sorted(tps, key=lambda tp: tp.topic) for member, tps in assignment.items()}


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "histories of members who subscribe alike": lambda: histories(15, 3 * CASES, alike=True),
    "histories of members who do not": lambda: histories(15, 3 * CASES, alike=False),
    "snapshots of members who do not": lambda: snapshots(16, 3 * CASES),
}


@BOTH_RELEASES
@pytest.mark.parametrize("groups", GROUPS)
def test_cooperative_sticky_is_that_of_the_java_client(release: str, groups: str) -> None:
    cases = [case for case in GROUPS[groups]() if not as_java_fails(case)]
    moved, contested = 0, 0
    for case, answer in zip(cases, ask_java(release, [case.line() for case in cases]), strict=True):
        theirs = parse(answer)
        if claimed_twice(case.members):
            contested += 1
            theirs = less_what_others_hold(theirs, case.members)
        moved += gives_up(case.members, theirs)
        assert case.ours() == theirs, case
    # The cases are worth something: partitions move, members are stale.
    assert len(cases) >= 2 * CASES
    assert moved >= CASES // 4
    assert contested >= CASES // 20


def gives_up(members: Mapping[str, GroupMember], assignment: Assignment) -> bool:
    return any(set(member.owned) - set(assignment[member_id]) for member_id, member in members.items())


@BOTH_RELEASES
def test_the_vectors_are_what_java_gives(release: str) -> None:
    assert rows(release) == VECTORS.read_text().splitlines()


@BOTH_RELEASES
def test_where_ours_differs_java_still_does_what_it_was_left_for(release: str) -> None:
    lines = [read(text, {}, 0).line() for text, _, _ in DEVIATIONS.values()]
    for name, answer in zip(DEVIATIONS, ask_java(release, lines), strict=True):
        _, ours, theirs = DEVIATIONS[name]
        assert answer.partition(":")[0] == theirs, name
        assert ours != theirs, name


@BOTH_RELEASES
def test_java_reads_the_generation_of_our_user_data_and_lets_alone_what_follows(release: str) -> None:
    told = [
        encode_user_data(7),
        encode_user_data(7, IDENTITY),
        encode_user_data(-1, IDENTITY),
        encode_user_data(2**31 - 1, bytes(1000)),
        b"\0\0\7",
        b"",
        None,
        IDENTITY,
    ]
    subscriptions = [ConsumerSubscription(topics=("t",), user_data=data) for data in told]
    lines = [f"generation\t{encode_subscription(s, v).hex()}" for s in subscriptions for v in (0, 1, 2, 3)]
    expected = [str(decode_user_data(data)) for data in told for _ in range(4)]
    assert ask_java(release, lines) == expected


def test_hash_tables_are_walked_as_java_walks_them() -> None:
    rng = random.Random(3)
    keys = [[random_text(rng) for _ in range(rng.randint(1, 60))] for _ in range(CASES)]
    changes = [random_changes(rng) for _ in range(CASES)]
    lines = [f"strings\t{','.join(some)}" for some in keys]
    lines += [f"partitions\t{topic}\t{','.join(f'{sign}{p}' for sign, p in row)}" for topic, row in changes]
    expected = [",".join(hash_map_order(some)) for some in keys]
    expected += [str(first_after(topic, row)) for topic, row in changes]
    assert ask_java(RELEASES[-1], lines) == expected


def random_text(rng: random.Random) -> str:
    return "".join(rng.choices("AaBbé\uff5e😀-0123", k=rng.choice([1, 2, 3, 40])))


def random_changes(rng: random.Random) -> tuple[str, list[tuple[str, int]]]:
    """Partitions put into a set and taken out, at least one left."""
    row: list[tuple[str, int]] = []
    inside: list[int] = []
    for p in rng.sample(range(200), rng.randint(1, 60)):
        row.append(("+", p))
        inside.append(p)
        if len(inside) > 1 and rng.random() < 0.4:
            row.append(("-", inside.pop(rng.randrange(len(inside)))))
    return random_text(rng), row


def first_after(topic: str, changes: list[tuple[str, int]]) -> int:
    row = PartitionHashSet(topic)
    for sign, p in changes:
        (row.add if sign == "+" else row.remove)(TopicPartition(topic, p))
    return row.first().partition
