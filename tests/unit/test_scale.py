"""The cost of a large group grows as its partitions do, not as their square; a poll that finds nothing costs little."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from benchmarks.scale import GROWTH, STEPS, Polls, Step
from streamgroup.coordinator.planning import document
from streamgroup.coordinator.run import planner
from streamgroup.group import ledger

FEW = 200
MOST = 2 * GROWTH
"""Between the growth of what is linear or sorts, at most 11, and of what is quadratic, 64."""


def lines_of(step: Step) -> int:
    """Run `step`; return how many lines of Python it has executed, calls and returns counted too."""
    count = 0

    def trace(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_eight_times_the_partitions_do_not_take_a_multiple_of_eight_times_the_lines(name: str) -> None:
    """The count is the same on a busy machine; `tests/timing/test_scale.py` takes the time."""
    small, large = lines_of(STEPS[name](FEW)), lines_of(STEPS[name](FEW * GROWTH))
    assert large < MOST * small


@pytest.mark.slow
def test_a_quadratic_step_would_be_noticed() -> None:
    def quadratic(n: int) -> Step:
        return lambda: [other for one in range(n) for other in range(n) if one == other]

    assert lines_of(quadratic(FEW * GROWTH)) > MOST * lines_of(quadratic(FEW))


@pytest.fixture
def polls() -> Iterator[Polls]:
    made = Polls(50)
    yield made
    made.stop()


@pytest.mark.slow
def test_a_poll_that_finds_nothing_new_walks_over_no_partitions(polls: Polls, monkeypatch: pytest.MonkeyPatch) -> None:
    polls.poll()
    walks: list[str] = []

    def counted(module: Any, name: str) -> None:
        made = getattr(module, name)

        def count(*given: Any, **named: Any) -> Any:
            walks.append(name)
            return made(*given, **named)

        monkeypatch.setattr(module, name, count)

    counted(document, "from_value")
    counted(ledger, "summary_of")
    counted(planner.loss, "judge")
    counted(planner, "backlog_of")
    counted(planner, "next_document")
    for _ in range(20):
        polls.poll()
    assert walks == []
