"""Runs as machines: events in, actions out, with a real member and a group's coordinator in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.interface import DescribeGroup, Question
from streamgroup.coordinator.run.lifecycle import RunState
from streamgroup.coordinator.run.lineage import DESCRIBE_TIMEOUT_S, LOOK_AGAIN_S
from streamgroup.coordinator.run.machine import Run
from streamgroup.coordinator.run.spark_calls import ASSIGNMENT_TIMEOUT_S
from streamgroup.coordinator.run.steps import NOW, Steps, StepScheduler, Until
from streamgroup.errors import BrokerError, ConfigError, FencedError, StreamGroupError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import MetadataStale
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, LeaveGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import EARLIEST, INITIAL_DOCUMENT, Document, GroupDescription, GroupState, LogRange, OffsetRange
from streamgroup.options.types import GroupOptions, LimitOptions, Subscription
from tests.unit.coordinator.run.run_shell import (
    AWAY,
    MEMBER,
    OFF,
    P0,
    P1,
    P2,
    PLAN,
    Shell,
    completed,
    latest_offset,
    partitions,
    ranges,
    registered,
    snapshot,
)

SILENT = GroupOptions("g", max_silence_ms=60_000)
STOPPED, RUNS = interface.SilenceLook(jvm_is_stopped=True), interface.SilenceLook(jvm_is_stopped=False)

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
    assert shell.answer(7, logs) == [interface.Ask(7, interface.CheckPositions(positions, logs, LimitOptions(), 1.0))]
    shell.answer(7, None)
    document = shell.replies[7]
    assert document.ranges == (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))
    assert (document.group, document.lineage, document.run) == ("g", "lineage", "r1")


@pytest.mark.parametrize("listened", [True, False])
def test_small_ranges_share_a_task_once_a_batch_has_shown_that_records_are_cheap(listened: bool) -> None:
    shell = Shell()
    document = shell.result(PLAN)
    shell.result(partitions(INITIAL_DOCUMENT, document))
    assert shell.packed_offsets == [0], "nothing is known yet"
    longest = max(map(len, document.ranges))
    if listened:
        shell.now += 0.1
        shell.result(completed(document, 0, {}))
        shell.now += 5.0  # the trigger interval: the batch was over long before
    shell.logs.ends = {P0: 12, P1: 11}
    following = shell.result(latest_offset(document, LimitOptions()))
    shell.result(partitions(document, following))
    assert shell.packed_offsets == [0, 2 * longest]


def test_the_ends_of_available_now_are_taken_before_the_member_joins() -> None:
    shell = Shell()
    call = shell.connected(Run.prepare_available_now)
    assert shell.of(interface.Ask) == [interface.Ask(call, interface.SnapshotEnds())]
    assert shell.answer(call, {P0: 4, P1: 10}) == [interface.CallReply(call, None)]
    assert shell.sent == []
    assert shell.result(PLAN).ranges == (OffsetRange(P0, 0, 4), OffsetRange(P1, 0, 10))


def test_available_now_does_not_miss_a_partition_that_came_after_its_targets() -> None:
    """Its broker of 0.7 registers before the first plan, and an empty document has the member's position in it."""
    shell = Shell(MEMBER, OffsetCommitRequest)
    shell.cluster = registered(P0)
    shell.logs.ends = {P0: 10}
    shell.result(Run.prepare_available_now)
    shell.logs.ends[AWAY] = 10
    shell.logs.snapshot = shell.cluster = registered(P0, AWAY)
    call = shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    empty = shell.replies[call]
    assert (empty.ranges, empty.positions.keys()) == ((), {P0, AWAY})
    shell.release()
    document = shell.batch(empty)
    assert document.ranges == (OffsetRange(P0, 0, 10),)
    assert shell.result(latest_offset(document, LimitOptions())) is document, "the query ends"


def test_available_now_knows_a_broker_that_registered_just_before_its_targets_were_listed() -> None:
    """Another member may get its partitions. Without it in the metadata the query would end because it is offline."""
    shell = Shell()
    shell.cluster = registered(P0)
    shell.connected(Run.prepare_available_now)
    shell.cluster = registered(P0, AWAY)
    shell.logs.ends = {P0: 10, AWAY: 10}
    shell.serve()
    assert shell.logs.snapshot is shell.cluster


def test_an_error_in_place_of_an_answer_is_raised_in_the_call_alone() -> None:
    shell = Shell()
    call = shell.call(PLAN)
    error = TransportError("no broker answers")
    assert shell.fail(call, error) == [interface.Raise(call, error)]
    assert shell.run.failure is None


def test_a_call_that_waits_ends_with_its_time_and_wakes_the_run_for_that() -> None:
    shell = Shell(MEMBER, JoinGroupRequest)
    call = shell.connected()
    limit = shell.now + ASSIGNMENT_TIMEOUT_S
    while not shell.replies:
        assert shell.now < limit
        shell.wake()
    assert (shell.replies, shell.now) == ({call: INITIAL_DOCUMENT}, limit)


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
    first = shell.connected()
    assert shell.replies == {}
    second = shell.call(Run.stop)
    assert list(shell.replies.items()) == [(second, True), (first, INITIAL_DOCUMENT)]
    assert shell.run.shutdown.state is RunState.STOPPED


def test_a_stop_does_not_wait_for_a_call_whose_question_is_unanswered() -> None:
    shell = Shell()
    first = shell.call(PLAN)
    second = shell.call(Run.stop)
    assert shell.out == [interface.CallReply(second, True)]
    shell.serve()
    assert shell.of(interface.CallReply)[-1] == interface.CallReply(first, INITIAL_DOCUMENT)
    assert shell.asked(JoinGroupRequest) == 0, "a run that is stopped does not join"


def test_a_drain_waits_for_the_batch_in_flight_and_ends_the_query() -> None:
    shell = Shell()
    document = shell.batch()
    drain = shell.call(lambda run: run.drain(30.0, ends=True))
    assert shell.out == []
    assert shell.run.wake_at is not None
    call = shell.call(completed(document, 0, {}))
    assert shell.replies == {call: {"proven": True, "why": ""}, drain: {"drained": True, "in_flight": False, "why": ""}}
    assert shell.result(lambda run: run.shutdown.end()) is None
    shell.call(latest_offset(document, LimitOptions()))
    (raised,) = shell.of(interface.Raise)
    assert "the query was drained, and no batch will be repeated" in str(raised.error)


def test_a_drain_whose_time_is_over_tells_of_the_batch_that_may_be_repeated() -> None:
    shell = Shell()
    shell.batch()
    drain = shell.call(lambda run: run.drain(2.0))
    shell.step(ev.Tick(), 2.0)
    why = "the timeout expired before the batch in flight was complete"
    assert shell.replies == {drain: {"drained": False, "in_flight": True, "why": why}}
    (repeated,) = (line for line in shell.lines if "event=repeat" in line)
    assert "the drain's timeout expired" in repeated


def test_a_drain_of_a_query_that_fails_meanwhile_names_the_error() -> None:
    """Spark, which would show it, calls no more."""
    shell = Shell()
    shell.batch()
    drain = shell.call(lambda run: run.drain(30.0))
    shell.step(interface.ThreadFailed(ConfigError("the topic is gone")))
    why = "the query has failed: the topic is gone"
    assert shell.replies == {drain: {"drained": False, "in_flight": True, "why": why}}
    (repeated,) = (line for line in shell.lines if "repeat" in line)
    assert "the query has failed before the batch in flight" in repeated


# -- calls whose thread has gone --------------------------------------------------------------------------------------


def test_the_answer_to_an_abandoned_call_leads_to_nothing() -> None:
    shell = Shell()
    call = shell.call(PLAN)
    assert shell.step(interface.CallAbandoned(call)) == []
    assert shell.answer(call, snapshot(t=2)) == []
    assert shell.step(interface.QuestionFailed(call, TransportError("late"))) == []
    assert shell.step(interface.CallAbandoned(call)) == [], "twice is harmless"


def test_an_abandoned_call_that_waits_wakes_the_run_no_more() -> None:
    shell = Shell(OFF, topics=("t",))
    call = shell.connected()
    assert shell.run.wake_at == shell.now + ASSIGNMENT_TIMEOUT_S, "it waits for its starting offsets"
    shell.step(interface.CallAbandoned(call))
    assert shell.run.wake_at is None
    assert shell.result(PLAN).ranges


def test_spark_is_silent_once_its_last_call_is_abandoned() -> None:
    shell = Shell(SILENT)
    shell.batch()
    call = shell.call(PLAN)
    other = shell.call(partitions(INITIAL_DOCUMENT, Document("g", "lineage", "other", 7)))
    for each in (call, other):
        shell.step(RUNS, 100.0)
        assert shell.asked(LeaveGroupRequest) == 0, "a call of Spark is under way"
        shell.step(interface.CallAbandoned(each))
    shell.step(RUNS, 59.0)
    assert shell.asked(LeaveGroupRequest) == 0
    shell.step(RUNS, 2.0)
    assert shell.asked(LeaveGroupRequest) == 1


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BrokerError(29, "t"), ConfigError("no record is that late")])
def test_an_error_of_a_background_task_ends_the_query(error: StreamGroupError) -> None:
    shell = Shell.founding()
    shell.fail(shell.task_that_asks(interface.ListOffsets), error)
    assert shell.run.failure is error
    assert shell.of(interface.Raise) == [interface.Raise(1, error)]
    shell.call(PLAN)
    assert shell.out == [interface.Raise(2, error)]


@pytest.mark.parametrize("where", ["the question", "who hears the answer"])
def test_whatever_else_a_background_task_raises_fails_the_query(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell.founding()
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
    shell = Shell.founding(group)
    task = shell.task_that_asks(interface.ListOffsets)
    generation = shell.ledger.generation
    if group is OFF:
        shell.logs.snapshot = snapshot(t=3)
        shell.step(interface.TopicsRead(shell.logs.snapshot, frozenset({"t"})))
    else:
        shell.coordinator.gather()
        while shell.ledger.generation == generation:
            shell.wake()
    assert shell.ledger.generation > generation
    shell.fail(task, BrokerError(29, "t"))
    assert shell.run.failure is None


def test_the_error_of_a_background_task_does_not_count_after_a_stop() -> None:
    shell = Shell.founding()
    task = shell.task_that_asks(interface.ListOffsets)
    shell.call(Run.stop)
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
    assert "the query has failed: ZeroDivisionError('a defect')" in str(raised.error)


@pytest.mark.parametrize("waits", [True, False])
def test_an_error_of_a_thread_ends_the_query_with_sparks_call(waits: bool) -> None:
    shell = Shell(MEMBER, *([JoinGroupRequest] if waits else []))
    call = shell.connected()
    if not waits:
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
    assert shell.result(completed(document, 0, {}))["proven"]
    assert shell.result(Run.stop) is True


def test_a_description_from_before_the_newest_assignment_counts_for_nothing() -> None:
    shell = Shell.founding()
    first = shell.task_that_asks(interface.DescribeGroup)
    del shell.questions[first]
    shell.coordinator.gather()
    while not any(isinstance(question, interface.DescribeGroup) for question in shell.questions.values()):
        shell.wake()
    assert shell.step(interface.QuestionAnswered(first, GroupDescription("g", GroupState.STABLE))) == []
    assert not shell.run._lineages.is_clear
    second = shell.task_that_asks(interface.DescribeGroup)
    assert second != first
    shell.answer(second, GroupDescription("g", GroupState.STABLE))
    assert shell.serve()


def test_a_run_wakes_to_look_again_for_a_duplicate() -> None:
    shell = Shell.founding()
    shell.answer(shell.task_that_asks(interface.DescribeGroup), GroupDescription("g", GroupState.PREPARING_REBALANCE))
    assert shell.run.wake_at is not None
    assert shell.run.wake_at <= shell.now + LOOK_AGAIN_S
    shell.step(ev.Tick(), LOOK_AGAIN_S)
    assert [action.question for action in shell.of(interface.Ask)] == [interface.DescribeGroup(DESCRIBE_TIMEOUT_S)]


# -- metadata and reports ---------------------------------------------------------------------------------------------


def test_metadata_with_a_new_partition_leads_to_its_start() -> None:
    shell = Shell(OFF)
    first = shell.batch()
    shell.logs.snapshot = snapshot(t=3)
    shell.step(interface.TopicsRead(shell.logs.snapshot, frozenset({"t"})))
    assert [action.question for action in shell.of(interface.Ask)] == [interface.ListOffsets({P2: EARLIEST}, 60.0)]
    shell.serve()
    assert shell.result(latest_offset(first, LimitOptions())).ranges == (OffsetRange(P2, 0, 10),)


def test_metadata_that_an_answer_contradicts_is_read_again() -> None:
    shell = Shell(OFF, subscription=Subscription(assign=(P0,)))
    call = shell.call(PLAN)
    shell.answer(call, snapshot(t=2))
    assert not shell.of(MetadataStale), "an action of the member alone"
    assert shell.of(interface.RefreshMetadata) == [interface.RefreshMetadata()]


def test_reports_wait_for_nothing() -> None:
    shell = Shell()
    assert shell.result(Run.report_latest) == {}
    assert shell.result(ranges)["ranges"] is None
    document = shell.batch()
    assert shell.result(Run.report_latest) == {P0: LogRange(0, 10), P1: LogRange(0, 10)}
    assert shell.result(ranges)["ranges"] == [["t", 0, 0, 10], ["t", 1, 0, 10]]
    shell.now += 7.5
    status = shell.result(Run.status)
    assert (status["state"], status["generation"], status["idle"]) == ("stable", shell.ledger.generation, False)
    assert status["in_flight_s"] == 7.5, "since Spark got the batch, and not since someone asked"
    assert status["positions"] == {"t-0": 0, "t-1": 0}
    assert status["trouble"]["rebalance"]["count"] == 1
    figures = {"batch": 0, "rows": 20}
    shell.result(completed(document, 0, {"name": "orders", "batch": figures}))
    status = shell.result(Run.status)
    assert (status["query"], status["batches"]) == ({"name": "orders"}, [figures])
    assert (status["idle"], status["in_flight_s"]) == (True, None)


# -- a Spark that makes no calls (R27) --------------------------------------------------------------------------------


def silence(shell: Shell) -> list[str]:
    return [note.text for note in shell.of(ev.Note) if "Spark has made no call" in note.text]


def test_a_silent_run_leaves_the_group_and_joins_again_with_sparks_next_call() -> None:
    shell = Shell(SILENT)
    first = shell.batch()
    shell.step(RUNS, 59.0)
    assert shell.run.shutdown.state is RunState.RUNNING
    shell.step(RUNS, 2.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    assert shell.coordinator.members == {}
    assert silence(shell) == [
        "group g: Spark has made no call for 61 s, longer than group.maxSilence: left the group, so other members read "
        "its partitions. It joins again at Spark's next call"
    ]
    assert sum("left while Spark was silent" in line for line in shell.lines) == 1
    joined = shell.asked(JoinGroupRequest)
    shell.result(latest_offset(first, LimitOptions()))
    assert shell.run.shutdown.state is RunState.RUNNING
    assert shell.asked(JoinGroupRequest) > joined
    assert shell.committed == {0: 10, 1: 10}


def test_a_silent_static_member_reports_that_it_keeps_its_partitions_until_its_session_expires() -> None:
    shell = Shell(replace(SILENT, instance_id="i"))
    shell.batch()
    shell.step(RUNS, 61.0)
    assert shell.asked(LeaveGroupRequest) == 0
    assert silence(shell) == [
        "group g: Spark has made no call for 61 s, longer than group.maxSilence: the member stops its heartbeats. As a "
        "static member it stays in the group, and other members read its partitions only when its session expires "
        "(45 s, session.timeout.ms). It joins again at Spark's next call"
    ]
    assert any("stopped its heartbeats while Spark was silent" in line for line in shell.lines)
    assert not any("left" in line for line in shell.lines)


def test_a_pause_waits_for_the_answers_of_the_coordinator_without_holding_up_the_run() -> None:
    shell = Shell(SILENT)
    shell.batch()
    shell.held = {LeaveGroupRequest}
    shell.step(RUNS, 61.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    assert silence(shell) == []
    assert shell.result(Run.status)["state"] == "leaving"
    shell.release()
    assert "left the group" in silence(shell)[0]


ONCE = latest_offset(INITIAL_DOCUMENT, LimitOptions(), once=True)
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
        assert sum("Spark calls the source again" in note.text for note in shell.of(ev.Note)) == 1
        shell.step(RUNS, 0.2)
        assert shell.asked(JoinGroupRequest) == 1 + pause
    del shell.waiting[:-1]  # of members that have left
    shell.release()
    shell.serve()
    (document,) = shell.replies.values()
    assert document.ranges == (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))


def test_a_member_that_joins_while_the_jvm_is_stopped_for_long_leaves_again() -> None:
    """The JVM was stopped for too long before the member joined. If the member stayed, no member would read for it."""
    shell = Shell(SHORT_SESSION, JoinGroupRequest)
    shell.call(ONCE)
    shell.step(STOPPED)
    shell.step(STOPPED, 6.1)
    assert shell.run.shutdown.state is not RunState.PAUSED, "it connects still"
    shell.serve()
    assert shell.asked(JoinGroupRequest) == 1
    shell.step(STOPPED, 1.0)
    assert shell.run.shutdown.state is RunState.PAUSED


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
    text = "no batch could be planned within group.joinTimeout (60 s) under Trigger.Once: the member is joining"
    assert text in str(failed.error)


def test_the_time_of_a_pause_does_not_count_for_the_join_timeout_of_available_now() -> None:
    shell = Shell(SILENT, JoinGroupRequest)
    shell.result(Run.prepare_available_now)
    shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (first,) = shell.replies.values()
    shell.step(RUNS, 61.0)
    assert shell.run.shutdown.state is RunState.PAUSED
    shell.call(latest_offset(first, LimitOptions()))
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (second,) = shell.replies.values()
    assert (second.sequence, second.ranges) == (first.sequence + 1, ())


def test_a_call_that_comes_before_a_pause_has_left_joins_again() -> None:
    shell = Shell(GroupOptions("g", max_silence_ms=1_000))
    first = shell.batch()
    shell.held = {OffsetCommitRequest}
    shell.result(completed(first, 0, {}))
    shell.step(RUNS, 1.1)
    assert shell.run.shutdown.state is RunState.PAUSED
    shell.call(latest_offset(first, LimitOptions()))
    assert shell.asked(LeaveGroupRequest) == 0, "its commit is unanswered"
    shell.release()
    shell.step(RUNS)
    assert shell.run.shutdown.state is RunState.RUNNING


def test_a_run_without_a_group_has_nothing_to_leave() -> None:
    shell = Shell(replace(OFF, max_silence_ms=60_000))
    shell.batch()
    assert shell.step(RUNS, 61.0) == []
    assert shell.run.shutdown.state is RunState.RUNNING


QUESTION = DescribeGroup(2.0)


class Trace:
    """Tasks, and what they have led to in order."""

    def __init__(self) -> None:
        self.led_to: list[tuple[Any, ...]] = []
        self.on_over: Callable[[int], None] = lambda task: None
        self.scheduler = StepScheduler(self)

    def asks(self, task: int, question: Question) -> None:
        self.led_to.append(("asks", task, question))

    def is_over(self, task: int, result: Any, now: float) -> None:
        self.led_to.append(("over", task, result, now))
        self.on_over(task)

    def has_failed(self, task: int, error: Exception, now: float) -> None:
        self.led_to.append(("failed", task, str(error), now))


def waits(seconds: float, condition: Callable[[float], bool] = lambda _: False) -> Steps[float]:
    now: float = yield Until(condition, seconds)
    return now


def asks() -> Steps[Any]:
    return (yield QUESTION)


@pytest.fixture
def trace() -> Trace:
    return Trace()


# -- waits ------------------------------------------------------------------------------------------------------------


def test_tasks_go_on_in_the_order_in_which_they_began(trace: Trace) -> None:
    for number in (3, -1, 2):
        trace.scheduler.begin(number, waits(1.0), 0.0)
    trace.scheduler.advance(1.0)
    assert [task for _, task, *_ in trace.led_to] == [3, -1, 2]


def test_a_condition_that_another_task_makes_false_again_is_waited_for(trace: Trace) -> None:
    """Two calls wait for one place."""
    free = [1]

    def takes() -> Steps[None]:
        yield Until(lambda _: not blocked and bool(free), 9.0)
        free.pop()

    blocked = [1]
    for number in (1, 2):
        trace.scheduler.begin(number, takes(), 0.0)
    blocked.clear()
    trace.scheduler.advance(1.0)
    assert trace.led_to == [("over", 1, None, 1.0)]
    free.append(1)
    trace.scheduler.advance(2.0)
    assert trace.led_to[1:] == [("over", 2, None, 2.0)]


# -- tasks that are given up, and tasks that begin others -------------------------------------------------------------


def test_an_error_of_a_condition_is_raised_in_its_task_alone(trace: Trace) -> None:
    def condition(now: float) -> bool:
        if now > 1.0:
            raise ValueError("cannot say")
        return False

    trace.scheduler.begin(1, waits(9.0, condition), 1.0)
    trace.scheduler.begin(2, waits(9.0, lambda now: now > 1.0), 1.0)
    trace.scheduler.advance(2.0)
    assert trace.led_to == [("failed", 1, "cannot say", 2.0), ("over", 2, 2.0, 2.0)]
    assert trace.scheduler.wake_at is None


@pytest.mark.parametrize("steps", [asks, lambda: waits(1.0)], ids=["asks", "waits"])
def test_a_task_that_is_abandoned_leads_to_nothing(steps: Callable[[], Steps[Any]], trace: Trace) -> None:
    closed: list[int] = []

    def task() -> Steps[None]:
        try:
            yield from steps()
        finally:
            closed.append(1)

    trace.scheduler.begin(1, task(), 0.0)
    before = len(trace.led_to)
    trace.scheduler.abandon(1)
    assert closed == [1]
    assert trace.scheduler.wake_at is None
    trace.scheduler.advance(2.0)
    trace.scheduler.answer(1, "late", 2.0)
    trace.scheduler.abandon(1)
    assert len(trace.led_to) == before


def test_a_task_may_abandon_one_that_is_ready_too(trace: Trace) -> None:
    trace.on_over = lambda task: trace.scheduler.abandon(2)
    for number in (1, 2):
        trace.scheduler.begin(number, waits(1.0), 0.0)
    trace.scheduler.advance(1.0)
    assert trace.led_to == [("over", 1, 1.0, 1.0)]


def test_a_task_may_begin_another_which_goes_on_in_the_same_step(trace: Trace) -> None:
    opened: list[int] = []

    def outer() -> Steps[str]:
        yield Until(lambda _: False, 1.0)
        trace.scheduler.begin(-1, inner(), 1.0)
        opened.append(1)
        return "outer"

    def inner() -> Steps[str]:
        yield NOW
        yield Until(lambda _: bool(opened), 5.0)
        return "inner"

    trace.scheduler.begin(1, outer(), 0.0)
    trace.scheduler.advance(1.0)
    assert trace.led_to == [("over", 1, "outer", 1.0), ("over", -1, "inner", 1.0)]


def test_the_end_of_a_task_may_begin_one_with_its_number(trace: Trace) -> None:
    def again(task: int) -> None:
        if len(trace.led_to) == 1:
            trace.scheduler.begin(task, asks(), 1.0)

    trace.on_over = again
    trace.scheduler.begin(1, waits(1.0), 0.0)
    trace.scheduler.advance(1.0)
    assert trace.led_to == [("over", 1, 1.0, 1.0), ("asks", 1, QUESTION)]
