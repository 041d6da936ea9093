"""The way into a run: who steps it, who answers its questions, and what a signal ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock, call

import pytest

from streamgroup.coordinator.coordinator import Inbox
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.machine import Run
from streamgroup.errors import DataLossError
from streamgroup.group import events as ev
from tests.unit.coordinator.run.run_shell import ranges
from tests.unit.coordinator.shells import running, until

STATUS = Run.status
QUESTION = interface.SnapshotEnds()


class FakeRun:
    """`script` gives the actions of each event."""

    def __init__(self, script: Callable[[Any], list[Any]]) -> None:
        self.script = script
        self.heard: list[Any] = []
        self.wake_at: float | None = None

    def step(self, event: Any, now: float) -> list[Any]:
        self.heard.append(event)
        return self.script(event)


def make_inbox(script: Callable[[Any], list[Any]]) -> tuple[Inbox, FakeRun, Mock]:
    shell, run = Mock(), FakeRun(script)
    inbox = Inbox(shell)
    inbox.run = run  # type: ignore[assignment]
    return inbox, run, shell


def asks_first(event: Any) -> list[Any]:
    """The run of a call that asks one question."""
    match event:
        case interface.Called(call):
            return [interface.Ask(call, QUESTION)]
        case interface.QuestionAnswered(call, answer):
            return [interface.CallReply(call, f"{answer}, taken")]
        case interface.QuestionFailed(call, error):
            return [interface.Raise(call, error)]
    return []


def test_a_call_answers_its_own_question_without_the_lock() -> None:
    inbox, run, shell = make_inbox(asks_first)
    shell.answer.side_effect = lambda question: inbox._lock._is_owned()  # type: ignore[attr-defined]
    assert inbox.call(STATUS) == "False, taken"
    assert run.heard == [interface.Called(0, STATUS), interface.QuestionAnswered(0, False)]


def test_an_error_in_place_of_the_answer_is_the_runs_to_judge() -> None:
    inbox, run, shell = make_inbox(asks_first)
    shell.answer.side_effect = error = DataLossError("gone")
    with pytest.raises(DataLossError, match="gone"):
        inbox.call(STATUS)
    assert run.heard == [interface.Called(0, STATUS), interface.QuestionFailed(0, error)]


def test_a_question_of_a_background_task_goes_to_another_thread() -> None:
    inbox, _, shell = make_inbox(lambda event: [interface.Ask(-1, QUESTION)])
    inbox.post(ev.Tick())
    shell.post.assert_called_once_with(-1, QUESTION)


def test_an_event_that_an_action_leads_to_follows_after_the_step() -> None:
    inbox, run, shell = make_inbox(
        lambda event: [interface.RefreshMetadata(), interface.Follow(frozenset("t"))] if event == "first" else []
    )
    shell.carry_out.side_effect = lambda action: inbox.post("second") if action == interface.RefreshMetadata() else None  # type: ignore[arg-type]
    inbox.post("first")  # type: ignore[arg-type]
    assert run.heard == ["first", "second"]
    assert shell.carry_out.mock_calls == [call(interface.RefreshMetadata()), call(interface.Follow(frozenset("t")))]


def test_a_reply_to_a_call_that_is_gone_is_dropped() -> None:
    inbox, _, _ = make_inbox(
        lambda event: [interface.CallReply(7, None), interface.Raise(8, ValueError()), interface.Ask(9, QUESTION)]
    )
    inbox.post(ev.Tick())


def test_a_call_that_waits_keeps_the_timers() -> None:
    def script(event: Any) -> list[Any]:
        run.wake_at = 0.0 if isinstance(event, interface.Called) else None
        return [interface.CallReply(0, "in time")] if isinstance(event, ev.Tick) else []

    inbox, run, shell = make_inbox(script)
    assert inbox.call(STATUS) == "in time"
    assert shell.wake.call_count == 1


def test_the_thread_of_the_timers_is_woken_for_an_earlier_one_only() -> None:
    inbox, run, shell = make_inbox(lambda event: [])
    for wake_at, woken in ((9.0, 1), (9.0, 1), (8.0, 2), (12.0, 2), (None, 2)):
        run.wake_at = wake_at
        inbox.post(ev.Tick())
        assert (inbox.wake_at, shell.wake.call_count) == (wake_at, woken)


def test_calls_of_two_threads_get_their_own_results() -> None:
    waiting: list[int] = []

    def script(event: Any) -> list[Any]:
        match event:
            case interface.Called(call, method) if method is ranges:
                waiting.append(call)
                return []
            case interface.Called(call):
                return [interface.CallReply(call, "second"), interface.CallReply(waiting[0], "first")]
        return []

    inbox, _, _ = make_inbox(script)
    results: list[str] = []
    with running(lambda: results.append(inbox.call(ranges))):
        until(lambda: bool(waiting), "the first call")
        assert inbox.call(STATUS) == "second"
    assert results == ["first"]


def test_a_call_that_a_signal_ends_is_abandoned() -> None:
    inbox, run, shell = make_inbox(asks_first)

    shell.answer.side_effect = lambda question: inbox.interrupt()
    with pytest.raises(SystemExit):
        inbox.call(STATUS)
    assert run.heard[-1] == interface.CallAbandoned(0)


def test_a_signal_in_the_middle_of_a_step_ends_the_call_after_it() -> None:
    taken: list[Any] = []

    def script(event: Any) -> list[Any]:
        if isinstance(event, interface.Called):
            inbox.interrupt()
            taken.append(event)
            return [interface.RefreshMetadata()]
        return []

    inbox, run, shell = make_inbox(script)
    with pytest.raises(SystemExit):
        inbox.call(STATUS)
    assert taken
    shell.carry_out.assert_called_once_with(interface.RefreshMetadata())
    assert run.heard[-1] == interface.CallAbandoned(0)
    assert inbox._lock.acquire(blocking=False)


def test_only_the_main_thread_ends_by_its_signal() -> None:
    """The signal arrives in a step of the main thread; another thread steps before that one has unwound."""
    inbox, _, _ = make_inbox(lambda event: [])
    inbox._is_interrupted = True
    with running(lambda: inbox.post(ev.Tick())):
        pass
    assert inbox._is_interrupted
    with pytest.raises(SystemExit):
        inbox.post(ev.Tick())
    inbox.post(ev.Tick())


def test_an_action_that_cannot_be_carried_out_ends_the_query_and_not_the_thread() -> None:
    both = [interface.RefreshMetadata(), interface.Follow(frozenset("t"))]
    inbox, run, shell = make_inbox(lambda event: both if isinstance(event, ev.Tick) else [])

    shell.carry_out.side_effect = [ZeroDivisionError("a defect"), None]
    inbox.post(ev.Tick())
    assert shell.carry_out.mock_calls == [call(action) for action in both]
    (failed,) = run.heard[1:]
    assert isinstance(failed, interface.ThreadFailed)
    assert "a defect" in str(failed.error)
