"""One seed: its world, what befalls it, what came of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamgroup.advice import StoredIn
from tests.sim import faults as drawn_faults
from tests.sim import modes, scenarios
from tests.sim import settings as drawn_settings
from tests.sim.checker import Violation
from tests.sim.faults import Fault
from tests.sim.lineages import with_lineages
from tests.sim.registryscenarios import REGISTRY_SCENARIOS
from tests.sim.runscenarios import RUN_SCENARIOS
from tests.sim.settings import Kind, Settings
from tests.sim.silence import with_silence
from tests.sim.world import Director, World

SCENARIOS = scenarios.SCENARIOS | RUN_SCENARIOS | REGISTRY_SCENARIOS


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
    """The result of a plan."""

    plan: Plan
    violation: Violation | None
    events: int
    seconds: float
    duplicates: int
    trace: Sequence[str]


def kind_of(seed: int) -> Kind:
    """Of a seed among many: every eighth has ZooKeeper in it, and takes four times as long; every eighth an offset
    table, every eighth transactions, every fourth the consumer protocol, every sixteenth a query that is not a member.
    """
    if seed % 16 == 3:
        return Kind.ALONE
    if seed % 4 == 2:
        return Kind.CONSUMERS
    if seed % 8 == 5:
        return Kind.TABLE
    if seed % 8 == 1:
        return Kind.TRANSACTIONS
    return Kind.ZOOKEEPER if seed % 8 == 7 else Kind.KAFKA


def plan_of(seed: int, kind: Kind = Kind.KAFKA) -> Plan:
    """The plan of this seed, in a world of this kind."""
    if kind is Kind.KAFKA:
        chance = random.Random(f"plan {seed}")
        settings, kinds = drawn_settings.draw(chance), drawn_faults.FAULTS
    elif kind is Kind.CONSUMERS:
        chance = random.Random(f"plan {seed} consumers")
        settings, kinds = drawn_settings.draw_of_consumers(chance), drawn_faults.FAULTS
    elif kind is Kind.TABLE:
        chance = random.Random(f"plan {seed} table")
        settings, kinds = drawn_settings.draw_of_table(chance), drawn_faults.TABLE_FAULTS
    elif kind is Kind.TRANSACTIONS:
        chance = random.Random(f"plan {seed} transactions")
        settings, kinds = drawn_settings.draw_of_transactions(chance), drawn_faults.TRANSACTION_FAULTS
    elif kind is Kind.ALONE:
        chance = random.Random(f"plan {seed} alone")
        settings, kinds = modes.draw(chance), drawn_faults.LONE_FAULTS
    else:
        chance = random.Random(f"plan {seed} zookeeper")
        settings, kinds = drawn_settings.draw_of_registry(chance), drawn_faults.REGISTRY_FAULTS
    settings = drawn_settings.with_triggers(settings, random.Random(f"triggers {seed} {kind.value}"))
    if kind is not Kind.ALONE:
        if settings.is_member:
            settings = with_silence(settings, random.Random(f"silence {seed} {kind.value}"))
        settings = with_lineages(settings, random.Random(f"lineages {seed} {kind.value}"))
        settings = replace(settings, describes_groups=settings.describes_groups or settings.in_transaction)
        settings = drawn_settings.with_offsets(settings, random.Random(f"offsets {seed}"))
    seconds = chance.choice((20.0, 40.0, 60.0))
    queries = len(settings.queries)
    faults = drawn_faults.draw(chance, seconds, queries, kinds)
    if settings.is_member:
        faults = drawn_faults.with_silences(faults, random.Random(f"silences {seed} {kind.value}"), seconds, queries)
    if settings.registry is not None and settings.registry.stored_in is not StoredIn.ZOOKEEPER:
        faults = drawn_faults.with_offsets(faults, random.Random(f"offset faults {seed}"), seconds, queries)
    return Plan(str(seed), settings, seconds, faults)


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
        world.clock.note("checker", str(error))
    clock = world.clock
    return Result(plan, violation, clock.events, clock.now, world.checker.duplicates, clock.trace or ())
