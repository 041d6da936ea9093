"""The plan of a backfill."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.jobs.backfill.plan import BackfillPlan, plan_of
from streamgroup.model import OffsetRange, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
PURPOSE = {"subscribe": "a,b"}


@given(
    st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 10**6)), min_size=1, max_size=8),
    st.integers(1, 10**6),
)
def test_steps_read_each_offset_once_and_in_order(ranges: list[tuple[int, int]], per_step: int) -> None:
    whole = [OffsetRange(TopicPartition("t", n), start, start + size) for n, (start, size) in enumerate(ranges)]
    per_step = max(per_step, sum(map(len, whole)) // 50 or 1)
    plan = plan_of(whole, per_step, PURPOSE)
    steps = list(plan.steps())
    assert [step.number for step in steps] == list(range(plan.step_count))
    for range_ in whole:
        at = range_.start
        for step in steps:
            for part in step.ranges:
                if part.partition == range_.partition:
                    assert part.start == at
                    at = part.until
        assert at == range_.until
    assert all(len(step) < per_step + len(whole) for step in steps)


def test_the_tasks_of_one_partition_are_one_range() -> None:
    parts = [OffsetRange(B, 0, 5), OffsetRange(A, 10, 20), OffsetRange(A, 20, 35), OffsetRange(A, 5, 10)]
    assert plan_of(parts, 100, PURPOSE).ranges == (OffsetRange(A, 5, 35), OffsetRange(B, 0, 5))


def test_a_step_is_a_batch_read_of_exactly_its_ranges() -> None:
    plan = plan_of([OffsetRange(A, 0, 10), OffsetRange(B, 4, 6)], 6, PURPOSE)
    first, second = plan.steps()
    assert {name: json.loads(value) for name, value in first.options().items()} == {
        "assign": {"a": [0], "b": [3]},
        "startingOffsets": {"a": {"0": 0}, "b": {"3": 4}},
        "endingOffsets": {"a": {"0": 5}, "b": {"3": 5}},
    }
    assert len(second) == 6
    assert list(plan.steps(after=1)) == [second]


def test_a_partition_without_offsets_in_a_step_is_not_read_by_it() -> None:
    plan = plan_of([OffsetRange(A, 0, 10), OffsetRange(B, 4, 5)], 2, PURPOSE)
    assert [range_.partition for step in plan.steps() for range_ in step.ranges].count(B) == 1


def test_a_plan_without_offsets_has_no_steps() -> None:
    plan = plan_of([OffsetRange(A, 7, 7)], 10, PURPOSE)
    assert (len(plan), plan.step_count, list(plan.steps())) == (0, 0, [])


def test_a_written_plan_is_read_back() -> None:
    plan = plan_of([OffsetRange(A, 0, 10), OffsetRange(B, 4, 6)], 6, PURPOSE)
    assert BackfillPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        '{"version": 1, "offsets_per_step": 0, "purpose": {}, "ranges": []}',
        '{"version": 1, "offsets_per_step": 1e999, "purpose": {}, "ranges": []}',
        '{"version": 1, "offsets_per_step": 1, "purpose": {}, "ranges": [["t", 0, 9]]}',
        '{"version": 1, "offsets_per_step": 1, "purpose": {}, "ranges": [["t", 0, 9, 3]]}',
        "[" * 100_000,
    ],
)
def test_another_text_is_not_a_plan(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        BackfillPlan.from_json(text)
