"""The history, for one thread that writes it and the threads of requests that read it."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.ui.history.batches import Reading
from streamgroup.ui.history.history import History

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


log = logging.getLogger("streamgroup")

Read = Callable[[], Reading]
"""Reads the cluster once. Raises StreamGroupError."""


class BoardPoller:
    """Adds a reading to the board every `interval` seconds, from `start` until `stop`.

    `opened` connects. After a reading that failed the poller closes what it has opened, and opens it again: a session
    with ZooKeeper may have ended.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Read]], board: Board, interval: float) -> None:
        self._opened = opened
        self._board = board
        self._interval = interval
        self._stopped = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="streamgroup-ui-poller", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop reading, and wait up to `timeout` seconds for the reading under way."""
        self._stopped.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._opened() as read:
                    self._read_until_stopped(read)
            except StreamGroupError as error:
                self._fail(str(error))
            except Exception as error:  # the page would show old data forever, and nobody would know
                log.debug("cannot read the cluster", exc_info=True)
                self._fail(f"unexpected error of streamgroup ui: {error!r}")
            self._stopped.wait(self._interval)

    def _fail(self, text: str) -> None:
        """Show an error, and log it once for as long as it repeats: a cluster may be away for days."""
        if text != self._failure:
            log.warning("cannot read the cluster: %s", text)
        self._failure = text
        self._board.fail(time.time(), text)

    def _read_until_stopped(self, read: Read) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._board.add(read())
            self._failure = ""
            self._stopped.wait(max(0.0, began + self._interval - time.monotonic()))
