"""A stream into PostgreSQL, compared with Spark's JDBC sink: alternating pairs, medians and ratios.

    python -m benchmarks.sql_write [--pairs 5] [--records 1000000] [--json]

Both sides read the same topic by the same source in one Spark session, and write into a table each of one local server.
`streamgroup.sql_sink` stores rows and offsets in one transaction. Beside it, a `foreachBatch` function writes each
batch by Spark's JDBC sink, tuned: rewritten inserts of 10 000 rows and one connection for each core. It stores no
offsets. The time is Spark's phase `addBatch`, which includes the fetch. Two more streams are for comparison: the JDBC
sink behind Spark's own connector, and rows that reach Python as Arrow and are dropped, which is the least that any sink
in Python takes. Another table has the CPU time of the server's processes. Afterwards small batches show how long the
sink takes for each step.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import streamgroup
from benchmarks.batch_read import CONNECTOR, session
from benchmarks.pairs import SIDES, compare, show
from benchmarks.topics import Case, fill
from streamgroup.sql.database import open_engine, url_of
from streamgroup.testing import KafkaServer, PostgresServer
from streamgroup.testing.jars import resolve

DRIVER = ("org.postgresql", "postgresql", "42.7.8")
CASES = (Case("100 B", 100, 1.0), Case("1000 B", 1000, 0.25))
LIMIT = 500_000
"""Records of a batch."""
SMALL = 100
"""Records of a small batch."""
COLUMNS = ("partition", "offset", "timestamp", "cast(value as string) as value")
DDL = 'CREATE TABLE {} ("partition" INTEGER, "offset" BIGINT, timestamp TIMESTAMPTZ, value TEXT)'
JDBC = "Spark's JDBC sink"
OTHERS = {"connector": "Spark's connector and JDBC sink", "dropped": "rows reach Python and are dropped"}
TITLES = {"streamgroup": "streamgroup", "kafka": JDBC, **OTHERS}
STEPS = ("stage", "compare offsets", "add", "commit")


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Drop the rows of a task, and return their count."""
    yield pa.RecordBatch.from_pydict({"count": [sum(batch.num_rows for batch in batches)]})


def cpu_s(server: PostgresServer) -> float:
    """Return the CPU seconds of a server's processes, those that have ended among them."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(stat.parent.name) == server.pid:
                total += sum(map(int, fields[11:15]))
            elif int(fields[1]) == server.pid:
                total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


class Bench:
    """The servers and the session of a run."""

    def __init__(self, spark: SparkSession, kafka: KafkaServer, postgres: PostgresServer, home: Path) -> None:
        self.spark, self.kafka, self.postgres, self.home = spark, kafka, postgres, home
        self.cpu: dict[str, list[float]] = defaultdict(list)
        self.url = sa.make_url(postgres.url)
        self.place = f"{self.url.host}:{self.url.port}/{self.url.database}"
        self.access = {"user": str(self.url.username), "password": str(self.url.password)}
        self.engine = open_engine(url_of(postgres.url))
        self.dropped: list[int] = []

    def sink(self, side: str, table: str) -> Callable[[DataFrame, int], None]:
        """Return the function that writes a batch."""
        if side == "streamgroup":
            return streamgroup.sql_sink(f"postgresql://{self.place}", table, **self.access)
        if side == "dropped":
            return lambda batch, _: self.dropped.append(
                sum(map(sum, batch.mapInArrow(counted, "count long").collect()))
            )
        options = {**self.access, "driver": "org.postgresql.Driver", "batchsize": "10000", "dbtable": table}
        options["url"] = f"jdbc:postgresql://{self.place}?reWriteBatchedInserts=true"

        def write(batch: DataFrame, _: int) -> None:
            batch.write.format("jdbc").mode("append").options(**options).save()

        return write

    def run(self, side: str, case: Case, records: int, limit: int) -> list[float]:
        """Write the topic into an empty table; return the seconds of each batch."""
        table = f"of_{side}"
        with self.engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
            connection.exec_driver_sql(DDL.format(table))
        name = f"{side}-{uuid.uuid4().hex[:8]}"
        reader = self.spark.readStream.format("kafka" if side == "connector" else "streamgroup")
        reader = reader.options(**self.kafka.client_options).option("subscribe", case.topic)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", limit)
        if side != "connector":
            reader = reader.option("kafka.group.id", name)
        if side == "streamgroup":
            store = {f"offsets.store.{key}": value for key, value in self.access.items()}
            reader = reader.options(**{"offsets.store": f"postgresql://{self.place}", **store})
        writer = reader.load().selectExpr(*COLUMNS).writeStream.foreachBatch(self.sink(side, table))
        before = cpu_s(self.postgres)
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(self.home / name)).start()
        query.awaitTermination()
        self.cpu[f"{case.name}, {TITLES[side]}"].append((cpu_s(self.postgres) - before) * 1e6 / records)
        with self.engine.begin() as connection:
            count = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
        if side == "dropped":
            count, self.dropped = sum(self.dropped), []
        assert count == records, f"{side}: {count} rows of {records} records"
        return [one.durationMs["addBatch"] / 1000 for one in query.recentProgress if one.numInputRows]


@contextmanager
def steps_of_sink() -> Iterator[dict[str, list[float]]]:
    """Collect the milliseconds of each step from the sink's log."""
    found: dict[str, list[float]] = defaultdict(list)

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg.startswith("batch %d: ") and isinstance(record.args, tuple):
                for step, value in zip(STEPS, record.args[-len(STEPS) :], strict=True):
                    found[step].append(float(str(value)))

    log, handler = logging.getLogger("streamgroup"), Collect()
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def small_batches(bench: Bench, case: Case, batches: int) -> dict[str, float]:
    """Return the median milliseconds of a small batch, and of each step of the sink."""
    with steps_of_sink() as steps:
        times = {side: bench.run(side, case, batches * SMALL, SMALL)[5:] for side in SIDES}
    medians = {f"addBatch, {TITLES[side]}": statistics.median(found) * 1000 for side, found in times.items()}
    return medians | {step: statistics.median(found[5:]) for step, found in steps.items()}


@click.command()
@click.option("--pairs", default=5, show_default=True, help="Pairs that count, for each case.")
@click.option("--records", default=1_000_000, show_default=True, help="Records of 100 bytes; a quarter of 1000 bytes.")
@click.option("--batches", default=60, show_default=True, help="Small batches of each side.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def main(*, pairs: int, records: int, batches: int, as_json: bool) -> None:
    """Compare a stream into PostgreSQL with Spark's JDBC sink."""
    jars = [str(jar) for module in (*CONNECTOR, DRIVER) for jar in resolve(*module, transitive=False)]
    with (
        KafkaServer(jvm_flags=("-Xmx1g", "-Xms1g")) as kafka,
        PostgresServer(settings={"shared_buffers": "512MB", "max_wal_size": "8GB"}) as postgres,
        tempfile.TemporaryDirectory() as home,
    ):
        spark = session(",".join(jars))
        bench, results, others = Bench(spark, kafka, postgres, Path(home)), [], {}
        for case in CASES:
            count = int(records * case.share)
            fill(kafka, case, count)

            def run(side: str, case: Case = case, count: int = count) -> float:
                return sum(bench.run(side, case, count, LIMIT))

            results.append(compare(case.name, run, count, pairs))
            for side, title in OTHERS.items():
                times = [run(side) for _ in range(pairs + 1)][1:]
                others[f"{case.name}, {title}"] = count / statistics.median(times) / 1000
        small = Case("small", 100, 1.0)
        fill(kafka, small, batches * SMALL)
        cpu = {name: statistics.median(found) for name, found in bench.cpu.items()}
        steps = small_batches(bench, small, batches)
        spark.stop()
    if as_json:
        click.echo(
            json.dumps(
                {
                    "pairs": results,
                    "others, 1000 records/s": others,
                    "server CPU s for a million rows": cpu,
                    "small batch, ms": steps,
                },
                indent=2,
            )
        )
        return
    show(results, "from Kafka into PostgreSQL", JDBC)
    for title, column, rows in (
        ("for comparison", "1000 records/s (median)", others),
        ("PostgreSQL's processes", "CPU s for a million rows (median)", cpu),
        (f"a batch of {SMALL} records", "ms (median)", steps),
    ):
        table = Table("", column, title=title)
        for name, value in rows.items():
            table.add_row(name, f"{value:.1f}")
        Console().print(table)


if __name__ == "__main__":
    main()
