"""`streamgroup demo`: two spark-submit jobs share a group of a real Kafka, and every record arrives exactly once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import click
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from streamgroup.cli._cluster import cluster_of
from streamgroup.cli._group_tables import OffsetRow, offset_rows
from streamgroup.cli._record_writer import RecordWriter
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.kafka.cluster import admin
from streamgroup.kafka.cluster.changes import create_topics
from streamgroup.logline import message_of
from streamgroup.model import LATEST
from streamgroup.options.parse import parse_sink
from streamgroup.options.types import Isolation
from streamgroup.spark_home import spark_submit
from streamgroup.testing import KafkaServer

TOPIC, GROUP, PARTITIONS = "orders", "orders-ingest", 6
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
def demo(output: Path | None, rate: int) -> None:
    """Run two jobs that share a group of a real Kafka, all on this machine.

    The second job joins and is drained while records arrive. At the end the command checks that every record arrived
    exactly once. The exit code is 1 if not.
    """
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
    passed = _Demo(console, home, rate).run()
    console.print(f"\nFiles and logs are in {home}; it took {time.monotonic() - began:.0f} s.")
    sys.exit(0 if passed else 1)


class _Demo:
    """The steps of the demo."""

    def __init__(self, console: Console, home: Path, rate: int) -> None:
        self.console = console
        self.home = home
        self.rate = rate
        self.step = 0

    def run(self) -> bool:
        with ExitStack() as stack:
            self.say("starting Kafka 4.1.1 (one broker, KRaft)")
            kafka = stack.enter_context(KafkaServer("4.1.1", data_dir=self.home / "kafka"))
            watch = stack.enter_context(Watch(kafka.bootstrap_servers, GROUP))
            watch.create_topic(TOPIC, PARTITIONS)
            self.note(f"brokers at {kafka.bootstrap_servers}; topic {TOPIC} with {PARTITIONS} partitions")
            load = stack.enter_context(Load(kafka.bootstrap_servers, TOPIC, PARTITIONS, self.rate))
            self.note(f"producing {self.rate} records/s, each with its own number")

            conf = self.home / "ingest.toml"
            conf.write_text(settings_of(kafka.bootstrap_servers, GROUP, TOPIC, self.home))
            self.say(f"spark-submit jobs/ingest.py --config {conf.name} --member a")
            a = stack.enter_context(Job("a", conf, self.home, self.console))
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a holds all partitions", a)
            self.wait(lambda: a.batches >= 2, "a has written two batches", a)
            self.show(watch)

            self.say(f"spark-submit jobs/ingest.py --config {conf.name} --member b")
            b = stack.enter_context(Job("b", conf, self.home, self.console))
            half = PARTITIONS // 2
            self.wait(lambda: watch.owners() == {"a": half, "b": half}, "the partitions are shared", a, b)
            self.wait(lambda: b.batches >= 2, "b has written two batches", a, b)
            self.show(watch)

            self.say("SIGTERM to b: it finishes its batch, commits it and leaves the group")
            b.stop()
            self.wait(lambda: watch.owners() == {"a": PARTITIONS}, "a has all partitions again", a)
            self.show(watch)

            self.say("the producer stops; a reads the rest, then a stops too")
            produced = load.finish()
            self.wait(lambda: watch.lag() == 0, "the group's lag is 0", a)
            a.stop()
            self.show(watch)
        return self.check(produced)

    def check(self, produced: int) -> bool:
        """Compare the rows of the Parquet files with the produced records. Return whether they are equal."""
        self.console.print(Rule("result"))
        table, exact = result_table(produced, {member: read_rows(self.home, member, COLUMNS) for member in ("a", "b")})
        self.console.print(table)
        verdict = (
            "[bold green]every record arrived exactly once" if exact else "[bold red]records are missing or repeated"
        )
        self.console.print(verdict)
        return exact

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
        raise StreamGroupError(
            f"the demo failed at step {self.step}: not within {STEP_TIMEOUT_S:.0f} s: {what}. Read the jobs' logs in "
            f"{self.home}"
        )


def _until(deadline: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
        time.sleep(0.2)


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
format = "parquet"
path = "{home}/rows/{{member}}"
checkpoint = "{home}/checkpoints/{{member}}"
columns = ["CAST(CAST(value AS STRING) AS BIGINT) AS number", "partition", "offset"]

[spark]
app_name = "demo"

[spark.conf]
spark.ui.enabled = "false"
"""


def settings_of(servers: str, group: str, topic: str, home: Path) -> str:
    return _SETTINGS.format(servers=servers, group=group, topic=topic, home=home)


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
        with self._log.open("w") as log:
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
    table = Table(title="streamgroup groups --describe", title_justify="left", title_style="dim")
    for column in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID"):
        table.add_column(column, justify="left" if column in ("TOPIC", "CLIENT-ID") else "right")
    for row in rows:
        if row.partition is not None:
            table.add_row(
                row.partition.topic,
                str(row.partition.partition),
                _text(row.committed.offset if row.committed else None),
                _text(row.log_end),
                _text(row.lag),
                row.member.client_id if row.member else "-",
            )
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


def _text(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
