"""Every planted bug is caught, under the word that it deserves; without it the same seeds and scenarios are clean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.sim.bugs import Bug
from tests.sim.many import uncollected
from tests.sim.registrybugs import ALL_BUGS, go_on_in_a_new_session
from tests.sim.runs import SCENARIOS, Plan, Result, plan_of, plan_of_scenario
from tests.sim.runs import run as run_plan
from tests.sim.settings import Kind
from tests.sim.shrink import shrunk


def run(plan: Plan) -> Result:
    with uncollected():
        return run_plan(plan)


def plans(bug: Bug) -> Iterator[Plan]:
    """The plans of which one catches it."""
    if bug.scenario is not None:
        yield plan_of_scenario(bug.scenario)
    yield from (plan_of(seed, bug.kind) for seed in bug.seeds)


@pytest.mark.timeout(300)  # where a change has moved the known seeds, others are tried
@pytest.mark.parametrize("name", sorted(ALL_BUGS))
def test_a_planted_bug_is_caught(name: str) -> None:
    bug = ALL_BUGS[name]
    with bug.planted():
        caught = next((result for plan in plans(bug) if (result := run(plan)).violation is not None), None)
    assert caught is not None, f"{bug.what} went unnoticed"
    assert caught.violation is not None
    assert caught.violation.word in bug.words
    assert "Error(" not in str(caught.violation), "the bug itself is broken"
    assert run(caught.plan).violation is None, "it is there without the bug, too"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_directed_scenario_is_clean_without_a_bug(name: str) -> None:
    assert run(plan_of_scenario(name)).violation is None


def test_a_failing_seed_is_made_small() -> None:
    bug = ALL_BUGS["r5a-logged-end"]
    with bug.planted():
        failing = next(r for seed in bug.seeds if (r := run(plan_of(seed))).violation is not None and r.plan.faults)
        assert failing.violation is not None
        small = shrunk(failing.plan, failing.violation.word, most=60)
    assert small.violation is not None
    assert small.violation.word == failing.violation.word
    assert len(small.plan.faults) < len(failing.plan.faults)
    assert small.trace[-1].endswith(str(small.violation))


def test_the_page_of_planted_bugs_tells_what_catches_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "planted-bugs.md").read_text()
    for name, bug in ALL_BUGS.items():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` | {bug.rule} |")), "")
        assert (f"scenario `{bug.scenario}`" if bug.scenario else " seeds |") in row, name


def test_the_fence_holds_in_whatever_session_a_commit_is_carried_out() -> None:
    with ExitStack() as stack:
        go_on_in_a_new_session(stack)
        for plan in (plan_of_scenario("commit-waits"), *(plan_of(seed, Kind.ZOOKEEPER) for seed in range(5))):
            assert run(plan).violation is None
