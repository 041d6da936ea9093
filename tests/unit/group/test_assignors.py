"""Assignments: the examples of the design as tables, what holds for all, and the order of strings as in Java."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.group.assigning import java_order, subscribed
from streamgroup.group.assignors import ASSIGNORS, COOPERATIVE, GroupMember, chunks, member_order
from streamgroup.model import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition
from tests.live.java.cases import topics as topics_of


def topic(name: str, leaders: Sequence[int]) -> TopicInfo:
    """A topic whose partition `i` is led by `leaders[i]`."""
    return TopicInfo(name, tuple(PartitionInfo(i, leader) for i, leader in enumerate(leaders)))


def numbers(strategy: str, members: Mapping[str, GroupMember], *topics: TopicInfo) -> dict[str, list[str]]:
    assigned = ASSIGNORS[strategy](members, {t.name: t for t in topics})
    return {member: [str(tp) for tp in partitions] for member, partitions in assigned.items()}


def three_members(*topics: str) -> dict[str, GroupMember]:
    return {member: GroupMember(topics) for member in "ABC"}


def test_chunks_follow_the_brokers_three_members_two_brokers() -> None:
    # Broker 0 leads 0, 2, 4; broker 1 leads 1, 3, 5: (broker, partition) sorted, two for each.
    assert numbers("streamgroup-range", three_members("t"), topic("t", [0, 1, 0, 1, 0, 1])) == {
        "A": ["t-0", "t-2"],
        "B": ["t-4", "t-1"],
        "C": ["t-3", "t-5"],
    }


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [(18, 4, [5, 5, 4, 4]), (6, 3, [2, 2, 2]), (2, 3, [1, 1, 0]), (0, 2, [0, 0]), (7, 1, [7]), (7, 2, [4, 3])],
)
def test_the_first_members_take_one_more(count: int, parts: int, sizes: list[int]) -> None:
    assert [len(chunk) for chunk in chunks(count, parts)] == sizes


def test_partitions_without_a_leader_come_last() -> None:
    two = {"A": GroupMember(("t",)), "B": GroupMember(("t",))}
    assert numbers("streamgroup-range", two, topic("t", [NO_LEADER, 5, NO_LEADER, 2])) == {
        "A": ["t-3", "t-1"],
        "B": ["t-0", "t-2"],
    }


def test_each_topic_is_divided_on_its_own_by_range() -> None:
    two = {"A": GroupMember(("t", "u")), "B": GroupMember(("u", "t"))}
    assert numbers("range", two, topic("t", [0, 0, 0]), topic("u", [0, 0, 0])) == {
        "A": ["t-0", "t-1", "u-0", "u-1"],
        "B": ["t-2", "u-2"],
    }


def test_roundrobin_deals_all_topics_in_one_row() -> None:
    two = {"A": GroupMember(("t", "u")), "B": GroupMember(("u", "t"))}
    assert numbers("roundrobin", two, topic("t", [0, 0, 0]), topic("u", [0, 0, 0])) == {
        "A": ["t-0", "t-2", "u-1"],
        "B": ["t-1", "u-0", "u-2"],
    }


def test_roundrobin_passes_over_members_without_the_topic() -> None:
    members = {"A": GroupMember(("t",)), "B": GroupMember(("t", "u")), "C": GroupMember(("t", "u", "v"))}
    assert numbers("roundrobin", members, topic("t", [0]), topic("u", [0, 0]), topic("v", [0, 0, 0])) == {
        "A": ["t-0"],
        "B": ["u-0"],
        "C": ["u-1", "v-0", "v-1", "v-2"],
    }


def test_static_members_come_first_and_by_their_instance() -> None:
    members = {
        "a": GroupMember((), None),
        "z": GroupMember((), "node-1"),
        "b": GroupMember((), "node-2"),
        "0": GroupMember((), None),
    }
    assert member_order(members) == ["z", "b", "0", "a"]


def test_a_static_members_restart_moves_no_chunk() -> None:
    before = {"m-1": GroupMember(("t",), "x"), "m-2": GroupMember(("t",), "y")}
    after = {"m-9": GroupMember(("t",), "x"), "m-2": GroupMember(("t",), "y")}
    layout = topic("t", [0, 1, 2, 0])
    for strategy in ASSIGNORS.keys() - COOPERATIVE:  # cooperative-sticky goes by what they own instead
        assert numbers(strategy, before, layout)["m-2"] == numbers(strategy, after, layout)["m-2"]


def test_cooperative_strategies_are_among_those_there_are() -> None:
    assert ASSIGNORS.keys() > COOPERATIVE == {"cooperative-sticky"}


def test_members_sort_as_java_sorts_strings() -> None:
    # U+1F600 is a surrogate pair in UTF-16 (D83D ...) and so sorts before U+FF5E, although its code point is larger.
    assert member_order({"\uff5e": GroupMember(()), "😀": GroupMember(())}) == ["😀", "\uff5e"]


def test_a_topic_that_does_not_exist_gives_nobody_anything() -> None:
    for strategy in ASSIGNORS:
        assert numbers(strategy, {"A": GroupMember(("gone",))}) == {"A": []}


NAMES = st.sampled_from(["t", "u", "v", "w"])
LAYOUTS = st.dictionaries(NAMES, st.lists(st.integers(NO_LEADER, 3), max_size=12), max_size=4)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, GroupMember]:
    ids = draw(st.lists(st.text("ab01", min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
    return {
        member_id: GroupMember(
            tuple(draw(st.lists(NAMES, max_size=4))),
            f"i-{draw(st.permutations(range(9)))[0]}-{member_id}" if draw(st.booleans()) else None,
        )
        for member_id in ids
    }


@given(groups(), LAYOUTS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_assignor_is_total_disjoint_and_independent_of_order(
    members: dict[str, GroupMember], layout: dict[str, list[int]], strategy: str
) -> None:
    topics = {name: topic(name, leaders) for name, leaders in layout.items()}
    assigned = ASSIGNORS[strategy](members, topics)
    handed_out = [tp for partitions in assigned.values() for tp in partitions]
    subscribed = {name for member in members.values() for name in member.topics}
    assert assigned.keys() == members.keys()
    assert sorted(handed_out) == sorted(
        TopicPartition(name, p.partition) for name in subscribed & topics.keys() for p in topics[name].partitions
    )
    assert all(tp.topic in members[member].topics for member, tps in assigned.items() for tp in tps)

    reversed_members = {
        k: GroupMember(tuple(reversed(m.topics)), m.instance_id) for k, m in reversed(list(members.items()))
    }
    reversed_topics = {
        name: TopicInfo(name, tuple(reversed(info.partitions))) for name, info in reversed(list(topics.items()))
    }
    assert ASSIGNORS[strategy](reversed_members, reversed_topics) == assigned


@given(
    st.dictionaries(
        st.sampled_from("ABCDEF"), st.lists(st.sampled_from("tuvw"), max_size=5).map(tuple), min_size=1, max_size=6
    ),
    st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 7), max_size=4),
)
def test_roundrobin_goes_round_the_members_and_passes_over_those_who_do_not_subscribe(
    subscriptions: dict[str, tuple[str, ...]], partitions: dict[str, int]
) -> None:
    members = {member: GroupMember(topics) for member, topics in subscriptions.items()}
    expected: dict[str, list[str]] = {member: [] for member in members}
    turn = itertools.cycle(member_order(members))
    for name, count in sorted(partitions.items()):
        if any(name in topics for topics in subscriptions.values()):
            for number in range(count):
                owner = next(member for member in turn if name in subscriptions[member])
                expected[owner].append(f"{name}-{number}")
    topics = [topic(name, [1] * count) for name, count in partitions.items()]
    assert numbers("roundrobin", members, *topics) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", "a"),
        ("a", "aa"),
        ("Z", "a"),
        ("a-10", "a-2"),
        ("z", "\u00e9"),
        ("\U0001f600", "\uffee"),  # its surrogates lie below U+FFEE, its code point above
        ("\ud83d", "\uffee"),  # a lone surrogate, which Java's strings may have
    ],
)
def test_texts_sort_by_utf_16_code_units_as_in_java(first: str, second: str) -> None:
    assert java_order(first) < java_order(second)


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_any_two_texts_sort_as_their_code_units_do(one: str, other: str) -> None:
    def units(text: str) -> list[int]:
        return list(array("H", text.encode("utf-16-le", "surrogatepass")))

    assert (java_order(one) < java_order(other)) == (units(one) < units(other))


def test_only_topics_that_exist_and_have_a_subscriber_are_divided_each_once_and_in_order() -> None:
    members = {"m1": GroupMember(("u", "t", "gone", "t")), "m2": GroupMember(("\uffee", "\U0001f600", "u"))}
    existing = topics_of({"unread": 1, "\uffee": 1, "u": 2, "t": 0, "\U0001f600": 1})
    assert subscribed(members, existing) == ["t", "u", "\U0001f600", "\uffee"]


@pytest.mark.parametrize("members", [{}, {"m": GroupMember(())}, {"m": GroupMember(("gone",))}])
def test_a_group_that_reads_no_existing_topic_divides_none(members: dict[str, GroupMember]) -> None:
    assert subscribed(members, topics_of({"t": 3})) == []
