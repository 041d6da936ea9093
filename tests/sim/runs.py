"""One seed: its world, what befalls it, what came of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.sim import faults as drawn_faults
from tests.sim import settings as drawn_settings
from tests.sim.checker import Violation
from tests.sim.faults import Fault
from tests.sim.scenarios import SCENARIOS
from tests.sim.settings import Settings
from tests.sim.world import Director, World


@dataclass(frozen=True)
class Plan:
    """All that a seed decides beforehand; the rest (latencies, how long tasks take) is drawn on the way."""

    seed: str
    settings: Settings
    seconds: float
    faults: tuple[Fault, ...] = ()
    director: Director | None = None


@dataclass(frozen=True)
class Result:
    """What came of a plan."""

    plan: Plan
    violation: Violation | None
    events: int
    seconds: float
    duplicates: int
    trace: Sequence[str]


def plan_of(seed: int) -> Plan:
    """What this seed means."""
    chance = random.Random(f"plan {seed}")
    settings = drawn_settings.draw(chance)
    seconds = chance.choice((20.0, 40.0, 60.0))
    return Plan(str(seed), settings, seconds, drawn_faults.draw(chance, seconds, len(settings.queries)))


def plan_of_scenario(name: str) -> Plan:
    """A directed scenario as a plan."""
    scenario = SCENARIOS[name]
    return Plan(name, scenario.settings, scenario.seconds, director=scenario.script)


def run(plan: Plan, *, tracing: bool = False) -> Result:
    """Run a plan to its end, or to the first violation."""
    world = World(plan.seed, plan.settings, tracing=tracing)
    violation = None
    try:
        world.run(plan.seconds, plan.faults, plan.director)
    except Violation as error:
        violation = error
        world.kernel.note("checker", str(error))
    kernel = world.kernel
    return Result(plan, violation, kernel.events, kernel.now, world.checker.duplicates, kernel.trace or ())
