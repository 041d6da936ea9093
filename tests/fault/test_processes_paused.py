"""Zombies: driver, JVM and coordinator stopped for longer than their session, then continued."""

from __future__ import annotations

import signal

import pytest

from tests.fault.applications import SESSION_S
from tests.fault.hooks.named_points import COMMITTING, PAUSE, READ, SUNK
from tests.fault.jobs_arena import TAKEOVER_S, Arena
from tests.fault.jobs_checker import InFlight, in_flight
from tests.spark.support import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

POINTS = (COMMITTING, READ, SUNK)
"""As the pauses follow one another. In the first the commit is on its way when the world stops."""


@pytest.mark.timeout(900)
def test_a_zombies_commit_is_refused_and_nothing_is_lost(arena: Arena, repeats: int) -> None:
    steady, zombie = arena.job("steady"), arena.job("zombie")
    beside, paused = arena.take(), arena.take()
    struck: list[InFlight] = []
    told: list[str] = []
    with arena.under_load():
        beside.start(steady)
        paused.start(zombie)
        for number in range(max(1, repeats // 2)):
            arena.group.await_shared_by("steady", "zombie")
            paused.await_batches(zombie, paused.batches(zombie) + 1)
            paused.arm(POINTS[number % len(POINTS)], PAUSE)
            blow = paused.await_struck()
            struck.append(in_flight(zombie, blow))
            answered = len(paused.commits())
            took = arena.group.await_shared_by("steady", since=blow.at, within=TAKEOVER_S)
            # What it has in flight is read by the other, which also commits it.
            beside.await_batches(steady, beside.batches(steady) + 2)
            arena.pause_until(blow.at + 2 * SESSION_S)
            paused.signal(signal.SIGCONT)
            arena.group.await_shared_by("steady", "zombie")
            accepted = [line for line in paused.commits()[answered:] if not any(line["codes"].values())]
            dead = paused.commits()[answered - 1]
            same = [c for c in accepted if (c["member"], c["generation"]) == (dead["member"], dead["generation"])]
            assert not same, f"a commit of the generation that had gone on without it was accepted: {same}"
            told.append(f"{blow.point}: taken over in {took:.1f} s")
        wait_until(lambda: "session" in paused.log.read_text(), "the log tells of the lost session", 1)
    outcome = arena.outcome(struck)
    arena.report(f"in flight {[len(s) for s in struck]}, {told}, {outcome}")
