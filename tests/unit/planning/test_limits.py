from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.model import OffsetRange, TopicPartition
from streamgroup.planning.limits import least_wanted, rate_limit


def backlog(*sizes: int, start: int = 0) -> dict[TopicPartition, OffsetRange]:
    partitions = [TopicPartition("t", n) for n in range(len(sizes))]
    return {tp: OffsetRange(tp, start, start + size) for tp, size in zip(partitions, sizes, strict=True)}


SIZES = st.lists(st.integers(0, 10**15), min_size=1, max_size=20)
LIMITS = st.integers(1, 2**63 - 1)


@pytest.mark.parametrize(
    ("sizes", "limit", "taken"),
    [
        ((101, 11, 1), 10, [8, 1, 1]),
        ((10, 10), 10, [5, 5]),
        ((10, 10), 1, [1, 1]),
        ((10, 0), 4, [4, 0]),
        ((0, 0), 4, [0, 0]),
        ((3, 4), 100, [3, 4]),
        ((3, 4), 2**63 - 1, [3, 4]),
        ((2**62, 2**62 - 1), 2**62, [2**61, 2**61 - 1]),
    ],
)
def test_the_limit_is_shared_in_proportion_to_the_backlog(sizes: tuple[int, ...], limit: int, taken: list[int]) -> None:
    ranges = backlog(*sizes, start=100)
    assert [until - 100 for until in rate_limit(ranges, limit).values()] == taken


@given(SIZES, LIMITS)
def test_every_partition_with_a_backlog_goes_on_and_none_beyond_its_end(sizes: list[int], limit: int) -> None:
    ranges = backlog(*sizes, start=7)
    until = rate_limit(ranges, limit)
    assert until.keys() == ranges.keys()
    for tp, range_ in ranges.items():
        assert min(range_.start + 1, range_.until) <= until[tp] <= range_.until


@given(SIZES, LIMITS)
def test_the_limit_is_passed_only_by_the_partitions_whose_share_is_below_one(sizes: list[int], limit: int) -> None:
    ranges = backlog(*sizes)
    until = rate_limit(ranges, limit)
    rounded_up = sum(1 for size in sizes if 0 < size * limit < sum(sizes))
    assert sum(until.values()) <= limit + rounded_up


@given(SIZES, LIMITS)
def test_batch_after_batch_reaches_the_end(sizes: list[int], limit: int) -> None:
    ranges = backlog(*(size % 50 for size in sizes))
    for _ in range(51):
        until = rate_limit(ranges, limit)
        ranges = {tp: OffsetRange(tp, until[tp], r.until) for tp, r in ranges.items()}
    assert all(len(r) == 0 for r in ranges.values())


def test_a_limit_below_one_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        rate_limit(backlog(3), 0)


@pytest.mark.parametrize(
    ("waited", "least"),
    [
        pytest.param(None, 1, id="the first batch of a run waits for nothing"),
        pytest.param(0.0, 50, id="right after a batch"),
        pytest.param(59.9, 50, id="not yet"),
        pytest.param(60.0, 1, id="the delay is over"),
        pytest.param(1e6, 1, id="long over"),
    ],
)
def test_what_is_worth_a_batch_is_less_once_the_delay_is_over(waited: float | None, least: int) -> None:
    assert least_wanted(50, waited, 60.0) == least


@given(st.none() | st.floats(0, 1e9), st.floats(0, 1e9))
def test_without_a_minimum_anything_is_worth_a_batch(waited: float | None, delay: float) -> None:
    assert least_wanted(None, waited, delay) == 1
