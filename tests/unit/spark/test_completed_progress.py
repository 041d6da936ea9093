"""A completed progress has the lag metrics of Spark's Kafka source and says what each source reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.model import INITIAL_DOCUMENT
from streamgroup.planning.document import to_value
from streamgroup.spark.completed_progress import behind_of, completed, describe
from tests.unit.spark.test_progress import CLASS, LATEST, OPTIONS, document, made, source


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"subscribe": "orders"}, "streamgroup[Subscribe[orders], group=etl, mode=member]"),
        ({"subscribePattern": "or.*"}, "streamgroup[SubscribePattern[or.*], group=etl, mode=member]"),
        ({"assign": '{"orders": [1, 0]}'}, "streamgroup[Assign[orders-0, orders-1], group=etl, mode=commit]"),
        ({"subscribe": "orders", "group.mode": "off"}, "streamgroup[Subscribe[orders], mode=off]"),
    ],
)
def test_the_description_has_sparks_words_for_what_is_read(more: dict[str, str], text: str) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "subscribe"}
    assert describe({**options, **more}) == text
    assert describe({**options, **more}, to_value(INITIAL_DOCUMENT)) == text


def test_a_document_without_a_group_shows_that_the_mode_is_off_by_default() -> None:
    assert (
        describe({**OPTIONS, "subscribe": "orders"}, document(group="")) == "streamgroup[Subscribe[orders], mode=off]"
    )


def test_a_mode_that_the_options_name_in_any_case_gives_way_to_a_document_without_a_group() -> None:
    options = {**OPTIONS, "subscribe": "orders", "Group.Mode": "member"}
    assert describe(options, document(group="")) == "streamgroup[Subscribe[orders], mode=off]"


def test_a_source_has_the_options_that_spark_describes_it_by() -> None:
    last = made(source(0, document(), LATEST), source(1, document(), LATEST))
    found = completed(last, {f"{CLASS}@1": {**OPTIONS, "subscribe": "orders"}})
    described = [f"{CLASS}@0", "streamgroup[Subscribe[orders], group=etl, mode=member]"]
    assert [one.description for one in found.sources] == described
    assert [one["description"] for one in json.loads(found.json)["sources"]] == described


def test_metrics_that_a_source_has_already_are_kept() -> None:
    of_source = {**source(0, document(), LATEST), "metrics": {"own": "1"}}
    found = completed(made(of_source), {})
    assert found.sources[0].metrics["own"] == "1"
    assert found.sources[0].metrics["maxOffsetsBehindLatest"] == "10"


def test_a_source_before_its_first_batch_is_described_and_has_no_metrics() -> None:
    initial = json.dumps(to_value(INITIAL_DOCUMENT))
    found = completed(made(source(0, initial, LATEST)), {f"{CLASS}@0": {**OPTIONS, "subscribe": "orders"}})
    assert found.sources[0].description == "streamgroup[Subscribe[orders], group=etl, mode=member]"
    assert found.sources[0].metrics == {}


@pytest.mark.parametrize(
    ("latest", "behind"),
    [(LATEST, [10, 5]), ({"orders": {"0": 99}}, [0]), ({"orders": {"7": 9}}, []), (None, [])],
    ids=["behind", "never below 0", "a partition that is not held", "no ends yet"],
)
def test_a_source_is_behind_by_the_offsets_from_its_batch_to_the_ends_of_its_logs(
    latest: Any, behind: list[int]
) -> None:
    (of_source,) = made(source(0, document(), latest)).sources
    assert behind_of(of_source) == behind
