"""The meaning of other consumers' patterns, and that none of them takes long to be matched or refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError
from streamgroup.group.registry.patterns import WAYS_MOST, matches, ways
from streamgroup.java_regex import compile_java

LETTERS = "a" * 26
LONGEST = "a" * 249
SOON_S = 2.0


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("(a+)+b", LETTERS),
        ("(a|a)*b", LETTERS),
        ("(a|aa)+b", LETTERS),
        ("(a*)*b", LETTERS),
        ("(a?b?){20}c", LETTERS),
        (".*.*.*.*x", LONGEST),
        ("a?" * 30 + "a" * 30, "a" * 29),
        ("(a|a)" * 30 + "b", "a" * 30),
        ("(?:(?:(?:){30}){30}){30}", "a"),
        ("[]](a+)+b", "]" + LETTERS),
        ("[[a]](a+)+b", "a" + LETTERS),
        (r"\[(a+)+b", "[" + LETTERS),
        (r"[\]](a+)+b", "]" + LETTERS),
    ],
)
def test_a_pattern_that_would_be_tried_in_too_many_ways_is_refused(pattern: str, topic: str) -> None:
    compile_java(pattern)
    begun = time.thread_time()
    with pytest.raises(DecodeError, match="cannot be used here: there are too many ways"):
        matches(pattern, topic)
    assert time.thread_time() - begun < SOON_S


@pytest.mark.parametrize(
    ("pattern", "topic", "is_meant"),
    [
        (".*a.*b.*", LONGEST, False),
        (".*.*.*x", LONGEST, False),
        ("[a-z]+-[a-z]+-[a-z]+-[0-9]+", "payments-eu-refunds-12", True),
        ("(foo|bar)-.*", "bar-" + LETTERS, True),
        ("a.*,b.*,c.*,d.*,e.*,f.*", "f" + LETTERS, True),
        ("(?!test).*", "tests", False),
        ("(?i)EVENTS.*", "events-1", True),
        (r"events\.v[0-9]{2}", "events.v12", True),
        ("(ab){3}", "ababab", True),
    ],
)
def test_what_people_write_is_matched_soon(pattern: str, topic: str, is_meant: bool) -> None:
    begun = time.thread_time()
    assert matches(pattern, topic) is is_meant
    assert time.thread_time() - begun < SOON_S


def test_a_pattern_longer_than_any_that_is_meant_is_not_even_compiled() -> None:
    with pytest.raises(DecodeError, match="longer than 1000 characters"):
        matches("a" * 1001, "a")


def test_a_pattern_has_the_meaning_of_java() -> None:
    assert matches("[a-z&&[^b]]+", "acd")
    assert not matches("[a-z&&[^b]]+", "abc")
    assert matches(r"\p{Alpha}+[[0-9]_]", "orders_")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(", r"a \( without a \)"),
        ("x{}", r"the quantifier \{\}"),
        ("(?#[)(a+)+b", "the flag '#'"),  # a comment in Python
        ("(?x)#[\n(a+)+b", "the flag 'x'"),
    ],
)
def test_a_pattern_that_is_none_in_java_cannot_be_used(pattern: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=f"cannot be used here: {reason}"):
        matches(pattern, LETTERS)


def test_the_same_is_matched_once() -> None:
    matches.cache_clear()
    for _ in range(3):
        matches("j-.*", "j-1")
    assert (matches.cache_info().misses, matches.cache_info().hits) == (1, 2)


PIECES = ["a", "b", ".", "(", ")", "|", "*", "+", "?", "{2}", "{1,}", "[ab]", "(?:", "(?=", r"\w"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_let_pass_never_takes_long(pattern: str) -> None:
    try:
        compiled = compile_java(pattern)
    except ValueError:
        return
    topic = "a" * 40
    if ways(pattern, len(topic)) <= WAYS_MOST:
        begun = time.process_time()
        compiled.fullmatch(topic)
        assert time.process_time() - begun < SOON_S
