"""Writes the log of a process in the driver to stderr without blocking the threads that log.

Spark's JVM copies the stderr of a Python process to its own. If the JVM is stopped, or its terminal is halted by
Ctrl-S, the pipe is full after 64 KiB. A thread that writes to it would then block while it holds the coordinator's
lock, and the member would send no more heartbeats.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque

log = logging.getLogger("streamgroup")

STDERR = 2
MOST_WAITING = 1000
"""Lines that may wait for the reader; further ones are dropped and counted."""
FLUSH_TIMEOUT_S = 0.5
"""How long the ending process waits for the reader: a coordinator must leave its group and end within a second."""


def log_to_stderr() -> None:
    """Log to stderr, which Spark copies to the driver's, unless logging is configured."""
    if log.handlers or logging.getLogger().handlers:
        return
    handler = StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s streamgroup: %(message)s", "%y/%m/%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(os.environ.get("STREAMGROUP_LOG_LEVEL", "INFO").upper())
    log.propagate = False


class StderrHandler(logging.Handler):
    """Write records to the descriptor `to` from a daemon thread, in the order in which they were logged."""

    def __init__(self, to: int = STDERR) -> None:
        super().__init__()
        # Not through sys.stderr: the thread would hold its lock while it waits, and the process could not end.
        self._to = to
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._is_writing = self._is_broken = False
        threading.Thread(target=self._write_all, name="streamgroup-stderr", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record to the writing thread, or count it as dropped."""
        try:
            line = self.format(record)
        except Exception as error:  # Handler.handleError would print to stderr from this thread
            line = f"{record.levelname} streamgroup: cannot format the log message {record.msg!r}: {error!r}"
        with self._changed:
            if self._is_broken:
                return
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                return
            self._report_dropped()
            self._waiting.append(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all earlier lines are written, at most FLUSH_TIMEOUT_S."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._is_writing), FLUSH_TIMEOUT_S)

    def _report_dropped(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._waiting.append(f"WARN streamgroup: {dropped} log messages were dropped: nobody read this stderr")

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                if not self._waiting:
                    self._report_dropped()
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting))
                line = self._waiting.popleft()
                self._is_writing = True
            try:
                _write(self._to, f"{line}\n".encode(errors="backslashreplace"))
            except OSError:  # the JVM has ended, so the pipe has no reader any more
                with self._changed:
                    self._is_writing, self._is_broken = False, True
                    self._waiting.clear()
                    self._changed.notify_all()
                return


def _write(to: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(to, data) :]
        except BlockingIOError:  # another process that shares the pipe has made it non-blocking
            select.select([], [to], [], 1.0)
