"""Limits that change from batch to batch, alone and in a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.group import events as ev
from streamgroup.model import INITIAL_DOCUMENT, Document, FetchRange, FetchTask, OffsetRange
from streamgroup.options.types import LimitOptions
from streamgroup.planning.batch_sizer import FIRST, STEP
from streamgroup.run import interface as io
from streamgroup.run.pace import Pace
from tests.unit.run.run_shell import P0, P1, Shell

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
    document = shell.result(io.LatestOffset(start, limits))
    assert isinstance(document, Document)
    return document


def sink(shell: Shell, start: Document, end: Document) -> None:
    shell.result(io.Partitions(start, end))


def test_a_run_plans_what_its_rate_allows_and_then_nothing_until_time_has_passed() -> None:
    shell = Shell()
    first = plan(shell)
    assert sum(map(len, first.ranges)) == 10
    sink(shell, INITIAL_DOCUMENT, first)
    assert plan(shell, first) is first, "Spark asks again"
    shell.now += 0.5
    second = plan(shell, first)
    assert sum(map(len, second.ranges)) == 5 - 1, "each of two partitions has its share, rounded down"


def test_a_rate_of_bytes_counts_the_bytes_of_the_estimate() -> None:
    shell = Shell()
    limits = LimitOptions(max_bytes_per_second=100)
    first = plan(shell, limits=limits)
    assert sum(map(len, first.ranges)) == 10, "10 bytes each"
    sink(shell, INITIAL_DOCUMENT, first)
    assert plan(shell, first, limits) is first


def test_available_now_waits_for_its_rate_and_makes_no_empty_batch() -> None:
    shell = Shell()
    shell.result(io.PrepareAvailableNow())
    first = plan(shell)
    sink(shell, INITIAL_DOCUMENT, first)
    shell.call(io.LatestOffset(first, RATED))
    for after, is_over in ((0.0, False), (0.05, False), (0.05, True)):
        shell.step(ev.Tick(), after)
        shell.serve()
        assert bool(shell.of(io.Reply)) is is_over
    ((reply),) = shell.of(io.Reply)
    assert reply.result.ranges


def test_a_drain_ends_the_wait_for_a_rate() -> None:
    shell = Shell()
    shell.result(io.PrepareAvailableNow())
    first = plan(shell)
    sink(shell, INITIAL_DOCUMENT, first)
    call = shell.call(io.LatestOffset(first, RATED))
    shell.call(io.DrainRun(10.0))
    shell.serve()
    assert io.Reply(call, first) in shell.out


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
