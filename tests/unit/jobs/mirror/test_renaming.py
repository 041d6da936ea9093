"""The names of topics at the destination."""

from __future__ import annotations

import re

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.mirror.renaming import Renaming, check_pattern
from tests.unit.test_java_regex import SLOW, SLOW_NAME


@pytest.mark.parametrize(
    ("rule", "renamed"),
    [
        pytest.param(Renaming(), "eu.orders", id="no rule"),
        pytest.param(Renaming(prefix="copy."), "copy.eu.orders", id="prefix"),
        pytest.param(Renaming(match=r"^eu\.(.*)$", replace=r"\1-eu"), "orders-eu", id="a group"),
        pytest.param(Renaming(match=r".*", replace="all"), "all", id="the first match only"),
        pytest.param(Renaming(match="us", replace="them"), "eu.orders", id="no match"),
        pytest.param(Renaming(match=r"eu\.", prefix="old-"), "old-orders", id="the prefix comes after the replacement"),
        pytest.param(Renaming({"eu.orders": "o"}, match="o", replace="x", prefix="p"), "o", id="the table wins"),
        pytest.param(Renaming({"other": "o"}, prefix="p."), "p.eu.orders", id="not in the table"),
    ],
)
def test_a_topic_gets_its_name_by_the_rule(rule: Renaming, renamed: str) -> None:
    assert rule.names(["eu.orders"]) == {"eu.orders": renamed}


@pytest.mark.parametrize("rule", [Renaming(prefix="a b"), Renaming(match=".*"), Renaming({"t": "x" * 250})])
def test_a_name_that_no_topic_may_have_is_refused(rule: Renaming) -> None:
    with pytest.raises(ConfigError, match=r"cannot rename topic 't' to .*: expected 1 to 249 letters"):
        rule.names(["t"])


def test_a_name_in_which_the_match_takes_too_long_is_refused_unless_the_table_has_it() -> None:
    with pytest.raises(ConfigError, match=rf"cannot rename topic '{SLOW_NAME}' by \[rename\] match .* 0\.25 s\."):
        Renaming(match=SLOW).name(SLOW_NAME)
    assert Renaming({SLOW_NAME: "a"}, match=SLOW).name(SLOW_NAME) == "a"


@pytest.mark.parametrize(
    ("match", "replace"),
    [
        (r"(?P<a>b+)(x)?", r"<\g<a>\g<0>\2>"),
        (r"(?i)B(?=c)", r"\n\\"),
        (r"(?>b+)c|$", r"-\060"),
        ("$", "-end"),
        (r"\b", "_"),
        (r"(?<!a)[^\W\d_]{2,3}?", "-"),
        ("z*", "y"),
    ],
)
def test_a_match_is_replaced_as_by_pythons_re(match: str, replace: str) -> None:
    check_pattern(match, replace)
    for topic in ("abbc", "a.b-c_1", "BCbc", "9"):
        assert Renaming(match=match, replace=replace)._replaced(topic) == re.sub(match, replace, topic, count=1)


def test_two_topics_with_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot mirror topics 'a1' and 'a2' into one topic 'a'"):
        Renaming(match="[0-9]").names(["a2", "a1"])


@pytest.mark.parametrize(
    ("match", "replace", "said"),
    [
        ("(", "", "match is not a regular expression: missing"),
        ("[[a]", "", "match may mean something else in a later Python: Possible nested set"),
        ("(a)", r"\2", "replace does not fit match: invalid group reference 2"),
        ("(?P<n>a)", r"\g<m>", "replace does not fit match: unknown group name 'm'"),
        ("a", "\\q", "replace does not fit match: bad escape"),
    ],
)
def test_a_pattern_is_checked_before_a_topic_matches(match: str, replace: str, said: str) -> None:
    with pytest.raises(ValueError, match="^" + said.replace("(", r"\(")):
        check_pattern(match, replace)


def test_a_pattern_whose_groups_exist_is_accepted() -> None:
    check_pattern("(a)(?P<n>b)", r"\g<n>\1")
