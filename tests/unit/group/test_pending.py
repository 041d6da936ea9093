"""The book of pending requests and timers."""

from __future__ import annotations

from streamgroup.group.pending import RequestsAndTimers
from streamgroup.group.registry.purposes import RegistryPurpose, RegistryTimer


def test_every_request_has_a_token_of_its_own_and_is_answered_once() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    look, claim = requests.add(RegistryPurpose.LOOK, 1.0), requests.add(RegistryPurpose.CLAIM, 2.0)
    assert look != claim
    pending = requests.take(claim)
    assert pending is not None
    assert (pending.purpose, pending.sent_at) == (RegistryPurpose.CLAIM, 2.0)
    assert requests.take(claim) is None
    assert requests.is_pending(RegistryPurpose.LOOK, RegistryPurpose.CLAIM)
    assert not requests.is_pending(RegistryPurpose.CLAIM)


def test_a_heartbeat_is_not_counted_among_the_other_pending_requests() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    requests.add(RegistryPurpose.HEARTBEAT, 0.0)
    assert not requests.is_pending_beside(RegistryPurpose.HEARTBEAT)
    requests.add(RegistryPurpose.CONFIRM, 0.0)
    assert requests.is_pending_beside(RegistryPurpose.HEARTBEAT)
    requests.forget(RegistryPurpose.CONFIRM)
    assert not requests.is_pending_beside(RegistryPurpose.HEARTBEAT)


def test_timers_are_due_in_their_order_and_once() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    requests.set(RegistryTimer.HEARTBEAT, 5.0)
    requests.set(RegistryTimer.REJOIN, 6.0)
    requests.set(RegistryTimer.RETRY, 9.0)
    assert requests.wake_at == 5.0
    assert requests.take_due(4.9) is None
    assert [requests.take_due(8.0) for _ in range(3)] == [RegistryTimer.REJOIN, RegistryTimer.HEARTBEAT, None]
    requests.clear(RegistryTimer.RETRY)
    assert requests.wake_at is None


def test_only_a_request_with_a_deadline_can_be_overdue() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    requests.add(RegistryPurpose.LOOK, 1.0)
    late = requests.add(RegistryPurpose.CLAIM, 1.0, overdue_at=3.0)
    assert (requests.wake_at, requests.overdue(2.9)) == (3.0, [])
    assert [pending.token for pending in requests.overdue(3.0)] == [late]


def test_a_reset_gives_up_all_but_the_purposes_named() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    kept, given_up = requests.add(RegistryPurpose.HEARTBEAT, 0.0), requests.add(RegistryPurpose.LOOK, 0.0)
    requests.set(RegistryTimer.RETRY, 1.0)
    requests.reset(RegistryPurpose.HEARTBEAT)
    assert requests.take(given_up) is None
    assert requests.take(kept) is not None
    assert requests.at(RegistryTimer.RETRY) is None
