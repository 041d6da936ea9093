"""Telling coordinators of batches that have sunk: what the listener hears, and what a drain reads in the progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroup.driver.application import control
from streamgroup.errors import StreamGroupError
from streamgroup.options.types import Mode
from streamgroup.spark.queries import Value

log = logging.getLogger("streamgroup")

PATIENCE_S = 5.0


class Teller:
    """Tells the coordinators of one driver. Used by several threads."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lock = threading.Lock()
        # Of runs that are alive: an application may start queries for as long as it lives.
        self._failed: set[str] = set()
        self._by_lineage: dict[str, str] = {}

    def tell(self, documents: Iterable[Value], batch: int, query: Mapping[str, Any]) -> None:
        """The batch `batch`, of these end documents, has sunk. Never raises; failures are logged once a run."""
        for value in documents:
            run = self._run_of(value)
            if run is None:  # its query has ended
                continue
            try:
                answer = control.ask(
                    self._pid, run, "sunk", patience=PATIENCE_S, document=value, batch=batch, query=query
                )
            except StreamGroupError as error:
                self._say_once(run, error)
            else:
                log.debug("batch %d, document %s: %s", batch, value.get("sequence"), answer)

    def groups_joined(self, documents: Iterable[Value]) -> list[str]:
        """The groups that the coordinators of these documents are members of: others share the partitions."""
        runs = {run for value in documents if (run := self._run_of(value)) is not None}
        told = control.statuses(self._pid)
        return sorted({told[run]["group"] for run in runs & told.keys() if told[run].get("mode") == Mode.MEMBER.value})

    def _run_of(self, value: Value) -> str | None:
        """The coordinator of the query that the document is of: a replay's document names a run that is over."""
        runs = control.runs(self._pid)
        if value["run"] in runs:
            return str(value["run"])
        lineage = str(value["lineage"])
        known = self._by_lineage.get(lineage)
        if known in runs:
            return known
        of_lineage = [run for run, status in control.statuses(self._pid).items() if status["lineage"] == lineage]
        if len(of_lineage) != 1:  # two copies of one checkpoint: the batch of one says nothing of the other's
            return None
        with self._lock:
            self._by_lineage = {told: run for told, run in self._by_lineage.items() if run in runs}
            self._by_lineage[lineage] = of_lineage[0]
        return of_lineage[0]

    def _say_once(self, run: str, error: StreamGroupError) -> None:
        runs = control.runs(self._pid)
        with self._lock:
            first = run not in self._failed
            self._failed = self._failed.intersection(runs) | {run}
        if first and run in runs:
            log.warning("could not tell that a batch has sunk, it is committed with the next trigger: %s", error)
