"""The book of pending requests and timers."""

from __future__ import annotations

from streamgroup.group.pending import Requests
from streamgroup.group.registry.purposes import Purpose, Timer


def test_every_request_has_a_token_of_its_own_and_is_answered_once() -> None:
    requests: Requests[Purpose, Timer] = Requests(Timer)
    look, claim = requests.add(Purpose.LOOK, 1.0), requests.add(Purpose.CLAIM, 2.0)
    assert look != claim
    pending = requests.take(claim)
    assert pending is not None
    assert (pending.purpose, pending.sent_at) == (Purpose.CLAIM, 2.0)
    assert requests.take(claim) is None
    assert requests.is_pending(Purpose.LOOK, Purpose.CLAIM)
    assert not requests.is_pending(Purpose.CLAIM)


def test_a_heartbeat_is_not_counted_among_the_other_pending_requests() -> None:
    requests: Requests[Purpose, Timer] = Requests(Timer)
    requests.add(Purpose.HEARTBEAT, 0.0)
    assert not requests.is_pending_beside(Purpose.HEARTBEAT)
    requests.add(Purpose.CONFIRM, 0.0)
    assert requests.is_pending_beside(Purpose.HEARTBEAT)
    requests.forget(Purpose.CONFIRM)
    assert not requests.is_pending_beside(Purpose.HEARTBEAT)


def test_timers_are_due_in_their_order_and_once() -> None:
    requests: Requests[Purpose, Timer] = Requests(Timer)
    requests.set(Timer.HEARTBEAT, 5.0)
    requests.set(Timer.REJOIN, 6.0)
    requests.set(Timer.RETRY, 9.0)
    assert requests.wake_at == 5.0
    assert requests.take_due(4.9) is None
    assert [requests.take_due(8.0) for _ in range(3)] == [Timer.REJOIN, Timer.HEARTBEAT, None]
    requests.clear(Timer.RETRY)
    assert requests.wake_at is None


def test_only_a_request_with_a_deadline_can_be_overdue() -> None:
    requests: Requests[Purpose, Timer] = Requests(Timer)
    requests.add(Purpose.LOOK, 1.0)
    late = requests.add(Purpose.CLAIM, 1.0, overdue_at=3.0)
    assert (requests.wake_at, requests.overdue(2.9)) == (3.0, [])
    assert [pending.token for pending in requests.overdue(3.0)] == [late]


def test_a_reset_gives_up_all_but_the_purposes_named() -> None:
    requests: Requests[Purpose, Timer] = Requests(Timer)
    kept, given_up = requests.add(Purpose.HEARTBEAT, 0.0), requests.add(Purpose.LOOK, 0.0)
    requests.set(Timer.RETRY, 1.0)
    requests.reset(Purpose.HEARTBEAT)
    assert requests.take(given_up) is None
    assert requests.take(kept) is not None
    assert requests.at(Timer.RETRY) is None
