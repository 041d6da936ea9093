"""The strategies that Java has, too, against the Java client's own assignors, on many groups, in one JVM a release."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from streamgroup.group.assignors import Assignment, GroupMember
from streamgroup.group.sticky import PartitionHashSet, decode_user_data, encode_user_data, hash_map_order
from streamgroup.kafka.wire.consumer import ConsumerSubscription, encode_subscription
from streamgroup.model import TopicPartition
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
from tests.live.java.sticky_scenarios import cases as scenarios
from tests.live.java.write_sticky_vectors import VECTORS, rows

pytestmark = pytest.mark.live

CASES = 400


def random_case(rng: random.Random) -> Case:
    counts = {f"t{i}": rng.choice([1, 1, 2, 3, 7, 12]) for i in range(rng.randrange(5))}
    names = [*counts, "absent"]
    members: dict[str, GroupMember] = {}
    for instance in rng.sample(range(20), rng.randint(1, 7)):
        member_id = rng.choice(["a", "Z", "_", "~", "é", "\uff5e", "😀"]) + str(rng.randrange(1000))
        topic_names = tuple(rng.sample(names, rng.randint(0, len(names))))
        members[member_id] = GroupMember(topic_names, f"i{instance}" if rng.random() < 0.4 else None)
    return Case(rng.choice(["range", "roundrobin"]), members, topics(counts, leaders=(1, 0, 2)))


@functools.cache
def range_and_roundrobin() -> list[Case]:
    rng = random.Random(20)
    return [random_case(rng) for _ in range(2 * CASES)]


STICKY: dict[str, Callable[[], Iterator[Case]]] = {
    "histories of members who subscribe alike": lambda: histories(15, 3 * CASES, alike=True),
    "histories of members who do not": lambda: histories(15, 3 * CASES, alike=False),
    "snapshots of members who do not": lambda: snapshots(16, 3 * CASES),
}


@functools.cache
def sticky(groups: str) -> list[Case]:
    return list(STICKY[groups]())


USER_DATA = [
    encode_user_data(7),
    encode_user_data(7, IDENTITY),
    encode_user_data(-1, IDENTITY),
    encode_user_data(2**31 - 1, bytes(1000)),
    b"\0\0\7",
    b"",
    None,
    IDENTITY,
]


def random_text(rng: random.Random) -> str:
    return "".join(rng.choices("AaBbé\uff5e😀-0123", k=rng.choice([1, 2, 3, 40])))


def random_keys() -> list[list[str]]:
    rng = random.Random(3)
    return [[random_text(rng) for _ in range(rng.randint(1, 60))] for _ in range(CASES)]


def random_changes() -> list[tuple[str, list[tuple[str, int]]]]:
    """For a topic: partitions put into a set and taken out, at least one left."""
    rng = random.Random(4)
    return [(random_text(rng), changes(rng)) for _ in range(CASES)]


def changes(rng: random.Random) -> list[tuple[str, int]]:
    row: list[tuple[str, int]] = []
    inside: list[int] = []
    for p in rng.sample(range(200), rng.randint(1, 60)):
        row.append(("+", p))
        inside.append(p)
        if len(inside) > 1 and rng.random() < 0.4:
            row.append(("-", inside.pop(rng.randrange(len(inside)))))
    return row


def user_data_lines() -> list[str]:
    subscriptions = [ConsumerSubscription(topics=("t",), user_data=data) for data in USER_DATA]
    return [f"generation\t{encode_subscription(s, v).hex()}" for s in subscriptions for v in (0, 1, 2, 3)]


def change_lines() -> list[str]:
    return [f"partitions\t{topic}\t{','.join(f'{sign}{p}' for sign, p in row)}" for topic, row in random_changes()]


def lines_of(cases: Iterable[Case]) -> list[str]:
    return [case.line() for case in cases]


def questions() -> dict[str, list[str]]:
    """All that the tests below ask Java."""
    return {
        "range and roundrobin": lines_of(range_and_roundrobin()),
        **{groups: lines_of(sticky(groups)) for groups in STICKY},
        "scenarios": lines_of(case for _, case in scenarios()),
        "deviations": lines_of(read(text, {}, 0) for text, _, _ in DEVIATIONS.values()),
        "user data": user_data_lines(),
        "keys": [f"strings\t{','.join(keys)}" for keys in random_keys()],
        "changes": change_lines(),
    }


Answers = dict[str, list[str]]


@pytest.fixture(scope="module", params=RELEASES)
def java(request: pytest.FixtureRequest) -> Answers:
    """The answers of one JVM with the release's kafka-clients to all questions."""
    asked = questions()
    answers = iter(ask_java(request.param, [line for lines in asked.values() for line in lines]))
    return {name: [next(answers) for _ in lines] for name, lines in asked.items()}


def test_range_and_roundrobin_are_those_of_the_java_client(java: Answers) -> None:
    cases = range_and_roundrobin()
    assert {case.strategy for case in cases} == {"range", "roundrobin"}
    for case, answer in zip(cases, java["range and roundrobin"], strict=True):
        ours, theirs = case.ours(), parse(answer)
        if case.strategy == "range":  # Java walks the topics in the order of a hash map: the order within one counts
            ours, theirs = by_topic(ours), by_topic(theirs)
        assert ours == theirs, case


def by_topic(assignment: Assignment) -> Assignment:
    """`sorted` is stable: the order of partitions within a topic stays as it was."""
    return {member: sorted(tps, key=lambda tp: tp.topic) for member, tps in assignment.items()}


@pytest.mark.parametrize("groups", STICKY)
def test_cooperative_sticky_is_that_of_the_java_client(java: Answers, groups: str) -> None:
    compared = moved = contested = 0
    for case, answer in zip(sticky(groups), java[groups], strict=True):
        if as_java_fails(case):
            continue
        theirs = parse(answer)
        if claimed_twice(case.members):
            contested += 1
            theirs = less_what_others_hold(theirs, case.members)
        assert case.ours() == theirs, case
        compared += 1
        moved += gives_up(case.members, theirs)
    # The cases are worth something: partitions move, members are stale.
    assert compared >= 2 * CASES
    assert moved >= CASES // 4
    assert contested >= CASES // 20


def gives_up(members: Mapping[str, GroupMember], assignment: Assignment) -> bool:
    return any(set(member.owned) - set(assignment[member_id]) for member_id, member in members.items())


def test_the_vectors_are_what_java_gives(java: Answers) -> None:
    assert rows(list(scenarios()), java["scenarios"]) == VECTORS.read_text().splitlines()


def test_where_ours_differs_java_still_does_what_it_was_left_for(java: Answers) -> None:
    for (name, (_, ours, theirs)), answer in zip(DEVIATIONS.items(), java["deviations"], strict=True):
        assert answer.partition(":")[0] == theirs, name
        assert ours != theirs, name


def test_java_reads_the_generation_of_our_user_data_and_lets_alone_what_follows(java: Answers) -> None:
    assert java["user data"] == [str(decode_user_data(data)) for data in USER_DATA for _ in range(4)]


def test_hash_tables_are_walked_as_java_walks_them(java: Answers) -> None:
    assert java["keys"] == [",".join(hash_map_order(keys)) for keys in random_keys()]
    assert java["changes"] == [str(first_after(topic, row)) for topic, row in random_changes()]


def first_after(topic: str, row: Iterable[tuple[str, int]]) -> int:
    partitions = PartitionHashSet(topic)
    for sign, p in row:
        (partitions.add if sign == "+" else partitions.remove)(TopicPartition(topic, p))
    return partitions.first().partition
