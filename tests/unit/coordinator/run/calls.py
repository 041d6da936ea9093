"""Calls of the run under the test's own clock, and the options of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamgroup.coordinator.run.interface import Question, RunConfig
from streamgroup.coordinator.run.steps import Steps, StepScheduler
from streamgroup.coordinator.threads.assemble import run_config
from streamgroup.options.types import GroupOptions
from tests.unit.coordinator.shells import source

Answer = Callable[[Question], object]


def config(group: GroupOptions | None = None, **options: Any) -> RunConfig:
    """The options of a run of group g, or as `group` and `options` say."""
    given = source(group=group, **options)
    assert given.group is not None
    return run_config(given, given.group)


class _Heard:
    """The results of one task."""

    def __init__(self) -> None:
        self.question: Any = None
        self.result: Any = None
        self.error: Exception | None = None
        self.ended = False

    def asks(self, task: int, question: Question) -> None:
        self.question = question

    def is_over(self, task: int, result: Any, now: float) -> None:
        self.ended, self.result = True, result

    def has_failed(self, task: int, error: Exception, now: float) -> None:
        self.ended, self.error = True, error


class Call:
    """A call by itself. It begins at `now`, and `at` lets it go on as far as it can at a later time.

    `answer` returns the answer to each of its questions, or raises the error that comes in place of it. Without
    `answer` the test answers `question` itself. The method that lets the call go on raises the error that ends it.
    """

    def __init__(self, steps: Steps[Any], now: float = 0.0, *, answer: Answer | None = None) -> None:
        self._heard = _Heard()
        self._scheduler = StepScheduler(self._heard)
        self._answer = answer
        self._now = now
        self._scheduler.begin(0, steps, now)
        self._go_on()

    @property
    def question(self) -> Any:
        """The question that has no answer yet."""
        return self._heard.question

    @property
    def is_over(self) -> bool:
        """Whether the call has ended."""
        return self._heard.ended

    @property
    def result(self) -> Any:
        """The result of the call."""
        return self._heard.result

    @property
    def wake_at(self) -> float | None:
        """When its wait is over."""
        return self._scheduler.wake_at

    def at(self, now: float) -> Call:
        """Let the call go on at `now`: where its condition holds, or its time has passed."""
        self._now = now
        self._scheduler.advance(now)
        return self._go_on()

    def answered(self, answer: object) -> Call:
        """Answer its question."""
        assert self._heard.question is not None, "nothing is asked"
        self._heard.question = None
        self._scheduler.answer(0, answer, self._now)
        return self._go_on()

    def failed(self, error: Exception) -> Call:
        """Raise `error` in place of the answer to its question."""
        assert self._heard.question is not None, "nothing is asked"
        self._heard.question = None
        self._scheduler.fail(0, error, self._now)
        return self._go_on()

    def abandoned(self) -> None:
        """End the call wherever it is."""
        self._scheduler.abandon(0)

    def _go_on(self) -> Call:
        outcome, answer = self._heard, self._answer
        while outcome.question is not None and answer is not None:
            question, outcome.question = outcome.question, None
            try:
                found = answer(question)
            except Exception as error:
                self._scheduler.fail(0, error, self._now)
            else:
                self._scheduler.answer(0, found, self._now)
        error, outcome.error = outcome.error, None
        if error is not None:
            raise error
        return self
