from __future__ import annotations

import json
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
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.coordinator.planning.limits import Boundaries
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, Position, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))
HELD = {A: Position(10, "id", 4), B: Position(20, "id", 5)}
PREVIOUS = Document("g", "lineage", "run-1", 41)
OFFSETS = st.integers(0, 200)


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


@pytest.mark.parametrize(("least", "planned"), [(1, True), (8, True), (9, False)])
def test_less_than_is_wanted_is_no_batch(least: int, planned: bool) -> None:
    document = plan({A: 15, B: 23}, max_offsets=2, min_offsets=least)
    assert (document is not None) == planned
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
    document = plan({A: 111, B: 31}, max_offsets=3, is_strict=True, boundaries=boundaries)
    assert document is not None
    assert document.ranges == (OffsetRange(A, 10, 13),)
    assert document.positions == {A: Position(13, "id", 4), B: HELD[B]}


def test_a_limit_is_shared_by_the_backlog() -> None:
    document = plan({A: 111, B: 31}, max_offsets=10)
    assert document is not None
    assert document.ranges == (OffsetRange(A, 10, 19), OffsetRange(B, 20, 21))
    assert document.positions == {A: Position(19, "id", 4), B: Position(21, "id", 5)}


def test_available_now_goes_no_further_than_its_snapshot() -> None:
    document = plan({A: 100, B: 100}, targets={A: 12, B: 20})
    assert document is not None
    assert document.ranges == (OffsetRange(A, 10, 12),)
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


PARTITION_OFFSETS = st.dictionaries(st.sampled_from([A, B, C]), OFFSETS)


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


def limited(boundaries: Boundaries) -> Document | None:
    """Of [10, 110) and [20, 120) half each, where offsets are bytes."""
    return plan({A: 110, B: 120}, max_offsets=100, boundaries=boundaries)


def test_a_partition_without_a_known_boundary_waits_for_the_next_batch() -> None:
    document = limited(Boundaries({A: (0, 50)}, {}))
    assert document is not None
    assert document.ranges == (OffsetRange(A, 10, 50),)
    assert document.positions == {A: Position(50, "id", 4), B: HELD[B]}
    assert limited(Boundaries()) is None


def test_boundaries_found_by_walking_end_ranges() -> None:
    document = limited(Boundaries({A: (0, 50)}, {B: (31, 64, 75)}))
    assert document is not None
    assert document.ranges == (OffsetRange(A, 10, 50), OffsetRange(B, 20, 64))


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
