"""Token buckets: how much may be planned at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroup.planning.rates import BURST_S, Rate


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
