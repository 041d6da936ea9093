"""Exponential backoff with jitter."""

from __future__ import annotations

import random

from streamgroup.backoff import backoff_s


def test_waits_double_up_to_the_maximum_within_a_fifth() -> None:
    chance = random.Random(7)
    for attempt, middle in ((1, 0.05), (2, 0.1), (3, 0.2), (4, 0.3), (10_000, 0.3)):
        waits = [backoff_s(attempt, 50, 300, chance) for _ in range(50)]
        assert 0.8 * middle <= min(waits) < max(waits) <= 1.2 * middle
