"""The backfill job: it copies what topics hold now, or held in a range of time, into a sink of Spark.

    spark-submit jobs/backfill.py --config conf/backfill.toml

Exit codes: 0 when the backfill is complete or after a requested stop, 1 after a failure, 2 for an invalid
configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from pyspark.errors import PySparkException

from streamgroup.jobs.backfill.config import BackfillConfig, effective, load
from streamgroup.jobs.backfill.steps import run_steps
from streamgroup.jobs.backfill.terminal_bar import terminal_bar
from streamgroup.jobs.job_run import file_options, job_session, run_command
from streamgroup.jobs.sinkguard import HadoopFiles


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@file_options
def command(file: Path, member: str | None, check: bool, print_config: bool) -> None:
    """Copy what topics hold, or held in a range of time, into files or a table, once.

    The job works in steps, and notes each that is done. Run it again after a stop or a failure: it goes on with the
    next step.
    """
    if print_config:
        click.echo("\n".join(effective(file, member)))
        return
    config = load(file, member)
    if check:
        say(f"{file} is a valid backfill into {config.sink.target}")
    else:
        run(config)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that the command line names, and end the process on failure."""
    run_command(command, arguments, "backfill.py", (PySparkException,), say)


def run(config: BackfillConfig) -> None:
    """Build the session, and carry out the steps until the backfill is complete or a signal arrives."""
    with job_session(config.spark, say) as (spark, stop), terminal_bar() as advance:
        if run_steps(spark, config, HadoopFiles(spark), stop=stop, say=say, advance=advance):
            say("the backfill is complete")


def say(line: str, *, error: bool = False) -> None:
    """Print a line for the user. Spark logs to standard error, so the job writes to standard output."""
    print(f"backfill: {line}", file=sys.stderr if error else sys.stdout, flush=True)
