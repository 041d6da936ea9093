"""The backfill job: it copies what topics hold now, or held in a range of time, into a sink of Spark.

    spark-submit jobs/backfill.py --config conf/backfill.toml

Exit codes: 0 when the backfill is complete or after a requested stop, 1 after a failure, 2 for an invalid
configuration.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import click
from pyspark.errors import PySparkException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from streamgroup.jobs.backfill.config import BackfillConfig, effective, load
from streamgroup.jobs.backfill.steps import Advance, run_steps
from streamgroup.jobs.job_run import file_options, job_session, run_command
from streamgroup.jobs.sinkguard import HadoopFiles


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
