"""The ingest job: it streams a consumer group into a sink of Spark, as one TOML file configures.

    spark-submit jobs/ingest.py --config conf/ingest.toml --member a

Exit codes: 0 after a requested stop or the end of the backlog, 1 after a failed query, 2 for an invalid configuration.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroup.errors import ConfigError
from streamgroup.jobs import sinkguard
from streamgroup.jobs.config import FILE_FORMATS, NOT_INTO_FILES, JobConfig, Sink, effective, load
from streamgroup.jobs.following import Following, RowsWithOffsets, ends_of_logs, trigger_options
from streamgroup.jobs.job_run import file_options, job_session, run_command
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import HadoopFiles
from streamgroup.options.parse import parse_sink
from streamgroup.spark.dead_letters import DeadLetters, Write, check_columns, dead_letters
from streamgroup.spark.exactly_once import ExactlyOnceSink
from streamgroup.spark.parsed_rows import with_parsed
from streamgroup.spark.queries import driver_context, query_id_of_thread
from streamgroup.spark.sql_sink import SqlSink
from streamgroup.spark_home import minor_version

_AGGREGATE = re.compile(r"^\W*Aggregate ", re.MULTILINE)
"""A step of Spark's plan."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@file_options
def command(file: Path, member: str | None, check: bool, print_config: bool) -> None:
    """Run a streaming query that is a member of a Kafka consumer group and writes into a sink of Spark.

    Start it several times with different --member names: the members share the partitions. SIGTERM and Ctrl-C drain it.
    """
    if print_config:
        click.echo("\n".join(effective(file, member)))
        return
    job = load(file, member)
    if check:
        say(f"{file} is a valid job: {describe(job)}")
        return
    run(job)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that the command line names, and end the process on failure."""
    run_command(command, arguments, "ingest.py", (StreamingQueryException,), say)


def run(job: JobConfig) -> None:
    """Build the session, start the query, and follow it until it ends or a signal arrives."""
    packages = (*(job.parser.packages if job.parser is not None else ()), *job.sink.packages)
    with job_session(job.spark, say, job.metrics, packages) as (spark, stop):
        store = store_of(spark, job)
        query = start(spark, job, store)
        say(f"started {describe(job)}; query {query.id}")
        following = Following(query, say, ends_of_logs(spark))
        if follow_to_the_end(following, store, stop) and stop:
            following.finish_on_signal(stop.name, job.stop.timeout_seconds)


def follow_to_the_end(following: Following, store: DeadLetters | RowsWithOffsets | None, stop: StopRequest) -> bool:
    """Call `Following.follow`. Raise the error of `store`, which Spark wraps in two stack traces."""
    try:
        return following.follow(stop)
    except StreamingQueryException:
        if store is not None and store.error is not None:
            raise store.error from None
        raise


def store_of(spark: SparkSession, job: JobConfig) -> DeadLetters | RowsWithOffsets | None:
    """Return the function for `foreachBatch`; None for a job that writes into a streaming sink of Spark."""
    if job.parser is None:
        return (
            RowsWithOffsets(transaction_of(job.sink)) if job.sink.writes_database or job.sink.in_transaction else None
        )
    to = job.dead_letters
    return dead_letters(
        job.parser,
        writer_of(spark, job.sink),
        topic=to.topic,
        path=to.path,
        options=to.options,
        max_records=to.max_records,
        max_share=to.max_share,
    )


def start(spark: SparkSession, job: JobConfig, store: DeadLetters | RowsWithOffsets | None) -> StreamingQuery:
    """Start the query, after its checkpoint has claimed the directory of a file sink."""
    rows = spark.readStream.format("streamgroup").options(**job.source).load()
    if isinstance(store, DeadLetters):
        check_columns(rows)
        refuse_aggregates(with_parsed(rows, store.parser).selectExpr(*(job.sink.columns or ("*",))))
        writer: Any = rows.writeStream.foreachBatch(store)
    else:
        writer = _writer(rows.selectExpr(*job.sink.columns) if job.sink.columns else rows, job.sink, store)
    writer = writer.queryName(query_name(job))
    if job.sink.checkpoint is not None:
        writer = writer.option("checkpointLocation", job.sink.checkpoint)
    trigger = trigger_options(job.trigger)
    if trigger:
        writer = writer.trigger(**trigger)
    claimed = _claim(spark, job.sink)
    if job.sink.table is not None:
        refuse_table_of_files(spark, job.sink.table)
    if job.sink.table is not None and store is None:
        query: StreamingQuery = writer.toTable(job.sink.table)
    else:
        query = writer.start()
    if claimed is not None:
        sinkguard.confirm(*claimed, query=str(query.id))
    return query


def _writer(rows: DataFrame, sink: Sink, store: RowsWithOffsets | None) -> Any:
    if store is not None:
        return rows.writeStream.outputMode(sink.output_mode).foreachBatch(store)
    writer: Any = rows.writeStream.format(sink.format).outputMode(sink.output_mode).options(**sink.options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    return writer if sink.path is None else writer.option("path", sink.path)


def refuse_aggregates(rows: DataFrame) -> None:
    """Raise ConfigError for columns that aggregate: with a parser they would aggregate each batch separately."""
    plan: Any = rows._jdf
    if _AGGREGATE.search(str(plan.queryExecution().analyzed().toString())):
        raise ConfigError(
            "cannot aggregate in [sink] columns with [parser]: each batch would be aggregated separately. Aggregate in "
            "a query of your own"
        )


def _claim(spark: SparkSession, sink: Sink) -> tuple[HadoopFiles, str, str] | None:
    """Claim the directory of a file sink for this checkpoint. Return None for other sinks."""
    if not sink.writes_files or sink.path is None or sink.checkpoint is None:
        return None
    files = HadoopFiles(spark)
    sinkguard.guard(files, sink.path, sink.checkpoint)
    return files, sink.path, sink.checkpoint


def refuse_table_of_files(spark: SparkSession, table: str) -> None:
    """Raise ConfigError for an existing table that Spark's file sink would write."""
    if not spark.catalog.tableExists(table):
        return
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    provider = next((row["data_type"].lower() for row in rows if row["col_name"] == "Provider"), "")
    if provider in FILE_FORMATS:
        raise ConfigError(f"cannot write into table {table}: its format is {provider!r}. {NOT_INTO_FILES}")


def query_name(job: JobConfig) -> str:
    """Return the query's name in Spark's web UI, with the member's name."""
    return job.spark.app_name if job.member is None else f"{job.spark.app_name}-{job.member}"


def describe(job: JobConfig) -> str:
    """Return the job in one line, without any value that may be secret."""
    source = {name.lower(): value for name, value in job.source.items()}
    topics = next((source[k] for k in ("subscribe", "subscribepattern", "assign") if k in source), "?")
    who = "" if job.member is None else f", member {job.member}"
    return f"{topics} as group {source.get('kafka.group.id', '(none)')}{who} -> {job.sink.target}"


def say(line: str, *, error: bool = False) -> None:
    """Print a line for the user. Spark logs to standard error, so the job writes to standard output."""
    print(f"ingest: {line}", file=sys.stderr if error else sys.stdout, flush=True)


def writer_of(spark: SparkSession, sink: Sink) -> Write:
    """Return the function that writes a batch, given its rows and its number.

    Files and Delta tables write each batch once, because they know its number. A database does, and Kafka in
    transactions, because they store the offsets with the rows. Other formats write the rows of a batch again if Spark
    repeats it.
    """
    if sink.writes_database or sink.in_transaction:
        write: Write = transaction_of(sink)
    else:
        write = _FileSink(spark, sink) if sink.writes_files else lambda rows, batch: _append(rows, batch, sink)
    if not sink.columns:
        return write
    return lambda rows, batch: write(rows.selectExpr(*sink.columns), batch)


def transaction_of(sink: Sink) -> Write:
    """Return the function that stores the rows of a batch with its offsets."""
    return ExactlyOnceSink(parse_sink(sink.options)) if sink.in_transaction else SqlSink(sink.options)


def _append(rows: DataFrame, batch: int, sink: Sink) -> None:
    writer = rows.write.format(sink.format).mode("append").options(**sink.options)
    if sink.format.lower() == "delta":
        # Delta's own streaming sink stores the same pair, so a job may get a parser later.
        query_id = query_id_of_thread(driver_context("the ingest job"))
        writer = writer.option("txnAppId", str(query_id)).option("txnVersion", str(batch))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.table is not None:
        writer.saveAsTable(sink.table)
    else:
        writer.save(sink.path)


class _FileSink:
    """Spark's own sink of files, called with the number of each batch.

    Spark has no public API for it. A plain `rows.write.parquet` would append the files of a repeated batch again, and
    would not update `_spark_metadata`, which lists the files for readers.
    """

    def __init__(self, spark: SparkSession, sink: Sink) -> None:
        jvm: Any = spark._jvm
        try:
            of_python = jvm.org.apache.spark.api.python.PythonUtils
            options = of_python.toScalaMap({**sink.options, "path": sink.path})
            none, partition_by = jvm.scala.Option.empty(), of_python.toSeq(list(sink.partition_by))
            source = jvm.org.apache.spark.sql.execution.datasources.DataSource(
                spark._jsparkSession, sink.format, of_python.toSeq([]), none, partition_by, none, options, none, none
            )
            given = [jvm.org.apache.spark.sql.streaming.OutputMode.Append()]
            if minor_version(spark.version) >= (4, 3):
                # Spark checks the partition columns against this schema now, and against each batch when it is written.
                schema = jvm.org.apache.spark.sql.types.StructType()
                for name in (*sink.partition_by, "value"):
                    schema = schema.add(name, "string")
                given.append(schema)
            self._sink = source.createSink(*given)
        except (Py4JError, TypeError) as error:
            raise ConfigError(
                f"cannot write files with [parser]: this Spark's file sink cannot be called: {error}. Use Spark 4.2 "
                "or 4.3"
            ) from None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self._sink.addBatch(batch, rows._jdf)
