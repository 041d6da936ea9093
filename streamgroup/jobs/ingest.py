"""The ingest job: it streams a consumer group into a sink of Spark, as one TOML file configures.

    spark-submit jobs/ingest.py --config conf/ingest.toml --member a

Exit codes: 0 after a requested stop or the end of the backlog, 1 after a failed query, 2 for an invalid configuration.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroup.errors import ConfigError, DrainedError, StreamGroupError
from streamgroup.jobs import sinkguard
from streamgroup.jobs.config import MEMBER_VARIABLE, JobConfig, Sink, Trigger, load
from streamgroup.jobs.session import build_session, check_executors
from streamgroup.jobs.signals import StopAtOnce, StopRequest, catch_in_jvm
from streamgroup.jobs.sinkguard import HadoopFiles
from streamgroup.spark.listener import listen

FAILED, MISCONFIGURED = 1, 2
_DRAINED = re.compile(rf"{DrainedError.__module__}\.{DrainedError.__name__}: (.+)")
POLL_S = 0.5
"""How long the main thread waits in the JVM. Between waits Python handles signals and the job reports batches."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "file", type=click.Path(path_type=Path), required=True, help="The job file (TOML).")
@click.option(
    "--member",
    help=f"Name of this member, which replaces {{member}} in the file. Default: the variable {MEMBER_VARIABLE}.",
)
@click.option("--check", is_flag=True, help="Check the file without starting Spark, then exit.")
def command(file: Path, member: str | None, check: bool) -> None:
    """Stream a Kafka consumer group into a sink of Spark."""
    job = load(file, member)
    if check:
        say(f"{file} is a valid job: {describe(job)}")
        return
    run(job)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that the command line names, and end the process on failure."""
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
    """Build the session, start the query, and follow it until it ends or a signal arrives."""
    stop = StopRequest()
    stop.install()
    spark = build_session(job.spark)
    stop.install()  # SparkContext has replaced the handler for SIGINT
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
    """Start the query, after its checkpoint has claimed the directory of a file sink."""
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
    claimed = _claim(spark, job.sink)
    query: StreamingQuery = writer.start()
    if claimed is not None:
        sinkguard.confirm(*claimed, query=str(query.id))
    return query


def _claim(spark: SparkSession, sink: Sink) -> tuple[HadoopFiles, str, str] | None:
    """Claim the directory of a file sink for this checkpoint. Return None for other sinks."""
    if not sink.writes_files or sink.path is None or sink.checkpoint is None:
        return None
    files = HadoopFiles(spark)
    sinkguard.guard(files, sink.path, sink.checkpoint)
    return files, sink.path, sink.checkpoint


def trigger_options(trigger: Trigger) -> dict[str, Any]:
    """Return the arguments of `DataStreamWriter.trigger`."""
    if trigger.processing_time is not None:
        return {"processingTime": trigger.processing_time}
    if trigger.available_now:
        return {"availableNow": True}
    return {"once": True} if trigger.once else {}


def query_name(job: JobConfig) -> str:
    """Return the query's name in Spark's web UI, which distinguishes the members of one job."""
    return job.spark.app_name if job.member is None else f"{job.spark.app_name}-{job.member}"


def follow(query: Any, stop: StopRequest) -> bool:
    """Report batches until the query ends or a signal requests a stop. Return whether the query still runs.

    Raises StreamingQueryException if the query failed. A drain by another process is not a failure.
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
        say("the query has ended: it has read the whole backlog")
    return not ended


def drained_by(error: Exception) -> str | None:
    """Return the message of the DrainedError that ended the query, or None if another error did.

    Spark passes on only the text of the error in the coordinator's process, with its traceback.
    """
    found = _DRAINED.search(str(error))
    return None if found is None else found[1].strip()


def finish(query: StreamingQuery, signal_name: str, timeout_s: float) -> None:
    """Drain the query: wait until the batch in flight reaches the sink, commit it, leave the group, stop."""
    from streamgroup.spark.drain import drain  # noqa: PLC0415  (only a stop needs the control channel)

    say(f"{signal_name}: waiting up to {timeout_s:.0f} s for the batch in flight. Send it again to stop at once")
    try:
        result = drain(query, timeout_s)
    except StreamGroupError as error:  # for example for a query without a batch yet
        say(f"cannot drain the query, which stops at once: {error}")
        query.stop()
    else:
        # A signal to the whole process group also ends the coordinator, and with it the query, before it can drain.
        complete = result.drained and query.exception() is None
        say("stopped; nothing will be repeated" if complete else "stopped; the last batch may be repeated")


def describe(job: JobConfig) -> str:
    """Return the job in one line, without any value that may be secret."""
    source = {name.lower(): value for name, value in job.source.items()}
    topics = next((source[k] for k in ("subscribe", "subscribepattern", "assign") if k in source), "?")
    where = job.sink.format if job.sink.path is None else f"{job.sink.format} in {job.sink.path}"
    who = "" if job.member is None else f", member {job.member}"
    return f"{topics} as group {source.get('kafka.group.id', '(none)')}{who} -> {where}"


def say(line: str, *, error: bool = False) -> None:
    """Print a line for the user. Spark logs to standard error, so the job writes to standard output."""
    print(f"ingest: {line}", file=sys.stderr if error else sys.stdout, flush=True)


class Reporter:
    """Turns a query's progress into lines: each batch once, and no line for a batch without rows."""

    def __init__(self) -> None:
        self._reported = -1

    def news(self, recent: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]]) -> list[str]:
        """Return the lines for the batches of `recent` (Spark's progress, oldest first) that are not reported yet."""
        lines = []
        for progress in recent:
            batch = int(progress["batchId"])
            if batch > self._reported and int(progress["numInputRows"]) > 0:
                self._reported = batch
                lines.append(line_of(progress))
        return lines

    def is_news(self, last: Mapping[str, Any] | None) -> bool:
        """Return whether the query's last progress is of an unreported batch. To fetch all progress costs more."""
        return last is not None and int(last["batchId"]) > self._reported and int(last["numInputRows"]) > 0


def line_of(progress: Mapping[str, Any]) -> str:
    """Return `batch 12: 1000 rows in 0.4 s (2500 rows/s), lag 0`, without the lag if it is unknown."""
    rows = int(progress["numInputRows"])
    seconds = int(progress.get("batchDuration") or progress["durationMs"].get("triggerExecution", 0)) / 1000
    rate = f" ({rows / seconds:.0f} rows/s)" if seconds > 0 else ""
    lag = lag_of(progress)
    return f"batch {progress['batchId']}: {rows} rows in {seconds:.1f} s{rate}" + (
        "" if lag is None else f", lag {lag}"
    )


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Return the offsets from the batch's end to the log ends of the assigned partitions, or None if none is known."""
    total, known = 0, False
    for source in progress.get("sources", ()):
        latest, end = _value(source.get("latestOffset")), _value(source.get("endOffset"))
        positions = end.get("positions", {})
        for topic, partitions in latest.items():
            for number, log_end in partitions.items() if isinstance(partitions, Mapping) else ():
                position = positions.get(topic, {}).get(number)
                if position is not None and isinstance(log_end, int):
                    total, known = total + max(0, log_end - int(position[0])), True
    return total if known else None


def _value(offset: Any) -> Mapping[str, Any]:
    """Return an offset of Spark's progress as a value. Spark shows it as JSON text or as a value."""
    value = json.loads(offset) if isinstance(offset, str) and offset.startswith("{") else offset
    return value if isinstance(value, Mapping) else {}
