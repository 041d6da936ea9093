"""The SQL of a mirror's columns."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamgroup.jobs.mirror.columns import (
    HEADERS,
    TIMESTAMP,
    Abilities,
    columns_of,
    literal,
    partition_of,
    place_of,
    topic_of,
)
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan

KEEP, HASH = Placement.KEEP, Placement.HASH


def plan(*topics: tuple[str, str, Placement, Mapping[int, int]]) -> MirrorPlan:
    return MirrorPlan({topic[0]: TopicPlan(*topic) for topic in topics})


SAME = plan(("a", "a", KEEP, {0: 0, 1: 1}))
UNPLANNED = "raise_error(concat('topic a has a partition that the mirror has not planned: ', partition))"


def test_unchanged_names_and_numbers_are_the_columns_of_the_source() -> None:
    assert topic_of(SAME) == "topic"
    assert partition_of(SAME) == "partition"


def test_topics_are_renamed() -> None:
    renamed = plan(("a", "x", KEEP, {0: 0}), ("b", "b", KEEP, {0: 0}))
    assert topic_of(renamed) == "CASE topic WHEN 'a' THEN 'x' WHEN 'b' THEN 'b' ELSE topic END"


def test_partitions_of_0_7_get_the_numbers_of_the_plan() -> None:
    numbered = plan(("a", "a", KEEP, {0: 0, 10_000: 1}))
    numbers = f"CASE partition WHEN 0 THEN 0 WHEN 10000 THEN 1 ELSE {UNPLANNED} END"
    assert partition_of(numbered) == f"CASE topic WHEN 'a' THEN {numbers} ELSE partition END"


def test_keys_place_records_and_the_partition_those_without_a_key() -> None:
    hashed = plan(("a", "a", HASH, {0: 1, 1: 0}))
    numbers = f"CASE partition WHEN 0 THEN 1 WHEN 1 THEN 0 ELSE {UNPLANNED} END"
    by_key = f"CASE WHEN key IS NULL THEN {numbers} END"
    assert partition_of(hashed) == f"CASE topic WHEN 'a' THEN {by_key} ELSE partition END"
    assert partition_of(hashed, by_key=False) == f"CASE topic WHEN 'a' THEN {numbers} ELSE partition END"


@pytest.mark.parametrize(
    ("common", "columns"),
    [
        (Abilities(), ["key", f"{TIMESTAMP} AS timestamp", f"{HEADERS} AS headers"]),
        (Abilities(headers=False), ["key", f"{TIMESTAMP} AS timestamp"]),
        (Abilities(timestamps=False, headers=False), ["key"]),
        (Abilities(keys=False, timestamps=False, headers=False), []),
    ],
)
def test_only_what_both_clusters_have_is_copied(common: Abilities, columns: list[str]) -> None:
    assert columns_of(SAME, common) == ["value", "topic AS topic", "partition AS partition", *columns]


def test_both_clusters_have_what_each_has() -> None:
    assert Abilities(headers=False) & Abilities(keys=False) == Abilities(keys=False, headers=False)


def test_a_comparison_is_by_partition_or_by_topic() -> None:
    both = plan(("a", "x", HASH, {0: 0}), ("b", "y", KEEP, {0: 1, 10_000: 0}))
    numbers = "CASE partition WHEN 0 THEN 1 WHEN 10000 THEN 0 ELSE -2 END"
    assert place_of(both, -1, source=True) == f"CASE topic WHEN 'a' THEN -1 WHEN 'b' THEN {numbers} ELSE partition END"
    assert place_of(both, -1, source=False) == "CASE topic WHEN 'x' THEN -1 ELSE partition END"


def test_names_are_quoted() -> None:
    assert literal("a'b\\") == r"'a\'b\\'"


def test_a_topic_whose_name_is_a_number_is_quoted_too() -> None:
    assert topic_of(plan(("1", "2", KEEP, {0: 0}))) == "CASE topic WHEN '1' THEN '2' ELSE topic END"
