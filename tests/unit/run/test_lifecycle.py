"""Stops, drains and pauses of a run, against a member that is a few values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.errors import DrainedError
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.run.lifecycle import (
    COMMIT_SHARE,
    END_GRACE_S,
    LAST_WORD_TIMEOUT_S,
    LEAVE_TIMEOUT_S,
    ONCE_LAST_WORD_TIMEOUT_S,
    STOP_TIMEOUT_S,
    TABLE,
    RunCue,
    RunState,
    Shutdown,
)
from tests.unit.run.calls import Call


class Member:
    """Idle, stable, nothing to commit; a test changes what it needs."""

    def __init__(self) -> None:
        self.membership = SimpleNamespace(state=State.STABLE, topics=("t",))
        self.stable = True
        self.ledger = SimpleNamespace(
            group="g",
            started=True,
            idle=True,
            commit_pending=False,
            awaits_holding=False,
            settled=True,
            in_flight=None,
            uncommitted=0,
            commits=SimpleNamespace(outstanding=False),
        )

    def farewell(self, now: float) -> list[Any]:
        return ["commit"]

    def step(self, event: object, now: float) -> list[Any]:
        return [event]

    def is_in_flight(self, *, planned_ranges: object = ()) -> None:
        self.ledger.idle = False
        self.ledger.in_flight = SimpleNamespace(planned_ranges=planned_ranges)

    def has_sunk(self) -> None:
        self.ledger.idle, self.ledger.in_flight = True, None

    def leaves(self) -> None:
        self.membership.state = State.LEFT


@pytest.fixture
def member() -> Member:
    return Member()


def shutdown_of(member: Member, *, begun: bool = True, listened: bool = False) -> tuple[Shutdown, list[Any]]:
    done: list[Any] = []
    shutdown = Shutdown(member, done.extend, has_failed=lambda: False, is_listened=lambda: listened)  # type: ignore[arg-type]
    if begun:
        assert shutdown.begin()
        shutdown.join()
    return shutdown, done


def test_a_stop_commits_before_it_leaves(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.ledger.commit_pending = True
    stop = Call(shutdown.stop(0.0))
    assert (done, shutdown.stopped, stop.is_over) == (["commit"], True, False)
    member.ledger.commit_pending = False
    stop.at(0.1)
    assert done == ["commit", ev.Stop()]
    member.leaves()
    assert stop.at(0.2).result is True


def test_a_stop_that_nobody_answers_takes_no_longer_than_it_may(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.ledger.commit_pending = True
    stop = Call(shutdown.stop(0.0))
    stop.at(LEAVE_TIMEOUT_S * COMMIT_SHARE)
    assert done == ["commit", ev.Stop()]
    assert stop.at(LEAVE_TIMEOUT_S).is_over


def test_a_stop_waits_for_the_listener_to_report_the_batch_in_flight(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True)
    member.is_in_flight()
    stop = Call(shutdown.stop(0.0))
    assert done == []
    member.has_sunk()
    stop.at(0.1)
    assert done == ["commit", ev.Stop()]


def test_a_report_that_never_comes_leaves_time_for_the_commit(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True)
    member.is_in_flight()
    member.ledger.commit_pending = True
    stop = Call(shutdown.stop(0.0)).at(LAST_WORD_TIMEOUT_S)
    assert done == ["commit"]
    assert stop.at(STOP_TIMEOUT_S).at(STOP_TIMEOUT_S).is_over


def test_under_once_a_stop_waits_longer_since_the_report_is_always_behind_it(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True)
    shutdown.is_once = True
    member.is_in_flight()
    stop = Call(shutdown.stop(0.0)).at(LAST_WORD_TIMEOUT_S)
    assert done == []
    stop.at(ONCE_LAST_WORD_TIMEOUT_S - 0.1)
    assert done == []
    member.has_sunk()
    stop.at(ONCE_LAST_WORD_TIMEOUT_S - 0.1)
    assert done == ["commit", ev.Stop()]


@pytest.mark.parametrize(("is_once", "waits"), [(True, True), (False, False)])
def test_a_batch_that_was_not_asked_for_is_waited_for_under_once_alone(
    member: Member, *, is_once: bool, waits: bool
) -> None:
    """The sink may have skipped it (R17), and the commit must say so. Elsewhere Spark's next call tells."""
    shutdown, done = shutdown_of(member, listened=True)
    shutdown.is_once = is_once
    member.is_in_flight(planned_ranges=None)
    Call(shutdown.stop(0.0))
    assert (done == []) is waits


def test_under_once_a_stop_still_ends_where_no_report_comes(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True)
    shutdown.is_once = True
    member.is_in_flight()
    member.ledger.commit_pending = True
    stop = Call(shutdown.stop(0.0)).at(ONCE_LAST_WORD_TIMEOUT_S)
    assert done == ["commit"]
    latest = ONCE_LAST_WORD_TIMEOUT_S + STOP_TIMEOUT_S - LAST_WORD_TIMEOUT_S
    assert stop.at(latest).at(latest).is_over


def test_the_end_of_the_jvm_ends_the_wait_for_a_report(member: Member) -> None:
    shutdown, done = shutdown_of(member, listened=True)
    shutdown.is_once = True
    member.is_in_flight()
    first = Call(shutdown.stop(0.0))
    assert done == []
    second = Call(shutdown.stop(0.1, last_word=False))
    first.at(0.1)
    assert done == ["commit", ev.Stop()]
    member.leaves()
    assert first.at(0.2).result is True
    assert second.at(0.2).result is False


@pytest.mark.parametrize("ranges", [None, ()], ids=["not handed out", "handed out, no last word asked for"])
def test_a_stop_waits_for_no_report_of_a_batch_that_has_not_begun_or_where_none_is_wanted(
    member: Member, ranges: object
) -> None:
    shutdown, done = shutdown_of(member, listened=True)
    member.is_in_flight(planned_ranges=ranges)
    Call(shutdown.stop(0.0, last_word=ranges is None))
    assert done == ["commit", ev.Stop()]


def test_a_second_stop_waits_for_the_first(member: Member) -> None:
    shutdown, _ = shutdown_of(member)
    first, second = Call(shutdown.stop(0.0)), Call(shutdown.stop(0.0))
    assert not second.is_over
    member.leaves()
    first.at(0.1)
    assert second.at(0.1).result is False


def test_a_run_that_was_stopped_before_its_first_call_never_begins(member: Member) -> None:
    shutdown, done = shutdown_of(member, begun=False)
    assert Call(shutdown.stop(0.0)).result is False
    assert (shutdown.begin(), done) == (False, [])


def test_a_drain_waits_for_the_batch_in_flight_then_for_its_commit(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.is_in_flight()
    drain = Call(shutdown.drain(0.0, 10.0))
    assert (shutdown.wanted, shutdown.stopped, done) == (True, False, [])
    member.has_sunk()
    member.ledger.commit_pending = True
    assert drain.at(1.0)
    assert done == []
    member.ledger.commit_pending = False
    drain.at(2.0)
    member.leaves()
    assert drain.at(2.1).result is True


def test_a_drain_whose_last_commit_was_not_answered_says_that_a_batch_may_be_repeated(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.ledger.commits.outstanding = True
    drain = Call(shutdown.drain(0.0, 10.0))
    member.leaves()
    assert (done, drain.at(0.1).result) == (["commit", ev.Stop()], False)


def test_a_drain_whose_time_is_over_leaves_and_says_that_a_batch_may_be_repeated(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    member.is_in_flight()
    drain = Call(shutdown.drain(0.0, 1.0)).at(1.0)
    member.leaves()
    assert (done, drain.at(1.1).result) == (["commit", ev.Stop()], False)


def test_a_drain_waits_for_the_member_that_commits_what_a_lost_generation_could_not(member: Member) -> None:
    shutdown, _ = shutdown_of(member)
    member.ledger.awaits_holding, member.stable = True, False
    drain = Call(shutdown.drain(0.0, 10.0)).at(5.0)
    assert not shutdown.stopped
    member.stable = True
    drain.at(6.0)
    assert shutdown.stopped


def test_a_drain_before_the_first_call_is_settled_at_once(member: Member) -> None:
    shutdown, done = shutdown_of(member, begun=False)
    assert Call(shutdown.drain(0.0, 10.0)).result is True
    assert done == []


def test_a_drain_from_outside_ends_the_query_once_all_coordinators_are_done_or_a_while_after_its_time(
    member: Member,
) -> None:
    shutdown, _ = shutdown_of(member)
    member.leaves()
    Call(shutdown.drain(0.0, 1.0, ends=True))
    assert Call(shutdown.wait_for_end(0.0), 0.5).is_over
    with pytest.raises(DrainedError, match="nothing will be repeated"):
        Call(shutdown.wait_for_end(0.0), 1.0 + END_GRACE_S)
    shutdown.end()
    with pytest.raises(DrainedError):
        Call(shutdown.wait_for_end(0.0), 0.5)


def test_a_pause_leaves_and_the_next_call_joins_again(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    pause = Call(shutdown.pause(0.0))
    member.leaves()
    assert pause.at(0.1).result is True
    assert Call(shutdown.resume(), 5.0).result is True
    assert done == ["commit", ev.Stop(), ev.Start(("t",))]
    assert not shutdown.stopped


@pytest.mark.parametrize("state", [State.UNJOINED, State.LEFT])
def test_a_run_without_a_member_in_the_group_has_nothing_to_pause(member: Member, state: State) -> None:
    shutdown, done = shutdown_of(member)
    member.membership.state = state
    assert Call(shutdown.pause(0.0)).result is False
    assert done == []


def test_a_call_after_a_pause_waits_until_the_member_has_left(member: Member) -> None:
    shutdown, _ = shutdown_of(member)
    Call(shutdown.pause(0.0))
    member.membership.state = State.LEAVING
    resume = Call(shutdown.resume())
    assert not resume.is_over
    member.leaves()
    assert resume.at(0.1).result is True


def test_a_call_after_a_pause_does_not_join_where_a_stop_has_begun_meanwhile(member: Member) -> None:
    shutdown, done = shutdown_of(member)
    Call(shutdown.pause(0.0))
    member.membership.state = State.LEAVING
    resume, stop = Call(shutdown.resume()), Call(shutdown.stop(0.1))
    done.clear()
    member.leaves()
    assert resume.at(0.2).result is False
    assert not any(isinstance(action, ev.Start) for action in done)
    stop.at(0.2)
    assert shutdown.stopped


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_is_stopped_or_drained_in_any_state_comes_to_its_end(state: RunState) -> None:
    for way in (RunCue.STOP, RunCue.DRAIN):
        now = state
        for cue in (way, RunCue.STOP, RunCue.LEFT):
            if now in {RunState.LEAVING, RunState.STOPPED} and cue is RunCue.STOP:
                continue  # `Shutdown.stop` waits for the one that leaves
            now = now if now is RunState.STOPPED else TABLE.next_state(now, cue)
        assert now is RunState.STOPPED


@pytest.mark.parametrize(
    ("state", "cue"),
    [
        (RunState.NEW, RunCue.JOIN),
        (RunState.OPENING, RunCue.PAUSE),
        (RunState.RUNNING, RunCue.CALL),
        (RunState.LEAVING, RunCue.RESUME),
        (RunState.STOPPED, RunCue.JOIN),
    ],
)
def test_an_illegal_transition_raises(state: RunState, cue: RunCue) -> None:
    with pytest.raises(ValueError, match=f"a run that is {state.value} cannot take"):
        TABLE.next_state(state, cue)
