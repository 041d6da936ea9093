"""Writes log lines to stderr without blocking the threads that log, and logs each note about options once.

Spark's JVM copies the stderr of a Python process to its own stderr. If the JVM is stopped, or its terminal is halted by
Ctrl-S, the pipe is full after 64 KiB. A thread that writes to it would then block while it holds the coordinator's
lock, and the member would send no more heartbeats.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

from streamgroup.options.notes import Caution

log = logging.getLogger("streamgroup")

STDERR = 2
MOST_WAITING = 1000
"""Maximum number of queued lines; further lines are dropped and counted."""
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s streamgroup: %(message)s", "%y/%m/%d %H:%M:%S")
FLUSH_TIMEOUT_S = 0.5
"""How long the process, when it ends, waits until queued lines are written: it must end within a second."""


def log_to_stderr() -> None:
    """Log to this process's stderr, which Spark copies to the driver, unless the user has configured logging."""
    if log.handlers or logging.getLogger().handlers:
        return
    handler = StderrHandler()
    handler.setFormatter(_FORMAT)
    log.addHandler(handler)
    log.setLevel(os.environ.get("STREAMGROUP_LOG_LEVEL", "INFO").upper())
    log.propagate = False


def log_warnings_to_stderr() -> None:
    """Log warnings to the stderr of the user's program, until the user configures logging.

    Listeners and drains use it. Without a handler Python would write a warning without time, level and origin.
    """
    if not log.handlers:
        log.addHandler(UnconfiguredHandler())


class UnconfiguredHandler(logging.StreamHandler[Any]):
    """Writes log records to `sys.stderr` while the root logger has no handlers. It changes no log levels."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(_FORMAT)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless the user has configured logging."""
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # a notebook replaces it
            super().emit(record)


class StderrHandler(logging.Handler):
    """Writes log records to the file descriptor `to` from a daemon thread, in the order in which they were logged."""

    def __init__(self, to: int = STDERR) -> None:
        super().__init__()
        # Not through sys.stderr: the thread would hold its lock while it waits, and the process could not end.
        self._to = to
        self._waiting: SimpleQueue[tuple[str, int] | threading.Event] = SimpleQueue()
        """Queued lines, each with the number of lines dropped before it. An Event is set when reached."""
        self._dropped = 0
        """Lines dropped since the start. Only `emit` counts them."""
        self._is_broken = False
        threading.Thread(target=self._write_all, name="streamgroup-stderr", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record for the writing thread, or count it as dropped.

        The caller, `handle`, holds the handler's lock.
        """
        try:
            line = self.format(record)
        except Exception as error:  # Handler.handleError would print to stderr from this thread
            line = f"{record.levelname} streamgroup: cannot format the log message {record.msg!r}: {error!r}"
        if self._is_broken:
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._dropped += 1
        else:
            self._waiting.put((line, self._dropped))

    def flush(self) -> None:
        """Wait until all earlier lines are written, at most FLUSH_TIMEOUT_S."""
        written = threading.Event()
        self._waiting.put(written)
        written.wait(FLUSH_TIMEOUT_S)

    def _write_all(self) -> None:
        reported = 0
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            line, dropped = item
            self._report_dropped(dropped - reported)
            self._write(line)
            if self._waiting.empty():  # no later line reports them
                reported, dropped = dropped, self._dropped
                self._report_dropped(dropped - reported)
            reported = dropped

    def _report_dropped(self, lines: int) -> None:
        if lines:
            self._write(f"WARN streamgroup: {lines} log messages were dropped: no process read this stderr")

    def _write(self, line: str) -> None:
        if self._is_broken:
            return
        try:
            _write(self._to, f"{line}\n".encode(errors="backslashreplace"))
        except OSError:  # the JVM has ended, so the pipe has no reader any more
            self._is_broken = True


def _write(to: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(to, data) :]
        except BlockingIOError:  # another process that shares the pipe has made it non-blocking
            select.select([], [to], [], 1.0)


# --- notes on options ------------------------------------------------------------------------------------------------

_MOST_NOTES = 1000
"""Maximum number of remembered notes: a driver that runs for months plans many batches with many options."""


class OptionNotesLog:
    """Logs each note about options once. Any thread may call it, because Spark plans batches in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[str, None] = {}

    def log(self, notes: Iterable[str], group: str = "") -> None:
        """Log the notes that are new in this process: cautions as warnings, others as info with the name of `group`."""
        for note in notes:
            is_caution = isinstance(note, Caution)
            text = note if is_caution or not group else f"{group}: {note}"
            if self._is_new(text):
                log.log(logging.WARNING if is_caution else logging.INFO, "%s", text)

    def forget(self) -> None:
        """Forget which notes were logged, as after a restart of the process."""
        with self._lock:
            self._logged.clear()

    def _is_new(self, text: str) -> bool:
        with self._lock:
            if text in self._logged:
                return False
            if len(self._logged) >= _MOST_NOTES:
                self._logged.clear()
            self._logged[text] = None
            return True


NOTES = OptionNotesLog()
"""The notes logged by this process."""
