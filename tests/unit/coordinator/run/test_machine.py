"""Runs as machines: events in, actions out, with a real member and a group's coordinator in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.lifecycle import RunState
from streamgroup.coordinator.run.lineage import DESCRIBE_TIMEOUT_S, LOOK_AGAIN_S
from streamgroup.coordinator.run.spark_calls import ASSIGNMENT_TIMEOUT_S
from streamgroup.errors import BrokerError, ConfigError, FencedError, StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import MetadataStale
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, LeaveGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.logformat import partition_number
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    Dialect,
    Document,
    GroupDescription,
    GroupState,
    LogRange,
    OffsetRange,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import GroupOptions, LimitOptions, Subscription
from tests.fakes.cluster import NODES
from tests.unit.coordinator.run.run_shell import MEMBER, OFF, P0, P1, P2, PLAN, SILENT, Shell, founding, snapshot

# -- Spark's calls ----------------------------------------------------------------------------------------------------


def test_a_first_plan_goes_from_new_to_a_reply() -> None:
    shell = Shell()
    assert shell.run.shutdown.state is RunState.NEW
    assert shell.step(interface.Called(7, PLAN)) == [interface.Ask(7, interface.Connect(frozenset({"t"})))]
    assert shell.run.shutdown.state is RunState.OPENING
    shell.answer(7, shell.found(shell.questions[7]))
    assert shell.run.shutdown.state is RunState.RUNNING
    assert shell.out[0] == interface.Follow(frozenset({"t"}))
    asks = {action.call: action.question for action in shell.of(interface.Ask)}
    listing = interface.ListOffsets({P0: EARLIEST, P1: EARLIEST}, 60.0)
    assert asks == {-1: interface.DescribeGroup(DESCRIBE_TIMEOUT_S), -2: listing}
    shell.answer(-2, shell.found(listing))
    assert shell.committed == {0: 0, 1: 0}, "the starts are committed before a batch is planned (R6)"
    assert shell.of(interface.Ask) == [], "a second query on the same checkpoint is looked for first (R28)"
    shell.answer(-1, shell.found(asks[-1]))
    positions = shell.ledger.positions()
    assert shell.of(interface.Ask) == [interface.Ask(7, interface.ListEnds(positions, 1.0))]
    logs = shell.logs.known(positions)
    assert shell.answer(7, logs) == [interface.Ask(7, interface.CheckPositions(positions, logs, PLAN.limits, 1.0))]
    shell.answer(7, None)
    ((call, document),) = ((reply.call, reply.result) for reply in shell.of(interface.CallReply))
    assert call == 7
    assert document.ranges == (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))
    assert (document.group, document.lineage, document.run) == ("g", "lineage", "r1")


@pytest.mark.parametrize("listened", [True, False])
def test_small_ranges_share_a_task_once_a_batch_has_shown_that_records_are_cheap(listened: bool) -> None:
    shell = Shell()
    document = shell.result(PLAN)
    shell.result(interface.Partitions(INITIAL_DOCUMENT, document))
    assert shell.packed_offsets == [0], "nothing is known yet"
    longest = max(map(len, document.ranges))
    if listened:
        shell.now += 0.1
        shell.result(interface.BatchSunk(document, 0, {}))
        shell.now += 5.0  # the trigger interval: the batch was over long before
    shell.logs.ends = {P0: 12, P1: 11}
    following = shell.result(interface.LatestOffset(document, LimitOptions()))
    shell.result(interface.Partitions(document, following))
    assert shell.packed_offsets == [0, 2 * longest]


def test_the_ends_of_available_now_are_taken_before_the_member_joins() -> None:
    shell = Shell()
    call = shell.call(interface.PrepareAvailableNow())
    shell.answer(call, shell.found(shell.questions[call]))
    assert shell.of(interface.Ask) == [interface.Ask(call, interface.SnapshotEnds())]
    assert shell.answer(call, {P0: 4, P1: 10}) == [interface.CallReply(call, None)]
    assert shell.sent == []
    assert shell.result(PLAN).ranges == (OffsetRange(P0, 0, 4), OffsetRange(P1, 0, 10))


def test_available_now_does_not_miss_a_partition_that_came_after_its_targets() -> None:
    """Its broker of 0.7 registers before the first plan, and an empty document has the member's position in it."""
    new = TopicPartition("t", partition_number(1, 0))
    there = [PartitionInfo(tp.partition, 0) for tp in (P0, new)]
    before, after = (
        ClusterSnapshot(NODES, {"t": TopicInfo("t", tuple(there[:count]))}, dialect=Dialect.KAFKA07) for count in (1, 2)
    )
    shell = Shell(MEMBER, OffsetCommitRequest)
    shell.cluster = before
    shell.logs.ends = {P0: 10}
    shell.result(interface.PrepareAvailableNow())
    shell.logs.ends[new] = 10
    shell.logs.snapshot = shell.cluster = after
    shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (empty,) = (reply.result for reply in shell.of(interface.CallReply))
    assert (empty.ranges, empty.positions.keys()) == ((), {P0, new})
    shell.release()
    document = shell.batch(empty)
    assert document.ranges == (OffsetRange(P0, 0, 10),)
    assert shell.result(interface.LatestOffset(document, LimitOptions())) is document, "the query ends"


def test_an_error_in_place_of_an_answer_is_raised_in_the_call_alone() -> None:
    shell = Shell()
    call = shell.call(PLAN)
    error = TransportError("no broker answers")
    assert shell.fail(call, error) == [interface.Raise(call, error)]
    assert shell.run.failure is None


def test_a_call_that_waits_ends_with_its_time_and_wakes_the_run_for_that() -> None:
    shell = Shell(MEMBER, JoinGroupRequest)
    call = shell.call(PLAN)
    shell.answer(call, shell.found(shell.questions[call]))
    assert shell.of(interface.CallReply) == []
    limit = shell.now + ASSIGNMENT_TIMEOUT_S
    assert shell.run.wake_at is not None
    assert shell.run.wake_at <= limit
    while (wake_at := shell.run.wake_at) is not None and shell.of(interface.CallReply) == []:
        assert wake_at <= limit
        shell.step(ev.Tick(), wake_at - shell.now)
    assert shell.of(interface.CallReply) == [interface.CallReply(call, INITIAL_DOCUMENT)]
    assert shell.now == limit


# -- the time when the run wants a tick -------------------------------------------------------------------------------


def test_a_run_that_waits_for_nothing_wants_no_tick() -> None:
    shell = Shell(OFF)
    assert shell.run.wake_at is None
    shell.call(PLAN)
    assert shell.run.wake_at is None, "the question is the shell's"
    shell.serve()
    assert shell.run.wake_at is None


def test_a_run_wakes_for_its_member_and_only_then_steps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    shell.batch()
    due = shell.member.wake_at
    assert due is not None
    assert shell.run.wake_at == due, "the next heartbeat"
    assert shell.step(ev.Tick(), (due - shell.now) / 2) == []
    assert shell.member.wake_at == due
    assert [send.api.NAME for send in shell.sent][-1] != "Heartbeat"
    shell.step(ev.Tick(), due - shell.now)
    assert [send.api.NAME for send in shell.sent][-1] == "Heartbeat"


# -- stops and drains -------------------------------------------------------------------------------------------------


def test_a_stop_ends_a_call_that_waits() -> None:
    shell = Shell(MEMBER, JoinGroupRequest)
    first = shell.call(PLAN)
    shell.answer(first, shell.found(shell.questions[first]))
    assert shell.of(interface.CallReply) == []
    second = shell.call(interface.StopRun())
    assert [(reply.call, reply.result) for reply in shell.of(interface.CallReply)] == [
        (second, True),
        (first, INITIAL_DOCUMENT),
    ]
    assert shell.run.shutdown.state is RunState.STOPPED


def test_a_stop_does_not_wait_for_a_call_whose_question_is_unanswered() -> None:
    shell = Shell()
    first = shell.call(PLAN)
    second = shell.call(interface.StopRun())
    assert shell.out == [interface.CallReply(second, True)]
    shell.serve()
    assert shell.of(interface.CallReply)[-1] == interface.CallReply(first, INITIAL_DOCUMENT)
    assert shell.asked(JoinGroupRequest) == 0, "a run that is stopped does not join"


def test_a_drain_waits_for_the_batch_in_flight_and_ends_the_query() -> None:
    shell = Shell()
    document = shell.batch()
    drain = shell.call(interface.DrainRun(30.0, ends=True))
    assert shell.out == []
    assert shell.run.wake_at is not None
    call = shell.call(interface.BatchSunk(document, 0, {}))
    replies = {reply.call: reply.result for reply in shell.of(interface.CallReply)}
    assert replies == {call: {"proven": True, "why": ""}, drain: {"drained": True, "in_flight": False, "why": ""}}
    assert shell.result(interface.EndAtNextCall()) is None
    shell.call(interface.LatestOffset(document, LimitOptions()))
    (raised,) = shell.of(interface.Raise)
    assert "drained: nothing will be repeated" in str(raised.error)


def test_a_drain_whose_time_is_over_tells_of_the_batch_that_may_be_repeated() -> None:
    shell = Shell()
    shell.batch()
    drain = shell.call(interface.DrainRun(2.0))
    shell.step(ev.Tick(), 2.0)
    why = "the time was over before the batch in flight had sunk"
    assert shell.of(interface.CallReply) == [
        interface.CallReply(drain, {"drained": False, "in_flight": True, "why": why})
    ]
    assert [line.count("the drain's time was over") > 0 for line in shell.lines if "event=repeat" in line] == [True]


def test_a_drain_of_a_query_that_fails_meanwhile_names_the_error() -> None:
    """Spark, which would show it, calls no more."""
    shell = Shell()
    shell.batch()
    drain = shell.call(interface.DrainRun(30.0))
    shell.step(interface.ThreadFailed(ConfigError("the topic is gone")))
    answer = {"drained": False, "in_flight": True, "why": "the query has failed: the topic is gone"}
    assert shell.of(interface.CallReply) == [interface.CallReply(drain, answer)]
    assert ["the query has failed before the batch in flight" in line for line in shell.lines if "repeat" in line] == [
        True
    ]


# -- calls whose thread has gone --------------------------------------------------------------------------------------


def test_the_answer_to_an_abandoned_call_leads_to_nothing() -> None:
    shell = Shell()
    call = shell.call(PLAN)
    assert shell.step(interface.CallAbandoned(call)) == []
    assert shell.answer(call, snapshot()) == []
    assert shell.step(interface.QuestionFailed(call, TransportError("late"))) == []
    assert shell.step(interface.CallAbandoned(call)) == [], "twice is harmless"


def test_an_abandoned_call_that_waits_wakes_the_run_no_more() -> None:
    shell = Shell(OFF, topics=("t",))
    call = shell.call(PLAN)
    shell.answer(call, shell.found(shell.questions[call]))
    assert shell.run.wake_at == shell.now + ASSIGNMENT_TIMEOUT_S, "it waits for its starting offsets"
    shell.step(interface.CallAbandoned(call))
    assert shell.run.wake_at is None
    assert shell.result(PLAN).ranges


def test_spark_is_silent_once_its_last_call_is_abandoned() -> None:
    shell = Shell(SILENT)
    shell.batch()
    call = shell.call(PLAN)
    other = shell.call(interface.Partitions(INITIAL_DOCUMENT, Document("g", "lineage", "other", 7)))
    for each in (call, other):
        shell.step(interface.SilenceLook(jvm_is_stopped=False), 100.0)
        assert shell.asked(LeaveGroupRequest) == 0, "a call of Spark is under way"
        shell.step(interface.CallAbandoned(each))
    shell.step(interface.SilenceLook(jvm_is_stopped=False), 59.0)
    assert shell.asked(LeaveGroupRequest) == 0
    shell.step(interface.SilenceLook(jvm_is_stopped=False), 2.0)
    assert shell.asked(LeaveGroupRequest) == 1


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BrokerError(29, "t"), ConfigError("no record is as late")])
def test_an_error_of_a_background_task_ends_the_query(error: StreamGroupError) -> None:
    shell = founding()
    shell.fail(shell.task_that_asks(interface.ListOffsets), error)
    assert shell.run.failure is error
    assert shell.of(interface.Raise) == [interface.Raise(1, error)]
    shell.call(PLAN)
    assert shell.out == [interface.Raise(2, error)]


@pytest.mark.parametrize("where", ["the question", "who hears the answer"])
def test_whatever_else_a_background_task_raises_fails_the_query(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = founding()
    task = shell.task_that_asks(interface.ListOffsets)
    if where == "the question":
        shell.fail(task, ZeroDivisionError("a defect"))
    else:

        def resolved(*_: object) -> list[Any]:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr(shell.member, "resolved", resolved)
        shell.answer(task, shell.found(shell.questions[task]))
    assert isinstance(shell.run.failure, StreamGroupError)
    assert "a defect" in str(shell.run.failure)


@pytest.mark.parametrize("group", [MEMBER, OFF], ids=["member", "off"])
def test_the_error_of_a_background_task_counts_in_its_generation_only(group: GroupOptions) -> None:
    shell = founding(group)
    task = shell.task_that_asks(interface.ListOffsets)
    generation = shell.ledger.generation
    if group is OFF:
        shell.logs.snapshot = snapshot(3)
        shell.step(interface.TopicsRead(shell.logs.snapshot, frozenset({"t"})))
    else:
        shell.coordinator.gather()
        while shell.ledger.generation == generation:
            assert shell.run.wake_at is not None
            shell.step(ev.Tick(), max(0.0, shell.run.wake_at - shell.now))
    assert shell.ledger.generation > generation
    shell.fail(task, BrokerError(29, "t"))
    assert shell.run.failure is None


def test_the_error_of_a_background_task_does_not_count_after_a_stop() -> None:
    shell = founding()
    task = shell.task_that_asks(interface.ListOffsets)
    assert shell.call(interface.StopRun())
    shell.fail(task, BrokerError(29, "t"))
    assert shell.run.failure is None


def test_a_defect_in_a_step_ends_the_query_and_not_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    shell.batch()

    def fail(event: Any, now: float) -> list[Any]:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(shell.member, "step", fail)
    shell.step(ev.CoordinatorGone("gone"))
    (note,) = shell.of(ev.Note)
    assert "ZeroDivisionError: a defect" in note.text
    assert "Traceback" in note.text
    shell.call(PLAN)
    shell.serve()
    (raised,) = shell.of(interface.Raise)
    assert "the run has failed: ZeroDivisionError('a defect')" in str(raised.error)


@pytest.mark.parametrize("waits", [True, False])
def test_an_error_of_a_thread_ends_the_query_with_sparks_call(waits: bool) -> None:
    shell = Shell(MEMBER, *([JoinGroupRequest] if waits else []))
    call = shell.call(PLAN)
    if waits:
        shell.answer(call, shell.found(shell.questions[call]))
    else:
        shell.serve()
    first, later = FencedError("another member"), ConfigError("another error")
    shell.step(interface.ThreadFailed(first))
    assert shell.of(interface.Raise) == ([interface.Raise(call, first)] if waits else [])
    shell.step(interface.ThreadFailed(later))
    assert shell.run.failure is first, "the first one counts"
    assert sum("event=fence" in line for line in shell.lines) == 1
    shell.call(PLAN)
    assert shell.out == [interface.Raise(2, first)]


def test_a_call_that_is_not_of_spark_goes_on_after_a_failure() -> None:
    shell = Shell()
    document = shell.batch()
    shell.step(interface.ThreadFailed(FencedError("another member")))
    assert shell.result(interface.BatchSunk(document, 0, {}))["proven"]
    assert shell.result(interface.StopRun()) is True


# -- a second query on a copy of the checkpoint (R28) -----------------------------------------------------------------


def test_a_description_from_before_the_newest_assignment_counts_for_nothing() -> None:
    shell = founding()
    first = shell.task_that_asks(interface.DescribeGroup)
    del shell.questions[first]
    shell.coordinator.gather()
    while not any(isinstance(question, interface.DescribeGroup) for question in shell.questions.values()):
        assert shell.run.wake_at is not None
        shell.step(ev.Tick(), max(0.0, shell.run.wake_at - shell.now))
    assert shell.step(interface.QuestionAnswered(first, GroupDescription("g", GroupState.STABLE))) == []
    assert not shell.run._lineages.is_clear
    second = shell.task_that_asks(interface.DescribeGroup)
    assert second != first
    shell.answer(second, GroupDescription("g", GroupState.STABLE))
    assert shell.serve()


def test_a_run_wakes_to_look_again_for_a_duplicate() -> None:
    shell = founding()
    shell.answer(shell.task_that_asks(interface.DescribeGroup), GroupDescription("g", GroupState.PREPARING_REBALANCE))
    assert shell.run.wake_at is not None
    assert shell.run.wake_at <= shell.now + LOOK_AGAIN_S
    shell.step(ev.Tick(), LOOK_AGAIN_S)
    assert [action.question for action in shell.of(interface.Ask)] == [interface.DescribeGroup(DESCRIBE_TIMEOUT_S)]


# -- metadata and reports ---------------------------------------------------------------------------------------------


def test_metadata_with_a_new_partition_leads_to_its_start() -> None:
    shell = Shell(OFF)
    first = shell.batch()
    shell.logs.snapshot = snapshot(3)
    shell.step(interface.TopicsRead(shell.logs.snapshot, frozenset({"t"})))
    assert [action.question for action in shell.of(interface.Ask)] == [interface.ListOffsets({P2: EARLIEST}, 60.0)]
    shell.serve()
    assert shell.result(interface.LatestOffset(first, LimitOptions())).ranges == (OffsetRange(P2, 0, 10),)


def test_metadata_that_an_answer_contradicts_is_read_again() -> None:
    shell = Shell(OFF, subscription=Subscription(assign=(P0,)))
    call = shell.call(PLAN)
    shell.answer(call, snapshot())
    assert not shell.of(MetadataStale), "an action of the member alone"
    assert shell.of(interface.RefreshMetadata) == [interface.RefreshMetadata()]


def test_reports_wait_for_nothing() -> None:
    shell = Shell()
    assert shell.result(interface.GetEnds()) == {}
    assert shell.result(interface.GetRanges())["ranges"] is None
    document = shell.batch()
    assert shell.result(interface.GetEnds()) == {P0: LogRange(0, 10), P1: LogRange(0, 10)}
    assert shell.result(interface.GetRanges())["ranges"] == [["t", 0, 0, 10], ["t", 1, 0, 10]]
    shell.now += 7.5
    status = shell.result(interface.GetStatus())
    assert (status["state"], status["generation"], status["idle"]) == ("stable", shell.ledger.generation, False)
    assert status["in_flight_s"] == 7.5, "since Spark got the batch, and not since someone asked"
    assert status["positions"] == {"t-0": 0, "t-1": 0}
    assert status["trouble"]["rebalance"]["count"] == 1
    figures = {"batch": 0, "rows": 20}
    shell.result(interface.BatchSunk(document, 0, {"name": "orders", "batch": figures}))
    status = shell.result(interface.GetStatus())
    assert (status["query"], status["batches"]) == ({"name": "orders"}, [figures])
    assert (status["idle"], status["in_flight_s"]) == (True, None)


# -- a Spark that makes no calls (R27) --------------------------------------------------------------------------------


def test_a_silent_run_leaves_the_group_and_joins_again_with_sparks_next_call() -> None:
    shell = Shell(SILENT)
    first = shell.batch()
    shell.step(interface.SilenceLook(jvm_is_stopped=False), 59.0)
    assert shell.run.shutdown.state is RunState.RUNNING
    shell.step(interface.SilenceLook(jvm_is_stopped=False), 2.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    assert shell.coordinator.members == {}
    assert [note.text for note in shell.of(ev.Note) if "Spark has been silent" in note.text] == [
        "group g: Spark has been silent for 61 s, longer than group.maxSilence: left the group, so other members read "
        "its partitions. It joins again with Spark's next call"
    ]
    assert sum("left while Spark was silent" in line for line in shell.lines) == 1
    joined = shell.asked(JoinGroupRequest)
    shell.result(interface.LatestOffset(first, LimitOptions()))
    assert shell.run.shutdown.state is RunState.RUNNING
    assert shell.asked(JoinGroupRequest) > joined
    assert shell.committed == {0: 10, 1: 10}


def test_a_silent_static_member_reports_that_it_keeps_its_partitions_until_its_session_expires() -> None:
    shell = Shell(replace(SILENT, instance_id="i"))
    shell.batch()
    shell.step(interface.SilenceLook(jvm_is_stopped=False), 61.0)
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
    shell.step(interface.SilenceLook(jvm_is_stopped=False), 61.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    assert not [note for note in shell.of(ev.Note) if "left the group" in note.text]
    assert shell.result(interface.GetStatus())["state"] == "leaving"
    shell.release()
    assert [note for note in shell.of(ev.Note) if "left the group" in note.text]


ONCE = interface.LatestOffset(INITIAL_DOCUMENT, LimitOptions(), once=True)
STOPPED, RUNS = interface.SilenceLook(jvm_is_stopped=True), interface.SilenceLook(jvm_is_stopped=False)
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
    (reply,) = shell.of(interface.CallReply)
    assert reply.result.ranges == (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))


def test_the_time_of_a_pause_does_not_count_for_the_join_timeout_of_once() -> None:
    shell = Shell(SHORT_SESSION, JoinGroupRequest)
    shell.call(ONCE)
    shell.serve()
    shell.step(STOPPED, 50.0)
    for _ in range(2):
        shell.step(STOPPED, 40.0)
    assert shell.of(interface.Raise) == []
    shell.step(RUNS, 40.0)
    shell.step(ev.Tick(), 59.9)
    assert shell.of(interface.Raise) == []
    shell.step(ev.Tick(), 0.2)
    (failed,) = shell.of(interface.Raise)
    assert "no batch could be planned within group.joinTimeout (60 s) under Trigger.Once: the member is joining" in str(
        failed.error
    )


def test_the_time_of_a_pause_does_not_count_for_the_join_timeout_of_available_now() -> None:
    shell = Shell(SILENT, JoinGroupRequest)
    shell.result(interface.PrepareAvailableNow())
    shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (first,) = shell.of(interface.CallReply)
    shell.step(RUNS, 61.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    shell.call(interface.LatestOffset(first.result, LimitOptions()))
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (second,) = shell.of(interface.CallReply)
    assert (second.result.sequence, second.result.ranges) == (first.result.sequence + 1, ())


def test_a_call_that_comes_before_a_pause_has_left_joins_again() -> None:
    shell = Shell(GroupOptions("g", max_silence_ms=1_000))
    first = shell.batch()
    shell.held = {OffsetCommitRequest}
    shell.result(interface.BatchSunk(first, 0, {}))
    shell.step(RUNS, 1.1)
    assert shell.run.shutdown.state is RunState.PAUSED
    shell.call(interface.LatestOffset(first, LimitOptions()))
    assert shell.asked(LeaveGroupRequest) == 0, "its commit is unanswered"
    shell.release()
    shell.step(RUNS)
    assert shell.run.shutdown.state is RunState.RUNNING


def test_a_run_without_a_group_has_nothing_to_leave() -> None:
    shell = Shell(replace(OFF, max_silence_ms=60_000))
    shell.batch()
    assert shell.step(interface.SilenceLook(jvm_is_stopped=False), 61.0) == []
    assert shell.run.shutdown.state is RunState.RUNNING
