"""The ingest job: from a consumer group into anything that Spark can stream into, as one TOML file says.

    spark-submit jobs/ingest.py --config conf/ingest.toml --member a

Exit codes: 0 when it was asked to stop or had nothing more to read, 1 when the query failed, 2 for a configuration that
cannot work.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroup.errors import ConfigError, DrainedError, StreamGroupError
from streamgroup.jobs import sinkguard
from streamgroup.jobs.config import MEMBER_VARIABLE, JobConfig, Sink, Trigger, load
from streamgroup.jobs.hadoop import HadoopFiles
from streamgroup.jobs.progress import Reporter
from streamgroup.jobs.session import build_session, check_executors
from streamgroup.jobs.signals import StopAtOnce, StopRequest, catch_in_jvm
from streamgroup.spark.listener import listen

FAILED, MISCONFIGURED = 1, 2
_DRAINED = re.compile(rf"{DrainedError.__module__}\.{DrainedError.__name__}: (.+)")
POLL_S = 0.5
"""How often the main thread comes back from the JVM: signals are handled, and batches reported, only then."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "file", type=click.Path(path_type=Path), required=True, help="The job's TOML file.")
@click.option("--member", help=f"Fills {{member}} in the file; else the variable {MEMBER_VARIABLE}.")
@click.option("--check", is_flag=True, help="Only check the file, without Spark.")
def command(file: Path, member: str | None, check: bool) -> None:
    """Read from a Kafka consumer group into a sink of Spark."""
    job = load(file, member)
    if check:
        say(f"{file} is a job: {describe(job)}")
        return
    run(job)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job of the command line; ends the process."""
    try:
        command.main(args=None if arguments is None else list(arguments), prog_name="ingest.py", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(MISCONFIGURED)
    except ConfigError as error:
        say(f"error: {error}", error=True)
        sys.exit(MISCONFIGURED)
    except (StreamGroupError, StreamingQueryException) as error:
        say(f"error: {error}", error=True)
        sys.exit(FAILED)
    except StopAtOnce:
        say("stopped at once on the second signal: the batch in flight may be repeated", error=True)
        sys.exit(FAILED)


def run(job: JobConfig) -> None:
    """Build the session, start the query, and see it to its end or to the first signal."""
    stop = StopRequest()
    stop.install()
    spark = build_session(job.spark)
    stop.install()  # Spark's context has put its own handler for SIGINT there
    try:
        catch_in_jvm(spark)
        check_executors(spark)
        listen(spark)
        query = start(spark, job)
        say(f"started {describe(job)}; query {query.id}")
        if follow(query, stop) and stop:
            finish(query, stop.name, job.stop.timeout_seconds)
    finally:
        spark.stop()


def start(spark: SparkSession, job: JobConfig) -> StreamingQuery:
    """The query, with its file sink's directory taken."""
    rows = spark.readStream.format("streamgroup").options(**job.source).load()
    if job.sink.columns:
        rows = rows.selectExpr(*job.sink.columns)
    writer: Any = rows.writeStream.format(job.sink.format).outputMode(job.sink.output_mode)
    writer = writer.options(**job.sink.options).queryName(query_name(job))
    if job.sink.partition_by:
        writer = writer.partitionBy(*job.sink.partition_by)
    if job.sink.path is not None:
        writer = writer.option("path", job.sink.path)
    if job.sink.checkpoint is not None:
        writer = writer.option("checkpointLocation", job.sink.checkpoint)
    trigger = trigger_options(job.trigger)
    if trigger:
        writer = writer.trigger(**trigger)
    taken = _take(spark, job.sink)
    query: StreamingQuery = writer.start()
    if taken is not None:
        sinkguard.confirm(*taken, query=str(query.id))
    return query


def _take(spark: SparkSession, sink: Sink) -> tuple[HadoopFiles, str, str] | None:
    """Take a file sink's directory for this checkpoint; None for other sinks."""
    if not sink.writes_files or sink.path is None or sink.checkpoint is None:
        return None
    files = HadoopFiles(spark)
    sinkguard.guard(files, sink.path, sink.checkpoint)
    return files, sink.path, sink.checkpoint


def trigger_options(trigger: Trigger) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger`."""
    if trigger.processing_time is not None:
        return {"processingTime": trigger.processing_time}
    if trigger.available_now:
        return {"availableNow": True}
    return {"once": True} if trigger.once else {}


def query_name(job: JobConfig) -> str:
    """The query's name in Spark's pages: two members of one job differ there."""
    return job.spark.app_name if job.member is None else f"{job.spark.app_name}-{job.member}"


def follow(query: Any, stop: StopRequest) -> bool:
    """Report batches until the query ends, or a signal asks it to; whether it still runs.

    Raises what the query failed of; a drain from outside is no failure.
    """
    reporter = Reporter()
    ended = False
    while not ended and not stop:
        try:
            ended = bool(query.awaitTermination(POLL_S))
        except StreamingQueryException as error:
            said = drained_by(error)
            if said is None:
                raise
            say(said)
            return False
        if reporter.is_news(query.lastProgress):
            for line in reporter.news(list(query.recentProgress)):
                say(line)
    if ended:
        say("the query has ended: it has read what was there")
    return not ended


def drained_by(error: Exception) -> str | None:
    """What a drain from outside said when it ended the query; None where the query failed of something else.

    Spark hands on the text of what was raised in the coordinator's process, with its traceback.
    """
    found = _DRAINED.search(str(error))
    return None if found is None else found[1].strip()


def finish(query: StreamingQuery, signal_name: str, timeout_s: float) -> None:
    """Drain: let the batch in flight sink, commit it, leave the group, stop."""
    from streamgroup.spark.drain import drain  # noqa: PLC0415  (the control channel is not needed before)

    say(f"{signal_name}: finishing the batch in flight, {timeout_s:.0f} s at most; again to stop at once")
    try:
        result = drain(query, timeout_s)
    except StreamGroupError as error:  # such as a query that has not planned a batch yet
        say(f"not drained: {error}")
        query.stop()
    else:
        # A signal to the whole process group ends the group's member, too, and with it the query before it can drain.
        whole = result.drained and query.exception() is None
        say("stopped; nothing will be repeated" if whole else "stopped; the last batch may be repeated")


def describe(job: JobConfig) -> str:
    """The job in one line, without anything that may be secret."""
    source = {name.lower(): value for name, value in job.source.items()}
    topics = next((source[k] for k in ("subscribe", "subscribepattern", "assign") if k in source), "?")
    where = job.sink.format if job.sink.path is None else f"{job.sink.format} in {job.sink.path}"
    who = "" if job.member is None else f", member {job.member}"
    return f"{topics} as group {source.get('kafka.group.id', '(none)')}{who} -> {where}"


def say(line: str, *, error: bool = False) -> None:
    """A line for the user. Spark logs on standard error; spark-submit puts both of Python's streams on its output."""
    print(f"ingest: {line}", file=sys.stderr if error else sys.stdout, flush=True)
