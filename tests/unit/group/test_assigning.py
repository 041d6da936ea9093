"""Every assignor divides the same topics in the same order as Java's members do, so that mixed groups agree."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.group.assigning import GroupMember, java_order, subscribed
from tests.live.java.cases import topics


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
    existing = topics({"unread": 1, "\uffee": 1, "u": 2, "t": 0, "\U0001f600": 1})
    assert subscribed(members, existing) == ["t", "u", "\U0001f600", "\uffee"]


@pytest.mark.parametrize("members", [{}, {"m": GroupMember(())}, {"m": GroupMember(("gone",))}])
def test_a_group_that_reads_no_existing_topic_divides_none(members: dict[str, GroupMember]) -> None:
    assert subscribed(members, topics({"t": 3})) == []
