"""Counts the connections of this process to brokers.

A coordinator has a process of its own, so these are the coordinator's figures. `Link`, which every connection to a
broker has, counts them. Connections to ZooKeeper are not counted.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class _Totals:
    opened: int = 0
    """Connections whose handshake was completed."""
    closed: int = 0
    """Those of them that are closed again, for whatever reason."""
    failed: int = 0
    """Connections that could not be set up."""
    lost: int = 0
    """Open connections that ended by an error, or were reset since a response was overdue."""
    unanswered: int = 0
    """Requests that these left without a response."""


class ConnectionTotals:
    """The counts since the process started. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = _Totals()

    def on_opened(self) -> None:
        """Count a connection whose handshake is completed."""
        with self._lock:
            self._totals.opened += 1

    def on_failed(self) -> None:
        """Count a connection that could not be set up."""
        with self._lock:
            self._totals.failed += 1

    def on_closed(self, *, is_lost: bool, unanswered: int) -> None:
        """Count the end of an open connection. `unanswered` is the number of its requests without a response."""
        with self._lock:
            self._totals.closed += 1
            if is_lost:
                self._totals.lost += 1
                self._totals.unanswered += unanswered

    def status(self) -> dict[str, int]:
        """Return the counts, and as `open` the number of connections that are open now."""
        with self._lock:
            counts = asdict(self._totals)
        return {"open": counts["opened"] - counts.pop("closed"), **counts}


TOTALS = ConnectionTotals()
"""The totals of this process."""
