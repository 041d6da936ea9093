from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.model import TopicPartition
from streamgroup.monitoring.page.history.offset_series import (
    TREND_S,
    UNKNOWN,
    LagTrend,
    OffsetSeries,
    Total,
    Trend,
    advance,
    lags,
    trend,
)

A, B, C = (TopicPartition("orders", number) for number in range(3))
OFFSETS = st.dictionaries(st.sampled_from((A, B, C)), st.integers(0, 1 << 40))
SAMPLES = st.lists(st.tuples(st.sets(st.sampled_from((A, B, C))), OFFSETS, OFFSETS), max_size=20)


@given(st.integers(2, 6), SAMPLES)
def test_a_ring_holds_the_newest_samples_of_the_partitions_there_are(
    capacity: int, samples: list[tuple[set[TopicPartition], dict[TopicPartition, int], dict[TopicPartition, int]]]
) -> None:
    series = OffsetSeries(capacity)
    for at, (wanted, committed, ends) in enumerate(samples):
        series.add(float(at), sorted(wanted), committed, ends)
    kept = list(enumerate(samples))[-capacity:]
    assert series.times().tolist() == [float(at) for at, _ in kept]
    for column, tp in enumerate(series.partitions):
        for row, (at, (wanted, committed, ends)) in enumerate(kept):
            later = all(tp in s[0] for s in samples[at:])  # it was never forgotten since
            known = tp in wanted and later
            assert series.committed()[row, column] == (committed.get(tp, UNKNOWN) if known else UNKNOWN)
            assert series.ends()[row, column] == (ends.get(tp, UNKNOWN) if known else UNKNOWN)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 12), st.integers(0, 12))
def test_a_ring_of_another_size_goes_on_with_the_newest_samples(before: int, after: int, first: int, more: int) -> None:
    series = OffsetSeries(before)
    for at in range(first):
        series.add(float(at), [A], {A: at}, {A: at + 1})
    series.resize(after)
    for at in range(first, first + more):
        series.add(float(at), [A], {A: at}, {A: at + 1})
    kept = list(range(first))[-before:][-after:] + list(range(first, first + more))
    assert series.times().tolist() == kept[-after:]
    if kept:
        assert series.committed()[:, 0].tolist() == kept[-after:]


def test_a_lag_is_unknown_where_an_offset_is_and_never_negative() -> None:
    committed, ends = np.array([[5, UNKNOWN, 3, 9]]), np.array([[9, 4, UNKNOWN, 7]])
    assert lags(committed, ends).tolist() == [[4, UNKNOWN, UNKNOWN, 0]]


def test_a_reset_and_an_unknown_offset_are_no_advance() -> None:
    offsets = np.array([[10, 50], [15, 0], [UNKNOWN, 7], [20, 9]])
    assert advance(offsets).tolist() == [5, 7, 2]


@pytest.mark.parametrize(
    ("lags", "direction"),
    [
        ([100, 200, 300, 400], LagTrend.RISING),
        ([400, 300, 200, 100], LagTrend.FALLING),
        ([100_000, 100_500, 100_100, 100_400], LagTrend.STEADY),
        ([0, 0, 0], LagTrend.STEADY),
        ([0, 1, 0, 1], LagTrend.STEADY),
        ([5, 7], LagTrend.UNKNOWN),
        ([None, None, None], LagTrend.UNKNOWN),
    ],
)
def test_a_lag_rises_falls_or_is_steady_and_two_readings_do_not_tell(
    lags: list[int | None], direction: LagTrend
) -> None:
    assert trend([Total(5.0 * n, lag) for n, lag in enumerate(lags)]).direction is direction


def test_a_trend_has_the_change_of_the_lag_in_records_for_each_second() -> None:
    falling = trend([Total(10.0 * n, 1000 - 50 * n) for n in range(6)])
    assert falling.direction is LagTrend.FALLING
    assert falling.per_s == pytest.approx(-5.0)
    steady = trend([Total(10.0 * n, 100_000 + n) for n in range(6)])
    assert steady.direction is LagTrend.STEADY
    assert steady.per_s == pytest.approx(0.1), "a steady lag has its change too"


@pytest.mark.parametrize(
    ("last", "direction"), [(1020, LagTrend.STEADY), (1021, LagTrend.RISING), (979, LagTrend.FALLING)]
)
def test_a_lag_is_steady_while_it_changes_by_two_in_a_hundred_at_the_most(last: int, direction: LagTrend) -> None:
    assert trend([Total(0.0, 1000), Total(5.0, 1000), Total(10.0, last)]).direction is direction


def test_unknown_lags_and_a_clock_that_stands_still_or_was_set_back_give_no_trend() -> None:
    lags = [1000, None, 1000, None, 1000]
    assert trend([Total(5.0 * n, lag) for n, lag in enumerate(lags)]) == Trend(LagTrend.STEADY, 0.0), "None is not 0"
    assert trend([]) == Trend(LagTrend.UNKNOWN, 0.0)
    assert trend([Total(7.0, lag) for lag in (1, 500, 1000)]).direction is LagTrend.UNKNOWN
    assert trend([Total(20.0 - at, 100 * at) for at in range(3)]).direction is LagTrend.UNKNOWN


def test_a_sample_of_exactly_a_minute_ago_counts_and_an_older_one_does_not() -> None:
    recent = [Total(TREND_S + step, 0) for step in (-50.0, -40.0, -30.0, -20.0, -10.0, 0.0)]
    assert trend([Total(0.0, 900), *recent]).direction is LagTrend.FALLING
    assert trend([Total(-1.0, 900), *recent]).direction is LagTrend.STEADY
    seldom = [Total(600.0 * n, 1000 - 10 * n) for n in range(50)]
    assert trend(seldom).direction is LagTrend.FALLING, "a cluster that is read once in ten minutes has trends too"
