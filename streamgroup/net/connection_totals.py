"""Counts the connections of this process to brokers, and knows the address that they come from.

A coordinator has a process of its own, so these are the coordinator's figures. `Link`, which every connection to a
broker has, counts them. Connections to ZooKeeper are not counted.
"""

from __future__ import annotations

import threading


class ConnectionTotals:
    """The counts since the process started. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"open": 0, "opened": 0, "failed": 0, "lost": 0, "unanswered": 0}
        self._local_host = ""

    @property
    def local_host(self) -> str:
        """The address of this machine that the newest connection comes from; empty before the first."""
        return self._local_host

    def on_opened(self, local_host: str) -> None:
        """Count a connection from the address `local_host` whose handshake is completed."""
        with self._lock:
            self._local_host = local_host
            self._counts["open"] += 1
            self._counts["opened"] += 1

    def on_failed(self) -> None:
        """Count a connection that could not be set up."""
        with self._lock:
            self._counts["failed"] += 1

    def on_closed(self, *, is_lost: bool, unanswered: int) -> None:
        """Count the end of an open connection. `unanswered` is the number of its requests without a response."""
        with self._lock:
            self._counts["open"] -= 1
            if is_lost:
                self._counts["lost"] += 1
                self._counts["unanswered"] += unanswered

    def status(self) -> dict[str, int]:
        """Return the number of connections that are `open` now.

        Beside it are those that were `opened`, that `failed` in their set-up and that were `lost` later, and the
        requests that the lost ones left `unanswered`.
        """
        with self._lock:
            return dict(self._counts)


TOTALS = ConnectionTotals()
"""The totals of this process."""
