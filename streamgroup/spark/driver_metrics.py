"""The metrics of one driver, read when somebody asks for them.

A listener adds up the batches. The coordinators are asked for their status on their control channels, which the
driver's user alone can use.
"""

from __future__ import annotations

import time

from streamgroup.driver.application import control
from streamgroup.monitoring.families import families
from streamgroup.monitoring.family import Family
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

    def read(self) -> list[Family]:
        """Return all metrics as they are now. Waits READING_S at most."""
        statuses = control.statuses(self._pid, STATUS_TIMEOUT_S, time.monotonic() + READING_S)
        return families(statuses.values(), self.counter.totals(), self._cluster_name, self.counter.failures())
