"""`python -m tests.mutants`: plant each mutant of the table in a copy of the code; its suites must fail.

Before any mutant, the suites must pass in a copy without one: else their failures would prove nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from rich.console import Console

from tests.mutants.copies import Copies, Outcome, Verdict, judge, judge_unmutated
from tests.mutants.table import Mutant, problem_of, read_table


def chosen(mutants: Collection[Mutant], only: tuple[str, ...]) -> list[Mutant]:
    """Return the mutants to plant: all, or those of these rules and ids. Raises UsageError where one names nothing."""
    unknown = set(only).difference(*({mutant.rule, mutant.id} for mutant in mutants))
    if unknown:
        raise click.UsageError(
            f"no mutant for --only {', '.join(sorted(unknown))}: give a rule or an id of tests/mutants/table.toml"
        )
    return [mutant for mutant in mutants if not only or mutant.rule in only or mutant.id in only]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, help="A rule (R14), or the id of a mutant; may be given several times.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Runs at a time.")
@click.option("--timeout", default=240.0, show_default=True, help="Seconds that the suites of one mutant may take.")
def main(*, only: tuple[str, ...], jobs: int, timeout: float) -> None:
    """Plant each mutant of the rules in a copy of the code and run its suites, which must fail.

    Exits with 1 where a mutant survives, where a row does not fit the code, or where suites fail without a mutant.
    """
    console = Console(highlight=False, soft_wrap=True)
    mutants = chosen(read_table().mutants, only)
    misfits = [problem for mutant in mutants if (problem := problem_of(mutant)) is not None]
    if misfits:
        console.print("\n".join(misfits), markup=False)
        sys.exit(1)
    with tempfile.TemporaryDirectory(prefix="mutants-") as where:
        copies = Copies(Path(where).resolve(), jobs)
        sys.exit(not _run(console, copies, mutants, jobs, timeout))


def _run(console: Console, copies: Copies, mutants: list[Mutant], jobs: int, timeout_s: float) -> bool:
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        suites = list(dict.fromkeys(suite for mutant in mutants for suite in mutant.suites))
        plain = dict(
            zip(suites, pool.map(lambda suite: judge_unmutated(copies, suite, timeout_s), suites), strict=True)
        )
        passed = sum(outcome.verdict is Verdict.PASSED for outcome in plain.values())
        console.print(f"without a mutant: {passed} of {len(suites)} suites pass ({time.monotonic() - began:.0f} s)")
        for suite, outcome in plain.items():
            if outcome.verdict is not Verdict.PASSED:
                console.print(f"{suite}: {outcome.verdict.value}\n{outcome.output}", markup=False)
        if passed < len(suites):
            return False
        width = max(len(mutant.id) for mutant in mutants)
        killed = 0
        for mutant, outcome in zip(mutants, pool.map(lambda m: judge(copies, m, timeout_s), mutants), strict=True):
            console.print(_row(mutant, outcome, width), markup=False)
            killed += outcome.verdict is Verdict.KILLED
    console.print(f"{killed} of {len(mutants)} mutants killed in {time.monotonic() - began:.0f} s")
    return killed == len(mutants)


def _row(mutant: Mutant, outcome: Outcome, width: int) -> str:
    what = f"{outcome.verdict.value:9}{outcome.seconds:6.1f} s"
    row = f"{mutant.rule:4} {mutant.id:{width}}  {what}  {outcome.noticed_by}"
    return f"{row}\n{outcome.output}".rstrip()


if __name__ == "__main__":
    main()
