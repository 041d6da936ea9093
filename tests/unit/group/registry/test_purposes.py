"""A member forces rebalances ever more rarely where they do not help, and names each of its requests in the log."""

from __future__ import annotations

from streamgroup.group.pending import RequestsAndTimers
from streamgroup.group.registry.purposes import (
    FORCED_REBALANCE_MAX_S,
    ForcedRebalanceBackoff,
    RegistryPurpose,
    RegistryTimer,
)


def test_the_waits_between_forced_rebalances_double_up_to_a_maximum() -> None:
    backoff, waits = ForcedRebalanceBackoff(), []
    for _ in range(7):
        waits.append(backoff.wait_s)
        backoff.add()
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0, 160.0]


def test_other_consumers_in_the_group_begin_the_waits_anew() -> None:
    backoff = ForcedRebalanceBackoff()
    backoff.add()
    backoff.add()
    assert backoff.wait_s == backoff.wait_s == 40.0, "to ask for the wait changes nothing"
    backoff.reset()
    assert backoff.wait_s == 10.0


def test_of_timers_due_at_once_leaving_comes_before_a_rejoin_and_a_heartbeat_last() -> None:
    timers: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    for timer in sorted(RegistryTimer, key=lambda timer: timer.value):
        timers.set(timer, 5.0)
    taken = [timers.take_due(5.0) for _ in RegistryTimer]
    assert taken[:3] == [RegistryTimer.LEAVE, RegistryTimer.REJOIN, RegistryTimer.RETRY]
    assert taken[-1] is RegistryTimer.HEARTBEAT


def test_a_purpose_is_logged_in_its_words() -> None:
    assert f"cannot {RegistryPurpose.CLAIM}: no answer" == "cannot claim partitions: no answer"


def test_a_member_that_forces_rebalances_for_months_still_has_a_wait() -> None:
    backoff = ForcedRebalanceBackoff()
    for _ in range(2_000):
        backoff.add()
    assert backoff.wait_s == FORCED_REBALANCE_MAX_S
