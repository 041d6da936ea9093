"""Zombies: driver, JVM and coordinator stopped for longer than their session, then continued."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterator

import pytest

from streamgroup.errors import ErrorCode
from tests.fault.applications import SESSION_S
from tests.fault.jobs_arena import TAKEOVER_S, Arena
from tests.fault.jobs_checker import InFlight, in_flight
from tests.hooks.named_points import COMMITTING, PAUSE, READ, SUNK

pytestmark = [pytest.mark.spark, pytest.mark.live]

POINTS = (COMMITTING, READ, SUNK)
"""As the pauses follow one another. In the first the commit is on its way when the world stops."""
MORE_PAUSES = 3


def pauses(count: int, refused: Collection[int]) -> Iterator[str]:
    """Yield the points of `count` pauses, and of some more while the broker has refused no commit.

    A member that has lost its session resets the connection. On a busy machine it may do so before it has read that its
    commit was refused.
    """
    yield from (POINTS[number % len(POINTS)] for number in range(count))
    for _ in range(MORE_PAUSES):
        if not refused:
            yield COMMITTING


@pytest.mark.timeout(900)
def test_a_zombies_commit_is_refused_and_nothing_is_lost(arena: Arena, repeats: int) -> None:
    steady, zombie = arena.job("steady"), arena.job("zombie")
    beside, paused = arena.take(), arena.take()
    struck: list[InFlight] = []
    told: list[str] = []
    refused: list[int] = []
    with arena.under_load():
        beside.start(steady)
        paused.start(zombie)
        for point in pauses(max(1, repeats // 2), refused):
            arena.group.await_shared_by("steady", "zombie")
            paused.await_batches(zombie, paused.batches(zombie) + 1)
            paused.arm(point, PAUSE)
            blow = paused.await_struck()
            struck.append(in_flight(zombie, blow))
            answered = len(paused.commits())
            took = arena.group.await_shared_by("steady", since=blow.at, within=TAKEOVER_S)
            # What it has in flight is read by the other, which also commits it.
            beside.await_batches(steady, beside.batches(steady) + 2)
            taken_over, sunk = int(beside.commits()[-1]["generation"]), paused.batches(zombie)
            arena.pause_until(blow.at + 2 * SESSION_S)
            paused.signal(signal.SIGCONT)
            arena.group.await_shared_by("steady", "zombie")
            paused.await_batches(zombie, sunk + 2)
            after = paused.commits()[answered:]
            refused += [code for line in after if (code := max(line["codes"].values()))]
            stale = [c for c in after if c["generation"] <= taken_over and not any(c["codes"].values())]
            assert not stale, f"generation {taken_over} had gone on without it: {stale}"
            told.append(f"{blow.point}: taken over in {took:.1f} s")
    lost = re.findall(r"generation \d+ is lost \(([^)]*)\)", paused.log.read_text())
    assert len(lost) == len(struck), lost
    assert refused, f"{len(struck)} pauses, and no commit was refused"
    assert set(refused) <= {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
    outcome = arena.outcome(struck)
    arena.report(f"in flight {[len(s) for s in struck]}, {told}, refused with {refused}, lost: {lost}, {outcome}")
