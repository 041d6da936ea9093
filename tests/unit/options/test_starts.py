from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets
from tests.unit.options.reads import A, B, batch, stream


@pytest.mark.parametrize(("word", "default"), [("earliest", EARLIEST), ("Latest", LATEST)])
def test_a_stream_starts_at_either_end(word: str, default: int) -> None:
    assert stream(startingOffsets=word).starting == ConfiguredOffsets(default)


def test_a_start_by_partition_may_name_the_ends() -> None:
    configured = stream(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert configured == ConfiguredOffsets(LATEST, offsets={A: 23, B: EARLIEST})


def test_the_first_of_three_starts_counts_alone() -> None:
    given = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders": {"0": 6}}',
        "startingOffsets": "earliest",
    }
    options = stream(**given)
    assert options.starting == ConfiguredOffsets(LATEST, timestamp=5)
    assert len(options.notes) == 2
    assert stream(**{**given, "startingTimestamp": None}).starting == ConfiguredOffsets(LATEST, timestamps={A: 6})


def test_the_strategy_latest_allows_a_timestamp_without_match() -> None:
    assert stream(startingTimestamp="5", startingOffsetsByTimestampStrategy="Latest").starting.no_match_is_latest
    assert not stream(startingTimestamp="5").starting.no_match_is_latest


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endingOffsets": "latest"}, ConfiguredOffsets(LATEST, no_match_is_latest=True)),
        ({"endingOffsets": '{"orders": {"0": -1}}'}, ConfiguredOffsets(LATEST, {A: LATEST}, no_match_is_latest=True)),
        ({"endingTimestamp": "0"}, ConfiguredOffsets(LATEST, timestamp=0, no_match_is_latest=True)),
        (
            {"endingOffsetsByTimestamp": '{"orders": {"0": 8}}', "endingOffsets": "latest"},
            ConfiguredOffsets(LATEST, timestamps={A: 8}, no_match_is_latest=True),
        ),
    ],
)
def test_a_batch_read_ends_at_its_ending_option(given: dict[str, str], expected: ConfiguredOffsets) -> None:
    assert batch(**given).ending == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        (
            {"startingOffsets": '{"orders": {"0": -1}}'},
            "invalid offset -1 for orders-0: a batch read cannot start at the latest",
        ),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        (
            {"endingOffsets": '{"orders": {"0": -2}}'},
            "invalid offset -2 for orders-0: a batch read cannot end at the earliest",
        ),
    ],
)
def test_a_batch_read_that_would_be_empty_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        batch(**given)


@pytest.mark.parametrize(
    ("read", "name", "offered", "refused"),
    [
        (stream, "startingOffsets", ("-2", "-1"), ()),
        (batch, "startingOffsets", ("-2",), ("-1",)),
        (batch, "endingOffsets", ("-1",), ("-2",)),
    ],
)
@pytest.mark.parametrize("value", ["middle", '{"orders": {"0": -7}}'])
def test_only_numbers_that_are_taken_are_offered(
    read: Any, name: str, offered: tuple[str, ...], refused: tuple[str, ...], value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{name: value})
    said = str(caught.value).replace(value, "")
    assert offered[0] in said
    assert all(number in said for number in offered) or value == "middle", "an example needs one only"
    assert not any(number in said for number in refused)


@pytest.mark.parametrize(("name", "value"), [("endingOffsets", "latest"), ("endingOffsetsByTimestamp", "{}")])
def test_a_stream_has_no_end(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot use option {name}: a stream has no end"):
        stream(**{name: value})


def test_a_stream_ignores_an_ending_timestamp_as_sparks_source_does() -> None:
    options = stream(endingTimestamp="5")
    assert options.ending is None
    assert options.notes == ("ignored option endingTimestamp: a stream has no end",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"orders": {"0": 1}}, "must list all partitions that are read. Add clicks"),
        (
            {"orders": {"0": 1}, "clicks": {"0": 1}, "other": {"0": 1}},
            "lists partitions that are not read. Remove other",
        ),
    ],
)
def test_a_start_by_partition_lists_exactly_the_topics_subscribed(value: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        stream(subscribe="orders,clicks", startingOffsets=json.dumps(value))


def test_a_start_by_partition_lists_exactly_the_partitions_assigned() -> None:
    with pytest.raises(ConfigError, match=r"(?s)Add orders-1.*Remove orders-2"):
        batch(subscribe=None, assign='{"orders": [0, 1]}', startingOffsets='{"orders": {"0": 1, "2": 1}}')


def test_a_pattern_leaves_that_to_the_cluster() -> None:
    configured = batch(subscribe=None, subscribePattern=".*", startingOffsets='{"orders": {"0": 1}}').starting
    assert configured.offsets == {A: 1}
