"""The channel of a Spark Connect client: it sends requests to coordinators as batch reads that the server plans.

Spark plans a read of a Python source in a process next to the driver's JVM, on the server and as its user. Only such a
process can reach the control channels of the coordinators.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from streamgroup.coordinator.control import channel
from streamgroup.coordinator.control.drains import POLL_S, drain_together
from streamgroup.coordinator.control.parent import find_jvm
from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.monitoring.query_totals import QueryFailure
from streamgroup.spark.channel import SunkNotifier
from streamgroup.spark.queries import Value

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

log = logging.getLogger("streamgroup")


class ConnectChannel:
    """Sends requests to the coordinators of a Spark Connect server. Several threads may use it."""

    def __init__(self, session: SparkSession) -> None:
        """Register the data source that carries out requests. Raises TransportError if the server refuses."""
        self._session = session
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        self._has_failed = False
        try:
            session.dataSource.register(ControlDataSource)
        except PySparkException as error:
            raise _unreachable(error) from error

    def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each coordinator that responds, by run id. Raises TransportError."""
        statuses: dict[str, dict[str, Any]] = self._request({"request": "statuses"})
        return statuses

    def drain(self, runs: Sequence[str], timeout: float, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Drain the coordinators `runs` at the same time; return their responses in that order.

        Raises TransportError.
        """
        request = {"request": "drain", "runs": list(runs), "timeout": timeout}
        with ThreadPoolExecutor(1, "streamgroup-drain") as thread:
            answer = thread.submit(self._request, request)
            while not wait([answer], POLL_S).done:
                meanwhile()
        answers: list[dict[str, Any]] = answer.result()
        return answers

    def notify(self, documents: Sequence[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report that the batch with these end documents is completed, unless a later one is. Never raises.

        A report takes a Spark job, and a report of an earlier batch has no effect.
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
                    log.warning(
                        "cannot report a completed batch, which is committed only at the next trigger: %s", error
                    )
                self._has_failed = True

    def groups_joined(self, documents: Sequence[Value]) -> list[str]:
        """Return the groups in which the coordinators of these documents are members. Raises TransportError."""
        groups: list[str] = self._request({"request": "groups", "documents": list(documents)})
        return groups

    def announce_listener(self, cores: int) -> None:
        """Do nothing: the first report has the same effect, and a marker file would stay when this client dies."""

    def record_failure(self, failure: QueryFailure) -> None:
        """Do nothing: the live page reads the files of the driver's machine, and this client may be on another."""

    def _request(self, request: Mapping[str, Any]) -> Any:
        try:
            frame = self._session.read.format(NAME).option(REQUEST, json.dumps(request)).load()
            (row,) = frame.collect()
        except (PySparkException, ValueError) as error:  # gRPC raises ValueError for a closed session
            raise _unreachable(error) from error
        return json.loads(row.answer)


def _unreachable(error: Exception) -> TransportError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in reversed(lines) if "Error: " in line), lines[0] if lines else repr(error))
    return TransportError(
        f"cannot reach the coordinators through Spark Connect: {cause}. Install streamgroup in this version, and this "
        "minor version of Python, on the server"
    )


NAME = "streamgroup_control"
REQUEST = "request"


class ControlDataSource(DataSource):
    """The data source that carries out a request to coordinators. Its one row is the response."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "answer STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ControlReader(str(self.options.get(REQUEST, "")))


class ControlAnswer(InputPartition):
    """Carries the response from the driver to the task that returns it."""

    def __init__(self, text: str) -> None:
        super().__init__(None)
        self.text = text


class ControlReader(DataSourceReader):
    """Sends a request to coordinators while Spark plans the read."""

    def __init__(self, request: str) -> None:
        self._request = request

    def partitions(self) -> Sequence[InputPartition]:
        """Send the request. Raises ConfigError if it is invalid, or outside of a driver."""
        jvm = find_jvm()
        if jvm is None:
            raise ConfigError(
                "cannot find the driver's JVM among the ancestors of this process. If PYSPARK_PYTHON is a wrapper "
                "script, start Python in it with `exec`"
            )
        try:
            request = channel.read_message(self._request.encode())
        except ValueError as error:
            raise ConfigError(
                f"invalid request to the coordinators: {error}. Read with format('streamgroup')"
            ) from error
        return [ControlAnswer(json.dumps(carry_out(jvm, request)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        assert isinstance(partition, ControlAnswer)
        yield (partition.text,)


def carry_out(jvm: int, request: Mapping[str, Any]) -> Any:
    """Return the response of the coordinators of the driver `jvm` to a request. Raises ConfigError if it is unknown."""
    match request:
        case {"request": "statuses"}:
            return channel.statuses(jvm)
        case {"request": "drain", "runs": list(runs), "timeout": int() | float() as timeout}:
            return drain_together(jvm, runs, timeout)
        case {"request": "sunk", "documents": list(documents), "batch": int(batch), "query": dict(query)}:
            return SunkNotifier(jvm).notify(documents, batch, query)
        case {"request": "groups", "documents": list(documents)}:
            return SunkNotifier(jvm).groups_joined(documents)
    raise ConfigError(
        f"unknown request to the coordinators: {request.get('request')!r}. Read with format('streamgroup')"
    )
