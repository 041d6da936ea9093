"""The query of a mirror: its options, and when it starts again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from streamgroup.errors import AuthorizationError, ConfigError, TransportError
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.mirror.clusters import Clusters
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
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan
from streamgroup.jobs.mirror.query import WATCH_S, PlanWatch, describe, query_name, source_options


def config(source: dict[str, str], member: str | None = None) -> MirrorConfig:
    return MirrorConfig(Path("m.toml"), member, source, {}, "c", "p", SparkSettings("it"))


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ({"subscribe": "a"}, {"subscribe": "a,b", "includeHeaders": "true"}),
        ({"subscribePattern": ".*", "x": "y"}, {"x": "y", "subscribe": "a,b", "includeHeaders": "true"}),
        ({"assign": '{"a": [0]}'}, {"assign": '{"a": [0]}', "includeHeaders": "true"}),
    ],
)
def test_the_read_names_the_topics_that_have_a_plan(source: dict[str, str], options: dict[str, str]) -> None:
    assert source_options(config(source), ["a", "b"], Abilities()) == options


def test_headers_are_read_only_if_they_can_be_written() -> None:
    assert source_options(config({}), ["a"], Abilities(headers=False)) == {"subscribe": "a"}


def test_members_have_names_of_their_own_in_sparks_pages() -> None:
    assert (query_name(config({})), query_name(config({}, "b"))) == ("it", "it-b")


def plan(*topics: str) -> MirrorPlan:
    return MirrorPlan({topic: TopicPlan(topic, f"to-{topic}", Placement.KEEP, {0: 0}) for topic in topics})


def test_a_long_plan_is_described_in_one_line() -> None:
    assert describe(plan("a", "b")) == "a -> to-a (keep), b -> to-b (keep)"
    assert describe(plan(*"abcdefg")).endswith("e -> to-e (keep) and 2 more topics")


class Watched:
    """Clusters with a plan and topics, or an error; and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found = plan("a")
        self.named = ["a"]
        self.error: Exception | None = None
        self.looks = 0
        self.said: list[str] = []
        clusters = cast("Clusters", self)
        self.watch = PlanWatch(clusters, plan("a"), ["a"], self.said.append, lambda: self.now)

    def source(self) -> list[str]:
        return self.named

    def plan(self, before: MirrorPlan, source: list[str]) -> MirrorPlan:
        assert (before, source) == (plan("a"), self.named)
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.found

    def topics(self, source: list[str]) -> list[str]:
        return source

    def later(self) -> bool:
        self.now += WATCH_S
        return self.watch.has_changed()


def test_clusters_are_looked_at_from_time_to_time() -> None:
    watched = Watched()
    assert not watched.watch.has_changed()
    assert watched.looks == 0
    assert not watched.later()
    assert not watched.watch.has_changed()
    assert watched.looks == 1


def new_partition(watched: Watched) -> None:
    watched.found = plan("a", "b")


def new_topic_that_an_earlier_run_has_planned(watched: Watched) -> None:
    watched.named = ["a", "b"]


@pytest.mark.parametrize("change", [new_partition, new_topic_that_an_earlier_run_has_planned])
def test_a_change_is_noticed(change: Callable[[Any], None]) -> None:
    watched = Watched()
    change(watched)
    assert watched.later()


@pytest.mark.parametrize(
    "error", [ConfigError("no topic b"), TransportError("no broker"), AuthorizationError("cannot create topic b")]
)
def test_an_error_is_said_once_and_the_mirror_goes_on(error: Exception) -> None:
    watched = Watched()
    watched.error = error
    assert not watched.later()
    assert not watched.later()
    assert watched.said == [f"warning: {error}"]
    watched.error = None
    watched.found = plan("a", "b")
    assert watched.later()


KEEP, HASH = Placement.KEEP, Placement.HASH


def plan_of_topics(*topics: tuple[str, str, Placement, Mapping[int, int]]) -> MirrorPlan:
    return MirrorPlan({topic[0]: TopicPlan(*topic) for topic in topics})


SAME = plan_of_topics(("a", "a", KEEP, {0: 0, 1: 1}))
UNPLANNED = "raise_error(concat('topic a has a partition that the mirror has not planned: ', partition))"


def test_unchanged_names_and_numbers_are_the_columns_of_the_source() -> None:
    assert topic_of(SAME) == "topic"
    assert partition_of(SAME) == "partition"


def test_topics_are_renamed() -> None:
    renamed = plan_of_topics(("a", "x", KEEP, {0: 0}), ("b", "b", KEEP, {0: 0}))
    assert topic_of(renamed) == "CASE topic WHEN 'a' THEN 'x' WHEN 'b' THEN 'b' ELSE topic END"


def test_partitions_of_0_7_get_the_numbers_of_the_plan() -> None:
    numbered = plan_of_topics(("a", "a", KEEP, {0: 0, 10_000: 1}))
    numbers = f"CASE partition WHEN 0 THEN 0 WHEN 10000 THEN 1 ELSE {UNPLANNED} END"
    assert partition_of(numbered) == f"CASE topic WHEN 'a' THEN {numbers} ELSE partition END"


def test_keys_place_records_and_the_partition_those_without_a_key() -> None:
    hashed = plan_of_topics(("a", "a", HASH, {0: 1, 1: 0}))
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
    both = plan_of_topics(("a", "x", HASH, {0: 0}), ("b", "y", KEEP, {0: 1, 10_000: 0}))
    numbers = "CASE partition WHEN 0 THEN 1 WHEN 10000 THEN 0 ELSE -2 END"
    assert place_of(both, -1, source=True) == f"CASE topic WHEN 'a' THEN -1 WHEN 'b' THEN {numbers} ELSE partition END"
    assert place_of(both, -1, source=False) == "CASE topic WHEN 'x' THEN -1 ELSE partition END"


def test_names_are_quoted() -> None:
    assert literal("a'b\\") == r"'a\'b\\'"


def test_a_topic_whose_name_is_a_number_is_quoted_too() -> None:
    assert topic_of(plan_of_topics(("1", "2", KEEP, {0: 0}))) == "CASE topic WHEN '1' THEN '2' ELSE topic END"
