"""The mirror job: it copies topics from one Kafka cluster to another, as one TOML file configures.

    spark-submit jobs/mirror.py --config conf/mirror.toml
    spark-submit jobs/mirror.py --config conf/mirror.toml --verify

Exit codes: 0 after a requested stop, the end of the backlog or an equal copy, 1 after a failure or for a copy that
differs, 2 for an invalid configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError
from streamgroup.jobs.job_run import FAILED, file_options, job_session, run_command
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.config import MirrorConfig, effective, load
from streamgroup.jobs.mirror.plan import latest
from streamgroup.jobs.mirror.query import mirror
from streamgroup.jobs.mirror.report import compare, described_isolation, differences, table
from streamgroup.jobs.session import build_session, check_executors
from streamgroup.jobs.sinkguard import HadoopFiles


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@file_options
@click.option("--verify", is_flag=True, help="Compare both clusters instead of copying. Exit code 1 if they differ.")
def command(file: Path, member: str | None, check: bool, print_config: bool, verify: bool) -> None:
    """Copy topics from one Kafka cluster to another, and go on with what is written to them.

    SIGTERM and Ctrl-C drain the job.
    """
    if print_config:
        click.echo("\n".join(effective(file, member)))
        return
    config = load(file, member)
    if check:
        say(f"{file} is a valid mirror")
    elif verify:
        if run_verify(config):
            sys.exit(FAILED)
    else:
        run(config)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that the command line names, and end the process on failure."""
    run_command(command, arguments, "mirror.py", (PySparkException,), say)


def run(config: MirrorConfig) -> None:
    """Build the session, and copy until the backlog ends or a signal arrives."""
    with job_session(config.spark, say, config.metrics) as (spark, stop), closing(Clusters(config, say)) as clusters:
        mirror(spark, config, clusters, HadoopFiles(spark), stop=stop, say=say)


def run_verify(config: MirrorConfig) -> list[str]:
    """Compare both clusters, print a table, and return the differences, which are printed too."""
    spark = build_session(config.spark)
    try:
        check_executors(spark)
        found = _differences(spark, config)
    finally:
        spark.stop()
    for line in found:
        say(f"difference: {line}")
    if not found:
        say("verified: the destination has all records of the source")
    return found


def _differences(spark: SparkSession, config: MirrorConfig) -> list[str]:
    number, plan = latest(HadoopFiles(spark), config.plan)
    if number < 0:
        raise ConfigError(
            f"cannot verify the mirror: {config.plan} holds no plan, because the mirror has never run. Correct "
            "[mirror] plan, or run the mirror first"
        )
    with closing(Clusters(config)) as clusters:
        topics = clusters.topics(clusters.source())
        planned = [topic for topic in topics if topic in plan.topics]
        rows = compare(spark, config, clusters, plan.of(planned))
    say(described_isolation(config))
    for line in table(rows):
        say(line)
    new = [f"topic {topic} has never been mirrored" for topic in topics if topic not in plan.topics]
    return [*differences(rows), *new]


def say(line: str, *, error: bool = False) -> None:
    """Print a line for the user. Spark logs to standard error, so the job writes to standard output."""
    print(f"mirror: {line}", file=sys.stderr if error else sys.stdout, flush=True)
