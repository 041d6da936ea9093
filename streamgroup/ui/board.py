"""The history, for one thread that writes it and the threads of requests that read it."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from typing import Any

from streamgroup.ui.history.history import History
from streamgroup.ui.history.reading import Reading

_MOST_ANSWERS = 64
"""Answers kept until the next reading: browsers that show the same view share one."""


class Board:
    """Keeps a history behind a lock, and the answers made of it until it changes."""

    def __init__(self, history: History | None = None) -> None:
        self._history = history or History()
        self._lock = threading.Lock()
        self._answers: dict[object, bytes | None] = {}
        self._start = secrets.token_hex(4)
        """Tells apart the sequences of two starts of the server."""

    def add(self, reading: Reading) -> None:
        """Add a reading."""
        with self._lock:
            self._history.add(reading)
            self._answers.clear()

    def fail(self, at: float, text: str) -> None:
        """Take the error of a reading that failed."""
        with self._lock:
            self._history.fail(at, text)
            self._answers.clear()

    def version(self) -> str:
        """Return a text that changes with each reading."""
        return f"{self._start}-{self._history.sequence}"

    def answer(self, key: object, view: Callable[[History], dict[str, Any] | None]) -> tuple[str, bytes | None]:
        """Return the version and the JSON of a view; None where what it is about does not exist.

        `key` identifies the view.
        """
        with self._lock:
            if key not in self._answers:
                shown = view(self._history)
                encoded = None if shown is None else json.dumps(shown, separators=(",", ":")).encode()
                if len(self._answers) >= _MOST_ANSWERS:
                    del self._answers[next(iter(self._answers))]
                self._answers[key] = encoded
            return self.version(), self._answers[key]
