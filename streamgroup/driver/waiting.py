"""Carries the run's calls through: waits on the coordinator's condition variable and answers questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from streamgroup.run.questions import Question
from streamgroup.run.steps import Steps, Until

T = TypeVar("T")


def no_answer(question: Question) -> object:
    """Refuse `question`: the answer function of calls that ask none."""
    raise AssertionError(f"this call asks nothing: {question}")


def carry_through(
    state: threading.Condition, call: Callable[[float], Steps[T]], answer: Callable[[Question], object] = no_answer
) -> T:
    """Run the call that `call(now)` begins to its end, in the calling thread, and return its result.

    The call advances with the lock of `state` held, and each advance notifies other threads. The lock is free while the
    call waits, and while `answer` answers a question.
    """
    with state:
        steps = call(time.monotonic())
        resume: Callable[[], Until | Question] = partial(next, steps)
        result, question = _advance(state, steps, resume)
    while question is not None:
        try:
            found = answer(question)
        except Exception as error:
            resume = partial(steps.throw, error)
        else:
            resume = partial(_send_answer, steps, found)
        with state:
            result, question = _advance(state, steps, resume)
    return result  # type: ignore[return-value]


def _advance(
    state: threading.Condition, steps: Steps[T], resume: Callable[[], Until | Question]
) -> tuple[T | None, Question | None]:
    """Run the call up to its next question or its result. The lock is held."""
    try:
        wait = resume()
        while isinstance(wait, Until):
            condition = wait.condition
            state.notify_all()
            state.wait_for(lambda: condition(time.monotonic()), wait.seconds)  # noqa: B023
            wait = steps.send(time.monotonic())
        return None, wait
    except StopIteration as done:
        return done.value, None
    finally:
        state.notify_all()


def _send_answer(steps: Steps[T], answer: object) -> Until | Question:
    return steps.send((time.monotonic(), answer))
