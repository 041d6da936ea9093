"""`python -m tests.sim`: many seeds, one seed with its trace, a scenario, each with a planted bug or without."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.sim.many import Failed, run_seeds
from tests.sim.registrybugs import ALL_BUGS
from tests.sim.runs import SCENARIOS, Plan, Result, plan_of, plan_of_scenario, run
from tests.sim.settings import Kind
from tests.sim.shrink import shrunk

MOST_SHOWN = 5


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=2_000, show_default=True, help="How many seeds.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="One seed alone.")
@click.option("--scenario", type=click.Choice(sorted(SCENARIOS)), help="A directed scenario instead.")
@click.option(
    "--world", type=click.Choice([kind.value for kind in Kind]), help="Who keeps the groups; of many seeds: both."
)
@click.option("--bug", type=click.Choice(sorted(ALL_BUGS)), help="Plant this bug.")
@click.option("--trace", is_flag=True, help="Print what happens in the one seed or scenario.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Make failing seeds small.")
@click.option("--workers", type=int, help="Processes; as many as there are cores.")
def main(
    *,
    seeds: int,
    first: int,
    seed: int | None,
    scenario: str | None,
    world: str | None,
    bug: str | None,
    trace: bool,
    shrink: bool,
    workers: int | None,
) -> None:
    """The deterministic simulation of groups of queries. Exits with 1 where the checker finds a violation."""
    console = Console(highlight=False, soft_wrap=True)
    kind = Kind(world) if world is not None else ALL_BUGS[bug].kind if bug is not None else None
    if seed is not None or scenario is not None:
        plan = plan_of_scenario(scenario) if scenario is not None else plan_of(seed or 0, kind or Kind.KAFKA)
        sys.exit(not _one(console, plan, bug, trace=trace, shrink=shrink))
    sys.exit(not _many(console, first, seeds, bug, kind, shrink=shrink, workers=workers))


def _one(console: Console, plan: Plan, bug: str | None, *, trace: bool, shrink: bool) -> bool:
    with ALL_BUGS[bug].planted() if bug else nullcontext():
        result = run(plan, tracing=trace)
        _show(console, result)
        if result.violation is not None and shrink and plan.director is None:
            _show(console, _smaller(console, result))
    return result.violation is None


def _smaller(console: Console, result: Result) -> Result:
    assert result.violation is not None
    with console.status("making it small"):
        small = shrunk(result.plan, result.violation.word)
    plan = small.plan
    console.print(f"small: {len(plan.settings.queries)} queries, {len(plan.faults)} faults, {plan.seconds:g} s")
    return small


def _show(console: Console, result: Result) -> None:
    if result.trace:
        console.print(str(result.plan.settings))
    for line in result.trace:
        console.print(line, markup=False)
    what = str(result.violation or "nothing found")
    size = f"{result.events} events in {result.seconds:.0f} simulated seconds"
    console.print(f"seed {result.plan.seed}: {what} ({size})", markup=False)


def _many(
    console: Console,
    first: int,
    seeds: int,
    bug: str | None,
    kind: Kind | None,
    *,
    shrink: bool,
    workers: int | None,
) -> bool:
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    failed: list[Failed] = []
    events = duplicates = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=seeds)
        for chunk in run_seeds(first, seeds, bug, workers, kind):
            events += chunk.events
            duplicates += chunk.duplicates
            failed += chunk.failed
            progress.advance(task, chunk.seeds)
            for number, of, _, text in chunk.failed:
                console.print(f"seed {number} ({of.value}): {text}", markup=False)
    sums = f"{events} events, {duplicates} records repeated, {len(failed)} failed"
    console.print(f"{seeds} seeds from {first} on: {sums}")
    if failed and shrink:
        _one(console, plan_of(*failed[0][:2]), bug, trace=False, shrink=True)
    if len(failed) > MOST_SHOWN:
        console.print(f"the first failing seeds: {', '.join(str(f[0]) for f in failed[:MOST_SHOWN])}, ...")
    return not failed


if __name__ == "__main__":
    main()
