"""How much a batch takes: limits of offsets and bytes, rates, its target duration, and packed tasks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgroup.coordinator.planning.limits import (
    Boundaries,
    byte_limit,
    min_offsets_now,
    rate_limit,
    size_of,
    strict_limit,
    whole_messages,
)
from streamgroup.coordinator.planning.pace import (
    BURST_S,
    FIRST,
    FIXED_S,
    STEP,
    TASK_S,
    BatchSizer,
    Pace,
    PackingLimit,
    Rate,
)
from streamgroup.coordinator.planning.packing import UNIT, pack
from streamgroup.model import INITIAL_DOCUMENT, Broker, Document, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import LimitOptions
from tests.unit.coordinator.run.run_shell import P0, P1, Shell, latest_offset, partitions


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
    for limit in (lambda: rate_limit(backlog(3), 0), lambda: byte_limit(backlog(1), 0, {P0: UNIT})):
        with pytest.raises(ValueError, match=r"invalid limit of 0 (offsets|bytes): expected at least 1"):
            limit()


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
    """`until` is where a backlog of [100, 1000) ends, or the part that must be walked."""
    backlog = {P0: OffsetRange(P0, 100, 1_000)}
    found = whole_messages(backlog, {P0: limit}, Boundaries({P0: segments}, {P0: walked}))
    if isinstance(until, tuple):
        assert (found.until, [(r.start, r.until) for r in found.unscanned]) == ({}, [until])
    else:
        assert (found.until, list(found.unscanned)) == ({P0: until}, [])


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


def test_a_run_begins_with_the_tokens_of_one_burst_and_a_trigger_of_a_minute_takes_those_of_a_minute() -> None:
    rate = Rate()
    assert rate.available(100, 50.0) == 100
    rate.spend(100)
    assert rate.available(100, 110.0) == 6_000


def test_tokens_do_not_pile_up_over_calls_that_plan_nothing() -> None:
    rate = Rate()
    for tenth in range(600):
        available = rate.available(100, tenth / 10)
    assert available == 100


def test_a_batch_beyond_the_tokens_is_paid_before_the_next() -> None:
    rate = Rate()
    rate.available(10, 0.0)
    rate.spend(10)
    assert rate.available(10, 0.0) == 0, "the clock stands still"
    rate.spend(20)
    assert rate.available(10, 1.0) == 0
    assert rate.wait_s(10) == 1.1
    assert rate.available(10, 1.0 + rate.wait_s(10)) == 1


@given(st.integers(1, 10**6), st.lists(st.tuples(st.floats(0.001, 100), st.floats(0, 1)), min_size=1, max_size=60))
def test_the_rate_holds_over_any_number_of_calls(rate: int, calls: list[tuple[float, float]]) -> None:
    bucket, now, spent = Rate(), 0.0, 0
    bucket.available(rate, now)
    for elapsed, share in calls:
        now += elapsed
        taken = int(bucket.available(rate, now) * share)
        bucket.spend(taken)
        spent += taken
        assert spent <= (now + BURST_S) * rate + 1


def run(sizer: BatchSizer, cost_s: float, fixed_s: float, *, target_s: float = 10.0, batches: int = 30) -> list[float]:
    """The durations of batches under a backlog that does not end."""
    durations = []
    for _ in range(batches):
        durations.append(fixed_s + sizer.offsets * cost_s)
        sizer.begin(sizer.offsets, 0.0)
        sizer.end(target_s, durations[-1])
    return durations


@given(st.floats(1e-7, 1.0), st.floats(0.0, 5.0))
@example(cost_s=1.0000000000000001e-07, fixed_s=0.4)  # durations of 10.000000000000002 s
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


@pytest.mark.parametrize(("offsets", "seconds", "following"), [(5, 0.2, FIRST), (8, 40.0, 2)])
def test_a_small_backlog_shows_nothing_about_larger_batches_unless_it_takes_too_long(
    offsets: int, seconds: float, following: int
) -> None:
    sizer = BatchSizer()
    sizer.begin(offsets, 0.0)
    sizer.end(10.0, seconds)
    assert sizer.offsets == following


def test_the_end_counts_once_and_only_for_a_batch_with_tasks() -> None:
    sizer = BatchSizer()
    sizer.end(10.0, 1.0)
    sizer.begin(0, 0.0)
    sizer.end(10.0, 100.0)
    assert sizer.offsets == FIRST


LEADER = Broker(1, "b1", 9092)


def ranges(partitions: int, records: int) -> list[FetchRange]:
    return [FetchRange(OffsetRange(TopicPartition("t", n), 0, records), LEADER, "id", 3) for n in range(partitions)]


class Application:
    """Batches of one run on `cores` cores. A record takes `record_s`; a task, its start included, `TASK_S` more."""

    def __init__(self, *, cores: int, record_s: float) -> None:
        self.limit = PackingLimit()
        self.cores = cores
        self.record_s = record_s
        self.now = 0.0

    def batch(self, partitions: int, records: int) -> list[FetchTask]:
        """Run a batch; return its tasks."""
        tasks = pack(ranges(partitions, records), packed_offsets=self.limit.offsets)
        self.limit.begin(tasks, self.now)
        self.now += self.duration(tasks)
        self.limit.end(self.now)
        return tasks

    def duration(self, tasks: list[FetchTask]) -> float:
        """Return how long the tasks take, each on the core that is free first."""
        free = [0.0] * self.cores
        for task in tasks:
            core = min(range(self.cores), key=free.__getitem__)
            free[core] += len(task) * self.record_s + TASK_S
        return FIXED_S / 2 + max(free)


def tasks_of(application: Application, batches: int, partitions: int, records: int) -> list[int]:
    return [len(application.batch(partitions, records)) for _ in range(batches)]


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
def test_expensive_records_keep_a_task_for_each_partition(cores: int) -> None:
    application = Application(cores=cores, record_s=0.1)
    assert tasks_of(application, 50, partitions=8, records=20) == [8] * 50


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
@pytest.mark.parametrize("partitions", [2, 8, 40])
def test_cheap_records_soon_share_one_task(cores: int, partitions: int) -> None:
    application = Application(cores=cores, record_s=1e-6)
    assert tasks_of(application, 10, partitions, records=1)[-1] == 1


def test_a_large_batch_shows_at_once_that_records_are_cheap() -> None:
    application = Application(cores=2, record_s=1e-6)
    application.batch(4, 1_000_000)
    assert application.limit.offsets > 10_000
    assert len(application.batch(8, 100)) == 1


def test_a_trickle_of_expensive_records_is_packed_seldom() -> None:
    application = Application(cores=8, record_s=0.1)
    counts = tasks_of(application, 500, partitions=8, records=1)
    assert sum(count < 8 for count in counts) < 50, counts


def test_records_that_become_expensive_have_tasks_of_their_own_again() -> None:
    application = Application(cores=8, record_s=1e-6)
    assert tasks_of(application, 10, partitions=8, records=20)[-1] == 1
    application.record_s = 0.1
    assert tasks_of(application, 5, partitions=8, records=20) == [1, 8, 8, 8, 8]


def test_a_batch_counts_once_and_one_without_tasks_never() -> None:
    limit = PackingLimit()
    limit.begin([], 0.0)
    limit.end(9.0)
    limit.end(10.0)
    assert limit.offsets == 0
    limit.begin(pack(ranges(2, 10)), 0.0)
    limit.end(0.1)
    learned = limit.offsets
    limit.end(60.0)
    assert limit.offsets == learned == 20


RATED = LimitOptions(max_offsets_per_second=10)


def tasks(offsets: int) -> list[FetchTask]:
    return [FetchTask((FetchRange(OffsetRange(P0, 0, offsets), None),))]


def test_without_an_option_the_limits_stay_as_they_are() -> None:
    limits = LimitOptions(5, max_bytes_per_trigger=7)
    assert Pace().limits(limits, 0.0) == limits


@pytest.mark.parametrize(
    ("limits", "offsets", "size"),
    [
        (LimitOptions(5, max_offsets_per_second=10), 5, None),
        (LimitOptions(50, max_offsets_per_second=10), 10, None),
        (LimitOptions(max_bytes_per_second=10), None, 10),
        (LimitOptions(max_bytes_per_trigger=5, max_bytes_per_second=10, max_offsets_per_second=9), 9, 5),
    ],
)
def test_the_smallest_limit_of_each_kind_holds(limits: LimitOptions, offsets: int | None, size: int | None) -> None:
    paced = Pace().limits(limits, 0.0)
    assert (paced.max_offsets_per_trigger, paced.max_bytes_per_trigger, paced.is_spent) == (offsets, size, False)


def test_where_one_rate_is_used_up_nothing_is_planned_until_both_allow_it() -> None:
    pace, limits = Pace(), LimitOptions(max_offsets_per_second=10, max_bytes_per_second=100)
    pace.limits(limits, 0.0)
    pace.planned(1, 399)
    assert pace.limits(limits, 1.0).is_spent
    assert pace.wait_s(limits) == 2.0
    assert not pace.limits(limits, 3.0).is_spent


def test_a_target_sizes_batches_within_the_other_limits() -> None:
    pace = Pace(10.0)
    assert pace.limits(LimitOptions(), 0.0).max_offsets_per_trigger == FIRST
    pace.begin(tasks(FIRST), 0.0)
    pace.end(0.5)
    assert pace.limits(LimitOptions(), 0.5).max_offsets_per_trigger == STEP * FIRST
    assert pace.limits(LimitOptions(FIRST), 0.5).max_offsets_per_trigger == FIRST


def plan(shell: Shell, start: Document = INITIAL_DOCUMENT, limits: LimitOptions = RATED) -> Document:
    document = shell.result(latest_offset(start, limits))
    assert isinstance(document, Document)
    return document


def sink(shell: Shell, start: Document, end: Document) -> None:
    shell.result(partitions(start, end))


def test_a_rate_of_bytes_counts_the_bytes_of_the_estimate() -> None:
    shell = Shell()
    limits = LimitOptions(max_bytes_per_second=100)
    first = plan(shell, limits=limits)
    assert sum(map(len, first.ranges)) == 10, "10 bytes each"
    sink(shell, INITIAL_DOCUMENT, first)
    assert plan(shell, first, limits) is first


def test_a_target_lets_no_batch_be_empty_while_there_is_a_backlog() -> None:
    shell = Shell(limits=LimitOptions(target_batch_duration_ms=10))
    document, limits = INITIAL_DOCUMENT, replace(RATED, max_offsets_per_second=None)
    for end in range(10, 60, 10):
        shell.logs.ends = {P0: end, P1: end}
        following = plan(shell, document, limits)
        assert following.ranges
        sink(shell, document, following)
        shell.now += 3.0  # far beyond the target
        document = following
