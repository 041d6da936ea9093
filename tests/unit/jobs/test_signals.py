from __future__ import annotations

import os
import signal

import pytest

from streamgroup.jobs import signals
from streamgroup.jobs.signals import StopAtOnce, StopRequest
from tests.clock import Clock
from tests.fakes.signals import kept_handlers
from tests.waiting import wait_until

__all__ = ["kept_handlers"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_signal_is_a_request(clock: Clock) -> None:
    stop = StopRequest(clock)
    assert not stop
    stop.receive(signal.SIGTERM)
    assert stop
    assert stop.name == "SIGTERM"


def test_one_keystroke_that_arrives_twice_is_one_request(clock: Clock) -> None:
    stop = StopRequest(clock)
    stop.receive(signal.SIGINT)
    clock.now += 0.2
    stop.receive(signal.SIGINT)
    assert stop


def test_a_second_signal_stops_at_once(clock: Clock) -> None:
    stop = StopRequest(clock)
    stop.receive(signal.SIGTERM)
    clock.now += 1.5
    with pytest.raises(StopAtOnce):
        stop.receive(signal.SIGINT)


@pytest.mark.usefixtures("kept_handlers")
@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_the_jvms_signal_is_handed_on_to_this_process(name: str) -> None:
    class Received:
        def getName(self) -> str:  # noqa: N802 (Java's)
            return name

    stop = StopRequest()
    stop.install()
    signals._ForwardingHandler().handle(Received())
    wait_until(lambda: stop, "the signal")
    assert stop.name == f"SIG{name}"


@pytest.mark.usefixtures("kept_handlers")
def test_both_signals_are_handled() -> None:
    for number in signals.SIGNALS:
        stop = StopRequest()
        stop.install()
        os.kill(os.getpid(), number)
        assert stop.name == number.name
