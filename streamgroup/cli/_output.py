"""The output of `streamgroup consume`: records, notices on standard error, and the signals that end it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

import click

from streamgroup.cli._properties import without_prefix

if TYPE_CHECKING:
    import pyarrow as pa

    from streamgroup.cli._record_format import PrintFormat
    from streamgroup.logformat import LogFormat

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
"""The lowest level of log lines that are shown, by verbosity."""


class RecordPrinter:
    """Prints records to `stream`, at most `count` of them (None: all). Each batch is flushed."""

    def __init__(self, stream: BinaryIO, record_format: PrintFormat, count: int | None) -> None:
        self._stream = stream
        self._format = record_format
        self.left = count
        """How many records are still to be printed; None without a limit."""

    @property
    def is_done(self) -> bool:
        return self.left == 0

    def print(self, batch: pa.RecordBatch, log_format: LogFormat) -> bool:
        """Print `batch`, and return whether all of its records were printed. Raises BrokenPipeError."""
        total: int = batch.num_rows
        rows = total if self.left is None else min(self.left, total)
        if rows:
            self._stream.write(self._format.render(batch.slice(0, rows), log_format))
            self._stream.flush()
        if self.left is not None:
            self.left -= rows
        return rows == total


class _LogLines(logging.Formatter):
    """Log lines that name properties as the command line does."""

    def format(self, record: logging.LogRecord) -> str:
        return without_prefix(super().format(record))


class Notices:
    """Notices and log lines on standard error.

    `verbosity` is 0 for errors only, 1 by default, 2 or more for more notices.
    """

    def __init__(self, verbosity: int) -> None:
        self.verbosity = verbosity

    def say(self, text: str, verbosity: int = 1) -> None:
        """Print a notice, if the user wants that many."""
        if self.verbosity >= verbosity:
            click.echo(f"% {without_prefix(text)}", err=True)

    @contextlib.contextmanager
    def logging(self) -> Iterator[None]:
        """Show streamgroup's log lines within the block: warnings and errors by default."""
        log = logging.getLogger("streamgroup")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_LogLines("%% %(levelname)s: %(message)s"))
        before = log.level, log.propagate
        log.addHandler(handler)
        log.setLevel(_LEVELS[min(self.verbosity, len(_LEVELS) - 1)])
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(handler)
            level, log.propagate = before
            log.setLevel(level)  # an assignment would leave what isEnabledFor has cached


class StopSignals:
    """Ends the command on SIGINT or SIGTERM: at once while it waits, otherwise when its current step is complete.

    A second signal ends it at once, with exit code 1. Signals are handled only in the main thread.
    """

    def __init__(self) -> None:
        self.asked = False
        """Whether a signal has asked the command to end."""
        self._interrupt: Callable[[], None] | None = None
        self._is_ending = False

    def __enter__(self) -> StopSignals:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        is_second, self.asked = self.asked, True
        if self._is_ending:
            return
        if self._interrupt is not None:
            self._interrupt()
        elif is_second:
            sys.exit(1)

    @contextlib.contextmanager
    def waiting(self, interrupt: Callable[[], None] = lambda: sys.exit(0)) -> Iterator[None]:
        """Have a signal call `interrupt` within the block. It ends the wait by an exception."""
        before, self._interrupt = self._interrupt, interrupt
        try:
            if self.asked:
                interrupt()
            yield
        finally:
            self._interrupt = before

    @contextlib.contextmanager
    def completing(self) -> Iterator[None]:
        """Complete the block: a signal ends a surrounding wait only afterwards."""
        interrupt, self._interrupt = self._interrupt, None
        try:
            yield
        finally:
            self._interrupt = interrupt
        if self.asked and interrupt is not None:
            interrupt()

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Ignore signals within the block: the command is ending, within its own time limit."""
        self._is_ending = True
        try:
            yield
        finally:
            self._is_ending = False


@contextlib.contextmanager
def quiet_when_closed(stream: BinaryIO) -> Iterator[None]:
    """End without an error when the reader of `stream` has closed it, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # the interpreter flushes it once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
