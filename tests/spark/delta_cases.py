"""Sinks that write a group's records into a table of Delta Lake, and the faults after which each loses or repeats some.

python -m tests.spark.delta_cases [SINK ...]      prints the table of docs/delta.md

Each case uses a new topic, group and table. A query dies, or is paused until its session expires. Another query takes
over, and the script counts the rows of the table. Two processes run the queries. SIGSTOP pauses one of them, with its
JVM and its coordinator.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup
from streamgroup.model import TopicPartition
from streamgroup.sql.database import open_engine, url_of
from streamgroup.sql.offset_table import OffsetTable
from streamgroup.testing import KafkaServer
from streamgroup.testing.jars import resolve
from tests.bring_jars import DELTA
from tests.hooks.named_points import signal_together
from tests.spark.class_archive import jvm_flags
from tests.spark.support import SHORT_SESSION, Load, committed, reset_offsets
from tests.waiting import wait_until

PARTITIONS = 2
BATCH = 40
SMALLER, LARGER = 26, 80
"""Records per batch. Smaller and larger batches end at other offsets than the batches of the first query."""
DEADLINE_S = 400
PAGE = Path(__file__).parents[2] / "docs" / "delta.md"


@dataclass(frozen=True)
class Task:
    """One run of a query. It waits in its first batch with record `first` until `gate` exists, where `pause` says."""

    sink: str
    home: str
    servers: str
    topic: str
    name: str
    limit: int = BATCH
    pause: str = ""
    first: int = 0
    session_ms: int = 45_000
    dies: bool = False

    @property
    def table(self) -> str:
        return f"{self.home}/table"

    @property
    def offsets(self) -> str:
        return f"sqlite:///{self.home}/offsets.db"

    @property
    def checkpoint(self) -> Path:
        return Path(self.home, f"{self.name}-checkpoint")

    @property
    def gate(self) -> Path:
        return Path(self.home, f"{self.name}-gate")

    @property
    def waiting(self) -> Path:
        return Path(self.home, f"{self.name}-waits")

    @property
    def ended(self) -> Path:
        return Path(self.home, f"{self.name}-ended")

    @property
    def is_committed(self) -> bool:
        """Whether Spark has recorded the first batch as done."""
        return (self.checkpoint / "commits" / "0").exists()

    def before(self) -> None:
        """Call this before Delta's transaction begins."""
        if self.pause == "before":
            pass_gate(str(self.waiting), str(self.gate))

    def after(self, number: int) -> None:
        """Call this when Delta has committed."""
        if self.dies and number == 1:
            raise RuntimeError("the process dies after Delta's commit")


def pass_gate(waiting: str, gate: str) -> None:
    """Wait until the file `gate` exists."""
    Path(waiting).touch()
    while not os.path.exists(gate):
        time.sleep(0.05)


def held(waiting: str, gate: str, first: int) -> Any:
    """Return a function of a column of values that waits for the gate, from the value of record `first` on."""

    def hold(value: str) -> str:
        if int(value.rpartition("-")[2]) >= first:
            pass_gate(waiting, gate)
        return value

    return udf(hold, "string")


# --- the sinks --------------------------------------------------------------------------------------------------------


def append(rows: DataFrame, task: Task, **options: Any) -> None:
    rows.write.format("delta").mode("append").options(**options).save(task.table)


def by_query(batch: DataFrame, number: int, task: Task) -> None:
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    task.before()
    append(batch, task, txnAppId=query, txnVersion=number)
    task.after(number)


def by_name(batch: DataFrame, number: int, task: Task) -> None:
    task.before()
    append(batch, task, txnAppId="orders", txnVersion=number)
    task.after(number)


def by_range(batch: DataFrame, number: int, task: Task) -> None:
    ranges = [one for one in streamgroup.ranges() if len(one)]
    task.before()
    for one in ranges:
        topic, partition = one.partition
        rows = batch.where((col("topic") == topic) & (col("partition") == partition))
        append(rows, task, txnAppId=f"{task.topic}/{topic}/{partition}", txnVersion=one.until)
    task.after(number)


def by_metadata(batch: DataFrame, number: int, task: Task) -> None:
    task.before()
    history = batch.sparkSession.sql(f"DESCRIBE HISTORY delta.`{task.table}`").where("userMetadata IS NOT NULL")
    stored: Counter[str] = Counter()
    for row in history.select("userMetadata").collect():
        stored |= Counter(json.loads(row.userMetadata))
    ranges = {str(one.partition.partition): one for one in streamgroup.ranges() if len(one)}
    new = [f"(partition = {partition} AND offset >= {stored[partition]})" for partition in ranges]
    ends = stored | Counter({partition: one.until for partition, one in ranges.items()})
    append(batch.where(" OR ".join(new) or "false"), task, userMetadata=json.dumps(ends))
    task.after(number)


def by_database(batch: DataFrame, number: int, task: Task) -> None:
    task.before()
    with streamgroup.transaction(open_engine(url_of(task.offsets))) as transaction:
        if not transaction.is_replay:
            append(batch, task)
            task.after(number)


def by_merge(batch: DataFrame, number: int, task: Task) -> None:
    """Write as the page shows it."""
    from tests.unit.test_doc_blocks import blocks  # noqa: PLC0415  (it imports much that the other sinks do not need)

    (block,) = [text for page, _, text in blocks("python") if page == PAGE.name and "MERGE INTO" in text]
    names: dict[str, Any] = {"streamgroup": streamgroup}
    exec(compile(block.replace("MERGE INTO events", f"MERGE INTO delta.`{task.table}`"), PAGE.name, "exec"), names)
    task.before()
    names["store"](batch, number)
    task.after(number)


SINKS: dict[str, Callable[[DataFrame, int, Task], None] | None] = {
    "stream": None,
    "query id": by_query,
    "fixed id": by_name,
    "ranges": by_range,
    "userMetadata": by_metadata,
    "offsets.store": by_database,
    "MERGE": by_merge,
}


# --- a query ----------------------------------------------------------------------------------------------------------


def open_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(str(jar) for module in DELTA for jar in resolve(*module, transitive=False))
    session = (
        SparkSession.builder.master("local[8]")
        .config("spark.jars", jars)
        .config("spark.driver.extraJavaOptions", jvm_flags())
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def start(spark: SparkSession, task: Task) -> StreamingQuery:
    """Start a query that reads what its topic has now."""
    source = spark.readStream.format("streamgroup").options(**SHORT_SESSION)
    source = source.option("kafka.bootstrap.servers", task.servers).option("kafka.group.id", task.topic)
    source = source.option("group.member", task.name).option("maxOffsetsPerTrigger", task.limit)
    source = source.option("kafka.session.timeout.ms", task.session_ms)
    source = source.option("startingOffsets", "earliest").option("subscribe", task.topic)
    if task.sink == "offsets.store":
        source = source.option("offsets.store", task.offsets)
    rows = source.load().selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
    if task.pause == "in":
        rows = rows.withColumn("value", held(str(task.waiting), str(task.gate), task.first)("value"))
    writer = rows.writeStream.option("checkpointLocation", str(task.checkpoint)).trigger(availableNow=True)
    write = SINKS[task.sink]
    if write is not None:
        return writer.foreachBatch(lambda batch, number: write(batch, number, task)).start()
    return writer.format("delta").start(task.table)


def run(spark: SparkSession, task: Task) -> str:
    """Run a query to its end; return the error that has ended it, or nothing."""
    query = start(spark, task)
    if not (task.pause and task.dies):
        return finish(query, task)
    wait_until(task.waiting.exists, "the batch waits in its tasks", DEADLINE_S)
    obstacle = task.checkpoint / "commits" / "1"
    obstacle.mkdir()  # Spark cannot write a file there
    task.gate.touch()
    error = finish(query, task)
    obstacle.rmdir()
    return error


def finish(query: StreamingQuery, task: Task) -> str:
    try:
        assert query.awaitTermination(DEADLINE_S), f"the query does not end: {task}"
    except StreamingQueryException as error:
        return str(error)
    finally:
        query.stop()
    return ""


class Peer:
    """Another process that runs queries."""

    def __init__(self, log: Path) -> None:
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--peer"]
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def start(self, task: Task) -> None:
        """Have it run a query, and wait until the first batch waits at the gate."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(asdict(task)).encode() + b"\n")
        self._process.stdin.flush()
        wait_until(lambda: task.waiting.exists() or task.ended.exists(), f"the batch of {task} waits", DEADLINE_S)
        assert not task.ended.exists(), task.ended.read_text()

    def end_of(self, task: Task) -> str:
        """Wait until the query has ended; return its error, or nothing."""
        wait_until(task.ended.exists, f"the query of the other process ends: {task}", DEADLINE_S)
        return task.ended.read_text()

    def signal(self, number: signal.Signals) -> None:
        signal_together(self._process.pid, number)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait(30)
        self._log.close()


def serve() -> None:
    """Run the queries that standard input asks for."""
    spark = open_session()
    for line in sys.stdin:
        task = Task(**json.loads(line))
        try:
            error = run(spark, task)
        except Exception as failure:
            error = f"{failure!r}"
        note = task.ended.with_suffix(".new")
        note.write_text(error)
        note.rename(task.ended)


# --- the cases --------------------------------------------------------------------------------------------------------


class Case:
    """One sink, with a topic, a group and a table."""

    def __init__(self, world: World, sink: str, number: int, *, partitioned: bool) -> None:
        self.world = world
        home = world.home / f"case-{number}"
        home.mkdir()
        self.loads: list[Load] = []
        self.load = self.create_topic(f"delta-{number}")
        self.task = Task(sink, str(home), world.server.bootstrap_servers, self.load.topic, "one")
        world.spark.sql(
            f"CREATE TABLE delta.`{self.task.table}` (topic STRING, partition INT, offset BIGINT, value STRING) "
            f"USING delta {'PARTITIONED BY (topic, partition)' if partitioned else ''}"
        )
        self.conflicts: list[str] = []

    def create_topic(self, topic: str) -> Load:
        admin = AdminClient({"bootstrap.servers": self.world.server.bootstrap_servers})
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(20)
        self.loads.append(Load(self.world.server, topic, PARTITIONS))
        return self.loads[-1]

    def other(self, name: str, **changes: Any) -> Task:
        return Task(**{**asdict(self.task), "name": name, **changes})

    def wait_for(self, task: Task) -> None:
        """Wait until a batch waits at its gate. In SQLite it cannot while another query has an open transaction."""
        if task.sink != "offsets.store":
            wait_until(task.waiting.exists, f"the batch of {task} waits", DEADLINE_S)
            return
        with suppress(AssertionError):
            wait_until(task.waiting.exists, "the locks are released", 20)

    def run(self, name: str, **changes: Any) -> None:
        assert not (error := run(self.world.spark, self.other(name, **changes))), error

    def version(self) -> int:
        history = self.world.spark.sql(f"DESCRIBE HISTORY delta.`{self.task.table}`")
        return int(history.agg({"version": "max"}).first()[0])

    def reset(self, offsets: Mapping[int, int]) -> None:
        """Reset the offsets as an operator does who has restored the table."""
        reset_offsets(self.load.server, self.load.topic, self.load.topic, offsets)
        if self.task.sink == "offsets.store":
            with open_engine(url_of(self.task.offsets)).begin() as connection:
                wanted = {TopicPartition(self.load.topic, partition): at for partition, at in offsets.items()}
                OffsetTable().reset(connection, self.load.topic, wanted)

    def die(self) -> None:
        """Run a query that dies when Delta has committed its second batch, and nothing else has."""
        self.load.send(3 * BATCH)
        plain = {"pause": "in", "first": BATCH} if self.task.sink == "stream" else {}
        assert run(self.world.spark, self.other("one", dies=True, **plain)), "the query died"
        assert self.values() == sorted(self.load.sent[: 2 * BATCH])
        assert committed(self.load.server, self.load.topic, self.load.topic) == {0: 20, 1: 20}
        assert not (self.task.checkpoint / "commits" / "1").exists()

    def values(self) -> list[str]:
        rows = self.world.spark.read.format("delta").load(self.task.table).select("value").collect()
        return sorted(row.value for row in rows)

    def result(self) -> str:
        """Return how many records are lost and how many are there again."""
        found, sent = Counter(self.values()), Counter(value for load in self.loads for value in load.sent)
        assert not found.keys() - sent.keys()
        return f"{(sent - found).total()} / {(found - sent).total()}" + (", conflict" if self.conflicts else "")


def same_checkpoint(case: Case) -> None:
    case.die()
    case.run("one")


def new_checkpoint(case: Case) -> None:
    for name in ("one", "two"):
        case.load.send(2 * BATCH)
        case.run(name)


def same_batches(case: Case) -> None:
    case.die()
    case.run("two")


def smaller_batches(case: Case) -> None:
    case.die()
    case.run("two", limit=SMALLER)


def larger_batches(case: Case) -> None:
    case.die()
    case.run("two", limit=LARGER)


def paused_before(case: Case) -> None:
    take_over(case, "before")


def paused_in(case: Case) -> None:
    take_over(case, "in")


def take_over(case: Case, pause: str) -> None:
    """Pause a process during its batch until its session expires, and resume it while its successor runs."""
    case.load.send(3 * BATCH)
    pause = "in" if case.task.sink == "stream" else pause
    one = case.other("one", limit=LARGER, pause=pause, session_ms=6_000)
    two = case.other("two", limit=SMALLER, pause="in", first=2 * SMALLER)
    case.world.peer.start(one)
    case.world.peer.signal(signal.SIGSTOP)
    query = start(case.world.spark, two)
    case.wait_for(two)
    one.gate.touch()
    case.world.peer.signal(signal.SIGCONT)
    wait_until(lambda: one.is_committed or one.ended.exists(), f"the paused process ends its batch: {one}", DEADLINE_S)
    two.gate.touch()
    finish(query, two)
    case.world.peer.end_of(one)
    case.run("one")
    case.run("two")


def at_once(case: Case) -> None:
    """Two queries write different partitions at the same time: both transactions have begun before either commits."""
    other = case.create_topic(f"{case.task.topic}-other")
    other.send(BATCH)
    case.load.send(BATCH)
    one, two = case.other("one", pause="in"), case.other("two", pause="in", topic=other.topic)
    case.world.peer.start(two)
    query = start(case.world.spark, one)
    case.wait_for(one)
    one.gate.touch()
    two.gate.touch()
    case.conflicts = [error for error in (case.world.peer.end_of(two), finish(query, one)) if "Concurrent" in error]
    case.run("one")
    case.run("two", topic=other.topic)


def at_once_without_partitions(case: Case) -> None:
    at_once(case)


def restored(case: Case) -> None:
    case.load.send(BATCH)
    case.run("one")
    version = case.version()
    case.load.send(BATCH)
    case.run("one")
    case.world.spark.sql(f"RESTORE TABLE delta.`{case.task.table}` TO VERSION AS OF {version}")
    case.reset({0: BATCH // 2, 1: BATCH // 2})
    case.run("two")


CASES: dict[str, Callable[[Case], None]] = {
    "restart with the same checkpoint after a crash": same_checkpoint,
    "start with a new checkpoint after a clean stop": new_checkpoint,
    "another query takes over after a crash": same_batches,
    "the same, with smaller batches": smaller_batches,
    "the same, with larger batches": larger_batches,
    "another query takes over from a process that is paused before its write": paused_before,
    "another query takes over from a process that is paused in its write": paused_in,
    "two queries write different partitions at once": at_once,
    "the same, in a table without partitions": at_once_without_partitions,
    "`RESTORE` of the table, and a reset of the group": restored,
}
WITH_PEER = (paused_before, paused_in, at_once, at_once_without_partitions)
OF_MERGE = (at_once, at_once_without_partitions)
"""Delta refuses no append of another query because of its rows."""


class World:
    """The servers and processes of all cases."""

    def __init__(self, server: KafkaServer, spark: SparkSession, peer: Peer, home: Path) -> None:
        self.server, self.spark, self.peer, self.home = server, spark, peer, home
        self._numbers = itertools.count()

    def outcome(self, act: Callable[[Case], None], sink: str) -> str:
        if act in OF_MERGE and sink != "MERGE":
            return "-"
        case = Case(self, sink, next(self._numbers), partitioned=act is not at_once_without_partitions)
        act(case)
        print(f"{act.__name__}, {sink}: {case.result()}", file=sys.stderr, flush=True)
        return case.result()


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as home, KafkaServer() as server:
        peer = Peer(Path(home, "peer.log"))
        try:
            spark = open_session()
            try:
                yield World(server, spark, peer, Path(home))
            finally:
                spark.stop()
        finally:
            peer.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.delta_cases")
    parser.add_argument("sinks", nargs="*", help=f"some of {', '.join(SINKS)}")
    parser.add_argument("--only", default="", help="only faults with these words")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        serve()
        return
    sinks = arguments.sinks or list(SINKS)
    print(f"| lost / repeated | {' | '.join(sinks)} |\n|{'---|' * (len(sinks) + 1)}", flush=True)
    with world() as made:
        for name, act in CASES.items():
            if arguments.only in name:
                with ThreadPoolExecutor(1 if act in WITH_PEER else 3) as pool:
                    cells = pool.map(partial(made.outcome, act), sinks)
                    print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
