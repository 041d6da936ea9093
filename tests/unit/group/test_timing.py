"""When things are due."""

from __future__ import annotations

import random

import pytest

from streamgroup.errors import ConfigError
from streamgroup.group.timing import BatchClock, MemberConfig, rejoin_due


@pytest.mark.parametrize(
    ("told", "asked", "longest", "due"),
    [
        (100.0, 90.0, 20.0, 140.0),  # the tasks are presumably done at 110
        (100.0, None, 20.0, 395.0),  # planned, but not asked for yet
        (100.0, 90.0, None, 395.0),  # no batch has completed in this run
        (100.0, 90.0, 500.0, 395.0),  # never later than the group's patience
        (100.0, 10.0, 5.0, 45.0),  # overdue when told
    ],
)
def test_rejoin_due(told: float, asked: float | None, longest: float | None, due: float) -> None:
    assert rejoin_due(told, asked, longest, rebalance_wait_s=30.0, max_poll_s=300.0) == due


def test_a_short_patience_keeps_a_margin_of_its_tenth() -> None:
    assert rejoin_due(0.0, None, None, rebalance_wait_s=30.0, max_poll_s=10.0) == 9.0


def test_the_longest_batch_counts_from_the_first_time_that_it_was_asked_for() -> None:
    clock = BatchClock()
    for start, end in ((10.0, 17.0), (20.0, 22.0)):
        clock.planned()
        clock.asked(start)
        clock.asked(start + 1)
        assert clock.in_flight
        clock.idle(end)
    assert (clock.longest_s, clock.in_flight, clock.asked_at) == (7.0, False, None)


def test_a_batch_that_was_never_asked_for_has_no_length() -> None:
    clock = BatchClock()
    clock.planned()
    clock.idle(50.0)
    assert clock.longest_s is None


def test_backoff_stays_within_a_fifth_of_its_value() -> None:
    config, chance = MemberConfig("g"), random.Random(7)
    for attempt, middle in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10_000, 1.0)):
        assert all(0.8 * middle <= config.backoff_s(attempt, chance) <= 1.2 * middle for _ in range(50))


@pytest.mark.parametrize("strategies", [(), ("range", "cooperative-sticky")])
def test_strategies_that_do_not_exist_are_refused(strategies: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="streamgroup-range, range, roundrobin"):
        MemberConfig("g", strategies=strategies)
