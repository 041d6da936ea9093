from __future__ import annotations

import json

import pytest

from streamgroup.cli._offset_files import OffsetLine, read_csv, starting_offsets, write_csv
from streamgroup.errors import ConfigError
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import TopicPartition

LINES = [OffsetLine("g", "orders", 0, 7), OffsetLine('of "many", it is', "orders", 1, 9)]


def test_what_is_written_is_read_again() -> None:
    text = write_csv(LINES, with_group=True)
    assert text.splitlines()[0] == "g,orders,0,7"
    assert read_csv(text, ["g", 'of "many", it is'], KAFKA_LOG) == {
        "g": {TopicPartition("orders", 0): 7},
        'of "many", it is': {TopicPartition("orders", 1): 9},
    }


def test_one_group_is_left_out_of_the_lines_as_kafkas_tool_does() -> None:
    text = write_csv(LINES[:1], with_group=False)
    assert text == "orders,0,7"
    assert read_csv(f"{text}\n\n", ["g"], KAFKA_LOG) == {"g": {TopicPartition("orders", 0): 7}}


def test_lines_of_other_groups_are_left_out() -> None:
    text = write_csv(LINES, with_group=True)
    assert read_csv(text, ["g"], KAFKA_LOG) == {"g": {TopicPartition("orders", 0): 7}}


def test_partitions_of_kafka_07_have_their_names() -> None:
    assert read_csv("g,events,1-2,30", ["g"], KAFKA07_LOG) == {"g": {TopicPartition("events", 10002): 30}}


@pytest.mark.parametrize(
    ("text", "groups", "reason"),
    [
        ("orders,0,7", ["g", "h"], "line 1 .* has 3 columns"),
        ("g,orders,0,7,8", ["g"], "line 1 .* has 5 columns"),
        ("g,orders,0,7\ng,orders,zero,7", ["g"], "line 2 .* invalid partition 'zero'"),
        ("g,orders,0,-7", ["g"], "invalid offset '-7'"),
        ("g,orders,0,٣", ["g"], "invalid offset"),
        (f"g,orders,0,{2**63}", ["g"], "invalid offset"),
        ("g,orders,0,7\ng,orders,0,8", ["g"], "line 2 .* orders-0 of group 'g' has an earlier line already"),
        ("g,orders,0,7", ["g", "h"], "has no line for group 'h'"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(text: str, groups: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_csv(text, groups, KAFKA_LOG)


def test_starting_offsets_have_every_partition_that_exists_and_no_other() -> None:
    offsets = {TopicPartition("orders", 0): 7, TopicPartition("orders", 9): 1, TopicPartition("deleted", 0): 3}
    text, notes = starting_offsets(offsets, {"orders": (0, 1)})
    assert json.loads(text) == {"orders": {"0": 7, "1": -2}}
    assert text == '{"orders":{"0":7,"1":-2}}'
    assert notes == [
        "left out, because the topic does not have it: deleted-0, orders-9",
        "no committed offset, so Spark starts at the earliest (-2): orders-1",
    ]


def test_starting_offsets_of_complete_commits_need_no_note() -> None:
    offsets = {TopicPartition("a", 0): 1, TopicPartition("b", 0): 2}
    assert starting_offsets(offsets, {"a": (0,), "b": (0,)}) == ('{"a":{"0":1},"b":{"0":2}}', [])
