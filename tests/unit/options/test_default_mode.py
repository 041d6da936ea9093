"""The default mode of an application's streams, by the environment of its driver."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.default_mode import with_default_mode
from streamgroup.options.parse import parse_source
from streamgroup.options.types import GroupMode

GROUP = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "KAFKA.Group.ID": "g"}
ALONE = {name: value for name, value in GROUP.items() if name != "KAFKA.Group.ID"}


@pytest.mark.parametrize("word", ["off", " OFF ", "commit"])
def test_a_stream_with_a_group_takes_the_default_and_the_log_says_so(word: str) -> None:
    options, notes = with_default_mode(GROUP, word)
    group = parse_source(options, streaming=True).group
    assert group is not None
    assert group.mode is GroupMode(word.strip().lower())
    assert notes == (f"group.mode is {word.strip().lower()}: STREAMGROUP_GROUP_MODE sets it",)


@pytest.mark.parametrize("word", ["", " ", "member"])
def test_without_a_default_a_stream_with_a_group_is_a_member(word: str) -> None:
    assert with_default_mode(GROUP, word) == (GROUP, ())


def test_the_option_of_a_query_takes_precedence_in_any_case() -> None:
    options = {**GROUP, "Group.Mode": "member"}
    assert with_default_mode(options, "off") == (options, ())


@pytest.mark.parametrize("word", ["off", "commit"])
def test_a_stream_without_a_group_reads_alone_as_before(word: str) -> None:
    assert with_default_mode(ALONE, word) == (ALONE, ())


def test_another_word_is_refused_by_the_name_of_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"invalid value 'none' for the environment variable STREAMGROUP_GROUP_MODE"):
        with_default_mode(ALONE, "none")
