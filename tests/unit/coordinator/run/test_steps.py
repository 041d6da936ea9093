"""Calls and background tasks that are under way: when each goes on, in which order, and what it leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.coordinator.run.interface import DescribeGroup, Question
from streamgroup.coordinator.run.steps import NOW, Steps, StepScheduler, Until

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


def test_a_task_that_waits_for_nothing_is_over_at_once(trace: Trace) -> None:
    def steps() -> Steps[tuple[float, float]]:
        first = yield NOW
        second = yield NOW
        return first, second

    trace.scheduler.begin(1, steps(), 5.0)
    assert trace.led_to == [("over", 1, (5.0, 5.0), 5.0)]
    assert trace.scheduler.wake_at is None


def test_a_wait_ends_when_its_seconds_have_passed(trace: Trace) -> None:
    trace.scheduler.begin(1, waits(2.0), 10.0)
    trace.scheduler.begin(2, waits(1.0), 10.0)
    assert trace.scheduler.wake_at == 11.0
    trace.scheduler.advance(10.9)
    assert trace.led_to == []
    trace.scheduler.advance(11.0)
    assert trace.led_to == [("over", 2, 11.0, 11.0)]
    assert trace.scheduler.wake_at == 12.0
    trace.scheduler.advance(12.5)
    assert trace.led_to[1:] == [("over", 1, 12.5, 12.5)]


def test_a_wait_ends_when_its_condition_holds(trace: Trace) -> None:
    open_: list[int] = []
    trace.scheduler.begin(1, waits(float("inf"), lambda _: bool(open_)), 0.0)
    assert trace.scheduler.wake_at is None
    trace.scheduler.advance(1_000.0)
    assert trace.led_to == []
    open_.append(1)
    trace.scheduler.advance(1_001.0)
    assert trace.led_to == [("over", 1, 1_001.0, 1_001.0)]


def test_a_condition_that_holds_already_is_not_waited_for(trace: Trace) -> None:
    trace.scheduler.begin(1, waits(9.0, lambda now: now >= 3.0), 3.0)
    assert trace.led_to == [("over", 1, 3.0, 3.0)]


def test_tasks_go_on_in_the_order_in_which_they_began(trace: Trace) -> None:
    for number in (3, -1, 2):
        trace.scheduler.begin(number, waits(1.0), 0.0)
    trace.scheduler.advance(1.0)
    assert [task for _, task, *_ in trace.led_to] == [3, -1, 2]


def test_a_condition_that_another_task_makes_true_ends_the_wait_in_the_same_step(trace: Trace) -> None:
    done: list[int] = []

    def opens() -> Steps[None]:
        yield Until(lambda _: False, 1.0)
        done.append(1)

    trace.scheduler.begin(1, waits(9.0, lambda _: bool(done)), 0.0)
    trace.scheduler.begin(2, opens(), 0.0)
    trace.scheduler.advance(1.0)
    assert [task for _, task, *_ in trace.led_to] == [2, 1]


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


# -- questions --------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_with_the_time_of_the_answer(trace: Trace) -> None:
    trace.scheduler.begin(1, asks(), 0.0)
    assert trace.led_to == [("asks", 1, QUESTION)]
    assert trace.scheduler.wake_at is None
    trace.scheduler.advance(99.0)
    assert len(trace.led_to) == 1, "a question waits for its answer"
    trace.scheduler.answer(1, "the answer", 100.0)
    assert trace.led_to[1:] == [("over", 1, (100.0, "the answer"), 100.0)]


def test_an_error_in_place_of_an_answer_is_raised_in_the_task(trace: Trace) -> None:
    def steps() -> Steps[str]:
        try:
            yield QUESTION
        except ZeroDivisionError:
            now, answer = yield QUESTION
        return f"{answer} at {now}"

    trace.scheduler.begin(1, steps(), 0.0)
    trace.scheduler.fail(1, ZeroDivisionError(), 1.0)
    assert trace.led_to == [("asks", 1, QUESTION)] * 2
    trace.scheduler.answer(1, "now", 2.0)
    assert trace.led_to[2:] == [("over", 1, "now at 2.0", 2.0)]


def test_an_error_that_a_task_does_not_catch_ends_it(trace: Trace) -> None:
    trace.scheduler.begin(1, asks(), 0.0)
    trace.scheduler.fail(1, ValueError("no broker"), 1.0)
    assert trace.led_to[1:] == [("failed", 1, "no broker", 1.0)]
    trace.scheduler.answer(1, "late", 2.0)
    trace.scheduler.fail(1, ValueError("late"), 2.0)
    assert len(trace.led_to) == 2


def test_an_error_of_one_task_stops_no_other(trace: Trace) -> None:
    def fails() -> Steps[None]:
        yield Until(lambda _: False, 1.0)
        raise ValueError("a defect")

    trace.scheduler.begin(1, fails(), 0.0)
    trace.scheduler.begin(2, waits(1.0), 0.0)
    trace.scheduler.advance(1.0)
    assert trace.led_to == [("failed", 1, "a defect", 1.0), ("over", 2, 1.0, 1.0)]


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
