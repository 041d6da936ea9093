from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.planning.document import FORMAT, DocumentCache, from_value, to_value
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, Document, OffsetRange, Position, TopicPartition

GOLDEN = Path(__file__).parents[3] / "vectors" / "documents"

OFFSETS = st.integers(0, 2**63 - 1)
TOPICS = st.sampled_from(["orders", "a.b_c-1", "streamgroup", "ranges", "Ä"])
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 120))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    ids = draw(st.dictionaries(TOPICS, st.sampled_from(["", "fEcvPsMIQ3WFdUoAZSyuFQ", "other-id"])))
    positions = draw(st.dictionaries(PARTITIONS, st.tuples(OFFSETS, st.integers(-1, 2**31 - 1)), max_size=8))
    bounds = draw(st.dictionaries(PARTITIONS, st.tuples(OFFSETS, OFFSETS).map(sorted), max_size=8))
    return Document(
        group=draw(st.text(max_size=8)),
        lineage=draw(st.text(max_size=8)),
        run=draw(st.text(max_size=8)),
        sequence=draw(st.integers(0, 2**40)),
        ranges=tuple(OffsetRange(tp, *pair) for tp, pair in bounds.items()),
        positions={tp: Position(offset, ids.get(tp.topic, ""), epoch) for tp, (offset, epoch) in positions.items()},
    )


@pytest.mark.slow
@given(documents())
def test_what_was_written_is_read_and_written_again_byte_for_byte(document: Document) -> None:
    text = json.dumps(to_value(document))
    again = from_value(json.loads(text))
    assert json.dumps(to_value(again)) == text
    assert again.positions == document.positions
    assert sorted(again.ranges) == sorted(document.ranges)
    assert (again.group, again.lineage, again.run, again.sequence) == (
        document.group,
        document.lineage,
        document.run,
        document.sequence,
    )


@pytest.mark.slow
@given(documents(), st.randoms(use_true_random=False))
def test_the_order_in_which_partitions_were_planned_does_not_show_in_the_text(document: Document, random: Any) -> None:
    ranges, positions = list(document.ranges), list(document.positions.items())
    random.shuffle(ranges)
    random.shuffle(positions)
    shuffled = Document(
        document.group, document.lineage, document.run, document.sequence, tuple(ranges), dict(positions)
    )
    assert json.dumps(to_value(shuffled)) == json.dumps(to_value(document))


def test_partitions_are_sorted_by_number_and_not_as_text() -> None:
    document = Document("g", "l", "r", 1, positions={TopicPartition("t", n): Position(0) for n in (10, 9, 1)})
    assert list(to_value(document)["positions"]["t"]) == ["1", "9", "10"]


GOLDEN_DOCUMENT = Document(
    group="etl",
    lineage="0b6c3f0e",
    run="9d21aa07",
    sequence=7,
    ranges=(
        OffsetRange(TopicPartition("orders", 2), 40, 55),
        OffsetRange(TopicPartition("orders", 10), 0, 9_223_372_036_854_775_807),
    ),
    positions={
        TopicPartition("clicks", 0): Position(3),
        TopicPartition("orders", 2): Position(55, "fEcvPsMIQ3WFdUoAZSyuFQ", 4),
        TopicPartition("orders", 10): Position(9_223_372_036_854_775_807, "fEcvPsMIQ3WFdUoAZSyuFQ"),
    },
)
EMPTY_DOCUMENT = Document(
    "etl", "0b6c3f0e", "9d21aa07", 8, positions={TopicPartition("orders", 2): Position(55, "x", 4)}
)
FOUNDED_DOCUMENT = Document("etl", "0b6c3f0e", "9d21aa07", 1, is_founded=True)
SPARK_DOCUMENT = Document(
    "", "", "", 0, positions={TopicPartition("orders", 0): Position(123), TopicPartition("orders", 11): Position(0)}
)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("format-1", GOLDEN_DOCUMENT),
        ("format-1-initial", INITIAL_DOCUMENT),
        ("format-1-no-ranges", EMPTY_DOCUMENT),
        ("format-2-founded", FOUNDED_DOCUMENT),
    ],
)
def test_documents_of_old_releases_stay_readable_and_are_written_alike(name: str, document: Document) -> None:
    text = (GOLDEN / f"{name}.json").read_text().rstrip("\n")
    assert from_value(json.loads(text)) == document
    assert json.dumps(to_value(document)) == text


@pytest.mark.parametrize("name", ["spark", "spark-topic-named-streamgroup"])
def test_an_offset_of_sparks_own_connector_is_a_legal_start(name: str) -> None:
    document = from_value(json.loads((GOLDEN / f"{name}.json").read_text()))
    expected = (
        SPARK_DOCUMENT
        if name == "spark"
        else Document("", "", "", 0, positions={TopicPartition("streamgroup", 0): Position(5)})
    )
    assert document == expected
    assert document != INITIAL_DOCUMENT


def test_a_document_that_is_marked_as_founded_has_neither_ranges_nor_positions() -> None:
    with pytest.raises(ValueError, match="document 7 is marked as founded"):
        to_value(replace(GOLDEN_DOCUMENT, is_founded=True))
    founded = to_value(FOUNDED_DOCUMENT)
    for wrong in ({"founded": False}, {"founded": 1}, {"positions": {"t": {"0": [1, -1]}}}, {"ranges": {"t": {}}}):
        with pytest.raises(ConfigError, match="format 2 must have 'founded': true, and neither ranges nor positions"):
            from_value({**founded, **wrong})


@pytest.mark.parametrize("change", [{"streamgroup": 1}, {"topics": None}], ids=["format 1", "without topics"])
def test_a_document_with_the_keys_of_another_format_is_refused(change: dict[str, Any]) -> None:
    value = {key: each for key, each in {**to_value(FOUNDED_DOCUMENT), **change}.items() if each is not None}
    with pytest.raises(ConfigError, match=f"the keys of format {value['streamgroup']} are "):
        from_value(value)


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=f"format {FORMAT + 1}.*reads formats up to {FORMAT}"):
        from_value({"streamgroup": FORMAT + 1, "of": ["another", "shape"]})


def _with(**changes: Any) -> dict[str, Any]:
    return {**to_value(GOLDEN_DOCUMENT), **changes}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({}, "not a JSON object with content"),
        ([1], "not a JSON object with content"),
        (None, "not a JSON object with content"),
        ({"orders": 3}, "'orders'"),
        ({"orders": {"0": -2}}, "orders-0"),
        ({"orders": {"0": True}}, "orders-0"),
        ({"orders": {"0": 2**63}}, "orders-0"),
        ({"orders": {"00": 1}}, "'00'"),
        ({"orders": {"x": 1}}, "'x'"),
        ({"orders": {"²": 1}}, "'²'"),
        ({"streamgroup": 1}, "the keys of format 1"),
        ({"streamgroup": True}, "streamgroup"),
        ({"streamgroup": 0}, "streamgroup"),
        ({"streamgroup": "1"}, "streamgroup"),
        (_with(more=1), "the keys of format 1"),
        (_with(group=None), "'group'"),
        (_with(sequence=-1), "sequence"),
        (_with(sequence="7"), "sequence"),
        (_with(ranges=[]), "ranges"),
        (_with(ranges={"t": {"0": [5, 4]}}), "ends .4. before it begins .5."),
        (_with(ranges={"t": {"0": [5]}}), "ranges of t-0"),
        (_with(ranges={"t": {"0": [5, 4.5]}}), "ranges of t-0"),
        (_with(positions={"t": {"0": [5, -2]}}), "positions of t-0"),
        (_with(positions={"t": {"0": 5}}), "positions of t-0"),
        (_with(topics={"orders": 3}), "'topics'"),
        (_with(topics={"orders": ""}), "'topics'"),
        (_with(topics={"strange": "id"}), "'strange'"),
        (_with(topics=None), "'topics'"),
    ],
)
def test_anything_else_is_refused_with_the_place_that_is_wrong(value: Any, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        from_value(value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("0"), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(list(to_value(GOLDEN_DOCUMENT))), JSON_VALUES)
def test_a_damaged_document_is_a_config_error_or_a_document_that_can_be_written(key: str, value: Any) -> None:
    try:
        document = from_value(_with(**{key: value}))
    except ConfigError:
        return
    assert from_value(to_value(document)) == document


def test_a_long_offset_is_cut_short_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        from_value({"t" * 10_000: 1, "u": {}})
    assert len(str(caught.value)) < 10_800


@pytest.mark.parametrize(
    "document",
    [
        Document("g", "l", "r", 1, ranges=(OffsetRange(TopicPartition("t", 0), 0, 1),) * 2),
        Document("g", "l", "r", 1, positions={TopicPartition("t", n): Position(0, f"id-{n}") for n in (0, 1)}),
    ],
)
def test_a_contradictory_document_cannot_be_written(document: Document) -> None:
    with pytest.raises(ValueError, match=r"t-0 has two ranges|t has two ids"):
        to_value(document)


def test_a_document_read_again_is_the_same_object_and_only_the_newest_two_are_remembered() -> None:
    cache = DocumentCache()
    values = [to_value(Document("g", "l", "r", n, (), {TopicPartition("t", 0): Position(n)})) for n in range(3)]
    first, second = (cache.read(values[n]) for n in range(2))
    assert first == from_value(values[0])
    assert cache.read(json.loads(json.dumps(values[0]))) is first
    assert cache.read(values[1]) is second
    cache.read(values[2])
    assert cache.read(values[1]) is second
    assert cache.read(values[0]) is not first
    moved = json.loads(json.dumps(values[1]))
    moved["positions"]["t"]["0"] = [7, -1]
    assert cache.read(moved).positions == {TopicPartition("t", 0): Position(7)}


def test_what_is_no_document_is_no_document_the_second_time_either() -> None:
    cache = DocumentCache()
    for _ in range(2):
        with pytest.raises(ConfigError):
            cache.read({"streamgroup": 1})
