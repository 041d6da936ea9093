"""The configuration of a member."""

from __future__ import annotations

import random

import pytest

from streamgroup.errors import ConfigError
from streamgroup.group.timing import MemberConfig


def test_backoff_stays_within_a_fifth_of_its_value() -> None:
    config, chance = MemberConfig("g"), random.Random(7)
    for attempt, middle in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10_000, 1.0)):
        assert all(0.8 * middle <= config.backoff_s(attempt, chance) <= 1.2 * middle for _ in range(50))


@pytest.mark.parametrize("strategies", [(), ("range", "sticky")])
def test_strategies_that_do_not_exist_are_refused(strategies: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="streamgroup-range, range, roundrobin"):
        MemberConfig("g", strategies=strategies)


@pytest.mark.parametrize(
    ("strategies", "cooperative"),
    [(("cooperative-sticky",), True), (("cooperative-sticky", "range"), False), (("range",), False)],
)
def test_a_member_is_cooperative_only_if_all_it_offers_is(strategies: tuple[str, ...], cooperative: bool) -> None:
    """R25, as in Java: with an eager strategy beside it, as in a rolling upgrade, everything is given up."""
    assert MemberConfig("g", strategies=strategies).cooperative is cooperative
