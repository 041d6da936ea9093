"""Exponential backoff with jitter."""

from __future__ import annotations

import random

import pytest

from streamgroup.backoff import Backoff, backoff_s


class Middle:
    def random(self) -> float:
        return 0.5


def test_waits_double_up_to_the_maximum_within_a_fifth() -> None:
    chance = random.Random(7)
    for attempt, middle in ((1, 0.05), (2, 0.1), (3, 0.2), (4, 0.3), (10_000, 0.3)):
        waits = [backoff_s(attempt, 50, 300, chance) for _ in range(50)]
        assert 0.8 * middle <= min(waits) < max(waits) <= 1.2 * middle


def test_waits_double_up_to_the_maximum_and_restart_after_a_success() -> None:
    backoff = Backoff(100, 1_000, Middle())
    assert [round(backoff.next(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next() == pytest.approx(0.1)
    backoff._attempts = 10**6
    assert backoff.next() == pytest.approx(1.0)


def test_jitter_spreads_by_a_fifth_either_way() -> None:
    waits = [Backoff(100, 1_000, random.Random(seed)).next() for seed in range(200)]
    assert 0.08 <= min(waits) < 0.085
    assert 0.115 < max(waits) <= 0.12
