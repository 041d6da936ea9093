"""Values that the connections of a process share, and that are renewed before they expire."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest

from streamgroup.errors import AuthenticationError, StreamGroupError, TransportError
from streamgroup.kafka.net.sasl.renewals import Renewals
from tests.clock import Clock
from tests.waiting import TIMEOUT_S, wait_until


class Value(NamedTuple):
    number: int
    renewed_at: float
    expires_at: float


class Key:
    """Counts how often it was looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        self.looked_up += 1
        return 1


class Source:
    """Counts the values that it makes, each of 100 s, or raises `failure`."""

    def __init__(self) -> None:
        self.made = 0
        self.failure: StreamGroupError | None = None

    def __call__(self, now: float) -> Value:
        if self.failure is not None:
            raise self.failure
        self.made += 1
        return Value(self.made, now + 80, now + 100)


def test_a_value_is_kept_until_it_is_to_be_renewed() -> None:
    renewals: Renewals[str, Value] = Renewals(clock := Clock(1_000.0))
    source = Source()
    assert [renewals.get("a", source).number, renewals.get("a", source).number] == [1, 1]
    assert renewals.get("b", source).number == 2
    clock.now += 79
    assert renewals.get("a", source).number == 1
    clock.now += 1
    assert renewals.get("a", source).number == 3


def test_a_renewal_that_fails_for_now_keeps_the_value_until_its_end() -> None:
    renewals: Renewals[str, Value] = Renewals(clock := Clock(1_000.0))
    source = Source()
    renewals.get("a", source)
    source.failure = TransportError("away")
    clock.now += 99
    assert renewals.get("a", source).number == 1
    clock.now += 1
    with pytest.raises(TransportError, match="away"):
        renewals.get("a", source)
    source.failure = None
    assert renewals.get("a", source).number == 2


def test_a_renewal_that_is_refused_is_an_error_although_the_value_has_not_ended() -> None:
    renewals: Renewals[str, Value] = Renewals(clock := Clock(1_000.0))
    source = Source()
    renewals.get("a", source)
    source.failure = AuthenticationError("revoked")
    clock.now += 81
    with pytest.raises(AuthenticationError, match="revoked"):
        renewals.get("a", source)


@pytest.mark.parametrize("fails", [False, True])
def test_callers_that_wait_get_the_result_of_the_attempt_under_way(fails: bool) -> None:
    renewals: Renewals[Key, Value] = Renewals(Clock(1_000.0))
    key = Key()
    begun, released = threading.Event(), threading.Event()
    attempts: list[float] = []
    results: list[object] = []

    def slow(now: float) -> Value:
        attempts.append(now)
        begun.set()
        assert released.wait(TIMEOUT_S)
        if fails:
            raise TransportError("no answer")
        return Value(1, now + 80, now + 100)

    def ask() -> None:
        try:
            results.append(renewals.get(key, slow).number)
        except TransportError as error:
            results.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    threads[0].start()
    assert begun.wait(TIMEOUT_S)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: key.looked_up == 5, "five callers have come")
    with renewals._lock:  # the last of them has passed it
        released.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert results == ["no answer" if fails else 1] * 5
    assert len(attempts) == 1


@pytest.mark.parametrize("has_value", [False, True])
def test_an_attempt_that_does_not_end_holds_up_no_other_caller_for_long(has_value: bool) -> None:
    renewals: Renewals[str, Value] = Renewals(clock := Clock(1_000.0), wait_s=0.01)
    if has_value:
        renewals.get("a", Source())
        clock.now += 90
    begun, released = threading.Event(), threading.Event()

    def endless(now: float) -> Value:
        begun.set()
        assert released.wait(10)
        return Value(2, now + 80, now + 100)

    thread = threading.Thread(target=renewals.get, args=("a", endless))
    thread.start()
    try:
        assert begun.wait(10)
        if has_value:
            assert renewals.get("a", Source()).number == 1, "the kept value has not ended"
        else:
            with pytest.raises(TransportError, match=r"another connection .* has waited for one for more than 0\.01 s"):
                renewals.get("a", Source())
    finally:
        released.set()
        thread.join(10)
    assert renewals.get("a", Source()).number == 2
