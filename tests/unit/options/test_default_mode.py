"""The default mode of the streams of an application or a session."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.default_mode import parse_default_mode, with_default_mode
from streamgroup.options.parse import parse_source
from streamgroup.options.types import GroupMode

GROUP = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "KAFKA.Group.ID": "g"}
ALONE = {name: value for name, value in GROUP.items() if name != "KAFKA.Group.ID"}


def test_a_stream_with_a_group_takes_the_default_and_the_log_says_so() -> None:
    options, notes = with_default_mode(GROUP, GroupMode.OFF, "HERE")
    group = parse_source(options, streaming=True).group
    assert group is not None
    assert group.mode is GroupMode.OFF
    assert notes == ("group.mode is off: HERE sets it",)


def test_a_stream_with_a_group_is_a_member_where_the_default_says_so() -> None:
    assert with_default_mode(GROUP, GroupMode.MEMBER, "HERE") == (GROUP, ())


def test_the_option_of_a_query_takes_precedence_in_any_case() -> None:
    options = {**GROUP, "Group.Mode": "member"}
    assert with_default_mode(options, GroupMode.OFF, "HERE") == (options, ())


def test_a_stream_without_a_group_reads_alone_as_before() -> None:
    assert with_default_mode(ALONE, GroupMode.OFF, "HERE") == (ALONE, ())


@pytest.mark.parametrize(
    ("text", "mode"), [("off", GroupMode.OFF), (" OFF ", GroupMode.OFF), ("member", GroupMode.MEMBER)]
)
def test_the_modes_by_default_are_off_and_member(text: str, mode: GroupMode) -> None:
    assert parse_default_mode(text, "HERE") is mode


@pytest.mark.parametrize("text", ["", "none", "commit"])
def test_another_word_is_refused_by_the_place_where_it_is(text: str) -> None:
    with pytest.raises(ConfigError, match=f"invalid value {text!r} for HERE: expected off or member"):
        parse_default_mode(text, "HERE")
