"""Spark's calls of a run: the next batch is planned, its tasks are made, and a batch that has sunk is committed."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.coordinator.planning.loss import BELIEVED_AFTER_S, LOOK_EVERY_S
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.lineage import LOOK_AGAIN_S
from streamgroup.coordinator.run.machine import Run
from streamgroup.coordinator.run.spark_calls import (
    ASSIGNMENT_TIMEOUT_S,
    COMMIT_TIMEOUT_S,
    REPORT_AFTER_S,
    STANDALONE_GRACE_S,
    PlanGate,
)
from streamgroup.coordinator.run.spark_calls import LOOK_AGAIN_S as GATE_S
from streamgroup.coordinator.run.steps import Steps
from streamgroup.errors import SkippedBatchError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.start_positions import CommitMetadata
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, FetchRange, FetchTask, OffsetRange
from streamgroup.options.types import GroupOptions, LimitOptions
from tests.unit.coordinator.run.run_shell import (
    AWAY,
    COMMIT,
    MEMBER,
    MODES,
    OFF,
    P0,
    P1,
    PLAN,
    Call,
    Shell,
    latest_offset,
    partitions,
    registered,
)

ALL = (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))


@MODES
def test_batches_follow_each_other_in_every_mode(group: GroupOptions) -> None:
    shell = Shell(group)
    first = shell.batch()
    shell.logs.ends = {P0: 12, P1: 10}
    second = shell.batch(first)
    assert second.ranges == (OffsetRange(P0, 10, 12),)
    assert shell.committed == ({} if group is OFF else {0: 10, 1: 10})
    assert shell.result(latest_offset(second, LimitOptions())) is second, "nothing is new"
    assert shell.committed == ({} if group is OFF else {0: 12, 1: 10})


def test_the_tasks_of_a_batch_are_made_once() -> None:
    shell = Shell()
    document = shell.result(PLAN)
    request = partitions(INITIAL_DOCUMENT, document)
    assert document.ranges == ALL
    tasks = [FetchTask((FetchRange(range_, None),)) for range_ in ALL]
    assert shell.result(request) == tasks
    call = shell.call(request)
    assert shell.out == [interface.CallReply(call, tasks)]


def test_available_now_does_not_end_by_facts_from_before_an_assignment() -> None:
    """While the commits are fetched, to judge a broker of 0.7 that is offline, the member gains another partition."""
    shell = Shell()
    shell.cluster = registered(P0, AWAY)
    shell.logs.ends = {P0: 10, AWAY: 10}
    shell.result(Run.prepare_available_now)
    document = shell.batch()
    shell.logs.snapshot = registered(P0)
    call = shell.call(latest_offset(document, LimitOptions()))
    while not isinstance(question := shell.questions[call], interface.FetchCommitted):
        shell.answer(call, shell.found(question))
    shell.ledger.assigned(shell.ledger.member_id, shell.ledger.generation, [P0, AWAY], [P0, AWAY])
    shell.answer(call, shell.found(question))
    assert shell.replies == {}
    shell.step(ev.Tick(), LOOK_AGAIN_S)
    assert isinstance(shell.questions[call], interface.ListEnds), "it looks at the logs again"
    shell.serve()
    assert shell.replies == {call: document}


def test_nothing_is_planned_by_the_positions_of_an_earlier_generation() -> None:
    """The group has rebalanced while the brokers listed the ends, and the member has its partitions again (R9)."""
    shell = Shell()
    first = shell.batch()
    shell.logs.ends = {P0: 12, P1: 12}
    call = shell.call(latest_offset(first, LimitOptions()))
    assert isinstance(shell.questions[call], interface.ListEnds)
    shell.ledger.assigned(shell.ledger.member_id, shell.ledger.generation + 1, [P0, P1], [P0, P1])
    shell.serve()
    assert shell.replies == {call: first}
    assert shell.batch(first).ranges == (OffsetRange(P0, 10, 12), OffsetRange(P1, 10, 12))


def test_available_now_does_not_end_by_the_positions_from_before_its_assignment_was_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that comes while the run waits for the last ones has not been judged: its log ends below it."""
    shell = Shell()
    shell.result(Run.prepare_available_now)
    document = shell.batch()
    until_complete, waits = shell.run._calls._gate.until_complete, []

    def gain() -> Steps[bool]:
        if not waits:
            held = shell.ledger.held[P1]
            held.position = held.committed = 100
            shell.ledger.assigned(shell.ledger.member_id, shell.ledger.generation, [P0, P1], [P0, P1])
        waits.append(1)
        return until_complete()

    monkeypatch.setattr(shell.run._calls._gate, "until_complete", gain)
    shell.call(latest_offset(document, LimitOptions()))
    shell.serve()
    assert not shell.of(interface.CallReply), "it looks again"


def test_spark_gets_the_same_batch_again_before_it_has_asked_for_its_tasks() -> None:
    shell = Shell()
    document = shell.result(PLAN)
    shell.logs.ends = {P0: 99, P1: 99}
    assert shell.result(PLAN) is document
    assert document.ranges == ALL


def test_a_batch_whose_tasks_spark_never_asked_for_was_skipped_by_its_sink() -> None:
    shell = Shell()
    document = shell.result(PLAN)
    call = shell.call(latest_offset(document, LimitOptions()))
    shell.serve()
    (raised,) = shell.of(interface.Raise)
    assert raised.call == call
    assert isinstance(raised.error, SkippedBatchError)
    assert sum("event=skip" in line for line in shell.lines) == 1
    assert shell.committed == {0: 0, 1: 0}, "the skipped records are not committed"


OF_A_QUERY = CommitMetadata("lineage", "before", 4, 4, -1, "id").text()


@pytest.mark.parametrize(
    ("group", "committed", "read"),
    [
        (MEMBER, CommittedOffset(4, OF_A_QUERY), (OffsetRange(P0, 4, 10), OffsetRange(P1, 2, 10))),
        (COMMIT, CommittedOffset(4, OF_A_QUERY), (OffsetRange(P0, 1, 10), OffsetRange(P1, 2, 10))),
        (COMMIT, CommittedOffset(4, "operator"), (OffsetRange(P0, 4, 10), OffsetRange(P1, 2, 10))),
        (MEMBER, CommittedOffset(10, OF_A_QUERY), (OffsetRange(P1, 2, 10),)),
    ],
    ids=["of the group", "of another query", "of an operator", "whole"],
)
def test_a_replay_leaves_out_what_the_group_has_committed_since(
    group: GroupOptions, committed: CommittedOffset, read: tuple[OffsetRange, ...]
) -> None:
    shell = Shell(group)
    shell.coordinator.offsets[P0] = committed
    planned = Document("g", "lineage", "before", 5, (OffsetRange(P0, 1, 10), OffsetRange(P1, 2, 10)))
    tasks = shell.result(partitions(INITIAL_DOCUMENT, planned))
    assert tasks == [FetchTask((FetchRange(range_, None),)) for range_ in read]
    shell.coordinator.offsets[P0] = CommittedOffset(10)
    assert shell.result(partitions(INITIAL_DOCUMENT, planned)) == tasks, "Spark asks again, the batch is the same"
    assert sum("event=replay" in line for line in shell.lines) == 1


# -- triggers ---------------------------------------------------------------------------------------------------------


def test_available_now_returns_an_empty_batch_without_an_assignment_since_its_start_would_end_the_query() -> None:
    shell = Shell(MEMBER, JoinGroupRequest)
    shell.result(Run.prepare_available_now)
    call = shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    document = shell.replies[call]
    assert (document.ranges, document.sequence) == ((), INITIAL_DOCUMENT.sequence + 1)


def test_once_takes_everything_whatever_the_rate() -> None:
    shell = Shell()
    document = shell.result(latest_offset(INITIAL_DOCUMENT, LimitOptions(max_offsets_per_second=4), once=True))
    assert document.ranges == ALL


RATED = LimitOptions(max_offsets_per_second=4)


def call_after_a_batch(shell: Shell) -> tuple[int, Document]:
    """Make the call for the batch after one that has used up the rate; return the call and that batch."""
    first = shell.result(latest_offset(INITIAL_DOCUMENT, RATED))
    shell.result(partitions(INITIAL_DOCUMENT, first))
    call = shell.call(latest_offset(first, RATED))
    shell.serve()
    return call, first


def test_a_batch_takes_no_more_than_the_rate_and_the_next_call_returns_its_start() -> None:
    shell = Shell()
    call, first = call_after_a_batch(shell)
    assert sum(map(len, first.ranges)) == 4
    assert shell.replies[call] is first
    assert shell.committed == {0: 2, 1: 2}, "the batch has sunk all the same"


@pytest.mark.parametrize("is_stopped", [False, True])
def test_available_now_waits_until_the_rate_allows_the_next_batch_or_the_run_stops(*, is_stopped: bool) -> None:
    """Spark runs a batch for each answer, so early answers would be batches without rows."""
    shell = Shell()
    shell.result(Run.prepare_available_now)
    call, first = call_after_a_batch(shell)
    assert shell.replies == {}
    if is_stopped:
        stop = shell.call(Run.stop)
        shell.serve()
        assert shell.replies == {stop: True, call: first}
        return
    began = shell.now
    while not shell.replies:
        shell.wake()
        shell.serve()
    assert sum(map(len, shell.replies[call].ranges)) > 0
    assert 0 < shell.now - began <= 1.0


JOIN_TIMEOUT_S = 10.0
NOW = 100.0


class GatedRun:
    """A run at its gate, and all that the gate looks at: the member, the check for a second query, the run's end."""

    def __init__(self, group_id: str = "g", *, is_standalone: bool = False, api_timeout_s: float = 60.0) -> None:
        self.plans = self.complete = self.is_clear = True
        self.is_over = self.is_paused = False
        self.warnings: list[str] = []
        self.gate = PlanGate(
            self,  # type: ignore[arg-type]
            group_id=group_id,
            join_timeout_s=JOIN_TIMEOUT_S,
            api_timeout_s=api_timeout_s,
            is_standalone=is_standalone,
            is_clear=lambda: self.is_clear,
            is_over=lambda: self.is_over,
            is_paused=lambda: self.is_paused,
            warn=self.warnings.append,
        )
        self.gate.joined_at = NOW

    def may_plan(self, now: float) -> bool:
        """As of a member."""
        return self.plans

    def waits_for(self, now: float) -> str:
        """As of a member."""
        return "" if self.plans else "the member is joining"

    def call(self, now: float = NOW, *, once: bool = False, ends: bool = False) -> Call:
        return Call(self.gate.until_plannable(once=once, ends=ends), now)

    def result(self, now: float = NOW, **trigger: bool) -> Any:
        """The result of a call whose time passes."""
        return self.call(now, **trigger).to_the_end().result


# -- how long a call waits --------------------------------------------------------------------------------------------


EACH_TRIGGER = pytest.mark.parametrize(
    "trigger", [{}, {"once": True}, {"ends": True}], ids=["none", "Once", "AvailableNow"]
)


@EACH_TRIGGER
def test_a_run_that_may_plan_waits_for_nothing(trigger: dict[str, bool]) -> None:
    call = GatedRun().call(**trigger)
    assert (call.is_over, call.result) == (True, True)


@pytest.mark.parametrize(
    ("trigger", "timeouts"),
    [
        ({}, [ASSIGNMENT_TIMEOUT_S, COMMIT_TIMEOUT_S, COMMIT_TIMEOUT_S]),
        ({"ends": True}, [ASSIGNMENT_TIMEOUT_S] * 3),
        ({"once": True}, [JOIN_TIMEOUT_S] * 3),
    ],
    ids=["no trigger", "AvailableNow", "Once"],
)
def test_only_the_first_call_waits_for_an_assignment_unless_the_trigger_ends(
    trigger: dict[str, bool], timeouts: list[float]
) -> None:
    run = GatedRun()
    run.plans = False
    assert [run.call(**trigger).wake_at for _ in timeouts] == [NOW + timeout for timeout in timeouts]


@pytest.mark.parametrize("what", ["plans", "is_clear"])
def test_a_call_plans_as_soon_as_the_member_and_the_check_for_a_second_query_let_it(what: str) -> None:
    run = GatedRun()
    setattr(run, what, False)
    call = run.call()
    assert not call.at(NOW + 0.1).is_over
    setattr(run, what, True)
    assert call.at(NOW + 0.2).result is True


@EACH_TRIGGER
def test_a_run_that_is_over_ends_the_wait_and_plans_nothing(trigger: dict[str, bool]) -> None:
    run = GatedRun()
    run.plans = False
    call = run.call(**trigger)
    run.is_over = run.plans = True
    assert call.at(NOW + 0.1).result is False


def test_only_once_waits_until_the_member_holds_all_that_it_is_to_read() -> None:
    run = GatedRun()
    run.complete = False
    assert run.call().result is True
    assert run.call(ends=True).result is True
    call = run.call(once=True)
    assert not call.at(NOW + 1.0).is_over
    run.complete = True
    assert call.at(NOW + 1.1).result is True


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("plans", "the member is joining"),
        ("is_clear", "the check whether another query uses a copy of this checkpoint has not ended"),
    ],
)
def test_a_long_wait_is_reported_with_its_cause_and_again_after_twice_the_time(what: str, cause: str) -> None:
    run = GatedRun()
    setattr(run, what, False)
    reported = []
    for second in range(200):
        run.result(NOW + second)
        reported += [(second, text) for text in run.warnings]
        run.warnings.clear()
    assert [text.partition(": ")[2].partition(": ")[2] for _, text in reported] == [cause] * 3
    assert [second for second, _ in reported] == [30, 61, 123]
    assert reported[0][1].startswith(f"group g: no batch could be planned for {REPORT_AFTER_S:.0f} s: ")


def test_a_wait_that_ends_in_between_is_not_reported() -> None:
    run = GatedRun()
    for second in range(100):
        run.plans = second % 10 == 0
        run.result(NOW + second)
    assert run.warnings == []


# -- a trigger that ends, whose group does not form -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group_id", "is_standalone", "named", "timeout"),
    [("orders", False, "group orders: ", JOIN_TIMEOUT_S), ("", True, "", JOIN_TIMEOUT_S + STANDALONE_GRACE_S)],
    ids=["a member", "a standalone member without a group"],
)
def test_once_fails_at_the_join_timeout_and_says_what_to_do(
    group_id: str, is_standalone: bool, named: str, timeout: float
) -> None:
    """A standalone member has a little longer: it finds other members itself and raises an error of its own."""
    run = GatedRun(group_id, is_standalone=is_standalone)
    run.plans = False
    call = run.call(once=True)
    assert not call.at(NOW + timeout - 0.01).is_over
    text = rf"{named}no batch could be planned within group\.joinTimeout \({timeout:.0f} s\) under Trigger\.Once: "
    with pytest.raises(TransportError, match=rf"^{text}.*the member is joining.* raise group\.joinTimeout$"):
        call.at(NOW + timeout)


def test_available_now_plans_nothing_until_the_join_timeout_and_then_fails() -> None:
    run = GatedRun()
    run.plans = False
    began = NOW
    while began + ASSIGNMENT_TIMEOUT_S < NOW + JOIN_TIMEOUT_S:
        assert run.result(began, ends=True) is False
        began += ASSIGNMENT_TIMEOUT_S
    with pytest.raises(TransportError, match=r"joinTimeout \(10 s\) under Trigger\.AvailableNow"):
        run.result(began, ends=True)


@pytest.mark.parametrize("what", ["it has planned before", "it has not joined", "another trigger"])
def test_the_join_timeout_is_no_error_where_nothing_says_that_the_group_does_not_form(what: str) -> None:
    run = GatedRun()
    if what == "it has planned before":
        assert run.result(ends=True) is True
    elif what == "it has not joined":
        run.gate.joined_at = None
    run.plans = False
    assert run.result(NOW + 2 * JOIN_TIMEOUT_S, ends=what != "another trigger") is False


def test_the_timeout_begins_anew_when_the_member_joins_again_after_a_pause() -> None:
    run = GatedRun()
    run.plans = False
    call = run.call(once=True)
    again = NOW + JOIN_TIMEOUT_S - 1.0
    run.gate.joined_at = again
    assert not call.at(again).is_over
    assert call.wake_at == again + JOIN_TIMEOUT_S
    with pytest.raises(TransportError):
        call.at(again + JOIN_TIMEOUT_S)


def test_once_does_not_fail_while_its_member_is_out_of_the_group() -> None:
    run = GatedRun()
    run.plans, run.is_paused = False, True
    assert run.result() is run.result(ends=True) is False, "other triggers give Spark its answer"
    call = run.call(once=True)
    for passed in (1, 2, 3):
        assert not call.at(NOW + passed * JOIN_TIMEOUT_S).is_over
    run.is_paused, run.plans = False, True
    assert call.at(NOW + 3 * JOIN_TIMEOUT_S + 1.0).result is True


# -- calls that try again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trigger", "passed", "again"),
    [
        ({"once": False, "ends": False}, 0.0, False),
        ({"once": True, "ends": False}, 1_000.0, True),
        ({"once": False, "ends": True}, ASSIGNMENT_TIMEOUT_S - 0.01, True),
        ({"once": False, "ends": True}, ASSIGNMENT_TIMEOUT_S, False),
    ],
    ids=["no trigger", "Once", "AvailableNow for a second", "AvailableNow no longer"],
)
def test_a_call_that_cannot_plan_tries_again_where_its_trigger_needs_that(
    trigger: dict[str, bool], passed: float, again: bool
) -> None:
    run = GatedRun()
    call = Call(run.gate.looks_again(NOW, **trigger), NOW + passed)
    if again:
        assert call.wake_at == NOW + passed + GATE_S
        call.at(call.wake_at)
    assert (call.is_over, call.result) == (True, again)


def test_a_run_that_is_over_waits_neither_to_try_again_nor_for_partitions_that_are_on_their_way() -> None:
    run = GatedRun()
    run.complete = False
    again, complete = (
        Call(steps, NOW) for steps in (run.gate.looks_again(NOW, once=True, ends=False), run.gate.until_complete())
    )
    run.is_over = True
    assert again.at(NOW + 0.01).is_over
    assert complete.at(NOW + 0.01).result is False


@pytest.mark.parametrize("complete", [True, False])
def test_available_now_waits_a_second_for_partitions_that_are_on_their_way(complete: bool) -> None:
    run = GatedRun()
    run.complete = False
    call = Call(run.gate.until_complete(), NOW)
    assert call.wake_at == NOW + ASSIGNMENT_TIMEOUT_S
    run.complete = complete
    assert call.at(NOW + (0.5 if complete else ASSIGNMENT_TIMEOUT_S)).is_over
    assert call.result is complete


# -- brokers without an answer ----------------------------------------------------------------------------------------


def test_partitions_without_an_answer_for_too_long_are_named_with_the_option() -> None:
    run = GatedRun("orders", api_timeout_s=30.0)
    run.gate.check_unanswered([P1, P0], "Trigger.Once", NOW)
    run.gate.check_unanswered([P1, P0], "Trigger.Once", NOW + 29.9)
    with pytest.raises(
        TransportError,
        match=r"^group orders: cannot plan t-0, t-1 under Trigger\.Once: for 30 s no broker has .*"
        r"Check their leaders .*raise kafka\.default\.api\.timeout\.ms$",
    ):
        run.gate.check_unanswered([P1, P0], "Trigger.Once", NOW + 30.0)


def test_a_partition_that_was_answered_in_between_has_its_time_anew() -> None:
    run = GatedRun(api_timeout_s=30.0)
    run.gate.check_unanswered([P0, P1], "Trigger.Once", NOW)
    run.gate.check_unanswered([P1], "Trigger.Once", NOW + 20.0)
    run.gate.check_unanswered([P0], "Trigger.Once", NOW + 30.0)
    run.gate.check_unanswered([P0], "Trigger.Once", NOW + 59.9)
    with pytest.raises(TransportError, match="cannot plan t-0 "):
        run.gate.check_unanswered([P0], "Trigger.Once", NOW + 60.0)


@pytest.mark.parametrize("what", ["a batch was planned", "the member could not plan"])
def test_the_time_begins_anew_after_a_batch_and_after_a_member_that_could_not_plan(what: str) -> None:
    run = GatedRun(api_timeout_s=30.0)
    run.gate.check_unanswered([P0], "Trigger.AvailableNow", NOW)
    if what == "a batch was planned":
        run.gate.answered()
    else:
        run.plans = False
        run.call(NOW + 29.0, ends=True)
    run.gate.check_unanswered([P0], "Trigger.AvailableNow", NOW + 30.0)
    with pytest.raises(TransportError):
        run.gate.check_unanswered([P0], "Trigger.AvailableNow", NOW + 60.0)


def test_a_short_timeout_leaves_the_time_in_which_a_suspected_loss_is_believed() -> None:
    run = GatedRun(api_timeout_s=0.5)
    least = BELIEVED_AFTER_S + 2 * LOOK_EVERY_S
    run.gate.check_unanswered([P0], "Trigger.Once", NOW)
    run.gate.check_unanswered([P0], "Trigger.Once", NOW + least - 0.01)
    with pytest.raises(TransportError, match=f"for {least:g} s"):
        run.gate.check_unanswered([P0], "Trigger.Once", NOW + least)
