"""The protocol by which the run waits without a thread: its calls are generators that yield conditions and questions.

A call (`latestOffset`, a stop, a drain) yields an `Until` and is resumed with the time, in monotonic seconds, once the
condition holds or the seconds have passed. Or it yields a question of `run/questions.py` and is resumed with the time
and the answer; an error that comes in place of the answer is raised in the call. `run/step_scheduler.py` resumes the
calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from streamgroup.run.questions import Question

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until `condition(now)` holds, for `seconds` at most.

    The condition is evaluated after every change of the run, and when the seconds have passed.
    """

    condition: Callable[[float], bool]
    seconds: float


NOW = Until(lambda _: True, 0.0)
"""Wait for nothing: the call is resumed at once with the time."""

Steps = Generator[Until | Question, Any, T]
"""A call of the run. It is resumed with `now` after an `Until`, with `(now, answer)` after a question."""
