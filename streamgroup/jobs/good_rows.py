"""Writes the rows of a batch that a parser has read, with the guarantees that the sink has in a plain stream."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import Sink
from streamgroup.spark.dead_letters import Write
from streamgroup.spark.queries import driver_context, query_id_of_thread


def writer_of(spark: SparkSession, sink: Sink) -> Write:
    """Return the function that writes a batch, given its rows and its number.

    Files and tables of delta take each batch once: both know its number. Other formats take the rows of a batch again
    if Spark runs it again.
    """
    write: Write = _FileSink(spark, sink) if sink.writes_files else lambda rows, batch: _append(rows, batch, sink)
    if not sink.columns:
        return write
    return lambda rows, batch: write(rows.selectExpr(*sink.columns), batch)


def _append(rows: DataFrame, batch: int, sink: Sink) -> None:
    writer = rows.write.format(sink.format).mode("append").options(**sink.options)
    if sink.format.lower() == "delta":
        # Delta's own sink of streams notes the same pair, so a job that gets a parser later goes on with its batches.
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

    Spark has no public call for it. A plain `rows.write.parquet` would append the files of a repeated batch again, and
    would leave `_spark_metadata` behind, in which readers look for the files.
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
            self._sink = source.createSink(jvm.org.apache.spark.sql.streaming.OutputMode.Append())
        except (Py4JError, TypeError) as error:
            raise ConfigError(
                f"cannot write files with [parser]: this Spark's file sink cannot be called: {error}. Use Spark 4.2"
            ) from None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self._sink.addBatch(batch, rows._jdf)
