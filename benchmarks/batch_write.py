"""Batch writes, compared with Spark's own Kafka sink: alternating pairs, medians and ratios.

    python -m benchmarks.batch_write [--pairs 5] [--records 2000000] [--json]

Both write the same cached rows to a topic each of one local broker in one Spark session, once with the defaults of
Java's producer and once with options that are tuned for throughput. The first pairs of each case warm up and do not
count. Ratios are computed pair by pair, so that a drift of the machine's speed does not affect them.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession

from benchmarks import charts
from benchmarks.batch_read import session
from benchmarks.charts import chart_option, pairs_chart, record_option
from benchmarks.pairs import SIDES, compare, show
from benchmarks.topics import create_topic
from streamgroup.testing import KafkaServer

RETENTION = {"retention.bytes": str(64 << 20), "segment.bytes": str(32 << 20), "file.delete.delay.ms": "0"}
"""The topics keep little of what is written."""
BROKER = {"log.retention.check.interval.ms": 1000}
"""The broker deletes old segments before the system writes them to the disk, which would slow down later writes."""
WARM_UP = 3
"""Pairs before those that count: the JVMs still compile during the first writes."""
TUNED = {"kafka.batch.size": "524288", "kafka.linger.ms": "20"}


@dataclass(frozen=True)
class Case:
    """Rows of `size` bytes, `share` of the requested number, written with `options`."""

    name: str
    size: int
    share: float
    options: dict[str, str] = field(default_factory=dict)

    def topic(self, sink: str) -> str:
        return f"bench-{self.name.replace(' ', '-').replace(',', '').lower()}-{sink}"


CASES = (
    Case("100 B, default", 100, 1.0),
    Case("100 B, tuned", 100, 1.0, TUNED),
    Case("100 B, tuned lz4", 100, 1.0, TUNED | {"kafka.compression.type": "lz4"}),
    Case("1000 B, default", 1000, 0.25),
    Case("1000 B, tuned", 1000, 0.25, TUNED),
    Case("1000 B, tuned lz4", 1000, 0.25, TUNED | {"kafka.compression.type": "lz4"}),
)


def rows(spark: SparkSession, size: int, records: int) -> DataFrame:
    """Return cached rows whose values compress as well as text."""
    words = size // 8 + 1
    blocks = f"transform(sequence(1, {words}), k -> hex(id * k * 2654435761L % 4294967296L))"
    value = f"substring(array_join({blocks}, ''), 1, {size})"
    frame = spark.range(records, numPartitions=2).selectExpr(f"cast({value} as binary) as value").cache()
    frame.count()
    return frame


def write(frame: DataFrame, sink: str, server: KafkaServer, case: Case) -> float:
    """Return the seconds to write all of `frame`."""
    began = time.perf_counter()
    writer = frame.write.format(sink).mode("append").option("topic", case.topic(sink)).options(**case.options)
    writer.option("kafka.bootstrap.servers", server.bootstrap_servers).save()
    return time.perf_counter() - began


def measure(frame: DataFrame, server: KafkaServer, case: Case, records: int, pairs: int) -> dict[str, object]:
    """Return the times of `pairs` alternating pairs after the warm-up."""
    for sink in SIDES:
        create_topic(server, case.topic(sink), RETENTION)
    return compare(case.name, lambda sink: write(frame, sink, server, case), records, pairs, warm_up=WARM_UP)


@click.command()
@click.option("--pairs", default=5, show_default=True, help="Pairs that count, for each case.")
@click.option("--records", default=2_000_000, show_default=True, help="Records of 100 bytes; a quarter of 1000 bytes.")
@click.option("--case", "only", help="Only the cases whose name contains this.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@chart_option
@record_option
def main(*, pairs: int, records: int, only: str | None, as_json: bool, chart: Path | None, record: str | None) -> None:
    """Compare batch writes with Spark's own sink."""
    with KafkaServer(config=BROKER, jvm_flags=("-Xmx1g", "-Xms1g")) as server:
        spark = session()
        results = []
        for size in (100, 1000):
            cases = [case for case in CASES if case.size == size and (only is None or only in case.name)]
            if cases:
                count = int(records * cases[0].share)
                frame = rows(spark, size, count)
                results += [measure(frame, server, case, count, pairs) for case in cases]
                frame.unpersist()
        spark.stop()
    if chart is not None and results:
        chart.write_text(pairs_chart(results, "A batch write", "Spark's sink"))
    if record is not None:
        charts.record("batch_write", results, record)
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results, "written", "Spark's sink")


if __name__ == "__main__":
    main()
