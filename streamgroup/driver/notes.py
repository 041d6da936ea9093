"""The log of notes about options: each note once in a process of the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from streamgroup.options.notes import Caution

log = logging.getLogger("streamgroup")

_MOST = 1000
"""Notes that are remembered: a driver that runs for months plans many batches with many options."""


class OptionNotesLog:
    """Logs each note once. Any thread may call it: Spark plans batches in several."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, None] = {}

    def log(self, notes: Iterable[str], group: str = "") -> None:
        """Log the notes that are new in this process: cautions as warnings, others behind the name of `group`."""
        for note in notes:
            is_caution = isinstance(note, Caution)
            text = note if is_caution or not group else f"{group}: {note}"
            if self._is_new(text):
                log.log(logging.WARNING if is_caution else logging.INFO, "%s", text)

    def forget(self) -> None:
        """Begin as a new process does."""
        with self._lock:
            self._said.clear()

    def _is_new(self, text: str) -> bool:
        with self._lock:
            if text in self._said:
                return False
            if len(self._said) >= _MOST:
                self._said.clear()
            self._said[text] = None
            return True


NOTES = OptionNotesLog()
"""The log of this process."""
