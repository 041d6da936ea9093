"""Reports sunk batches to the coordinator processes of an application, for the listener and for a drain. Asks them
about the batches that a job reports.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroup.driver.application import control
from streamgroup.errors import StreamGroupError
from streamgroup.options.types import GroupMode
from streamgroup.spark.queries import Value

log = logging.getLogger("streamgroup")

REQUEST_TIMEOUT_S = 5.0
"""How long the notifier waits for the answer of a coordinator process."""


class SunkNotifier:
    """Notifies the coordinator processes of one driver. Several threads may use it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lock = threading.Lock()
        # Both hold live runs only, because an application may start any number of queries.
        self._failed: set[str] = set()
        self._by_lineage: dict[str, str] = {}

    def notify(self, documents: Iterable[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report that the batch with these end documents has sunk. Never raises; logs a failure once for each run."""
        for value in documents:
            run = self._run_of(value)
            if run is None:  # the query has ended
                continue
            try:
                answer = control.ask(
                    self._pid, run, "sunk", answer_timeout=REQUEST_TIMEOUT_S, document=value, batch=batch, query=query
                )
            except StreamGroupError as error:
                self._warn_once(run, error)
            else:
                log.debug("reported batch %d (document %s) as sunk: %s", batch, value.get("sequence"), answer)

    def groups_joined(self, documents: Iterable[Value]) -> list[str]:
        """Return the groups of these documents' coordinators that are members, whose partitions may move."""
        runs = {run for value in documents if (run := self._run_of(value)) is not None}
        statuses = control.statuses(self._pid)
        members = (
            status for run, status in statuses.items() if run in runs and status.get("mode") == GroupMode.MEMBER.value
        )
        return sorted({status["group"] for status in members})

    def log_ends(self, value: Value) -> Mapping[str, Any]:
        """Return the ends of the logs that the coordinator of this document holds, listed now.

        They have the format of Spark's Kafka connector. Empty if the coordinator has ended or does not answer.
        """
        run = self._run_of(value)
        try:
            answer = {} if run is None else control.ask(self._pid, run, "log_ends", answer_timeout=REQUEST_TIMEOUT_S)
        except StreamGroupError as error:
            log.debug("no ends of logs: %s", error)
            return {}
        ends: Mapping[str, Any] = answer.get("ends", {})
        return ends

    def _run_of(self, value: Value) -> str | None:
        """Return the run of the query with this document, which for a replay names the run before."""
        runs = control.runs(self._pid)
        if value["run"] in runs:
            return str(value["run"])
        lineage = str(value["lineage"])
        known = self._by_lineage.get(lineage)
        if known in runs:
            return known
        of_lineage = [run for run, status in control.statuses(self._pid).items() if status["lineage"] == lineage]
        if len(of_lineage) != 1:  # with two copies of one checkpoint, the batch may be of either
            return None
        with self._lock:
            self._by_lineage = {known: run for known, run in self._by_lineage.items() if run in runs}
            self._by_lineage[lineage] = of_lineage[0]
        return of_lineage[0]

    def _warn_once(self, run: str, error: StreamGroupError) -> None:
        runs = control.runs(self._pid)
        with self._lock:
            first = run not in self._failed
            self._failed = self._failed.intersection(runs) | {run}
        if first and run in runs:
            log.warning(
                "cannot report a sunk batch to the coordinator process of run %s, which commits it with the next "
                "trigger instead: %s",
                run,
                error,
            )
