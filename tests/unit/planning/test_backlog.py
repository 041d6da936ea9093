"""The offsets that a batch has left in the logs, from the two offsets in Spark's progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.model import Document, Position, TopicPartition
from streamgroup.planning.backlog import offset_metrics, offsets_behind
from streamgroup.planning.document import to_value


def end(**positions: int) -> dict[str, Any]:
    """The end document of a batch that holds these partitions, `p0` and so on."""
    held = {TopicPartition("orders", int(name[1:])): Position(offset) for name, offset in positions.items()}
    return to_value(Document("g", "lineage", "run", 3, positions=held))


@pytest.mark.parametrize("form", [json.dumps, lambda value: value], ids=["text", "value"])
def test_each_partition_held_is_behind_by_the_offsets_to_the_end_of_its_log(form: Any) -> None:
    assert offsets_behind(form(end(p0=100, p1=195)), form({"orders": {"0": 110, "1": 200}})) == [10, 5]


def test_a_partition_of_another_member_or_without_a_known_log_end_is_left_out() -> None:
    assert offsets_behind(end(p0=100, p1=195), {"orders": {"0": 110, "2": 900}, "others": {"1": 7}}) == [10]


def test_a_log_that_was_cut_is_not_behind() -> None:
    assert offsets_behind(end(p0=100), {"orders": {"0": 3}}) == [0]


@pytest.mark.parametrize(
    "latest", [None, "null", "", "no json", "[" * 5_000, 7, {"orders": 7}, {"orders": {"0": None}}]
)
def test_nothing_is_known_without_log_ends(latest: Any) -> None:
    assert offsets_behind(end(p0=100), latest) == []


@pytest.mark.parametrize("other", [None, "null", {"orders": {"0": 5}}, {"positions": {"0": 5}}])
def test_nothing_is_known_of_an_offset_of_another_source(other: Any) -> None:
    assert offsets_behind(other, {"orders": {"0": 110}, "positions": {"0": 110}}) == []


def test_the_metrics_have_the_names_and_the_texts_of_sparks_own() -> None:
    assert offset_metrics([10, 5, 0, 0]) == {
        "avgOffsetsBehindLatest": "3.75",
        "maxOffsetsBehindLatest": "10",
        "minOffsetsBehindLatest": "0",
    }
    assert offset_metrics([0]) == {
        "avgOffsetsBehindLatest": "0.0",
        "maxOffsetsBehindLatest": "0",
        "minOffsetsBehindLatest": "0",
    }
    assert offset_metrics([]) == {}
