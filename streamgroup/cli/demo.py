"""`streamgroup demo`: two spark-submit jobs share a group of a real Kafka, and every record arrives exactly once.

Without `--sql` the second job is drained. With it, both jobs write into one table, and the second job is killed.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import click
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from streamgroup.cli._checkpoint_files import CheckpointFiles, documents_in
from streamgroup.cli._cluster import cluster_of
from streamgroup.cli._group_tables import OffsetRow, offset_rows
from streamgroup.cli._record_writer import RecordWriter
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster import admin
from streamgroup.kafka.cluster.changes import create_topics
from streamgroup.logline import message_of
from streamgroup.model import LATEST, OffsetRange, TopicPartition
from streamgroup.options.parse import parse_sink
from streamgroup.options.types import Isolation
from streamgroup.spark_home import spark_submit
from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST

TOPIC, GROUP, PARTITIONS = "orders", "orders-ingest", 6
SHARED = {"a": PARTITIONS // 2, "b": PARTITIONS // 2}
STEP_TIMEOUT_S = 90.0


@click.command(short_help="Run two jobs that share a group of a real Kafka, on this machine.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar="DIRECTORY",
    help="Where files and logs go; it must be empty.  [default: a new directory]",
)
@click.option(
    "--rate", type=click.IntRange(1, 100_000), default=2_000, show_default=True, metavar="N", help="Records per second."
)
@click.option(
    "--sql",
    is_flag=True,
    help="Let both jobs write into one table of SQLite, and kill the second one (kill -9) in a batch. Requires the "
    "extra sql.",
)
def demo(output: Path | None, rate: int, *, sql: bool) -> None:
    """Run two jobs that share a group of a real Kafka, all on this machine.

    The second job joins and is drained while records arrive. With --sql it is killed and starts again. At the end the
    command checks that every record arrived exactly once. The exit code is 1 if not.
    """
    if sql and find_spec("sqlalchemy") is None:
        raise ConfigError(
            "cannot run the demo with --sql: the Python package sqlalchemy is not installed. Install streamgroup[sql]"
        )
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="streamgroup-demo-")) if output is None else output
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the directory {output}: {error.strerror}. Choose another --output") from None
    if any(home.iterdir()):
        raise ConfigError(f"cannot run the demo in {home}: the directory is not empty. Choose another --output")
    # SIGTERM must unwind the stack like Ctrl-C: the jobs have sessions of their own and would outlive the demo.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    passed = (_SqlDemo if sql else _Demo)(console, home, rate).run()
    console.print(f"\nFiles and logs are in {home}; it took {time.monotonic() - began:.0f} s.")
    sys.exit(0 if passed else 1)


class _Demo:
    """The steps of the demo: two jobs write Parquet files, and the second one is drained."""

    sink = """\
format = "parquet"
path = "{home}/rows/{{member}}"
checkpoint = "{home}/checkpoints/{{member}}"
columns = ["CAST(CAST(value AS STRING) AS BIGINT) AS number", "partition", "offset"]
"""

    def __init__(self, console: Console, home: Path, rate: int) -> None:
        self.console = console
        self.home = home
        self.rate = rate
        self.step = 0
        self.conf = home / "ingest.toml"

    def run(self) -> bool:
        with ExitStack() as stack:
            self.say(f"starting Kafka {NEWEST} (one broker, KRaft)")
            kafka = stack.enter_context(KafkaServer(data_dir=self.home / "kafka"))
            watch = stack.enter_context(Watch(kafka.bootstrap_servers, GROUP))
            watch.create_topic(TOPIC, PARTITIONS)
            self.note(f"brokers at {kafka.bootstrap_servers}; topic {TOPIC} with {PARTITIONS} partitions")
            load = stack.enter_context(Load(kafka.bootstrap_servers, TOPIC, PARTITIONS, self.rate))
            self.note(f"producing {self.rate} records/s, each with its own number")

            self.conf.write_text(settings_of(kafka.bootstrap_servers, GROUP, TOPIC, self.home, self.sink))
            a = self.submit(stack, "a")
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a holds all partitions", a)
            self.wait(lambda: a.batches >= 2, "a has written two batches", a)
            self.show(watch)

            b = self.submit(stack, "b")
            self.wait(lambda: watch.owners() == SHARED, "the partitions are shared", a, b)
            self.wait(lambda: b.batches >= 2, "b has written two batches", a, b)
            self.show(watch)

            running = self.interrupt(stack, watch, a, b)
            self.finish(watch, running, load)
        return self.check(load.count)

    def interrupt(self, stack: ExitStack, watch: Watch, a: Job, b: Job) -> list[Job]:
        """Let b leave the group, and return the jobs that run then."""
        self.say("SIGTERM to b: it finishes its batch, commits it and leaves the group")
        b.stop()
        self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a has all partitions again", a)
        self.show(watch)
        return [a]

    def finish(self, watch: Watch, running: list[Job], load: Load) -> None:
        names = " and ".join(job.member for job in running)
        self.say(f"the producer stops; {names} read{'s' * (len(running) == 1)} the rest, and then SIGTERM to {names}")
        load.finish()
        self.wait(lambda: watch.lag() == 0, "the group's lag is 0", *running)
        for job in running:
            job.stop()
        self.show(watch)

    def check(self, produced: int) -> bool:
        """Compare the rows of both members with the produced records. Return whether they are equal."""
        self.console.print(Rule("result"))
        table, exact = result_table(produced, {member: self.rows(member) for member in ("a", "b")})
        self.console.print(table)
        self.show_offsets()
        verdict = (
            "[bold green]every record arrived exactly once" if exact else "[bold red]records are missing or repeated"
        )
        self.console.print(verdict)
        return exact

    def rows(self, member: str) -> list[tuple[int, ...]]:
        """Return the rows that a member has written, with `COLUMNS`."""
        return read_rows(self.home, member, COLUMNS)

    def show_offsets(self) -> None:
        """Show the offsets that are stored with the rows. Files have none."""

    def submit(self, stack: ExitStack, member: str) -> Job:
        self.say(f"spark-submit jobs/ingest.py --config {self.conf.name} --member {member}")
        return stack.enter_context(Job(member, self.conf, self.home, self.console))

    def say(self, text: str) -> None:
        self.step += 1
        self.console.print(f"\n[bold cyan]{self.step}.[/] [bold]{text}")

    def note(self, text: str) -> None:
        self.console.print(f"   {text}", style="dim")

    def show(self, watch: Watch) -> None:
        self.console.print(group_table(watch.describe()))

    def wait(self, condition: Callable[[], bool], what: str, *jobs: Job) -> None:
        """Wait for a condition while the jobs run. Raises StreamGroupError after STEP_TIMEOUT_S."""
        for _ in _until(time.monotonic() + STEP_TIMEOUT_S):
            for job in jobs:
                job.check()
            if condition():
                self.note(what)
                return
        raise self.too_slow(what)

    def too_slow(self, what: str) -> StreamGroupError:
        return StreamGroupError(
            f"the demo failed at step {self.step}: not within {STEP_TIMEOUT_S:.0f} s: {what}. Read the jobs' logs in "
            f"{self.home}"
        )


class _SqlDemo(_Demo):
    """Two jobs write into one table of SQLite. The second one is killed in a batch, and starts again."""

    sink = """\
format = "streamgroup-sql"
checkpoint = "{home}/checkpoints/{{member}}"
columns = ["'{{member}}' AS member", "CAST(CAST(value AS STRING) AS BIGINT) AS number", "partition", "offset"]

[sink.options]
url = "sqlite:///{home}/shop.db"
dbtable = "orders"
createTable = true
"""

    def interrupt(self, stack: ExitStack, watch: Watch, a: Job, b: Job) -> list[Job]:
        self.say("kill -9 to b when its rows are in the table, and before Spark and Kafka have noted that")
        batch = self.kill(a, b)
        self.note(f"b is dead: the table has the rows of its batch {batch.number}, its checkpoint lacks the completion")
        self.console.print(batch.table(watch))
        self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a has all partitions", a)
        done = a.batches
        self.wait(lambda: a.batches > done, "a has written another batch", a)

        again = self.submit(stack, "b")
        self.wait(lambda: watch.owners() == SHARED, "the partitions are shared again", a, again)
        self.wait(lambda: again.batches >= 1, "b has written a batch", a, again)
        return [a, again]

    def kill(self, a: Job, b: Job) -> UnfinishedBatch:
        """Kill b in a batch with rows in the table. Its JVM is stopped meanwhile, so the batch cannot complete."""
        for _ in _until(time.monotonic() + STEP_TIMEOUT_S, every=0.002):
            a.check()
            b.check()
            if stored_unfinished(self.home, b.member) is None:
                continue
            with b.stopped():
                batch = stored_unfinished(self.home, b.member)
                if batch is not None:
                    b.kill()
                    return batch
        raise self.too_slow("b has stored a batch that is not completed")

    def show_offsets(self) -> None:
        self.console.print(f"[dim]{SELECT}")
        self.console.print(_table(("topic", "partition", "next_offset"), select(self.home, SELECT)))

    def rows(self, member: str) -> list[tuple[int, ...]]:
        return select(self.home, "SELECT number, partition FROM orders WHERE member = ?", member)


SELECT = "SELECT topic, partition, next_offset FROM streamgroup_offsets ORDER BY partition"


def select(home: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement in the demo's database."""
    with closing(sqlite3.connect(home / "shop.db", timeout=TIMEOUT_MS / 1000)) as connection:
        return connection.execute(statement, values).fetchall()


@frozen
class UnfinishedBatch:
    """A batch of a job with its rows in the table, which its checkpoint does not have as completed."""

    number: int
    ranges: tuple[OffsetRange, ...]

    def table(self, watch: Watch) -> Table:
        """Return a table with the offsets of the batch, and where the group's committed offsets are."""
        committed = {row.partition: row.committed.offset for row in watch.describe() if row.committed}
        rows = [
            (r.partition.topic, r.partition.partition, r.start, r.until, committed.get(r.partition))
            for r in self.ranges
        ]
        return _table(("TOPIC", "PARTITION", "START-OF-BATCH", "OFFSET-IN-TABLE", "OFFSET-IN-KAFKA"), rows)


def stored_unfinished(home: Path, member: str) -> UnfinishedBatch | None:
    """Return the newest batch of a member if the table has its rows and its checkpoint lacks the completion."""
    files = CheckpointFiles(str(home / "checkpoints" / member))
    number = files.batches()[-1]
    if files.is_sunk(number):
        return None
    ranges = [one for document in documents_in(files.offsets(number)).values() for one in document.ranges]
    stored = {TopicPartition(topic, partition): offset for topic, partition, offset in select(home, SELECT)}
    if not ranges or any(stored.get(one.partition) != one.until for one in ranges):
        return None
    return UnfinishedBatch(number, tuple(ranges))


def _until(deadline: float, every: float = 0.2) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
        time.sleep(every)


COLUMNS = ("number", "partition")
STOP_S = 60.0
TIMEOUT_MS = 60_000
QUIET_S = 3.0
"""The shortest time between two lines about batches, in seconds."""
_OTHERS_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")
"""The beginning of a line of Spark within a line of streamgroup: several processes write into one pipe."""
_SHOWN = re.compile(r"^ingest: .*|.* streamgroup: .*(joined|lost|leaving|left|rejoin).*")

_SETTINGS = """\
[source]
kafka.bootstrap.servers = "{servers}"
kafka.group.id = "{group}"
kafka.client.id = "{{member}}"
kafka.session.timeout.ms = 6000
kafka.heartbeat.interval.ms = 500
subscribe = "{topic}"
startingOffsets = "earliest"

[trigger]
processing_time = "1 second"

[sink]
{sink}
[spark]
app_name = "demo"

[spark.conf]
spark.ui.enabled = "false"
"""


def settings_of(servers: str, group: str, topic: str, home: Path, sink: str) -> str:
    return _SETTINGS.format(servers=servers, group=group, topic=topic, sink=sink.format(home=home))


class Load:
    """A thread that produces the numbers 0, 1, 2, ... at a steady rate, in turn to each partition."""

    def __init__(self, servers: str, topic: str, partitions: int, rate: int) -> None:
        self._writer = RecordWriter(parse_sink({"kafka.bootstrap.servers": servers, "topic": topic}))
        self._partitions, self._rate = partitions, rate
        self._stop = threading.Event()
        self._failed: StreamGroupError | None = None
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        began = time.monotonic()
        with self._writer:
            try:
                while not self._stop.wait(0.02):
                    self._write(int((time.monotonic() - began) * self._rate))
            except StreamGroupError as error:
                self._failed = error

    def _write(self, due: int) -> None:
        """Write the numbers before `due`, and wait until the broker has acknowledged them."""
        if due > self.count:
            numbers = np.arange(self.count, due)
            columns = {
                "value": pa.array(numbers).cast(pa.string()),
                "partition": pa.array(numbers % self._partitions, pa.int32()),
            }
            self._writer.write(pa.record_batch(columns))
            self._writer.flush()
            self.count = due

    def finish(self) -> int:
        """Stop. Return how many records were delivered."""
        self._stop.set()
        self._thread.join(30)
        if self._failed is not None:
            raise StreamGroupError(f"the producer could not deliver all records: {self._failed}")
        return self.count


class Job:
    """One spark-submit job. Its log goes to a file, and its important lines to the console."""

    def __init__(self, member: str, conf: Path, home: Path, console: Console) -> None:
        self.member = member
        self.batches = 0
        self._console = console
        self._log = home / f"job-{member}.log"
        self._log.touch()  # `check` may read it before the reader's thread has opened it
        script = home / "ingest.py"
        script.write_text("from streamgroup.jobs.ingest import main\n\nmain()\n")
        submit = [spark_submit(), "--master", "local[1]", "--driver-memory", "512m", str(script)]
        self._process = subprocess.Popen(
            [*submit, "--config", str(conf), "--member", member],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)

    def _follow(self) -> None:
        assert self._process.stdout is not None
        colour = "yellow" if self.member == "a" else "magenta"
        shown_at = 0.0
        with self._log.open("a") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if line.startswith("ingest: batch"):
                    self.batches += 1
                    shown = time.monotonic() - shown_at >= QUIET_S
                    shown_at = time.monotonic() if shown else shown_at
                else:
                    shown = _SHOWN.match(line) is not None
                if shown:
                    text = message_of(line.strip().removeprefix("ingest: ").split(" streamgroup: ")[-1])
                    text = _OTHERS_LINE.split(text)[0]
                    self._console.print(
                        f"   [{colour}]{self.member}[/] | {escape(text)}", highlight=False, soft_wrap=True
                    )

    def check(self) -> None:
        """Raise StreamGroupError if the job has ended by itself."""
        if self._process.poll() is not None:
            if self._reader.is_alive():  # the job's last lines may still be in the pipe
                self._reader.join(5)
            tail = "".join(self._log.read_text().splitlines(keepends=True)[-15:])
            raise StreamGroupError(f"job {self.member} ended with {self._process.returncode}; its log ends:\n{tail}")

    def stop(self) -> None:
        """Send SIGTERM, as a supervisor does, and wait until the job has drained and ended."""
        self.check()
        self._process.send_signal(signal.SIGTERM)
        try:
            failed = self._process.wait(STOP_S) != 0
        except subprocess.TimeoutExpired:
            raise StreamGroupError(
                f"job {self.member} has not ended within {STOP_S:.0f} s after SIGTERM. Read its log: {self._log}"
            ) from None
        if failed:
            self.check()
        self._reader.join(5)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the job's JVM (SIGSTOP), which writes the checkpoint, and let it continue unless it was killed."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the job (SIGKILL) as the kernel does without memory: its JVM and its Python."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        self._reader.join(5)


class Watch:
    """A view of the group at the brokers."""

    def __init__(self, servers: str, group: str) -> None:
        self._cluster = cluster_of(servers, "streamgroup-demo", TIMEOUT_MS)
        self._group = group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        create_topics(self._cluster, {topic: partitions}, self._cluster.deadline())

    def describe(self) -> list[OffsetRow]:
        """Return a row for each partition, as `streamgroup groups --describe` shows them."""
        deadline = self._cluster.deadline(10_000)
        described = admin.describe_groups(self._cluster, [self._group], deadline)[self._group]
        committed = admin.committed(self._cluster, self._group, deadline)
        ends = self._cluster.list_offsets(dict.fromkeys(committed, LATEST), Isolation.READ_UNCOMMITTED, deadline)
        return offset_rows(described, committed, {tp: found.offset for tp, found in ends.items()})

    def owners(self) -> dict[str, int]:
        """Return how many partitions each member holds, by client id."""
        return dict(Counter(r.member.client_id for r in self.describe() if r.member and r.partition))

    def lag(self) -> int:
        """Return the lag of all partitions, or -1 if the lag of any is unknown."""
        lags = [row.lag for row in self.describe()]
        return -1 if not lags or any(lag is None for lag in lags) else sum(lag or 0 for lag in lags)


def group_table(rows: list[OffsetRow]) -> Table:
    """Return a table of the partitions with their members and lag."""
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID")
    found = [
        (
            row.partition.topic,
            row.partition.partition,
            row.committed.offset if row.committed else None,
            row.log_end,
            row.lag,
            row.member.client_id if row.member else None,
        )
        for row in rows
        if row.partition is not None
    ]
    return _table(columns, found, title="streamgroup groups --describe", title_justify="left", title_style="dim")


def _table(columns: Sequence[str], rows: Iterable[Sequence[int | str | None]], **style: Any) -> Table:
    """Return a table of numbers and names. A dash stands for what is unknown."""
    table = Table(**style)
    for column in columns:
        table.add_column(column, justify="left" if column.lower() in ("topic", "client-id") else "right")
    for row in rows:
        table.add_row(*("-" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell for cell in row))
    return table


def read_rows(home: Path, member: str, columns: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Return the rows in the Parquet files of a member."""
    path = home / "rows" / member
    if not path.exists():
        return []
    table = pads.dataset(path, format="parquet").to_table(columns=list(columns))
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def result_table(produced: int, rows: Mapping[str, list[tuple[int, ...]]]) -> tuple[Table, bool]:
    """Return a table of the rows that each member wrote, and whether every record is there exactly once."""
    table = Table()
    for column in ("member", "rows", "partitions", "missing", "repeated"):
        table.add_column(column, justify="left" if column == "member" else "right")
    counts: Counter[int] = Counter()
    for member, found in rows.items():
        counts.update(number for number, _ in found)
        table.add_row(member, f"{len(found):,}", ", ".join(map(str, sorted({p for _, p in found}))), "", "")
    missing = produced - sum(1 for number in counts if 0 <= number < produced)
    repeated = counts.total() - len(counts)
    table.add_section()
    table.add_row("produced", f"{produced:,}", "", f"{missing:,}", f"{repeated:,}")
    return table, missing == 0 and repeated == 0 and len(counts) == produced
