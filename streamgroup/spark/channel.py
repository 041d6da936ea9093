"""The ways from a user's process to the coordinators of its queries: on this machine, or through Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from streamgroup.driver.application import control, drains
from streamgroup.driver.application.drains import drain_together
from streamgroup.monitoring.query_failures import QueryFailure
from streamgroup.spark.queries import Value, driver_context, jvm_pid
from streamgroup.spark.sunk_notifier import SunkNotifier

CONNECT = "pyspark.sql.connect"


class CoordinatorChannel(Protocol):
    """Reaches the coordinators of one driver. Several threads may use it."""

    def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each coordinator that answers, by run."""

    def drain(self, runs: Sequence[str], timeout: float, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Drain the coordinators `runs` at once; return their answers, in that order. Calls `meanwhile` as it waits."""

    def notify(self, documents: Sequence[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report that the batch with these end documents has sunk. Never raises."""

    def groups_joined(self, documents: Sequence[Value]) -> list[str]:
        """Return the groups of these documents' coordinators that are members."""

    def announce_listener(self) -> None:
        """Let the coordinators know that a listener reports their sunk batches. Raises OSError."""

    def record_failure(self, failure: QueryFailure) -> None:
        """Keep the error that has ended a query for the live page, where that can reach it. Raises OSError."""


class LocalCoordinatorChannel:
    """The channel in the driver's own process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._notifier = SunkNotifier(pid)

    def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each coordinator that answers, by run."""
        return control.statuses(self._pid)

    def drain(self, runs: Sequence[str], timeout: float, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Drain the coordinators `runs` at once; return their answers, in that order."""
        return drain_together(self._pid, runs, timeout, meanwhile=meanwhile)

    def notify(self, documents: Sequence[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report that the batch with these end documents has sunk. Never raises."""
        self._notifier.notify(documents, batch, query)

    def groups_joined(self, documents: Sequence[Value]) -> list[str]:
        """Return the groups of these documents' coordinators that are members."""
        return self._notifier.groups_joined(documents)

    def announce_listener(self) -> None:
        """Write the listener's marker file. Raises OSError."""
        control.announce_listener(self._pid)

    def record_failure(self, failure: QueryFailure) -> None:
        """Add the failure to the file of this driver, which the live page reads. Raises OSError."""
        drains.record_failure(self._pid, failure)


def is_remote(of: Any) -> bool:
    """Return whether a session or a query belongs to a client of Spark Connect."""
    return type(of).__module__.startswith(CONNECT)


def channel_of(query: Any, what: str) -> CoordinatorChannel:
    """Return the channel to the coordinators of `query`. Raises ConfigError, which names `what`, without a driver."""
    if is_remote(query):
        from streamgroup.spark.connect import ConnectChannel  # noqa: PLC0415  (only for clients of Spark Connect)

        return ConnectChannel(query._session)
    return LocalCoordinatorChannel(jvm_pid(driver_context(what)))
