from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.monitoring.log_times import KEPT_S, MOST_POINTS, LogTimes


def times(*readings: tuple[float, int]) -> LogTimes[str]:
    found = LogTimes[str]()
    for now, end in readings:
        found.add(now, {"a": end})
    return found


@pytest.mark.parametrize(
    ("position", "seconds"),
    [
        (300, 0.0),
        (310, 0.0),  # committed after the ends were listed
        (200, 20.0),  # the log ended there at 120
        (150, 30.0),  # between 100 and 200, at 110
        (299, 0.2),
        (50, 50.0),  # before the first reading, at 10 records a second
    ],
)
def test_a_position_is_behind_since_the_log_ended_there(position: int, seconds: float) -> None:
    found = times((100, 100), (120, 200), (140, 300))
    assert found.seconds_behind("a", position, 140) == pytest.approx(seconds)


def test_a_log_that_stands_still_leaves_its_last_records_to_age() -> None:
    found = times((0, 0), (10, 100), (20, 100), (500, 100))
    assert found.seconds_behind("a", 90, 500) == pytest.approx(491)


def test_a_record_behind_a_long_silence_is_as_old_as_the_reading_before_it() -> None:
    found = times((0, 100), (1800, 100), (3600, 100), (3615, 101))
    assert found.seconds_behind("a", 100, 3615) == pytest.approx(15)


def test_a_reading_that_is_older_than_another_changes_nothing() -> None:
    found = times((0, 0), (20, 200), (10, 100))
    assert found.seconds_behind("a", 150, 20) == pytest.approx(5)


def test_nothing_is_known_of_a_lag_before_the_log_has_grown() -> None:
    assert times((0, 100), (10, 100)).seconds_behind("a", 90, 10) is None
    assert times((0, 100)).seconds_behind("a", 100, 0) == 0
    assert times((0, 100)).seconds_behind("b", 0, 0) is None


def test_a_log_that_readings_lack_for_minutes_or_that_was_made_anew_is_forgotten() -> None:
    found = times((0, 100), (10, 200))
    found.add(20, {"b": 1})
    assert found.seconds_behind("a", 150, 20) == pytest.approx(15)
    found.add(10 + KEPT_S + 1, {"b": 1})
    assert found.seconds_behind("a", 150, 20) is None
    again = times((0, 100), (10, 200), (20, 50), (30, 60))
    assert again.seconds_behind("a", 55, 30) == pytest.approx(5)


@pytest.mark.slow
@given(st.lists(st.integers(0, 1000), min_size=MOST_POINTS, max_size=10 * MOST_POINTS))
def test_points_are_bounded_and_a_position_nearer_to_the_end_is_never_further_behind(steps: list[int]) -> None:
    found, end = LogTimes[str](), 0
    for now, step in enumerate(steps):
        end += step
        found.add(float(now), {"a": end})
        assert len(found._points["a"]) <= MOST_POINTS
    seconds = [found.seconds_behind("a", position, float(len(steps))) for position in range(0, end, max(1, end // 50))]
    known = [one for one in seconds if one is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == len(seconds) or not any(known)
