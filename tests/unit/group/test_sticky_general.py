"""Members with different topics keep what they hold, share the rest evenly, and move no more than balance needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.group.assigning import GroupMember
from streamgroup.group.sticky_general import assign_unlike
from streamgroup.model import TopicPartition
from tests.live.java.cases import partitions


def share(counts: dict[str, int], **members: str) -> dict[str, str]:
    """Each member's partitions. A member is `t u [t-0 u-1]`: its topics, and the partitions that it owns.

    `[t-0 @1]` are claims of an older generation, which own nothing. All others are of generation 3.
    """
    layout = {topic: [TopicPartition(topic, number) for number in range(count)] for topic, count in counts.items()}
    group: dict[str, GroupMember] = {}
    owned: dict[str, list[TopicPartition]] = {}
    for name, text in members.items():
        names, _, claims = text.rstrip("]").partition("[")
        claimed, _, generation = claims.partition("@")
        held = partitions(claimed)
        group[name] = GroupMember(tuple(names.split()), owned=tuple(held), generation=int(generation or 3))
        owned[name] = [] if generation else held
    assigned = assign_unlike(group, layout, owned)
    return {name: " ".join(map(str, partitions)) for name, partitions in assigned.items()}


def test_a_topic_with_few_subscribers_is_given_out_first() -> None:
    """B alone can read u, so it gets less of t."""
    assert share({"t": 3, "u": 1}, A="t", B="t u") == {"A": "t-0 t-1", "B": "u-0 t-2"}


def test_of_members_with_the_fewest_partitions_the_first_by_id_gets_the_next() -> None:
    assert share({"t": 3}, B="t", C="t", A="t") == {"B": "t-1", "C": "t-2", "A": "t-0"}


@pytest.mark.parametrize("members", [{"A": "t [t-0 t-1]", "B": "t [t-2]"}, {"A": "t [t-1]", "B": "t [t-0 t-2]"}])
def test_a_balanced_group_keeps_what_it_holds(members: dict[str, str]) -> None:
    held = {name: text.partition("[")[2].rstrip("]") for name, text in members.items()}
    assert share({"t": 3}, **members) == held


def test_a_partition_of_a_topic_that_its_owner_does_not_read_any_more_goes_to_another() -> None:
    assert share({"t": 1, "u": 1}, A="t [t-0 u-0]", B="u") == {"A": "t-0", "B": "u-0"}


def test_partitions_move_one_at_a_time_until_two_members_differ_by_one() -> None:
    assert share({"t": 4}, A="t [t-0 t-1 t-2 t-3]", B="t") == {"A": "t-2 t-3", "B": "t-0 t-1"}
    assert share({"t": 4, "u": 1}, A="t [t-0 t-1 t-2 t-3]", B="t u") == {"A": "t-1 t-2 t-3", "B": "u-0 t-0"}


def test_a_partition_that_was_free_moves_before_one_that_somebody_holds() -> None:
    held = {"A": "t u [t-0]", "B": "u", "C": "t [t-2 @2]"}
    assert share({"t": 3, "u": 3}, **held) == {"A": "t-0 u-2", "B": "u-0 u-1", "C": "t-1 t-2"}


def test_a_partition_that_moves_returns_to_its_earlier_owner() -> None:
    assert share({"t": 2}, A="t", B="t [t-0 @1]", C="t [t-0 t-1]") == {"A": "", "B": "t-0", "C": "t-1"}


def test_of_several_earlier_owners_the_latest_counts() -> None:
    held = {"A": "t [t-0 t-1 @1]", "B": "t [t-0 t-1 @2]", "C": "t [t-0 t-1]"}
    assert share({"t": 2}, **held) == {"A": "", "B": "t-0", "C": "t-1"}


def test_two_members_do_not_exchange_partitions_of_a_topic() -> None:
    """B first takes t-2 from C. When B is to give t-0 to C, it gives t-2 back instead."""
    held = {"A": "u [v-0]", "B": "t u v", "C": "t u [t-1 t-2 t-3 u-0 u-1 u-2]"}
    assigned = share({"t": 4, "u": 3, "v": 1}, **held)
    assert assigned == {"A": "u-0 u-1", "B": "v-0 t-0 t-1", "C": "t-3 u-2 t-2"}


def test_a_member_that_alone_reads_its_topics_takes_no_part_in_the_balance() -> None:
    assert share({"t": 2, "own": 5}, A="own", B="t", C="t") == {
        "A": "own-0 own-1 own-2 own-3 own-4",
        "B": "t-0",
        "C": "t-1",
    }


@pytest.mark.parametrize(
    ("counts", "members", "assigned"),
    [
        ({}, {"A": "gone", "B": ""}, {"A": "", "B": ""}),
        ({"t": 2}, {"A": "t", "B": ""}, {"A": "t-0 t-1", "B": ""}),
        ({"t": 1}, {"A": "t gone", "B": "t"}, {"A": "t-0", "B": ""}),
    ],
)
def test_members_without_topics_or_without_partitions_get_an_empty_share(
    counts: dict[str, int], members: dict[str, str], assigned: dict[str, str]
) -> None:
    assert share(counts, **members) == assigned


TOPICS = st.lists(st.sampled_from("tuv"), min_size=1, unique=True)


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from("ABCD"), TOPICS, min_size=1), st.lists(st.integers(1, 5), min_size=3, max_size=3)
)
def test_a_new_group_has_every_partition_once_and_no_single_move_would_balance_it_better(
    wants: dict[str, list[str]], sizes: list[int]
) -> None:
    read = {topic for topics in wants.values() for topic in topics}
    counts = {topic: size for topic, size in zip("tuv", sizes, strict=True) if topic in read}
    assigned = share(counts, **{name: " ".join(topics) for name, topics in wants.items()})
    held = {name: partitions(text) for name, text in assigned.items()}
    assert sorted(tp for each in held.values() for tp in each) == [
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    ]
    for name, topics in wants.items():
        assert {tp.topic for tp in held[name]} <= set(topics)
        for other in wants:
            may_move = any(tp.topic in topics for tp in held[other])
            assert not may_move or len(held[other]) - len(held[name]) <= 1
