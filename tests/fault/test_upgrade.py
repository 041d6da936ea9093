"""Two releases in one group: the members of the old one are replaced one by one by this one's, and then back.

Each member is drained, and goes on with its checkpoint in an application of the other release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.applications import Application, Job
from tests.fault.jobs_arena import TAKEOVER_S, Arena
from tests.fault.jobs_checker import in_flight
from tests.hooks.named_points import SUNK, TOGETHER
from tests.releases import ROOT, Release, package_of, read_releases

pytestmark = [pytest.mark.spark, pytest.mark.live]

RELEASES = read_releases()
LAST = RELEASES[-1]
COOPERATIVE = {"kafka__partition__assignment__strategy": "cooperative-sticky"}
Begin = Callable[[Release], Application]


@pytest.fixture
def begin(arena: Arena, tmp_path: Path) -> Iterator[Begin]:
    """Start an application of a release, which is warm when a command waits for it."""
    begun: list[Application] = []

    def start(release: Release) -> Application:
        home = tmp_path / f"release-{release.version}-{len(begun)}"
        begun.append(Application(home, arena.pool.jvm_flags, package_of(release)))
        return arena.use(begun[-1])

    yield start
    for application in begun:
        application.kill()


def move(job: Job, source: Application, target: Application) -> None:
    """Drain a job in one application and go on in the other."""
    source.await_batches(job, source.batches(job) + 1)
    assert source.drain(job), f"{job.name} was not drained"
    target.start(job)
    target.await_batches(job, 1)


def check_packages(application: Application, package: Path) -> None:
    """The coordinator processes and tasks of `application` were of the release in `package`."""
    assert application.packages() == {"coordinator": package, "task": package}


@pytest.mark.timeout(240)
@pytest.mark.long
def test_two_members_are_upgraded_one_by_one_and_one_goes_back(arena: Arena, begin: Begin) -> None:
    old = begin(LAST)
    new = arena.pool.next()
    jobs = [arena.job(name, group__member=name) for name in ("a", "b")]
    names = [job.name for job in jobs]
    old.await_ready()
    arena.use(new.await_ready())
    with arena.under_load():
        for job in jobs:
            old.start(job)
        arena.group.await_shared_by(*names)
        first, second = jobs
        for job, source, target in ((first, old, new), (second, old, new), (first, new, old)):
            move(job, source, target)
            arena.group.await_shared_by(*names)
    check_packages(old, package_of(LAST))
    check_packages(new, ROOT)
    outcome = arena.outcome()
    assert outcome.repeats == 0
    arena.report(f"upgraded from {LAST.version} one by one, and one back: {outcome}")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", [{}, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_three_members_are_upgraded_one_by_one_and_go_back(
    release: Release, options: dict[str, Any], arena: Arena, begin: Begin
) -> None:
    """Each in an application of its own. One of the old release and one of this one are killed while both are there."""
    jobs = [arena.job(name, **options) for name in ("a", "b", "c")]
    names = [job.name for job in jobs]
    runs = [begin(release) for _ in jobs]
    struck = []
    with arena.under_load():
        for job, application in zip(jobs, runs, strict=True):
            application.await_ready().start(job)
        arena.group.await_shared_by(*names)
        for goes_back in (False, True):
            for number, job in enumerate(jobs):
                target = begin(release) if goes_back else arena.pool.next()
                arena.use(target.await_ready())
                move(job, runs[number], target)
                if goes_back:
                    check_packages(runs[number], ROOT)
                else:
                    check_packages(runs[number], package_of(release))
                runs[number].kill()
                runs[number] = target
                arena.group.await_shared_by(*names)
                if number == 1:  # the killed one is of the release that the group has just begun to change to
                    target.arm(SUNK, TOGETHER)
                    blow = target.await_struck()
                    target.await_jvm_gone()
                    struck.append(in_flight(job, blow))
                    arena.group.await_shared_by("a", "c", since=blow.at, within=TAKEOVER_S)
                    runs[number] = begin(release) if goes_back else arena.pool.next()
                    arena.use(runs[number].await_ready()).start(job)
                    arena.group.await_shared_by(*names)
                    runs[number].await_batches(job, 1)
    outcome = arena.outcome(struck)
    arena.report(f"upgraded three from {release.version}, and back: in flight {[len(s) for s in struck]}, {outcome}")
