"""Token buckets: how much may be planned at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from streamgroup.coordinator.planning.packing import pack
from streamgroup.coordinator.run import interface
from streamgroup.model import INITIAL_DOCUMENT, Broker, Document, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import LimitOptions
from tests.unit.coordinator.run.run_shell import P0, P1, Shell


def test_a_run_begins_with_the_tokens_of_one_burst() -> None:
    assert Rate().available(100, 50.0) == 100


def test_a_trigger_of_a_minute_takes_the_tokens_of_a_minute() -> None:
    rate = Rate()
    rate.available(100, 0.0)
    rate.spend(100)
    assert rate.available(100, 60.0) == 6_000


def test_tokens_do_not_pile_up_over_calls_that_plan_nothing() -> None:
    rate = Rate()
    for tenth in range(600):
        available = rate.available(100, tenth / 10)
    assert available == 100


def test_a_batch_beyond_the_tokens_is_paid_before_the_next() -> None:
    rate = Rate()
    rate.available(10, 0.0)
    rate.spend(30)
    assert rate.available(10, 1.0) == 0
    assert rate.wait_s(10) == 1.1
    assert rate.available(10, 1.0 + rate.wait_s(10)) == 1


def test_a_clock_that_stands_still_brings_no_tokens() -> None:
    rate = Rate()
    rate.available(10, 0.0)
    rate.spend(10)
    assert rate.available(10, 0.0) == 0


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


@pytest.mark.parametrize("end", [lambda limit: limit.end(9.0), lambda limit: None])
def test_without_a_batch_in_flight_nothing_is_learned(end: Callable[[PackingLimit], None]) -> None:
    limit = PackingLimit()
    limit.begin([], 0.0)
    end(limit)
    limit.end(10.0)
    assert limit.offsets == 0


def test_a_batch_counts_once() -> None:
    limit = PackingLimit()
    tasks = pack(ranges(2, 10))
    limit.begin(tasks, 0.0)
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


# -- in a run ----------------------------------------------------------------------------------------------------------


def plan(shell: Shell, start: Document = INITIAL_DOCUMENT, limits: LimitOptions = RATED) -> Document:
    document = shell.result(interface.LatestOffset(start, limits))
    assert isinstance(document, Document)
    return document


def sink(shell: Shell, start: Document, end: Document) -> None:
    shell.result(interface.Partitions(start, end))


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
