"""The metrics of one driver, read when somebody asks for them.

A listener adds up the batches. The coordinators are asked for their status on their control channels, which the
driver's user alone can use.
"""

from __future__ import annotations

import threading
import time

from streamgroup.driver.application import control
from streamgroup.monitoring.families import LogKey, families, log_ends
from streamgroup.monitoring.family import Family
from streamgroup.monitoring.log_times import LogTimes
from streamgroup.spark.query_counter import QueryCounter

STATUS_TIMEOUT_S = 1.0
"""The most seconds that a reading waits for one coordinator."""
READING_S = 5.0
"""The most seconds that a reading waits for all coordinators. Prometheus gives up after 10 s, by default."""


class DriverMetrics:
    """The metrics of all queries and coordinators of the driver whose JVM has the process id `pid`."""

    def __init__(self, pid: int, counter: QueryCounter, cluster_name: str) -> None:
        self.counter = counter
        self._pid = pid
        self._cluster_name = cluster_name
        self._times = LogTimes[LogKey]()
        self._lock = threading.Lock()

    def read(self) -> list[Family]:
        """Return all metrics as they are now. Waits READING_S at most."""
        now = time.monotonic()  # before the statuses: of two readings at a time the later one has the newer ends
        statuses = control.statuses(self._pid, STATUS_TIMEOUT_S, now + READING_S)
        with self._lock:  # several may read at a time
            self._times.add(now, log_ends(statuses.values()))
            return families(
                statuses.values(),
                self.counter.totals(),
                self._cluster_name,
                self.counter.failures(),
                lambda log, position: self._times.seconds_behind(log, position, now),
            )
