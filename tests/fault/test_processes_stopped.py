"""Ways to stop that are not a crash: SIGTERM, a static member's restart, drains, a rolling restart."""

from __future__ import annotations

import signal
import time

import pytest

from tests.fault.applications import Application, Job, Struck
from tests.fault.jobs_arena import LEAVING_S, Arena
from tests.fault.jobs_checker import in_flight
from tests.hooks.named_points import READ

pytestmark = [pytest.mark.spark, pytest.mark.live]


@pytest.mark.timeout(300)
def test_after_sigterm_the_other_has_the_partitions_within_3_seconds(arena: Arena) -> None:
    steady, leaver = arena.job("steady"), arena.job("leaver")
    beside, leaving = arena.take(), arena.take()
    with arena.under_load():
        beside.start(steady)
        leaving.start(leaver)
        arena.group.await_shared_by("steady", "leaver")
        leaving.await_batches(leaver, 2)
        at = time.monotonic()
        leaving.signal(signal.SIGTERM)
        took = arena.group.await_shared_by("steady", since=at, within=LEAVING_S)
        leaving.await_jvm_gone()
    outcome = arena.outcome([in_flight(leaver, Struck(READ, "SIGTERM", at))])
    arena.report(f"SIGTERM to the whole application: taken over in {took:.1f} s, {outcome}")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_static_members_restart_moves_nothing(arena: Arena) -> None:
    """It is killed, and its successor with the same group.instance.id comes within the session."""
    options = {"kafka__session__timeout__ms": "30000"}
    steady = arena.job("steady", **options)
    static = arena.job("static", kafka__group__instance__id="static", **options)
    beside, first = arena.take(), arena.take()
    second = arena.take()
    with arena.under_load():
        beside.start(steady)
        first.start(static)
        arena.group.await_shared_by("steady", "static")
        first.await_batches(static, 2)
        before, generation = arena.group.holders(), last_generation(beside)
        at = time.monotonic()
        first.kill()
        flight = in_flight(static, Struck(READ, "kill -9", at))
        second.start(static)
        second.await_batches(static, 1)
        took = time.monotonic() - at
        second.await_batches(static, 3)
        beside.await_batches(steady, beside.batches(steady) + 2)
        assert arena.group.holders() == before
        assert last_generation(beside) == generation, "the group has rebalanced"
        assert last_generation(second) == generation
    outcome = arena.outcome([flight])
    arena.report(f"static member: goes on {took:.1f} s after its kill, generation {generation} stays, {outcome}")


@pytest.mark.timeout(900)
def test_a_drained_job_repeats_nothing(arena: Arena, repeats: int) -> None:
    steady, drained = arena.job("steady"), arena.job("drained")
    beside, again = arena.take(), arena.take()
    with arena.under_load():
        beside.start(steady)
        for number in range(repeats):
            # Longer batches, so that most drains come in the middle of one.
            again.start(drained, pause_s=0.2 * (number % 3))
            again.await_records(drained)
            assert again.drain(drained), f"drain {number}"
        arena.group.await_shared_by("steady", within=LEAVING_S)
    outcome = arena.outcome()
    assert outcome.repeats == 0
    arena.report(f"{repeats} drains, {outcome}")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_rolling_restart_of_three_drained_jobs_repeats_nothing(arena: Arena) -> None:
    """Each job goes on in another application, with its checkpoint, as after a deployment."""
    names = ("a", "b", "c")
    jobs = [arena.job(name) for name in names]
    arena.pool.prepare(2)
    runs: list[Application] = [arena.take() for _ in names]
    with arena.under_load():
        for job, application in zip(jobs, runs, strict=True):
            application.start(job)
        arena.group.await_shared_by(*names)
        spare = arena.take()
        began = time.monotonic()
        for number, job in enumerate(jobs):
            await_another_batch(runs[number], job)
            assert runs[number].drain(job)
            spare.start(job)
            spare, runs[number] = runs[number], spare
            arena.group.await_shared_by(*names)
            await_another_batch(runs[number], job)
        took = time.monotonic() - began
    outcome = arena.outcome()
    assert outcome.repeats == 0
    arena.report(f"a rolling restart of three: {took:.0f} s, {outcome}")


def await_another_batch(application: Application, job: Job) -> None:
    application.await_batches(job, application.batches(job) + 1)


def last_generation(application: Application) -> int:
    return int(application.commits()[-1]["generation"])
