from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.planning.limits import (
    Boundaries,
    byte_limit,
    min_offsets_now,
    rate_limit,
    size_of,
    smaller,
    strict_limit,
    whole_messages,
)
from streamgroup.coordinator.planning.packing import UNIT
from streamgroup.model import OffsetRange, TopicPartition

P0 = TopicPartition("t", 0)


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
def test_every_partition_with_a_backlog_advances_and_none_passes_its_end(sizes: list[int], limit: int) -> None:
    ranges = backlog(*sizes, start=7)
    until = rate_limit(ranges, limit)
    assert until.keys() == ranges.keys()
    for tp, range_ in ranges.items():
        assert min(range_.start + 1, range_.until) <= until[tp] <= range_.until


@given(SIZES, LIMITS)
@pytest.mark.slow
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
    with pytest.raises(ValueError, match="expected at least 1, not 0"):
        rate_limit(backlog(3), 0)


@given(SIZES, LIMITS)
def test_a_strict_limit_is_reached_and_never_passed(sizes: list[int], limit: int) -> None:
    ranges = backlog(*sizes, start=7)
    until = strict_limit(ranges, limit)
    assert all(ranges[tp].start < end <= ranges[tp].until for tp, end in until.items())
    assert sum(end - ranges[tp].start for tp, end in until.items()) == min(limit, sum(sizes))


@pytest.mark.parametrize(
    ("waited", "min_offsets"),
    [
        pytest.param(None, 1, id="the first batch of a run waits for nothing"),
        pytest.param(0.0, 50, id="right after a batch"),
        pytest.param(59.9, 50, id="not yet"),
        pytest.param(60.0, 1, id="the delay is over"),
        pytest.param(1e6, 1, id="long over"),
    ],
)
def test_the_minimum_holds_until_the_delay_is_over(waited: float | None, min_offsets: int) -> None:
    assert min_offsets_now(50, waited, 60.0) == min_offsets


@given(st.none() | st.floats(0, 1e9), st.floats(0, 1e9))
def test_without_a_minimum_one_offset_is_enough_for_a_batch(waited: float | None, delay: float) -> None:
    assert min_offsets_now(None, waited, delay) == 1


# -- Kafka 0.7: offsets are bytes --------------------------------------------------------------------------------------


def rounded(
    limit: int, *, segments: tuple[int, ...] = (), walked: tuple[int, ...] = ()
) -> int | tuple[int, int] | None:
    """Where a backlog of [100, 1000) ends, or what has to be walked."""
    backlog = {P0: OffsetRange(P0, 100, 1_000)}
    found = whole_messages(backlog, {P0: limit}, Boundaries({P0: segments}, {P0: walked}))
    if found.unscanned:
        assert not found.until
        return found.unscanned[0].start, found.unscanned[0].until
    return found.until[P0]


@pytest.mark.parametrize(
    ("limit", "segments", "walked", "until"),
    [
        (1_000, (0, 500), (110,), 1_000),  # no limit in the way: the end of the log
        (700, (0, 500), (110, 600), 500),  # rounded down to a segment's start, which costs nothing to know
        (500, (0, 500), (), 500),
        (499, (0, 500), (), (100, 499)),  # there is none in between: walk
        (499, (0, 100, 500), (), (100, 499)),  # its own start is no end
        (499, (0, 500), (110, 480, 490), 490),  # the last message that ends within the limit
        (105, (0, 500), (110, 480, 490), 110),  # but the first one always, however large
        (105, (0, 500), (1_000,), 1_000),
    ],
)
def test_a_limit_in_bytes_is_rounded_to_a_boundary(
    limit: int, segments: tuple[int, ...], walked: tuple[int, ...], until: int | tuple[int, int]
) -> None:
    assert rounded(limit, segments=segments, walked=walked) == until


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40), every=st.integers(1, 10), limit=st.integers(1, 500))
def test_plans_tile_the_log_with_whole_messages(sizes: list[int], every: int, limit: int) -> None:
    """Under any limit, plan after plan reaches the end, never inside of a message, never beyond the limit but for
    a first message."""
    ends = list(itertools.accumulate(sizes, initial=0))
    segments = tuple(ends[:-1:every])
    position = 0
    while position < ends[-1]:
        backlog = {P0: OffsetRange(P0, position, ends[-1])}
        limits = rate_limit(backlog, limit)
        found = whole_messages(backlog, limits, Boundaries({P0: segments}))
        if found.unscanned:
            (wanted,) = found.unscanned
            first = next(end for end in ends if end > wanted.start)
            walked = tuple(end for end in ends if wanted.start < end <= wanted.until) or (first,)
            found = whole_messages(backlog, limits, Boundaries({P0: segments}, {P0: walked}))
        until = found.until[P0]
        assert until in ends
        assert until > position
        first = next(end for end in ends if end > position)
        assert until <= max(first, position + limit)
        position = until


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "bytes_each", "limit", "taken"),
    [
        ((100, 100), (10, 10), 1_000, [50, 50]),
        ((100, 100), (10, 90), 1_000, [10, 10]),
        ((100, 10), (10, 10), 550, [50, 5]),
        ((100,), (2_000_000,), 1_000, [1]),
        ((100, 0), (10, 10), 200, [20, 0]),
        ((3, 4), (10, 10), 2**63 - 1, [3, 4]),
    ],
)
def test_a_limit_of_bytes_is_shared_in_proportion_to_the_bytes_of_the_backlog(
    sizes: tuple[int, ...], bytes_each: tuple[int, ...], limit: int, taken: list[int]
) -> None:
    ranges = backlog(*sizes, start=100)
    densities = {tp: size * UNIT for tp, size in zip(ranges, bytes_each, strict=True)}
    assert [until - 100 for until in byte_limit(ranges, limit, densities).values()] == taken


def test_a_limit_of_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        byte_limit(backlog(1), 0, {P0: UNIT})


@given(SIZES, LIMITS, st.data())
def test_only_partitions_with_a_share_below_one_offset_pass_a_limit_of_bytes(
    sizes: list[int], limit: int, data: st.DataObject
) -> None:
    ranges = backlog(*sizes, start=7)
    densities = {tp: data.draw(st.integers(1, 10**9)) for tp in ranges}
    until = byte_limit(ranges, limit, densities)
    total = sum(len(range_) * densities[tp] for tp, range_ in ranges.items())
    shared = [r for r in ranges.values() if len(r) and len(r) * limit * UNIT >= total]
    taken = [OffsetRange(r.partition, r.start, until[r.partition]) for r in shared]
    assert size_of(taken, densities) <= max(limit, 1)
    for tp, range_ in ranges.items():
        assert min(range_.start + 1, range_.until) <= until[tp] <= range_.until


def test_the_smaller_of_the_limits_that_are_set_holds() -> None:
    assert (smaller(None, 3, 2), smaller(None, None)) == (2, None)
