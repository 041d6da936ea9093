"""The brokers of a producer: one gets no request while it throttles, or in the backoff after a lost connection."""

from __future__ import annotations

import pytest

from streamgroup.producer.nodes import Node


def test_a_new_broker_is_available_at_any_time() -> None:
    assert Node().available_at() == float("-inf")


@pytest.mark.parametrize(
    ("muted_until", "retry_at", "available_at"), [(5.0, 3.0, 5.0), (3.0, 5.0, 5.0), (0.0, -1.0, 0.0)]
)
def test_a_broker_is_available_when_both_the_throttle_time_and_the_backoff_have_passed(
    muted_until: float, retry_at: float, available_at: float
) -> None:
    assert Node(muted_until=muted_until, retry_at=retry_at).available_at() == available_at
