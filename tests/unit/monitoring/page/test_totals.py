"""The trend that the page shows beside the lag of a group: rising, falling, steady or unknown, and how fast."""

from __future__ import annotations

import pytest

from streamgroup.monitoring.page.history.offset_series import TREND_S, LagTrend, Total, Trend, trend


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


def test_a_trend_looks_back_a_minute_only() -> None:
    totals = [Total(5.0 * n, 100_000 - 1000 * n) for n in range(50)] + [Total(250 + 5.0 * n, 50_000) for n in range(20)]
    assert trend(totals).direction is LagTrend.STEADY


def test_a_cluster_that_is_read_once_in_ten_minutes_has_trends_too() -> None:
    assert trend([Total(600.0 * n, 1000 - 10 * n) for n in range(50)]).direction is LagTrend.FALLING


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


def test_samples_without_a_known_lag_do_not_count_as_a_lag_of_zero() -> None:
    lags = [1000, None, 1000, None, 1000]
    assert trend([Total(5.0 * n, lag) for n, lag in enumerate(lags)]) == Trend(LagTrend.STEADY, 0.0)


def test_a_group_without_samples_has_an_unknown_trend() -> None:
    assert trend([]) == Trend(LagTrend.UNKNOWN, 0.0)


def test_a_clock_that_stands_still_or_was_set_back_gives_no_trend() -> None:
    assert trend([Total(7.0, lag) for lag in (1, 500, 1000)]).direction is LagTrend.UNKNOWN
    assert trend([Total(20.0 - at, 100 * at) for at in range(3)]).direction is LagTrend.UNKNOWN


def test_a_sample_of_exactly_a_minute_ago_counts_and_an_older_one_does_not() -> None:
    recent = [Total(TREND_S + step, 0) for step in (-50.0, -40.0, -30.0, -20.0, -10.0, 0.0)]
    assert trend([Total(0.0, 900), *recent]).direction is LagTrend.FALLING
    assert trend([Total(-1.0, 900), *recent]).direction is LagTrend.STEADY
