"""The channel of a client of Spark Connect: its requests are batch reads, which the server plans in its driver.

Spark plans a read of a Python source in a process beside the driver's JVM, on the server and as its user. The control
channels of the coordinators are in that process's reach, and only there.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from streamgroup.driver.application.drains import POLL_S
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.monitoring.query_totals import QueryFailure
from streamgroup.spark.control_source import NAME, REQUEST, ControlDataSource
from streamgroup.spark.queries import Value

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger("streamgroup")


class ConnectChannel:
    """Reaches the coordinators of the server's driver. Several threads may use it."""

    def __init__(self, session: SparkSession) -> None:
        """Register the source of the requests with the session. Raises TransportError if the server refuses."""
        self._session = session
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        self._has_failed = False
        try:
            session.dataSource.register(ControlDataSource)
        except PySparkException as error:
            raise _unreachable(error) from error

    def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each coordinator that answers, by run. Raises TransportError."""
        statuses: dict[str, dict[str, Any]] = self._request({"request": "statuses"})
        return statuses

    def drain(self, runs: Sequence[str], timeout: float, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Drain the coordinators `runs` at once; return their answers, in that order. Raises TransportError."""
        request = {"request": "drain", "runs": list(runs), "timeout": timeout}
        with ThreadPoolExecutor(1, "streamgroup-drain") as thread:
            answer = thread.submit(self._request, request)
            while not wait([answer], POLL_S).done:
                meanwhile()
        answers: list[dict[str, Any]] = answer.result()
        return answers

    def notify(self, documents: Sequence[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report that the batch with these end documents has sunk, unless a later one has by then. Never raises.

        A report takes a job of Spark. Reports of batches that Spark has left behind have no effect, so none is sent.
        """
        name = str(query["id"])
        self._newest[name] = batch
        with self._lock:
            if self._newest[name] != batch:
                return
            try:
                self._request({"request": "sunk", "documents": list(documents), "batch": batch, "query": dict(query)})
            except StreamGroupError as error:
                if not self._has_failed:
                    log.warning("cannot report a sunk batch, which is committed with the next trigger: %s", error)
                self._has_failed = True

    def groups_joined(self, documents: Sequence[Value]) -> list[str]:
        """Return the groups of these documents' coordinators that are members. Raises TransportError."""
        groups: list[str] = self._request({"request": "groups", "documents": list(documents)})
        return groups

    def announce_listener(self) -> None:
        """Do nothing: the first report has the same effect, and a marker file would stay when this client dies."""

    def record_failure(self, failure: QueryFailure) -> None:
        """Do nothing: the live page reads the files of the driver's machine, and this client may be on another."""

    def _request(self, request: Mapping[str, Any]) -> Any:
        try:
            frame = self._session.read.format(NAME).option(REQUEST, json.dumps(request)).load()
            (row,) = frame.collect()
        except (PySparkException, ValueError) as error:  # gRPC raises ValueError where the session was closed
            raise _unreachable(error) from error
        return json.loads(row.answer)


def _unreachable(error: Exception) -> TransportError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in reversed(lines) if "Error: " in line), lines[0] if lines else repr(error))
    return TransportError(
        f"cannot reach the coordinators through Spark Connect: {cause}. Install streamgroup in this version, and this "
        "minor version of Python, on the server"
    )
