"""A batch: the document that describes it, what it reads, and a replay of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.planning.batch import (
    below_targets,
    empty_document,
    next_document,
    offset_metrics,
    offsets_behind,
    replay_ranges,
    whole_batch,
)
from streamgroup.coordinator.planning.document import FORMAT, DocumentCache, from_value, to_value
from streamgroup.coordinator.planning.limits import Boundaries
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, Position, TopicPartition

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
    assert replace(again, ranges=(), positions={}) == replace(document, ranges=(), positions={})


@pytest.mark.slow
@given(documents(), st.randoms(use_true_random=False))
def test_the_order_in_which_partitions_were_planned_does_not_show_in_the_text(document: Document, random: Any) -> None:
    ranges, positions = list(document.ranges), list(document.positions.items())
    random.shuffle(ranges)
    random.shuffle(positions)
    shuffled = replace(document, ranges=tuple(ranges), positions=dict(positions))
    assert json.dumps(to_value(shuffled)) == json.dumps(to_value(document))


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
FOUNDED = to_value(FOUNDED_DOCUMENT)


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


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("spark", {TopicPartition("orders", 0): Position(123), TopicPartition("orders", 11): Position(0)}),
        ("spark-topic-named-streamgroup", {TopicPartition("streamgroup", 0): Position(5)}),
    ],
)
def test_an_offset_of_sparks_own_connector_is_a_legal_start(
    name: str, positions: dict[TopicPartition, Position]
) -> None:
    document = from_value(json.loads((GOLDEN / f"{name}.json").read_text()))
    assert document == Document("", "", "", 0, positions=positions)


def test_a_document_that_is_marked_as_founded_has_neither_ranges_nor_positions() -> None:
    with pytest.raises(ValueError, match="document 7 is marked as 'founded'"):
        to_value(replace(GOLDEN_DOCUMENT, is_founded=True))
    for wrong in ({"founded": False}, {"founded": 1}, {"positions": {"t": {"0": [1, -1]}}}, {"ranges": {"t": {}}}):
        with pytest.raises(ConfigError, match="format 2 must have 'founded': true, and neither ranges nor positions"):
            from_value({**FOUNDED, **wrong})


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=f"format {FORMAT + 1}.*reads formats up to {FORMAT}"):
        from_value({"streamgroup": FORMAT + 1, "of": ["another", "shape"]})


def _with(**changes: Any) -> dict[str, Any]:
    return {**to_value(GOLDEN_DOCUMENT), **changes}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({}, "not a non-empty JSON object"),
        ([1], "not a non-empty JSON object"),
        (None, "not a non-empty JSON object"),
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
        (_with(more=1), "the keys of format 1 are "),
        ({**FOUNDED, "streamgroup": 1}, "the keys of format 1 are "),
        ({key: each for key, each in FOUNDED.items() if key != "topics"}, "the keys of format 2 are "),
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


A, B, C = (TopicPartition("t", n) for n in range(3))
HELD = {A: Position(10, "id", 4), B: Position(20, "id", 5)}
PREVIOUS = Document("g", "lineage", "run-1", 41)
FEW_OFFSETS = st.integers(0, 200)


def plan(ends: dict[TopicPartition, int], **options: Any) -> Document | None:
    return next_document(PREVIOUS, group="g", lineage="lineage", run="run-2", positions=HELD, ends=ends, **options)


def test_a_batch_takes_what_is_new_and_tells_where_all_partitions_held_stand() -> None:
    assert plan({A: 15, B: 20}) == Document(
        "g",
        "lineage",
        "run-2",
        42,
        ranges=(OffsetRange(A, 10, 15),),
        positions={A: Position(15, "id", 4), B: Position(20, "id", 5)},
    )


def planned(ends: dict[TopicPartition, int], **options: Any) -> tuple[Any, Any]:
    """Return the ranges and the positions of a batch that is not empty."""
    document = plan(ends, **options)
    assert document is not None
    return document.ranges, document.positions


@pytest.mark.parametrize(("least", "is_planned"), [(1, True), (8, True), (9, False)])
def test_less_than_is_wanted_is_no_batch(least: int, is_planned: bool) -> None:
    document = plan({A: 15, B: 23}, max_offsets=2, min_offsets=least)
    assert (document is not None) == is_planned
    if document is not None:
        assert sum(map(len, document.ranges)) == 2, "the most counts after the least"


@pytest.mark.parametrize(
    "ends",
    [{A: 10, B: 20}, {}, {A: 9, B: 3}, {C: 900}],
    ids=["nothing new", "no ends known", "ends behind the positions", "a partition that is not held"],
)
def test_nothing_new_is_no_document(ends: dict[TopicPartition, int]) -> None:
    assert plan(ends) is None


@pytest.mark.parametrize("boundaries", [None, Boundaries(message_ends={A: (13, 17), B: (25,)})])
def test_a_strict_limit_leaves_out_partitions_rather_than_being_exceeded(boundaries: Boundaries | None) -> None:
    ranges, positions = planned({A: 111, B: 31}, max_offsets=3, is_strict=True, boundaries=boundaries)
    assert ranges == (OffsetRange(A, 10, 13),)
    assert positions == {A: Position(13, "id", 4), B: HELD[B]}


def test_a_limit_is_shared_by_the_backlog() -> None:
    ranges, positions = planned({A: 111, B: 31}, max_offsets=10)
    assert ranges == (OffsetRange(A, 10, 19), OffsetRange(B, 20, 21))
    assert positions == {A: Position(19, "id", 4), B: Position(21, "id", 5)}


def test_available_now_goes_no_further_than_its_snapshot() -> None:
    assert planned({A: 100, B: 100}, targets={A: 12, B: 20})[0] == (OffsetRange(A, 10, 12),)
    assert plan({A: 100, B: 100}, targets={A: 10, B: 15}) is None


@pytest.mark.parametrize(
    ("targets", "below"), [({A: 10, B: 20}, ()), ({A: 11, B: 20}, (A,)), ({A: 3}, ()), ({C: 99}, ()), ({}, ())]
)
def test_available_now_is_done_when_every_partition_held_has_reached_its_end(
    targets: dict[TopicPartition, int], below: tuple[TopicPartition, ...]
) -> None:
    assert below_targets(HELD, targets) == set(below)


def test_available_now_is_done_at_the_end_of_a_log_that_was_cut_below_its_target() -> None:
    assert below_targets(HELD, {A: 15}, {A: 15, B: 20}) == {A}
    assert below_targets(HELD, {A: 15}, {A: 11}) == {A}
    assert not below_targets(HELD, {A: 15}, {A: 10})


def test_an_empty_document_differs_from_the_one_before() -> None:
    first = empty_document(PREVIOUS, group="g", lineage="lineage", run="run-2", positions=HELD)
    assert (first.sequence, first.ranges, first.positions) == (42, (), HELD)
    second = empty_document(first, group="g", lineage="lineage", run="run-2", positions=HELD)
    assert json.dumps(to_value(first)) != json.dumps(to_value(second))


PARTITION_OFFSETS = st.dictionaries(st.sampled_from([A, B, C]), FEW_OFFSETS)


@given(PARTITION_OFFSETS, PARTITION_OFFSETS, st.none() | st.integers(1, 50), st.none() | PARTITION_OFFSETS)
def test_batches_follow_each_other_without_gap_to_the_end_and_then_stop(
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    max_offsets: int | None,
    targets: dict[TopicPartition, int] | None,
) -> None:
    previous, positions = PREVIOUS, {tp: Position(offset) for tp, offset in starts.items()}
    read: dict[TopicPartition, int] = dict(starts)
    while document := next_document(
        previous,
        group="g",
        lineage="l",
        run="r",
        positions=positions,
        ends=ends,
        max_offsets=max_offsets,
        targets=targets,
    ):
        assert document.sequence == previous.sequence + 1
        for range_ in document.ranges:
            assert len(range_) > 0
            assert range_.start == read[range_.partition]
            read[range_.partition] = range_.until
        assert {tp: p.offset for tp, p in document.positions.items()} == read
        previous, positions = document, dict(document.positions)
    for tp, start in starts.items():
        end = ends.get(tp, start)
        if targets is not None:
            end = min(end, targets.get(tp, start))
        assert read[tp] == max(start, end)


REPLAYED = Document(
    "g", "l", "r", 5, ranges=(OffsetRange(A, 90, 100), OffsetRange(B, 0, 7)), positions={B: Position(7)}
)


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        ({}, [OffsetRange(A, 90, 100), OffsetRange(B, 0, 7)]),
        ({A: 90, B: 0}, [OffsetRange(A, 90, 100), OffsetRange(B, 0, 7)]),
        ({A: 95, B: 3}, [OffsetRange(A, 95, 100), OffsetRange(B, 3, 7)]),
        ({A: 100, B: 900}, []),
        ({A: 10, C: 50}, [OffsetRange(A, 90, 100), OffsetRange(B, 0, 7)]),
    ],
)
def test_a_replay_reads_every_range_above_the_committed_offset(
    committed: dict[TopicPartition, int], expected: list[OffsetRange]
) -> None:
    assert replay_ranges(REPLAYED, {tp: CommittedOffset(offset) for tp, offset in committed.items()}) == expected


class TestABatchThatSparksOwnConnectorPlanned:
    def test_goes_from_start_to_end(self) -> None:
        start, end = from_value({"t": {"0": 100, "1": 7}}), from_value({"t": {"0": 200, "1": 7}})
        assert whole_batch(start, end).ranges == (OffsetRange(TopicPartition("t", 0), 100, 200),)

    def test_reads_a_partition_that_was_added_from_offset_0(self) -> None:
        ranges = whole_batch(from_value({"t": {"0": 100}}), from_value({"t": {"0": 200, "1": 7, "2": 0}})).ranges
        assert ranges == (OffsetRange(TopicPartition("t", 0), 100, 200), OffsetRange(TopicPartition("t", 1), 0, 7))

    def test_is_an_error_where_it_is_batch_0_whose_beginning_only_the_connector_knows(self) -> None:
        with pytest.raises(ConfigError, match=r"last batch.*t-0\. Let format\('kafka'\) finish"):
            whole_batch(INITIAL_DOCUMENT, from_value({"t": {"0": 200}}))

    def test_is_an_error_after_a_document_of_ours_which_lacks_the_partitions_of_other_members(self) -> None:
        ours = Document("g", "l", "r", 3, (), {TopicPartition("t", 0): Position(100)})
        with pytest.raises(ConfigError, match=r"begins in t-1\."):
            whole_batch(ours, from_value({"t": {"0": 200, "1": 7}}))

    def test_of_our_own_is_left_as_it_is(self) -> None:
        ours = Document("g", "l", "r", 3, (OffsetRange(TopicPartition("t", 0), 1, 2),), {})
        assert whole_batch(INITIAL_DOCUMENT, ours) is ours
        assert whole_batch(INITIAL_DOCUMENT, INITIAL_DOCUMENT) is INITIAL_DOCUMENT


HALF_OF_EACH = {A: 110, B: 120}


def test_a_partition_without_a_known_boundary_waits_for_the_next_batch() -> None:
    ranges, positions = planned(HALF_OF_EACH, max_offsets=100, boundaries=Boundaries({A: (0, 50)}, {}))
    assert ranges == (OffsetRange(A, 10, 50),)
    assert positions == {A: Position(50, "id", 4), B: HELD[B]}
    assert plan(HALF_OF_EACH, max_offsets=100, boundaries=Boundaries()) is None
    found = Boundaries({A: (0, 50)}, {B: (31, 64, 75)})
    both = planned(HALF_OF_EACH, max_offsets=100, boundaries=found)
    assert both[0] == (OffsetRange(A, 10, 50), OffsetRange(B, 20, 64)), "a boundary that was found by scanning"


def end(**positions: int) -> dict[str, Any]:
    """The end document of a batch that holds these partitions, `p0` and so on."""
    held = {TopicPartition("orders", int(name[1:])): Position(offset) for name, offset in positions.items()}
    return to_value(Document("g", "lineage", "run", 3, positions=held))


@pytest.mark.parametrize("form", [json.dumps, lambda value: value], ids=["text", "value"])
def test_each_partition_held_is_behind_by_the_offsets_to_the_end_of_its_log(form: Any) -> None:
    assert offsets_behind(form(end(p0=100, p1=195)), form({"orders": {"0": 110, "1": 200}})) == [10, 5]


@pytest.mark.parametrize(
    ("latest", "behind"),
    [
        pytest.param({"orders": {"0": 110, "2": 900}, "others": {"1": 7}}, [10], id="held, with a known log end"),
        pytest.param({"orders": {"0": 3}}, [0], id="a log that was cut"),
        *((latest, []) for latest in (None, "null", "", "no json", "[" * 5_000, 7)),
        *((latest, []) for latest in ({"orders": 7}, {"orders": {"0": None}})),
    ],
)
def test_a_partition_without_a_known_log_end_is_left_out(latest: Any, behind: list[int]) -> None:
    assert offsets_behind(end(p0=100, p1=195), latest) == behind


@pytest.mark.parametrize("other", [None, "null", {"orders": {"0": 5}}, {"positions": {"0": 5}}])
def test_nothing_is_known_of_an_offset_of_another_source(other: Any) -> None:
    assert offsets_behind(other, {"orders": {"0": 110}, "positions": {"0": 110}}) == []


def test_the_metrics_have_the_names_and_the_texts_of_sparks_own() -> None:
    names = ["avgOffsetsBehindLatest", "maxOffsetsBehindLatest", "minOffsetsBehindLatest"]
    assert offset_metrics([10, 5, 0, 0]) == dict(zip(names, ["3.75", "10", "0"], strict=True))
    assert offset_metrics([0]) == dict(zip(names, ["0.0", "0", "0"], strict=True))
    assert offset_metrics([]) == {}
