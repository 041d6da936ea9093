"""A copy from Kafka to Kafka in transactions, compared with copies that are at least once: medians and ratios.

    python -m benchmarks.transactions [--rounds 5] [--records 1000000] [--json]

All copies read the same topic of four partitions by the same source in one Spark session, and write into a topic each.
`exactly_once` and its `clustered` form write each batch in a transaction; `format("streamgroup")` and Spark's own sink
do not. They take turns. The time is Spark's phase `addBatch`, which includes the fetch. Afterwards small batches show
how long each step of a transaction takes.
"""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import streamgroup
from benchmarks.batch_read import CONNECTOR, session
from benchmarks.topics import Case, create_topic, fill
from streamgroup.testing import KafkaServer
from streamgroup.testing.jars import resolve

CASES = (Case("100 B", 100, 1.0), Case("1000 B", 1000, 0.25))
LIMIT, SMALL = 500_000, 100
"""Records of a batch, and of a small one."""
KINDS = ("exactly_once", "clustered", "plain", "spark")
TITLES = {
    "exactly_once": "exactly_once, with a shuffle",
    "clustered": "exactly_once(clustered=True)",
    "plain": "format('streamgroup')",
    "spark": "Spark's format('kafka')",
}
STEPS = ("begin", "write", "commit")


class Bench:
    """The server and the session of a run."""

    def __init__(self, spark: SparkSession, kafka: KafkaServer, home: Path) -> None:
        self.spark, self.kafka, self.home = spark, kafka, home

    def run(self, kind: str, case: Case, limit: int) -> list[float]:
        """Copy the topic into a new one; return the seconds of each batch."""
        name = f"{kind}-{uuid.uuid4().hex[:8]}"
        create_topic(self.kafka, name)
        options = {**self.kafka.client_options, "topic": name}
        reader = self.spark.readStream.format("streamgroup").options(**self.kafka.client_options)
        reader = reader.options(**{"subscribe": case.topic, "kafka.group.id": name, "startingOffsets": "earliest"})
        reader = reader.option("maxOffsetsPerTrigger", limit)
        columns = ["value", "partition"]
        if kind in ("exactly_once", "clustered"):
            reader = reader.option("offsets.store", "transaction")
        rows = reader.load().select(*columns)
        if kind in ("exactly_once", "clustered"):
            sink = streamgroup.exactly_once(clustered=kind == "clustered", **options)
            writer: Any = rows.writeStream.foreachBatch(sink)
        else:
            writer = rows.writeStream.format("kafka" if kind == "spark" else "streamgroup").options(**options)
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(self.home / name)).start()
        query.awaitTermination()
        return [one.durationMs["addBatch"] / 1000 for one in query.recentProgress if one.numInputRows]


class StepTimes(logging.Handler):
    """Collects the milliseconds of each step from the sink's log."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[float]] = defaultdict(list)

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("batch %d: %s in a transaction") and isinstance(record.args, tuple):
            for step, value in zip(STEPS, record.args[-len(STEPS) :], strict=True):
                self.found[step].append(float(str(value)))


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds that count, for each case.")
@click.option("--records", default=1_000_000, show_default=True, help="Records of 100 bytes; a quarter of 1000 bytes.")
@click.option("--batches", default=60, show_default=True, help="Small batches.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def main(*, rounds: int, records: int, batches: int, as_json: bool) -> None:
    """Compare copies in transactions with copies that are at least once."""
    jars = [str(jar) for module in CONNECTOR for jar in resolve(*module, transitive=False)]
    with KafkaServer(jvm_flags=("-Xmx1g", "-Xms1g")) as kafka, tempfile.TemporaryDirectory() as home:
        bench = Bench(session(",".join(jars)), kafka, Path(home))
        rates: dict[str, dict[str, float]] = {}
        for case in CASES:
            count = int(records * case.share)
            fill(kafka, case, count)
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(rounds + 1):
                for kind in KINDS:
                    times[kind].append(sum(bench.run(kind, case, LIMIT)))
            rates[case.name] = {kind: count / statistics.median(found[1:]) / 1000 for kind, found in times.items()}
        small = Case("small", 100, 1.0)
        fill(kafka, small, batches * SMALL)
        log, steps = logging.getLogger("streamgroup"), StepTimes()
        log.setLevel(logging.DEBUG)
        log.addHandler(steps)
        bench.run("clustered", small, SMALL)
        medians = {step: statistics.median(found[5:]) for step, found in steps.found.items()}
        bench.spark.stop()
    if as_json:
        click.echo(json.dumps({"1000 records/s": rates, "small batch, ms": medians}, indent=2))
        return
    table = Table("", "1000 records/s (median)", "to Spark's sink", "to format('streamgroup')")
    for case_name, found in rates.items():
        for kind, rate in found.items():
            ratios = (f"{rate / found['spark']:.2f}", f"{rate / found['plain']:.2f}")
            table.add_row(f"{case_name}, {TITLES[kind]}", f"{rate:.0f}", *ratios)
    Console().print(table)
    table = Table("a clustered batch of 100 records", "ms (median)")
    for step, value in medians.items():
        table.add_row(step, f"{value:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
