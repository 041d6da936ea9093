"""The history of one group: its lag and rates, its timeline and its marks, and the limits of their size."""

from __future__ import annotations

import pytest

from streamgroup.model import GroupState, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading
from streamgroup.monitoring.page.history.group import GroupHistory, Limits
from streamgroup.monitoring.page.history.offset_series import Total
from streamgroup.monitoring.page.history.ownership import MarkKind
from streamgroup.monitoring.query_totals import QueryFailure
from tests.unit.monitoring.page.readings import group, partitions, reading, status

P = partitions(4)


def history(**limits: int) -> GroupHistory:
    return GroupHistory(Limits(**limits), len(P))


def add(to: GroupHistory, at: float, found: GroupReading, ends: dict[TopicPartition, int] | None = None) -> None:
    to.add(found, reading(at, found, ends=ends))


@pytest.mark.parametrize(
    ("committed", "ends", "lag"),
    [
        ({P[0]: 10, P[1]: 5}, {P[0]: 30, P[1]: 5}, 20),
        ({P[0]: 10, P[1]: 5}, {P[0]: 30}, 20),
        ({P[0]: 10}, {P[0]: 9}, 0),
        ({P[0]: 10}, {P[1]: 30}, None),
        ({}, {P[0]: 30}, None),
    ],
)
def test_the_lag_of_a_group_is_that_of_the_partitions_of_which_both_offsets_are_known(
    committed: dict[TopicPartition, int], ends: dict[TopicPartition, int], lag: int | None
) -> None:
    found = history()
    add(found, 100.0, group(committed=committed), ends)
    assert list(found.totals) == [Total(100.0, lag)]


def test_the_rates_are_those_since_the_sample_before() -> None:
    found = history()
    for at, committed, end in ((100.0, 0, 50), (110.0, 40, 100), (130.0, 40, 120)):
        add(found, at, group(committed={P[0]: committed}), {P[0]: end})
    assert list(found.totals) == [Total(100.0, 50), Total(110.0, 60, 4.0, 5.0), Total(130.0, 80, 0.0, 1.0)]


def test_a_reset_to_an_older_offset_is_not_a_negative_rate() -> None:
    found = history()
    add(found, 100.0, group(committed={P[0]: 90}), {P[0]: 100})
    add(found, 110.0, group(committed={P[0]: 0}), {P[0]: 100})
    assert found.totals[-1] == Total(110.0, 100, 0.0, 0.0)


def test_a_clock_that_was_set_back_gives_no_rates() -> None:
    found = history()
    for at in (100.0, 100.0, 90.0):
        add(found, at, group(committed={P[0]: 5}), {P[0]: 9})
    assert list(found.totals) == [Total(100.0, 4), Total(100.0, 4), Total(90.0, 4)]


def test_offsets_of_the_newest_reading_are_told_and_unknown_ones_are_none() -> None:
    found = history()
    assert found.committed(P[0]) is None, "nothing was read so far"
    add(found, 100.0, group(committed={P[0]: 10, P[1]: 0}))
    assert [found.committed(tp) for tp in P[:3]] == [10, 0, None]
    logs = {P[0]: 30, P[2]: 5}
    assert [found.lag_of(logs, tp) for tp in P[:3]] == [20, None, None]
    assert found.lag_of({P[0]: 7}, P[0]) == 0, "the group has committed since the broker told its log end"


def test_a_group_that_a_reading_lacks_has_no_known_lag_and_keeps_its_series() -> None:
    found = history()
    add(found, 100.0, group(committed={P[0]: 10}), {P[0]: 30})
    fenced = [status("a", trouble={"fence": {"count": 1}})]
    failed = QueryFailure(104.0, "q", ("etl",), "DataLossError", "orders-0: gone")
    found.miss("etl", reading(105.0, statuses=fenced, failures=[failed]))
    assert (found.is_read, found.committed(P[0]), found.lag_of({P[0]: 30}, P[0])) == (False, None, None)
    assert [total.at for total in found.totals] == [100.0]
    assert [mark.kind for mark in found.marks] == [MarkKind.FENCE, MarkKind.FAILURE]
    add(found, 110.0, group(committed={P[0]: 20}), {P[0]: 30})
    assert (found.is_read, found.lag_of({P[0]: 30}, P[0])) == (True, 10)


def test_marks_batches_and_failures_of_other_groups_are_left_out() -> None:
    found = history()
    batch = {"batch": 1, "began": "2026-01-01T00:00:00Z", "rows": 5, "durations_ms": {}}
    theirs = status("b", group="audit", trouble={"fence": {"count": 1}}, batches=[batch])
    failed = QueryFailure(104.0, "q", ("audit",), "DataLossError", "orders-0: gone")
    found.add(group(), reading(105.0, group(), statuses=[theirs], failures=[failed]))
    assert (list(found.marks), found.batches.runs()) == ([], {})


def test_the_timeline_keeps_the_rows_of_partitions_that_are_between_two_members() -> None:
    found = history()
    add(found, 100.0, group(held={"a": P[:2]}, committed={P[3]: 1}))
    add(found, 105.0, group(held={"a": []}, committed={P[3]: 1}, state=GroupState.PREPARING_REBALANCE))
    assert list(found.ownership.partitions) == [P[0], P[1], P[3]]
    add(found, 110.0, group(held={"a": P[:1]}, committed={P[3]: 1}))
    assert list(found.ownership.partitions) == [P[0], P[3]], "after the rebalance no member holds orders-1"


def test_series_timeline_and_marks_keep_what_the_limits_allow() -> None:
    found = history(samples=4, assignments=4, marks=2)
    for at in range(10):
        add(found, at, group(held={"ab"[at % 2]: P}, committed=dict.fromkeys(P, at)))
    assert (len(found.offsets), len(found.totals), len(found.ownership), len(found.marks)) == (4, 4, 4, 2)
    found.resize(Limits(samples=4, assignments=4, offsets=16, owners=8), len(P))
    assert (len(found.offsets), found.offsets.times().tolist(), len(found.ownership)) == (2, [8, 9], 2)


@pytest.mark.parametrize(
    ("partitions", "samples"),
    [(0, 720), (1, 720), (2777, 720), (2778, 360), (5555, 360), (5556, 180), (1_000_000, 2), (10**9, 2)],
)
def test_series_are_halved_until_the_offsets_of_all_partitions_fit(partitions: int, samples: int) -> None:
    assert Limits().samples_for(partitions) == samples


@pytest.mark.parametrize(
    ("partitions", "assignments"), [(0, 100), (40_000, 100), (40_001, 50), (80_000, 50), (80_001, 25), (10**9, 1)]
)
def test_timelines_are_halved_until_the_owners_of_all_partitions_fit(partitions: int, assignments: int) -> None:
    assert Limits().assignments_for(partitions) == assignments
