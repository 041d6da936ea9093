"""A terminal for processes of tests: a pty that becomes their controlling terminal."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


class Terminal:
    """A terminal, and what processes have written to it."""

    def __init__(self, path: str, master: int) -> None:
        self._path = path
        self._master = master
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, name="terminal")
        self._reader.start()

    def argv(self, argv: Sequence[object]) -> list[object]:
        """Return the command that runs `argv` on this terminal, for a process that starts a session.

        Linux makes the first terminal that a session opens its controlling terminal.
        """
        return ["sh", "-c", ': <>"$0"; exec "$@"', self._path, *argv]

    def text(self) -> str:
        """Return what was written, with the control sequences."""
        return self._written.decode(errors="replace")

    def _read(self) -> None:
        with suppress(OSError):  # the last process has closed the terminal
            while piece := os.read(self._master, 65_536):
                self._written += piece

    def join(self) -> None:
        """Wait until everything that was written is read. No process may have the terminal open any more."""
        self._reader.join(10)
        assert not self._reader.is_alive(), "a process still has the terminal open"


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Open a terminal for the length of the block; its processes must have ended by then."""
    master, slave = os.openpty()
    opened = Terminal(os.ttyname(slave), master)
    try:
        yield opened
    finally:
        os.close(slave)
        opened.join()
        os.close(master)
