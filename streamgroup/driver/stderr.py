"""The log of a coordinator's process on its stderr, written so that no thread that logs waits for a reader.

Spark's JVM copies the stderr of a Python process to its own. When nobody reads that (a stopped JVM, a terminal that was
halted with Ctrl-S), the pipe is full after 64 KiB, and a thread that writes to it blocks while it holds the
coordinator's lock: the member would send no more heartbeats.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque

STDERR = 2
MOST_WAITING = 1000
"""Lines that wait for the reader; further ones are dropped and counted."""
FLUSH_S = 0.5
"""How long the end of the process waits for the reader: a coordinator leaves its group and ends within a second."""


class StderrHandler(logging.Handler):
    """Write records to the descriptor `to` from a daemon thread, in the order in which they were logged."""

    def __init__(self, to: int = STDERR) -> None:
        super().__init__()
        # Not through sys.stderr: the thread would hold its lock while it waits, and the end of the process would too.
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
            self._tell_dropped()
            self._waiting.append(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written that was logged before, FLUSH_S at most."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._is_writing), FLUSH_S)

    def _tell_dropped(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._waiting.append(f"WARN streamgroup: {dropped} log messages were dropped: nobody read this stderr")

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                if not self._waiting:
                    self._tell_dropped()
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting))
                line = self._waiting.popleft()
                self._is_writing = True
            try:
                _write(self._to, f"{line}\n".encode(errors="backslashreplace"))
            except OSError:  # the JVM is gone and nobody will ever read this
                with self._changed:
                    self._is_writing, self._is_broken = False, True
                    self._waiting.clear()
                    self._changed.notify_all()
                return


def _write(to: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(to, data) :]
        except BlockingIOError:  # whoever shares the pipe has made it non-blocking
            select.select([], [to], [], 1.0)
