"""Members come and go in the middle of batches: five queries in two applications, each a member by its own name."""

from __future__ import annotations

import random

import pytest

from tests.fault.applications import Application, Job, Struck
from tests.fault.hooks.named_points import READ
from tests.fault.jobs_arena import Arena
from tests.fault.jobs_checker import InFlight, in_flight
from tests.spark.support import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

MEMBERS = 5
BATCH_S = 0.7
"""How long each batch takes at least, so that what happens falls into batches of all members."""


@pytest.mark.timeout(1800)
def test_members_come_and_go_in_the_middle_of_batches(arena: Arena, repeats: int) -> None:
    """As many rounds as repeats: while a batch of the first is in flight, others are drained or stopped, and start."""
    chance = random.Random(20)
    jobs = [arena.job(f"m{n}", group__member=f"m{n}", batch=30) for n in range(MEMBERS)]
    homes = [arena.take(), arena.take()]
    where = {job.name: homes[n % 2] for n, job in enumerate(jobs)}
    stopped: list[InFlight] = []
    with arena.under_load(30):
        for job in jobs:
            where[job.name].start(job, BATCH_S)
        arena.group.await_shared_by(*where, within=60)
        for number in range(repeats):
            first, *others = jobs
            await_in_batch(where[first.name], first)
            for job in chance.sample(others, 1 + number % 2):
                application = where[job.name]
                if chance.random() < 0.5:
                    assert application.drain(job)
                else:
                    application.stop(job)
                    stopped.append(in_flight(job, Struck(READ, "stop", 0)))
                application.start(job, BATCH_S)
            arena.group.await_shared_by(*where, within=60)
    outcome = arena.outcome(stopped)
    arena.report(f"{repeats} rounds, {len(stopped)} undrained stops, {outcome}")


def await_in_batch(application: Application, job: Job) -> None:
    """Wait until a batch of `job` has begun and is not over."""

    def in_batch() -> bool:
        lines = application.lines(job)
        return bool(lines) and "begun" in lines[-1]

    wait_until(in_batch, f"a batch of {job.name} has begun", 30)
