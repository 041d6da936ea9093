"""Counts the connections of this process to brokers, for metrics.

Each coordinator runs in a separate process, so the counts are for one coordinator. Every connection to a broker has a
`Link`, which reports to this module. Connections to ZooKeeper are not counted.
"""

from __future__ import annotations

import threading


class ConnectionTotals:
    """The counts of connections since the process started. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"open": 0, "opened": 0, "failed": 0, "lost": 0, "unanswered": 0, "throttled_s": 0.0}
        self._throttling: set[str] = set()
        """The brokers that have throttled this process. Bounded by the brokers of its clusters."""
        self._local_host = ""

    @property
    def local_host(self) -> str:
        """The local address of the newest connection; "" before the first connection."""
        return self._local_host

    def on_opened(self, local_host: str) -> None:
        """Count a connection from the address `local_host` that has completed its handshake."""
        with self._lock:
            self._local_host = local_host
            self._counts["open"] += 1
            self._counts["opened"] += 1

    def on_failed(self) -> None:
        with self._lock:
            self._counts["failed"] += 1

    def on_closed(self, *, is_lost: bool, unanswered: int) -> None:
        """Count the end of an open connection. `unanswered` is the number of its requests without a response."""
        with self._lock:
            self._counts["open"] -= 1
            if is_lost:
                self._counts["lost"] += 1
                self._counts["unanswered"] += unanswered

    def on_throttled(self, peer: str, seconds: float) -> bool:
        """Add the throttle time of one response.

        Return whether this broker has throttled the client for the first time.
        """
        with self._lock:
            self._counts["throttled_s"] += seconds
            is_first = peer not in self._throttling
            self._throttling.add(peer)
        return is_first

    def status(self) -> dict[str, float]:
        """Return all counts by name.

        `open` is the number of connections that are open now. `opened`, `failed` (in their setup) and `lost` (later)
        count connections. `unanswered` counts the requests without a response on lost connections. `throttled_s` is the
        sum of all throttle times in seconds.
        """
        with self._lock:
            return {name: round(count, 3) for name, count in self._counts.items()}


TOTALS = ConnectionTotals()
"""The totals of this process."""
