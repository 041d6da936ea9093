"""Runs whose Spark is silent (R27): they pause, and join again with Spark's next call."""

from __future__ import annotations

from dataclasses import replace

from streamgroup.coordinator.run import interface as io
from streamgroup.coordinator.run.lifecycle import RunState
from streamgroup.coordinator.run.spark_calls import ASSIGNMENT_TIMEOUT_S
from streamgroup.group import events as ev
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, LeaveGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import (
    INITIAL_DOCUMENT,
    OffsetRange,
)
from streamgroup.options.types import GroupOptions, LimitOptions
from tests.unit.coordinator.run.run_shell import OFF, P0, P1, PLAN, SILENT, Shell


def test_a_silent_run_leaves_the_group_and_joins_again_with_sparks_next_call() -> None:
    shell = Shell(SILENT)
    first = shell.batch()
    shell.step(io.SilenceLook(jvm_is_stopped=False), 59.0)
    assert shell.run.shutdown.state is RunState.RUNNING
    shell.step(io.SilenceLook(jvm_is_stopped=False), 2.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    assert shell.coordinator.members == {}
    assert [note.text for note in shell.of(ev.Note) if "Spark has been silent" in note.text] == [
        "group g: Spark has been silent for 61 s, longer than group.maxSilence: left the group, so other members read "
        "its partitions. It joins again with Spark's next call"
    ]
    assert sum("left while Spark was silent" in line for line in shell.lines) == 1
    joined = shell.asked(JoinGroupRequest)
    shell.result(io.LatestOffset(first, LimitOptions()))
    assert shell.run.shutdown.state is RunState.RUNNING
    assert shell.asked(JoinGroupRequest) > joined
    assert shell.committed == {0: 10, 1: 10}


def test_a_silent_static_member_reports_that_it_keeps_its_partitions_until_its_session_expires() -> None:
    shell = Shell(replace(SILENT, instance_id="i"))
    shell.batch()
    shell.step(io.SilenceLook(jvm_is_stopped=False), 61.0)
    assert shell.asked(LeaveGroupRequest) == 0
    assert [note.text for note in shell.of(ev.Note) if "Spark has been silent" in note.text] == [
        "group g: Spark has been silent for 61 s, longer than group.maxSilence: the member stops its heartbeats. As a "
        "static member it stays in the group, and other members read its partitions only when its session expires "
        "(45 s, session.timeout.ms). It joins again with Spark's next call"
    ]
    assert any("stopped its heartbeats while Spark was silent" in line for line in shell.lines)
    assert not any("left" in line for line in shell.lines)


def test_a_pause_waits_for_the_answers_of_the_coordinator_without_holding_up_the_run() -> None:
    shell = Shell(SILENT)
    shell.batch()
    shell.held = {LeaveGroupRequest}
    shell.step(io.SilenceLook(jvm_is_stopped=False), 61.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    assert not [note for note in shell.of(ev.Note) if "left the group" in note.text]
    assert shell.result(io.GetStatus())["state"] == "leaving"
    shell.release()
    assert [note for note in shell.of(ev.Note) if "left the group" in note.text]


def test_a_jvm_that_is_stopped_counts_as_hung_after_a_session() -> None:
    shell = Shell(GroupOptions("g", session_timeout_ms=6_000))
    shell.batch()
    for after in (0.0, 6.0):
        shell.step(io.SilenceLook(jvm_is_stopped=True), after)
        assert shell.asked(LeaveGroupRequest) == 0
    shell.step(io.SilenceLook(jvm_is_stopped=True), 0.1)
    assert shell.asked(LeaveGroupRequest) == 1


ONCE = io.LatestOffset(INITIAL_DOCUMENT, LimitOptions(), once=True)
STOPPED, RUNS = io.SilenceLook(jvm_is_stopped=True), io.SilenceLook(jvm_is_stopped=False)
SHORT_SESSION = GroupOptions("g", session_timeout_ms=6_000)


def test_a_call_of_once_that_waits_joins_again_each_time_the_jvm_goes_on() -> None:
    """Spark calls `latestOffset` a single time under Once, so no later call joins again."""
    shell = Shell(SHORT_SESSION, JoinGroupRequest)
    shell.call(ONCE)
    shell.serve()
    for pause in (1, 2):
        shell.step(STOPPED)
        shell.step(STOPPED, 6.1)
        assert shell.run.shutdown.state is RunState.PAUSED
        shell.step(STOPPED, 6.1)
        assert shell.run.shutdown.state is RunState.PAUSED, "the JVM is stopped still"
        shell.step(RUNS, 0.2)
        assert shell.run.shutdown.state is RunState.RUNNING
        assert sum("Spark is back" in note.text for note in shell.of(ev.Note)) == 1
        shell.step(RUNS, 0.2)
        assert shell.asked(JoinGroupRequest) == 1 + pause
    del shell.waiting[:-1]  # of members that have left
    shell.release()
    shell.serve()
    (reply,) = shell.of(io.CallReply)
    assert reply.result.ranges == (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))


def test_the_time_of_a_pause_does_not_count_for_the_join_timeout_of_once() -> None:
    shell = Shell(SHORT_SESSION, JoinGroupRequest)
    shell.call(ONCE)
    shell.serve()
    shell.step(STOPPED, 50.0)
    for _ in range(2):
        shell.step(STOPPED, 40.0)
    assert shell.of(io.Raise) == []
    shell.step(RUNS, 40.0)
    shell.step(ev.Tick(), 59.9)
    assert shell.of(io.Raise) == []
    shell.step(ev.Tick(), 0.2)
    (failed,) = shell.of(io.Raise)
    assert "no batch could be planned within group.joinTimeout (60 s) under Trigger.Once: the member is joining" in str(
        failed.error
    )


def test_the_time_of_a_pause_does_not_count_for_the_join_timeout_of_available_now() -> None:
    shell = Shell(SILENT, JoinGroupRequest)
    shell.result(io.PrepareAvailableNow())
    shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (first,) = shell.of(io.CallReply)
    shell.step(RUNS, 61.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    shell.call(io.LatestOffset(first.result, LimitOptions()))
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (second,) = shell.of(io.CallReply)
    assert (second.result.sequence, second.result.ranges) == (first.result.sequence + 1, ())


def test_a_call_that_comes_before_a_pause_has_left_joins_again() -> None:
    shell = Shell(GroupOptions("g", max_silence_ms=1_000))
    first = shell.batch()
    shell.held = {OffsetCommitRequest}
    shell.result(io.BatchSunk(first, 0, {}))
    shell.step(RUNS, 1.1)
    assert shell.run.shutdown.state is RunState.PAUSED
    shell.call(io.LatestOffset(first, LimitOptions()))
    assert shell.asked(LeaveGroupRequest) == 0, "its commit is unanswered"
    shell.release()
    shell.step(RUNS)
    assert shell.run.shutdown.state is RunState.RUNNING


def test_a_run_without_a_group_has_nothing_to_leave() -> None:
    shell = Shell(replace(OFF, max_silence_ms=60_000))
    shell.batch()
    assert shell.step(io.SilenceLook(jvm_is_stopped=False), 61.0) == []
    assert shell.run.shutdown.state is RunState.RUNNING
