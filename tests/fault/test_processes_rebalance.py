"""Members come and go in the middle of batches: five queries in two applications, each a member by its own name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from tests.fault.applications import Application, Job, Struck
from tests.fault.jobs_arena import Arena
from tests.fault.jobs_checker import InFlight, in_flight
from tests.hooks.named_points import READ

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long]

MEMBERS = 5
CHANGES = 6
"""How many times a member leaves or comes while one batch is in flight."""
BATCH_S = 0.3
"""How long each batch takes at least, so that what happens falls into batches of the others too."""


@pytest.mark.timeout(1800)
def test_members_come_and_go_in_the_middle_of_batches(arena: Arena, repeats: int) -> None:
    """In each round a batch of one is held while others are stopped and started; then that one is drained.

    The group can rebalance only when that batch is done, so all that comes and goes meanwhile is one rebalance's.
    """
    jobs = [arena.job(f"m{n}", group__member=f"m{n}", batch=30) for n in range(MEMBERS)]
    homes = [arena.take(), arena.take()]
    where = {job.name: homes[n % 2] for n, job in enumerate(jobs)}
    stopped: list[InFlight] = []
    with arena.under_load(30):
        for count, job in enumerate(jobs, 1):  # one by one: Spark gives a query's process 10 s to start
            where[job.name].start(job, BATCH_S)
            arena.group.await_shared_by(*(job.name for job in jobs[:count]), within=120)
        for number in range(repeats):
            first, *others = jobs[number % MEMBERS :] + jobs[: number % MEMBERS]
            application = where[first.name]
            application.await_batches(first, 1)
            with application.held_in_batch(first):
                stopped += come_and_go(others, where)
            arena.group.await_shared_by(*where, within=120)
            application.await_batches(first, application.batches(first) + 1)
            assert application.drain(first)
            application.start(first, BATCH_S)
            arena.group.await_shared_by(*where, within=120)
    outcome = arena.outcome(stopped)
    arena.report(f"{repeats} batches with {CHANGES} changes and a drain each, {outcome}")


def come_and_go(jobs: Sequence[Job], where: Mapping[str, Application]) -> list[InFlight]:
    """Stop jobs, undrained, and start them again, CHANGES times in all; what was in flight."""
    stopped = []
    for number in range(CHANGES):
        job = jobs[number // 2 % len(jobs)]
        if number % 2 == 0:
            where[job.name].stop(job)
            stopped.append(in_flight(job, Struck(READ, "stop", time.monotonic())))
        else:
            where[job.name].start(job, BATCH_S)
    return stopped
