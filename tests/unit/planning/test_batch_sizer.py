"""The size of a batch that lasts about as long as wanted, in workloads of a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.planning.batch_sizer import FIRST, STEP, BatchSizer


def run(sizer: BatchSizer, cost_s: float, fixed_s: float, *, target_s: float = 10.0, batches: int = 30) -> list[float]:
    """The durations of batches under a backlog that does not end."""
    durations = []
    for _ in range(batches):
        durations.append(fixed_s + sizer.offsets * cost_s)
        sizer.begin(sizer.offsets, 0.0)
        sizer.end(target_s, durations[-1])
    return durations


@given(st.floats(1e-7, 1.0), st.floats(0.0, 5.0))
def test_batches_come_to_last_as_long_as_wanted(cost_s: float, fixed_s: float) -> None:
    last = run(BatchSizer(), cost_s, fixed_s, batches=40)[-5:]
    assert all(abs(duration - 10.0) <= max(0.5, cost_s) for duration in last), last


@given(st.floats(1e-6, 0.1), st.floats(1e-6, 0.1))
def test_they_come_to_it_again_after_the_cost_has_changed(before_s: float, after_s: float) -> None:
    sizer = BatchSizer()
    run(sizer, before_s, 0.5, batches=30)
    last = run(sizer, after_s, 0.5, batches=60)[-3:]
    assert all(abs(duration - 10.0) <= 1.0 for duration in last), last


@pytest.mark.parametrize("fixed_s", [9.9, 10.0, 60.0])
def test_a_fixed_part_beyond_the_target_does_not_make_batches_small_without_end(fixed_s: float) -> None:
    """As without a listener under a long trigger: smaller batches would not be shorter, only more."""
    sizer = BatchSizer()
    run(sizer, 1e-4, fixed_s, batches=200)
    assert sizer.offsets * 1e-4 >= 1.0, "the records keep a share of the batch"


@given(st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 10**4)), max_size=100))
def test_a_batch_has_an_offset_at_least_and_grows_step_by_step(batches: list[tuple[int, float]]) -> None:
    sizer = BatchSizer()
    for share, duration_s in batches:
        before, offsets = sizer.offsets, min(share, sizer.offsets)
        sizer.begin(offsets, 0.0)
        sizer.end(10.0, duration_s)
        assert 1 <= sizer.offsets <= max(before, STEP * offsets)


def test_a_small_backlog_shows_nothing_about_larger_batches() -> None:
    sizer = BatchSizer()
    sizer.begin(5, 0.0)
    sizer.end(10.0, 0.2)
    assert sizer.offsets == FIRST


def test_a_small_batch_that_takes_too_long_makes_the_next_one_smaller() -> None:
    sizer = BatchSizer()
    sizer.begin(8, 0.0)
    sizer.end(10.0, 40.0)
    assert sizer.offsets == 2


def test_the_end_counts_once_and_only_for_a_batch_with_tasks() -> None:
    sizer = BatchSizer()
    sizer.end(10.0, 1.0)
    sizer.begin(0, 0.0)
    sizer.end(10.0, 100.0)
    assert sizer.offsets == FIRST


def test_the_same_batches_lead_to_the_same_sizes() -> None:
    assert run(BatchSizer(), 1e-4, 0.3) == run(BatchSizer(), 1e-4, 0.3)
