"""Lets `Run` wait without a thread: its calls are generators that yield conditions and requests to the cluster.

A call (`latestOffset`, a stop, a drain) yields an `Until`. It is resumed with `time.monotonic()` once the condition
holds or the seconds have passed. Or it yields a request of `interface.py` to the cluster, and is resumed with the time
and the result; if the request fails, its error is raised in the call. `StepScheduler` resumes the calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from streamgroup.coordinator.run.interface import Question
from streamgroup.frozen import frozen

T = TypeVar("T")


@frozen
class Until:
    """Wait until `condition(now)` holds, for `seconds` at most.

    The condition is evaluated after every change of the run, and when the seconds have passed.
    """

    condition: Callable[[float], bool]
    seconds: float


NOW = Until(lambda _: True, 0.0)
"""Do not wait: the call is resumed at once with the time."""

Steps = Generator[Until | Question, Any, T]
"""A call of the run. It is resumed with `now` after an `Until`, with `(now, answer)` after a question."""


class SchedulerListener(Protocol):
    """Receives the requests and results of the tasks of a `StepScheduler`, except from abandoned tasks."""

    def asks(self, task: int, question: Question) -> None: ...

    def is_over(self, task: int, result: Any, now: float) -> None: ...

    def has_failed(self, task: int, error: Exception, now: float) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """A task that waits. `wait` is None while its request to the cluster is pending."""

    steps: Steps[Any]
    wait: Until | None = None
    due: float = math.inf
    error: Exception | None = None
    """The error of the condition; it is raised in the task."""


class StepScheduler:
    """Runs the tasks of a query (calls of Spark and background tasks), each up to its next wait or request.

    A task must not resume itself; it may begin another one.
    """

    def __init__(self, listener: SchedulerListener) -> None:
        self._listener = listener
        self._tasks: dict[int, _Waiting] = {}

    @property
    def wake_at(self) -> float | None:
        """The time when the first wait ends."""
        due = min((task.due for task in self._tasks.values()), default=math.inf)
        return None if due == math.inf else due

    def begin(self, number: int, steps: Steps[Any], now: float) -> None:
        """Begin the task `number` and run it up to its first wait or request."""
        self._tasks[number] = task = _Waiting(steps)
        self._run(number, task, partial(next, steps), now)

    def answer(self, number: int, answer: Any, now: float) -> None:
        """Resume a task with the result of its request. A result for an abandoned task has no effect."""
        if (task := self._tasks.get(number)) is not None:
            self._run(number, task, partial(task.steps.send, (now, answer)), now)

    def fail(self, number: int, error: Exception, now: float) -> None:
        """Raise `error` in a task, because its request has failed."""
        if (task := self._tasks.get(number)) is not None:
            self._run(number, task, partial(task.steps.throw, error), now)

    def abandon(self, number: int) -> None:
        """End a task wherever it is."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.steps.close()

    def advance(self, now: float) -> None:
        """Resume every task whose condition holds or whose time is over, until all of them wait."""
        while ready := [n for n, task in self._tasks.items() if task.wait and _is_ready(task, now)]:
            for number in ready:
                task = self._tasks.get(number)
                if task is not None and task.wait and _is_ready(task, now):  # another task may have changed that
                    self._run(number, task, partial(_go_on, task, now), now)

    def _run(self, number: int, task: _Waiting, resume: Callable[[], Until | Question], now: float) -> None:
        task.wait, task.due = None, math.inf
        try:
            yielded = resume()
            while isinstance(yielded, Until):
                task.wait, task.due = yielded, now + yielded.seconds
                if not _is_ready(task, now):
                    return
                task.wait, task.due = None, math.inf
                yielded = _go_on(task, now)
        except StopIteration as done:
            del self._tasks[number]
            self._listener.is_over(number, done.value, now)
        except Exception as error:  # the error goes to the thread that waits for the task's result
            del self._tasks[number]
            self._listener.has_failed(number, error, now)
        else:
            self._listener.asks(number, yielded)


def _is_ready(task: _Waiting, now: float) -> bool:
    """Return whether a waiting task must be resumed. If its condition raises an error, the task gets the error."""
    assert task.wait is not None
    if now >= task.due:
        return True
    try:
        return task.wait.condition(now)
    except Exception as error:
        task.error = error
        return True


def _go_on(task: _Waiting, now: float) -> Until | Question:
    error, task.error = task.error, None
    return task.steps.send(now) if error is None else task.steps.throw(error)
