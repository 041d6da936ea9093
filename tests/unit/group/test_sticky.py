"""`cooperative-sticky`: what Java gives in known scenarios (vectors), where ours differs, what holds for all groups.

tests/live/java/write_sticky_vectors.py writes the vectors; tests/live compares more groups with the jars.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.group import sticky
from streamgroup.group.assignors import Assignment, GroupMember
from streamgroup.group.sticky import (
    PartitionHashSet,
    assign_cooperative_sticky,
    decode_user_data,
    encode_user_data,
    hash_map_order,
    string_hash,
)
from streamgroup.model import TopicInfo, TopicPartition
from tests.live.java.cases import claimed_twice, less_what_others_hold, partitions, topics
from tests.live.java.sticky_scenarios import DEVIATIONS, read

VECTORS = Path(__file__).parents[2] / "vectors" / "assignors" / "cooperative-sticky.jsonl"
ROWS: dict[str, dict[str, Any]] = {row["scenario"]: row for row in map(json.loads, VECTORS.read_text().splitlines())}

Group = dict[str, GroupMember]


def text_of(assignment: Assignment) -> str:
    return ",".join(f"{member}={'+'.join(map(str, tps))}" for member, tps in sorted(assignment.items()))


def owned_of(names: list[str]) -> tuple[TopicPartition, ...]:
    return tuple(partitions(" ".join(names)))


@pytest.mark.parametrize("scenario", ROWS)
def test_java_gives_the_same(scenario: str) -> None:
    row = ROWS[scenario]
    members = {
        member_id: GroupMember(tuple(told["topics"]), owned=owned_of(told["owned"]), generation=told["generation"])
        for member_id, told in row["members"].items()
    }
    theirs = {member_id: partitions(" ".join(share)) for member_id, share in row["assignment"].items()}
    if claimed_twice(members):
        theirs = less_what_others_hold(theirs, members)
    assert assign_cooperative_sticky(members, topics(row["topics"])) == theirs


@pytest.mark.parametrize("case", DEVIATIONS)
def test_nobody_gets_what_another_holds_nor_what_is_not_there_or_not_wanted(case: str) -> None:
    text, ours, _ = DEVIATIONS[case]
    assert text_of(read(text, {}, 0).ours()) == ours


def test_a_group_without_members_has_no_assignment() -> None:
    assert assign_cooperative_sticky({}, topics({"t": 3})) == {}


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50))
def test_the_generation_in_user_data_is_read_whatever_follows(generation: int, extra: bytes) -> None:
    assert encode_user_data(generation) == generation.to_bytes(4, "big", signed=True)
    assert decode_user_data(memoryview(encode_user_data(generation, extra))) == generation


@pytest.mark.parametrize("data", [None, b"", b"\0\0\7"])
def test_too_short_user_data_tell_no_generation(data: bytes | None) -> None:
    assert decode_user_data(data) == -1


# Properties. A group is settled when everybody has given up what it was not given and nothing is withheld.

NAMES = ("t", "u", "v")
COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), min_size=1)
IDS = st.lists(st.sampled_from("ABCDEFGHIJKL"), min_size=1, max_size=7, unique=True)
"""Each in a bucket of its own of Java's."""
MOST_ROUNDS = 5
FEW = settings(max_examples=50)
"""Each example is a group's whole way."""


@st.composite
def any_group(draw: st.DrawFn) -> Group:
    """Claims of any kind: stale, contradicting, of partitions that are not there."""
    claims = st.lists(st.builds(TopicPartition, st.sampled_from([*NAMES, "gone"]), st.integers(0, 10)), max_size=12)
    return {
        member_id: GroupMember(
            tuple(draw(st.lists(st.sampled_from([*NAMES, "absent"]), max_size=4))),
            owned=tuple(draw(claims)),
            generation=draw(st.integers(-1, 3)),
        )
        for member_id in draw(IDS)
    }


@st.composite
def new_group(draw: st.DrawFn, *, alike: bool) -> Group:
    wanted = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)
    same = draw(wanted)
    return {member_id: GroupMember(same if alike else draw(wanted)) for member_id in draw(IDS)}


def holding(members: Group, assigned: Assignment, generation: int) -> Group:
    """The members as they join again, with what they were given in that generation."""
    return {
        member_id: replace(member, owned=tuple(sorted(assigned[member_id])), generation=generation)
        for member_id, member in members.items()
    }


def settle(members: Group, layout: Mapping[str, TopicInfo]) -> Group:
    """The members as they hold what they have when nothing changes any more."""
    first = max(member.generation for member in members.values()) + 1
    for generation in range(first, first + MOST_ROUNDS):
        before, members = members, holding(members, assign_cooperative_sticky(members, layout), generation)
        if all(before[member_id].owned == member.owned for member_id, member in members.items()):
            return members
    raise AssertionError(f"does not settle within {MOST_ROUNDS} rounds: {members}")


def wanted_partitions(members: Group, layout: Mapping[str, TopicInfo]) -> set[TopicPartition]:
    wanted = {name for member in members.values() for name in member.topics}
    return {TopicPartition(t.name, p.partition) for t in layout.values() if t.name in wanted for p in t.partitions}


@pytest.mark.slow
@given(any_group(), COUNTS)
def test_whatever_they_claim_nobody_shares_and_only_what_others_must_give_up_is_withheld(
    members: Group, counts: dict[str, int]
) -> None:
    layout = topics(counts)
    assigned = assign_cooperative_sticky(members, layout)
    assert assigned.keys() == members.keys()
    row = [tp for share in assigned.values() for tp in share]
    assert len(row) == len(set(row))
    assert all(tp.topic in members[member_id].topics for member_id, share in assigned.items() for tp in share)
    claimed = {tp for member in members.values() for tp in member.owned}
    withheld = wanted_partitions(members, layout) - set(row)
    assert set(row) <= wanted_partitions(members, layout)
    assert withheld <= claimed
    for member_id, share in assigned.items():
        for tp in share:
            rivals = [other for other_id, other in members.items() if other_id != member_id and tp in other.owned]
            own = members[member_id].generation if tp in members[member_id].owned else -2
            assert all(rival.generation < own for rival in rivals)


@pytest.mark.slow
@FEW
@given(any_group(), COUNTS)
def test_every_group_settles_and_then_nothing_moves(members: Group, counts: dict[str, int]) -> None:
    layout = topics(counts)
    settled = settle(members, layout)
    assert {tp for member in settled.values() for tp in member.owned} == wanted_partitions(members, layout)
    again = assign_cooperative_sticky(settled, layout)
    assert {member_id: set(share) for member_id, share in again.items()} == {
        member_id: set(member.owned) for member_id, member in settled.items()
    }


@pytest.mark.slow
@FEW
@given(new_group(alike=True), COUNTS)
def test_those_who_subscribe_alike_differ_by_one_at_most(members: Group, counts: dict[str, int]) -> None:
    shares = [len(member.owned) for member in settle(members, topics(counts)).values()]
    assert max(shares) - min(shares) <= 1


@pytest.mark.slow
@FEW
@given(new_group(alike=True), COUNTS, st.data())
def test_only_what_must_move_moves(members: Group, counts: dict[str, int], data: st.DataObject) -> None:
    layout = topics(counts)
    settled = settle(members, layout)
    some = next(iter(settled.values()))
    gone = data.draw(st.sets(st.sampled_from(sorted(settled)), max_size=len(settled) - 1))
    come = data.draw(st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True))
    now = {member_id: member for member_id, member in settled.items() if member_id not in gone}
    now |= {member_id: GroupMember(some.topics) for member_id in come}
    assigned = assign_cooperative_sticky(now, layout)

    least, larger = divmod(len(wanted_partitions(now, layout)), len(now))
    too_many = [len(member.owned) - least for member in now.values() if len(member.owned) > least]
    must_move = sum(too_many) - min(larger, len(too_many))
    assert sum(len(set(member.owned) - set(assigned[member_id])) for member_id, member in now.items()) == must_move


@pytest.mark.slow
@FEW
@given(any_group(), COUNTS)
def test_the_order_of_topics_and_members_in_other_buckets_has_no_effect(members: Group, counts: dict[str, int]) -> None:
    reversed_members = dict(reversed(list(members.items())))
    assert hash_map_order(members) == hash_map_order(reversed_members)
    reversed_topics = {
        name: TopicInfo(name, tuple(reversed(info.partitions))) for name, info in reversed(list(topics(counts).items()))
    }
    assigned = assign_cooperative_sticky(members, topics(counts))
    assert assign_cooperative_sticky(reversed_members, reversed_topics) == assigned


@FEW
@given(new_group(alike=False), COUNTS)
def test_no_move_would_bring_two_members_nearer(members: Group, counts: dict[str, int]) -> None:
    settled = settle(members, topics(counts))
    for member in settled.values():
        for other in settled.values():
            could_have = any(tp.topic in member.topics for tp in other.owned)
            assert not could_have or len(other.owned) - len(member.owned) <= 1


def test_a_loop_that_brings_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky._General, "_balanced", lambda _: False)
    turns = iter("AB" * 1000)
    monkeypatch.setattr(sticky._General, "_better_owner", lambda *_: next(turns))
    members = {"A": GroupMember(("t",)), "B": GroupMember(("t", "u"))}
    assigned = assign_cooperative_sticky(members, topics({"t": 3, "u": 1}))
    assert sorted(tp for share in assigned.values() for tp in share) == partitions("t-0 t-1 t-2 u-0")


@pytest.mark.parametrize("alike", [True, False])
def test_a_thousand_partitions_and_fifty_members_take_no_time_worth_naming(alike: bool) -> None:
    layout = topics({f"t{i:02}": 50 for i in range(20)})
    members = {f"consumer-{i}-0c5f": GroupMember(tuple(list(layout)[: 20 if alike else 1 + i % 20])) for i in range(50)}
    began = time.process_time()
    assigned = assign_cooperative_sticky(members, layout)
    fewer = dict(list(holding(members, assigned, 1).items())[3:])
    assign_cooperative_sticky(fewer, layout)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("text", "hash_code"),
    [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31)), ("😀", 1772899)],
)
def test_strings_hash_over_their_utf_16(text: str, hash_code: int) -> None:
    assert string_hash(text) == hash_code % 2**32


def test_keys_come_by_bucket_and_within_one_as_they_were_put_in() -> None:
    keys = ["first", "second", "third", "A", "B", "Aa", "BB", "AaAa", "BBBB", "AaBB", "é", "😀"]
    assert hash_map_order(keys) == ["Aa", "BB", "A", "B", "third", "😀", "é", "first", "second", "AaAa", "BBBB", "AaBB"]
    assert hash_map_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_map_order(["Aa", "BB", "Aa"]) == ["Aa", "BB"]


@pytest.mark.parametrize(
    ("topic", "put", "taken", "first"),
    [
        ("orders", [0, 1, 2, 3, 40], [], 40),
        ("t", list(range(20)), [7], 19),
        ("t", [0, 16], [], 0),
        ("t", [16, 0], [], 16),
        ("t", [5], [], 5),
    ],
)
def test_the_first_partition_is_of_the_lowest_bucket(topic: str, put: list[int], taken: list[int], first: int) -> None:
    row = PartitionHashSet(topic)
    for partition in put:
        row.add(TopicPartition(topic, partition))
    for partition in taken:
        row.remove(TopicPartition(topic, partition))
    assert row.first() == TopicPartition(topic, first)
    assert len(row) == len(put) - len(taken)


def test_a_set_does_not_shrink_its_buckets() -> None:
    # t-17 is in bucket 4 of 16 or of 32, t-3 in bucket 2 of 16, but 18 of 32.
    grown, small = PartitionHashSet("t"), PartitionHashSet("t")
    for partition in range(13):
        grown.add(TopicPartition("t", partition))
    for partition in range(13):
        grown.remove(TopicPartition("t", partition))
    for row, first in ((grown, 17), (small, 3)):
        row.add(TopicPartition("t", 3))
        row.add(TopicPartition("t", 17))
        assert row.first() == TopicPartition("t", first)
