"""Pauses of a whole coordinator: it leaves the group while Spark is silent, and joins again (R27)."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from streamgroup.coordinator.control.parent import StoppedWatch
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, LeaveGroupRequest
from streamgroup.options.types import GroupOptions
from tests.unit.coordinator.runs import Run, Start, start
from tests.unit.coordinator.shells import SOON, running, source, until

__all__ = ["start"]


def pause(run: Run) -> None:
    """The driver is silent for longer than it may be: the member leaves."""
    time.sleep(0.01)
    left = run.poller.asked(LeaveGroupRequest)
    run.coordinator.look_at_silence(jvm_is_stopped=False)
    until(lambda: run.poller.asked(LeaveGroupRequest) > left, "left")
    until(lambda: run.coordinator.status()["state"] == "left", "the answer is there")


def leave_and_come_back(run: Run, leave: Any) -> dict[str, Any]:
    """Sunk batches are committed before; the batch that sank meanwhile repeats nothing afterwards."""
    first = run.batch()
    leave()
    until(lambda: run.poller.asked(LeaveGroupRequest) == 1, "left")
    assert run.group.members == {}
    joined = run.poller.asked(JoinGroupRequest)
    run.latest(first)
    until(lambda: run.poller.asked(JoinGroupRequest) > joined, "joined again")
    until(lambda: run.committed == {0: 10, 1: 10}, "what sank while nobody was a member is committed by R5")
    run.logs.ends = dict.fromkeys(run.logs.ends, 12)
    second = run.plan(first)
    assert second["ranges"] == {"t": {"0": [10, 12], "1": [10, 12]}}
    return second


def test_a_driver_silent_for_longer_than_it_may_leaves_and_joins_again_when_spark_calls(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=50)))

    def leave() -> None:
        time.sleep(0.06)
        run.coordinator.look_at_silence(jvm_is_stopped=False)

    with caplog.at_level(logging.INFO):
        leave_and_come_back(run, leave)
    assert (
        "longer than group.maxSilence: left the group, so other members read its partitions. It joins again"
        in caplog.text
    )
    assert "Spark is back: joining again" in caplog.text


def test_a_driver_whose_jvm_is_stopped_leaves_after_a_session_and_joins_again(start: Start) -> None:
    """The JVM is a process of the test's own that is really stopped. The session that passes meanwhile is not real."""
    run = start(source(group=GroupOptions("g", session_timeout_ms=60_000)))
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    is_stopped = StoppedWatch(jvm.pid)

    def leave() -> None:
        jvm.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(time.monotonic()), "stopped")
        run.coordinator.look_at_silence(jvm_is_stopped=True)
        assert not run.poller.asked(LeaveGroupRequest)
        run.coordinator._inbox._clock = lambda: time.monotonic() + 61.0
        run.coordinator.look_at_silence(jvm_is_stopped=True)
        jvm.send_signal(signal.SIGCONT)
        until(lambda: not is_stopped(time.monotonic()), "going on")

    try:
        leave_and_come_back(run, leave)
    finally:
        jvm.kill()
        jvm.wait(SOON)


def test_a_batch_in_flight_that_a_silent_driver_leaves_is_a_possible_repeat_reported_once(start: Start) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    run.batch()
    pause(run)
    time.sleep(0.01)
    run.coordinator.look_at_silence(jvm_is_stopped=False)
    repeat = run.coordinator.status()["trouble"]["repeat"]
    assert (repeat["count"], repeat["reason"][:27]) == (1, "left while Spark was silent")


def test_who_has_not_joined_yet_has_nothing_to_leave_and_joins_with_its_first_batch(start: Start) -> None:
    """AvailableNow asks for the ends of all its sources first, and a broker of another source may be slow."""
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    run.coordinator.prepare_available_now()
    time.sleep(0.01)
    run.coordinator.look_at_silence(jvm_is_stopped=False)
    assert run.batch()["ranges"] == {"t": {"0": [0, 10], "1": [0, 10]}}


def test_another_member_that_read_on_meanwhile_is_followed(start: Start) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    first = run.batch()
    pause(run)
    run.group.offsets = {tp: type(offset)(15) for tp, offset in run.group.offsets.items()}
    run.logs.ends = dict.fromkeys(run.logs.ends, 20)
    assert run.plan(first)["ranges"] == {"t": {"0": [15, 20], "1": [15, 20]}}


def test_a_silent_driver_can_be_stopped_and_drained_while_it_is_out(start: Start) -> None:
    for end in ("stop", "drain"):
        run = start(source(group=GroupOptions("g", max_silence_ms=1)))
        first = run.batch()
        run.latest(first)
        pause(run)
        if end == "stop":
            run.coordinator.stop()
        else:
            assert run.coordinator.drain(SOON)["drained"]
        joined = run.poller.asked(JoinGroupRequest)
        assert run.latest(first) == first
        assert run.poller.asked(JoinGroupRequest) == joined, "it does not come back"


def test_a_drain_of_a_batch_that_sinks_while_the_member_is_out_waits_until_it_is_committed(start: Start) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    first = run.batch()
    pause(run)
    answers: list[dict[str, Any]] = []
    with running(lambda: answers.append(run.coordinator.drain(SOON))):
        until(lambda: run.coordinator.status()["draining"], "draining")
        assert run.latest(first) == first
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}
