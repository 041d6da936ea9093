import random

import pytest

from streamgroup.net.backoff import Backoff
from streamgroup.options.types import ClientOptions

OPTIONS = ClientOptions(bootstrap_servers=(("b", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1000)


class Middle(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_waits_double_up_to_the_maximum_and_restart_after_a_success() -> None:
    backoff = Backoff(OPTIONS, Middle())
    assert [round(backoff.next(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next() == pytest.approx(0.1)


def test_jitter_spreads_by_a_fifth_either_way() -> None:
    waits = [Backoff(OPTIONS, random.Random(seed)).next() for seed in range(200)]
    assert 0.08 <= min(waits) < 0.085
    assert 0.115 < max(waits) <= 0.12


def test_a_million_attempts_stay_at_the_most() -> None:
    backoff = Backoff(OPTIONS, Middle())
    backoff._attempts = 10**6
    assert backoff.next() == pytest.approx(1.0)
