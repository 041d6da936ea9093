"""The backfill job: it copies what topics hold now, or held in a range of time, into a sink of Spark.

    spark-submit jobs/backfill.py --config conf/backfill.toml

Exit codes: 0 when the backfill is complete or after a requested stop, 1 after a failure, 2 for an invalid
configuration.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, TextIO

import click
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from streamgroup.coordinator.batch_read import plan_batch
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.jobs import sinkguard
from streamgroup.jobs.config import FILE_FORMATS, Sink
from streamgroup.jobs.job_file import JobFileReader, SparkSettings, read_toml
from streamgroup.jobs.job_run import file_options, job_session, run_command
from streamgroup.jobs.keys import BATCH_SINK, COMMON, LARGE_COUNT, SOURCE, TEXT, Key
from streamgroup.jobs.signals import StopRequest
from streamgroup.jobs.sinkguard import Files, HadoopFiles
from streamgroup.logline import render
from streamgroup.model import OffsetRange, TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.options.rows import Scope
from streamgroup.options.source import SOURCE as SOURCE_OPTIONS
from streamgroup.text import counted


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@file_options
def command(file: Path, member: str | None, check: bool, print_config: bool) -> None:
    """Copy what topics hold, or held in a range of time, into files or a table, once.

    The job works in steps, and notes each that is done. Run it again after a stop or a failure: it goes on with the
    next step.
    """
    if print_config:
        click.echo("\n".join(effective(file, member)))
        return
    config = load(file, member)
    if check:
        say(f"{file} is a valid backfill into {config.sink.target}")
    else:
        run(config)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that the command line names, and end the process on failure."""
    run_command(command, arguments, "backfill.py", (PySparkException,), say)


def run(config: BackfillConfig) -> None:
    """Build the session, and carry out the steps until the backfill is complete or a signal arrives."""
    with job_session(config.spark, say) as (spark, stop), terminal_bar() as advance:
        if run_steps(spark, config, HadoopFiles(spark), stop=stop, say=say, advance=advance):
            say("the backfill is complete")


def say(line: str, *, error: bool = False) -> None:
    """Print a line for the user. Spark logs to standard error, so the job writes to standard output."""
    print(f"backfill: {line}", file=sys.stderr if error else sys.stdout, flush=True)


REDRAW_S = 0.5
_COLUMNS = 78
"""The width of the bar. A log line, which is usually longer, overwrites it completely."""
_START_OF_LINE, _ERASE = "\r", "\r\x1b[K"
_JOIN_S = 5.0
"""The most seconds to wait for a terminal that takes no bytes, because its user has stopped the output."""


@contextmanager
def terminal_bar() -> Iterator[Advance]:
    """Show a bar on the user's terminal for the length of the block, and nothing without a terminal."""
    with _terminal() as terminal:
        if terminal is None:
            yield lambda _done, _total: None
            return
        with TerminalBar(terminal).shown() as bar:
            yield bar.advance


class TerminalBar:
    """A progress bar on `terminal`. A terminal that is closed ends the bar, not the job."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._console = Console(file=terminal, width=_COLUMNS, legacy_windows=False)
        # It only renders. If started, it would redirect standard output and hide the cursor.
        self._progress = Progress(
            BarColumn(),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TextColumn("offsets"),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("offsets", total=None)
        self._is_over = threading.Event()

    @contextmanager
    def shown(self) -> Iterator[TerminalBar]:
        """Draw the bar every REDRAW_S for the length of the block, then erase it."""
        thread = threading.Thread(target=self._redraw, name="streamgroup-bar", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            thread.join(_JOIN_S)

    def advance(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def _redraw(self) -> None:
        with suppress(OSError):
            while True:
                self._draw(self._line())
                if self._is_over.wait(REDRAW_S):
                    break
            self._draw(_ERASE)

    def _draw(self, text: str) -> None:
        # A job in the background must not disturb its user, and `stty tostop` would stop it.
        if not self._console.is_dumb_terminal and _is_in_foreground(self._terminal):
            self._terminal.write(text)
            self._terminal.flush()

    def _line(self) -> str:
        columns = os.get_terminal_size(self._terminal.fileno()).columns  # 0 where the terminal does not know
        self._console.width = min(_COLUMNS, columns - 1) if columns > 1 else _COLUMNS
        with self._console.capture() as drawn:
            self._console.print(self._progress.get_renderable())
        bar, _, _ = drawn.get().partition("\n")
        return f"{_ERASE}{bar}{_START_OF_LINE}"


@contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """Open the controlling terminal. Without one, yield standard error if it is a terminal, else None."""
    try:
        opened = open("/dev/tty", "w", encoding="utf-8")  # noqa: SIM115  (closed below, where it could be opened)
    except OSError:
        yield sys.stderr if sys.stderr.isatty() else None
        return
    try:
        yield opened
    finally:
        with suppress(OSError):
            opened.close()


def _is_in_foreground(terminal: TextIO) -> bool:
    """Return whether this process is in the foreground; true if `terminal` is not the controlling terminal."""
    try:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return True


Say = Callable[[str], None]
"""Prints a line for the user."""
Advance = Callable[[int, int], None]
"""Shows how many offsets are done, and how many there are."""

_PLAN = "plan.json"
_DONE = re.compile(r"(\d{6,9})\.json")


def run_steps(
    spark: SparkSession, config: BackfillConfig, files: Files, *, stop: StopRequest, say: Say, advance: Advance
) -> bool:
    """Read and write all steps that are not done yet. Return whether the backfill is complete.

    A stop ends it between two steps. Raises ConfigError for a plan of another purpose, and the errors of reads and
    writes. The next run repeats the step that failed.
    """
    plan = settle(files, config, lambda: make_plan(config))
    if config.sink.writes_files and config.sink.path is not None:
        sinkguard.guard(files, config.sink.path, config.progress)
    first = done_steps(files, config.progress)
    total, finished = len(plan), sum(len(step) for step in plan.steps()) - sum(map(len, plan.steps(first)))
    say(f"{counted(total, 'offset')} in {counted(plan.step_count, 'step')}, {first} done")
    advance(finished, total)
    for step in plan.steps(first):
        if stop:
            say(f"{stop.name}: stopped before step {step.number + 1}. Run the same command to continue there")
            return False
        began = time.monotonic()
        write(spark, config, step)
        finish(files, config.progress, step)
        finished += len(step)
        advance(finished, total)
        say(line_of(step, plan, finished, time.monotonic() - began))
    return True


def line_of(step: Step, plan: BackfillPlan, finished: int, seconds: float) -> str:
    """Return the log line of a step, with fields for programs after the text."""
    percent = 100 * finished // max(1, len(plan))
    words = (
        f"step {step.number + 1} of {plan.step_count}: {counted(len(step), 'offset')} in {seconds:.1f} s, {percent} %"
    )
    return render(words, "step", step=step.number, offsets=len(step), duration_ms=round(seconds * 1000), done=finished)


def settle(files: Files, config: BackfillConfig, make: Callable[[], BackfillPlan]) -> BackfillPlan:
    """Return the plan in the progress directory. Without one, write the plan that `make` makes.

    Raises ConfigError for a plan that is damaged, or that was made for other topics, offsets or another sink.
    """
    path = f"{config.progress}/{_PLAN}"
    text = files.read(path)
    if text is None:
        made = make()
        if files.create(path, made.to_json()):
            return made
        text = files.read(path) or ""  # another run was first
    try:
        plan = BackfillPlan.from_json(text)
    except ValueError as error:
        raise ConfigError(
            f"cannot read the plan of the backfill in {path}: {error}. Restore the file, or set another directory as "
            "[backfill] progress to start again"
        ) from None
    differing = sorted(
        name
        for name in plan.purpose.keys() | config.purpose.keys()
        if plan.purpose.get(name) != config.purpose.get(name)
    )
    if differing:
        raise ConfigError(
            f"cannot continue the backfill in {config.progress}: its plan was made with other values of "
            f"{', '.join(differing)}. Restore them in {config.file}, or set another directory as [backfill] progress "
            "to start again"
        )
    return plan


def make_plan(config: BackfillConfig) -> BackfillPlan:
    """Return the plan of the offsets that the topics hold now. Raises ConfigError for Kafka 0.7."""
    tasks = plan_batch(parse_source(config.source, streaming=False))
    if any(task.dialect.log_format.has_boundaries for task in tasks):
        raise ConfigError(
            "cannot divide the logs of Kafka 0.7 into steps, because their offsets are bytes. Use jobs/ingest.py with "
            "[trigger] available_now = true"
        )
    ranges = [range_.range for task in tasks for range_ in task.ranges]
    return plan_of(ranges, config.offsets_per_step, config.purpose)


def done_steps(files: Files, progress: str) -> int:
    """Return how many steps are done, counted from the first without a gap."""
    numbers = {int(found[1]) for name in files.names(f"{progress}/done") if (found := _DONE.fullmatch(name))}
    count = 0
    while count in numbers:
        count += 1
    return count


def finish(files: Files, progress: str, step: Step) -> None:
    """Note that a step is done. Raises ConfigError if another job has done it at the same time."""
    if not files.create(f"{progress}/done/{step.number:06d}.json", "{}\n"):
        raise ConfigError(
            f"step {step.number + 1} of the backfill in {progress} was done by another job at the same time: its rows "
            "may be there twice. Run one job for each progress directory"
        )


def write(spark: SparkSession, config: BackfillConfig, step: Step) -> None:
    """Read and write one step. A repeated step of files replaces its own directory, so it repeats no rows."""
    rows = spark.read.format("streamgroup").options(**config.connection).options(**step.options()).load()
    sink = config.sink
    if sink.columns:
        rows = rows.selectExpr(*sink.columns)
    writer: Any = rows.write.format(sink.format).options(**sink.options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.table is not None:
        writer.mode("append").saveAsTable(sink.table)
    elif sink.writes_files:
        writer.mode("overwrite").save(f"{sink.path}/step={step.number:06d}")
    else:
        writer.mode("append").save(*([sink.path] if sink.path is not None else []))


VERSION = 1

Offsets = dict[str, dict[str, int]]
"""Offsets by topic and partition, as the options of Spark's source have them."""


@frozen
class Step:
    """One step of a backfill: the ranges that one Spark job reads and writes. `number` counts from 0."""

    number: int
    ranges: tuple[OffsetRange, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def options(self) -> dict[str, str]:
        """Return the options of a batch read of exactly these ranges."""
        partitions: dict[str, list[int]] = {}
        starts: Offsets = {}
        ends: Offsets = {}
        for range_ in self.ranges:
            topic, partition = range_.partition
            partitions.setdefault(topic, []).append(partition)
            starts.setdefault(topic, {})[str(partition)] = range_.start
            ends.setdefault(topic, {})[str(partition)] = range_.until
        return {
            "assign": json.dumps(partitions),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
        }


@frozen
class BackfillPlan:
    """The plan of a backfill: the ranges of all partitions, and what they were planned for.

    `purpose` contains the settings that must not change between two starts of one backfill, such as the topics and the
    sink.
    """

    ranges: tuple[OffsetRange, ...]
    offsets_per_step: int
    purpose: Mapping[str, str]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def step_count(self) -> int:
        return -(-len(self) // self.offsets_per_step)

    def steps(self, after: int = 0) -> Iterator[Step]:
        """Yield the steps from number `after` on. Each takes the same share of every partition."""
        count = self.step_count
        for number in range(after, count):
            ranges = (_share(range_, number, count) for range_ in self.ranges)
            yield Step(number, tuple(range_ for range_ in ranges if len(range_)))

    def to_json(self) -> str:
        ranges = [[*range_.partition, range_.start, range_.until] for range_ in self.ranges]
        value = {
            "version": VERSION,
            "offsets_per_step": self.offsets_per_step,
            "purpose": dict(self.purpose),
            "ranges": ranges,
        }
        return json.dumps(value, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BackfillPlan:
        """Return the plan of a text. Raises ValueError if it is not a plan of this version."""
        try:
            value = json.loads(text)
            if value["version"] != VERSION:
                raise ValueError(f"its version is {value['version']}, expected {VERSION}")
            offsets_per_step = int(value["offsets_per_step"])
            if offsets_per_step < 1:
                raise ValueError(f"its steps have {offsets_per_step} offsets")
            purpose = {str(name): str(text) for name, text in value["purpose"].items()}
            return cls(tuple(_range_of(*entry) for entry in value["ranges"]), offsets_per_step, purpose)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it lacks {error}") from None
        except (OverflowError, RecursionError) as error:
            raise ValueError(f"it cannot be read: {error}") from None


def plan_of(ranges: Iterable[OffsetRange], offsets_per_step: int, purpose: Mapping[str, str]) -> BackfillPlan:
    """Return the plan of ranges. Several ranges of one partition become one."""
    whole: dict[TopicPartition, OffsetRange] = {}
    for range_ in ranges:
        before = whole.get(range_.partition, range_)
        start, until = min(before.start, range_.start), max(before.until, range_.until)
        whole[range_.partition] = OffsetRange(range_.partition, start, until)
    return BackfillPlan(tuple(whole[partition] for partition in sorted(whole)), offsets_per_step, purpose)


def _share(range_: OffsetRange, number: int, count: int) -> OffsetRange:
    start, until = (range_.start + len(range_) * share // count for share in (number, number + 1))
    return OffsetRange(range_.partition, start, until)


def _range_of(topic: Any, partition: Any, start: Any, until: Any) -> OffsetRange:
    return OffsetRange(TopicPartition(str(topic), int(partition)), int(start), int(until))


RANGE_OPTIONS = frozenset(
    {
        *("subscribe", "subscribepattern", "assign"),
        *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
        *("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"),
    }
)
"""The options that choose the offsets to read, in lower case. The plan replaces them."""
DEFAULT_OFFSETS_PER_STEP = 1_000_000


@frozen
class BackfillConfig:
    """The configuration of a backfill. `source` contains the options of a batch read by `format("streamgroup")`."""

    file: Path
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    sink: Sink = field(repr=False)
    progress: str
    spark: SparkSettings = field(repr=False)
    offsets_per_step: int = DEFAULT_OFFSETS_PER_STEP

    @property
    def purpose(self) -> dict[str, str]:
        """Return the settings that must not change between two runs of one backfill."""
        chosen = {name.lower(): value for name, value in self.source.items() if name.lower() in RANGE_OPTIONS}
        return {**chosen, "sink": self.sink.target, "columns": ", ".join(self.sink.columns) or "*"}

    @property
    def connection(self) -> dict[str, str]:
        """Return the options of the source without those that choose the offsets."""
        return {name: value for name, value in self.source.items() if name.lower() not in RANGE_OPTIONS}


def load(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> BackfillConfig:
    """Return the backfill of `file`. Raises ConfigError that names all problems of the file together."""
    return _BackfillReader(file, member, os.environ if environment is None else environment).backfill(read_toml(file))


def effective(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the configuration that `load` makes as lines of TOML, each value with its origin and no secret."""
    reader = _BackfillReader(file, member, os.environ if environment is None else environment)
    reader.backfill(read_toml(file))
    return reader.effective()


class _BackfillReader(JobFileReader):
    """Reads the job file of a backfill, and collects its problems."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        of_options = {SOURCE: (SOURCE_OPTIONS, Scope.BATCH)}
        super().__init__(file, member, environment, sections=SECTIONS, of_options=of_options)

    def backfill(self, document: Mapping[str, Any]) -> BackfillConfig:
        self.check_member()
        sections = self.sections(document)
        values = {name: self.values(name, sections.get(name, {})) for name in SECTIONS}
        source = self._source(sections.get(SOURCE))
        self._check_sink(values["sink"])
        self.check_placeholders("backfill", values["backfill"], ("progress",))
        self.check_spark(values["spark"])
        self.raise_problems()
        return BackfillConfig(
            file=self.file,
            source=source,
            sink=Sink(**values["sink"]),
            spark=SparkSettings(**{"app_name": self.file.stem, **values["spark"]}),
            **values["backfill"],
        )

    def _source(self, content: Mapping[str, Any] | None) -> dict[str, str]:
        options = self.options(SOURCE, content, 'the options of a batch read by format("streamgroup")')
        if options:
            try:
                parse_source(options, streaming=False)
            except ConfigError as error:
                self.problems.append(f"[source]: {error}")
        return options

    def _check_sink(self, sink: Mapping[str, Any]) -> None:
        kind = str(sink.get("format", "")).lower()
        self.check_placeholders("sink", sink, ("path",))
        self.check_target(sink)
        if kind in FILE_FORMATS and "path" not in sink and "table" not in sink:
            self.problems.append(f"[sink] path or table is required for format {kind!r}, which writes files")
        self.check_options_of_sink(sink, {"path": "path"})


SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "backfill": (
        Key(
            "progress",
            TEXT,
            "Directory of the plan and of the steps that are done. A new directory begins a new backfill.",
            required=True,
        ),
        Key(
            "offsets_per_step",
            LARGE_COUNT,
            "About how many offsets one step reads. A step that a failure has cut short is read again.",
            default="1000000",
        ),
    ),
    "sink": BATCH_SINK,
    "spark": COMMON["spark"],
}
"""The keys of all sections but `source`, whose keys are the options of a batch read by `format("streamgroup")`."""
