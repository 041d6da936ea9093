"""Reads the cluster again and again, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from streamgroup.errors import StreamGroupError
from streamgroup.ui.board import Board
from streamgroup.ui.history.reading import Reading

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
