"""kill -9 at the named points of a batch: driver, JVM and coordinator at once, and each of the two alone."""

from __future__ import annotations

import itertools

import pytest

from tests.fault.applications import Application, Job
from tests.fault.jobs_arena import LEAVING_S, TAKEOVER_S, Arena
from tests.fault.jobs_checker import InFlight, in_flight
from tests.fault.pool import Pool
from tests.hooks.named_points import COMMITTED, COMMITTING, COORDINATOR, JVM, PLANNED, POINTS, READ, SUNK, TOGETHER

pytestmark = [pytest.mark.spark, pytest.mark.live]

STROKES = (TOGETHER, COORDINATOR, JVM, COORDINATOR, COORDINATOR, JVM, TOGETHER, TOGETHER, JVM, TOGETHER)
"""As the kills follow one another at each point. All kinds are among the first three."""
COOPERATIVE = {SUNK, COMMITTING}
"""Where the members offer `cooperative-sticky` alone (R25)."""


LONG = {PLANNED, READ, COMMITTING, COMMITTED}
"""Not in the test command. The point that it keeps has the most to lose: the batch has sunk, nothing is committed."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", [pytest.param(p, marks=[pytest.mark.long] if p in LONG else []) for p in POINTS])
def test_killed_at(point: str, arena: Arena, repeats: int) -> None:
    strokes = list(itertools.islice(itertools.cycle(STROKES), repeats))
    strategy = {"kafka__partition__assignment__strategy": "cooperative-sticky"} if point in COOPERATIVE else {}
    steady, victim = arena.job("steady", **strategy), arena.job("victim", **strategy)
    beside, struck_one = arena.take(), arena.take()
    struck: list[InFlight] = []
    takeovers: list[str] = []
    with arena.under_load():
        beside.start(steady)
        struck_one.start(victim)
        for number, stroke in enumerate(strokes):
            if set(strokes[number:]) - {COORDINATOR}:
                arena.pool.prepare()  # gets warm meanwhile
            arena.group.await_shared_by("steady", "victim")
            struck_one.await_batches(victim, 1)
            struck_one.arm(point, stroke)
            blow = struck_one.await_struck()
            struck_one = after(struck_one, victim, stroke, arena.pool)
            struck.append(in_flight(victim, blow))
            if number % 2 == 0:  # the other takes over first; else the restart comes before the session's end
                within = LEAVING_S if stroke == JVM else TAKEOVER_S
                took = arena.group.await_shared_by("steady", since=blow.at, within=within)
                takeovers.append(f"{stroke} {took:.1f} s")
            arena.use(struck_one.await_ready())
            struck_one.start(victim)
        arena.group.await_shared_by("steady", "victim")
        struck_one.await_batches(victim, 1)
    outcome = arena.outcome(struck)
    arena.report(f"in flight {[len(s) for s in struck]}, takeovers {takeovers}, {outcome}")


def after(application: Application, job: Job, stroke: str, pool: Pool) -> Application:
    """Where the job is started again: where its coordinator alone has died, in the same application."""
    if stroke == COORDINATOR:
        application.await_failure(job)
        return application
    application.await_jvm_gone()
    return pool.next()
