"""The query of a mirror: its options, and when it starts again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from streamgroup.errors import AuthorizationError, ConfigError, TransportError
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.columns import Abilities
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
