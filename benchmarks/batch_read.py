"""Batch reads into the noop sink, compared with Spark's own Kafka connector: alternating pairs, medians and ratios.

    python -m benchmarks.batch_read [--pairs 5] [--records 2000000] [--tls] [--json]

Both read the same topics of one local broker in one Spark session, with the same options. The first pair of each case
is a warm-up and does not count. Ratios are computed pair by pair, so a drift of the machine's speed does not affect
them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click
from pyspark.sql import SparkSession

from benchmarks import charts
from benchmarks.charts import chart_option, pairs_chart, record_option
from benchmarks.pairs import compare, show
from benchmarks.topics import Case, fill
from streamgroup.testing import KafkaServer
from streamgroup.testing.jars import resolve

SPARK = "org.apache.spark"
CONNECTOR = (
    (SPARK, "spark-sql-kafka-0-10_2.13", "4.2.0"),
    # 4.2.0 of the token provider is not published where 4.2.0 of the connector is.
    (SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


CASES = (Case("100 B", 100, 1.0), Case("1000 B", 1000, 0.25), Case("100 B lz4", 100, 1.0, "lz4"))


def connector_jars() -> str:
    """Return the jars of Spark's own connector and its dependencies, in the format of spark.jars."""
    return ",".join(str(jar) for module in CONNECTOR for jar in resolve(*module, transitive=False))


def read(spark: SparkSession, source: str, server: KafkaServer, topic: str) -> float:
    """Return the seconds to read all of `topic` into the noop sink."""
    began = time.perf_counter()
    (
        spark.read.format(source)
        .options(**server.client_options)
        .option("subscribe", topic)
        .load()
        .write.format("noop")
        .mode("append")
        .save()
    )
    return time.perf_counter() - began


def session(jars: str | None = None) -> SparkSession:
    """Return one session for both sides, on two threads, with Spark's own connector or other `jars`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("streamgroup-bench")
        .config("spark.jars", connector_jars() if jars is None else jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure(spark: SparkSession, server: KafkaServer, case: Case, records: int, pairs: int) -> dict[str, object]:
    """Return the times of `pairs` alternating pairs after a warm-up pair."""
    return compare(case.name, lambda source: read(spark, source, server, case.topic), records, pairs)


@click.command()
@click.option("--pairs", default=5, show_default=True, help="Pairs that count, for each case.")
@click.option("--records", default=2_000_000, show_default=True, help="Records of 100 bytes; a quarter of 1000 bytes.")
@click.option("--tls", is_flag=True, help="Read over TLS.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@chart_option
@record_option
def main(*, pairs: int, records: int, tls: bool, as_json: bool, chart: Path | None, record: str | None) -> None:
    """Compare batch reads with Spark's own connector."""
    with KafkaServer(security="SSL" if tls else None, jvm_flags=("-Xmx1g", "-Xms1g")) as server:
        spark = session()
        results = []
        for case in CASES:
            count = int(records * case.share)
            fill(server, case, count)
            results.append(measure(spark, server, case, count, pairs))
        spark.stop()
    if chart is not None:
        chart.write_text(pairs_chart(results, f"A batch read{' over TLS' if tls else ''}", "Spark's connector"))
    if record is not None:
        charts.record("batch_read", results, record)
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results, "into the noop sink, over TLS" if tls else "into the noop sink", "Spark's connector")


if __name__ == "__main__":
    main()
