"""Shared by all jobs: command-line options, the session, and exit codes for errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.jobs.job_file import MEMBER_VARIABLE, Metrics, SparkSettings
from streamgroup.jobs.session import build_session, check_executors
from streamgroup.jobs.signals import StopAtOnce, StopRequest, catch_in_jvm
from streamgroup.spark.listener import listen
from streamgroup.spark.metrics import metrics
from streamgroup.spark.open_telemetry import OpenTelemetryMetrics, open_telemetry
from streamgroup.text import host_port

FAILED, MISCONFIGURED = 1, 2
"""Exit codes."""


Command = TypeVar("Command", bound=Callable[..., Any])
_FILE_OPTIONS = (
    click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FILE",
        help="The job file (TOML); conf/ has one of each job, with a comment for every line.",
    ),
    click.option(
        "--member",
        metavar="NAME",
        help=f"Text that replaces {{member}} in the file.  [default: the environment variable {MEMBER_VARIABLE}]",
    ),
    click.option("--check", is_flag=True, help="Check the file without starting Spark, then exit."),
    click.option(
        "--print-config", is_flag=True, help="Print each value of the configuration with its origin, then exit."
    ),
)


class Say(Protocol):
    """Prints a line for the user."""

    def __call__(self, line: str, *, error: bool = False) -> None: ...


def file_options(command: Command) -> Command:
    """Add the options that every job has to `command`: its file, the member's name, checks of the file."""
    for option in reversed(_FILE_OPTIONS):
        command = option(command)
    return command


def run_command(
    command: click.Command,
    arguments: Sequence[str] | None,
    program: str,
    failures: tuple[type[Exception], ...],
    say: Say,
) -> None:
    """Run a job's command with `arguments` (None: those of the process). End the process on failure.

    A StreamGroupError and the errors of `failures` are failures of the job. Other errors are raised.
    """
    failed: tuple[type[Exception], ...] = (StreamGroupError, *failures)
    try:
        command.main(args=None if arguments is None else list(arguments), prog_name=program, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(MISCONFIGURED)
    except ConfigError as error:
        say(f"error: {error}", error=True)
        sys.exit(MISCONFIGURED)
    except failed as error:
        say(f"error: {error}", error=True)
        sys.exit(FAILED)
    except click.Abort as error:  # click raises it for KeyboardInterrupt and EOFError
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        # Before `job_session` handles signals, or in `mirror --verify`, which does not use it.
        say("interrupted", error=True)
        sys.exit(FAILED)
    except StopAtOnce:
        say("stopped at once on the second signal: the batch in flight may be repeated", error=True)
        sys.exit(FAILED)


@contextmanager
def job_session(
    settings: SparkSettings, say: Say, served: Metrics | None = None, packages: Sequence[str] = ()
) -> Iterator[tuple[SparkSession, StopRequest]]:
    """Open a session whose streams report their batches, and catch the signals that stop the job.

    Serves and exports metrics as `served` configures. Raises ConfigError for executors that cannot import this package
    or one of `packages`, and the errors of `streamgroup.metrics` and `streamgroup.open_telemetry`.
    """
    stop = StopRequest()
    stop.install()
    exported: OpenTelemetryMetrics | None = None
    spark = build_session(settings)
    stop.install()  # SparkContext has replaced the handler for SIGINT
    try:
        catch_in_jvm(spark)
        check_executors(spark, packages)
        listen(spark)
        if served is not None and served.port is not None:
            server = metrics(spark, served.port, host=served.host, cluster_name=served.cluster_name)
            say(f"metrics: http://{host_port(served.host, server.port)}/metrics")
        if served is not None and served.otlp_endpoint is not None:
            exported = open_telemetry(
                spark,
                served.otlp_endpoint,
                interval_s=served.otlp_interval_seconds,
                cluster_name=served.cluster_name,
            )
        yield spark, stop
    finally:
        if exported is not None:
            exported.close()
        spark.stop()
