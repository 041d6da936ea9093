"""What a large group costs grows as its partitions do, not as their square; a poll that finds nothing costs little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.scale import GROWTH, STEPS, Polls, cpu_seconds
from streamgroup.driver import planner
from streamgroup.group import ledger
from streamgroup.planning import document

FEW = 200
MOST = 4 * GROWTH
"""Between the growth of what is linear, 8 with a busy cache's noise, and of what is quadratic, 64."""
ATTEMPTS = 20


@pytest.mark.parametrize("name", STEPS)
def test_eight_times_the_partitions_do_not_take_a_multiple_of_eight_times_the_time(name: str) -> None:
    small = large = float("inf")
    for _ in range(ATTEMPTS):  # the least of several counts: the others measure the neighbours
        small = min(small, cpu_seconds(STEPS[name], FEW, times=3))
        large = min(large, cpu_seconds(STEPS[name], FEW * GROWTH, times=1))
        if large < MOST * small:
            return
    pytest.fail(f"{name}: {1e3 * small:.2f} ms, and {1e3 * large:.2f} ms for {GROWTH} times the partitions")


@pytest.fixture
def polls() -> Iterator[Polls]:
    made = Polls(50)
    yield made
    made.stop()


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
