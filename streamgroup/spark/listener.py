"""`streamgroup.listen(spark)`: batches are committed when they have sunk, not when Spark asks for the next (R15)."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from streamgroup.driver.application import control
from streamgroup.errors import ConfigError
from streamgroup.spark.queries import Value, documents_in, driver_context, jvm_pid
from streamgroup.spark.telling import Teller

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

log = logging.getLogger("streamgroup")

_STATEFUL = (
    "query %s keeps state (%s) while its source is a member of group %s: partitions move to other members, and their "
    "state stays behind. Sharing a group is for stateless queries: give a stateful one option('group.mode', 'commit'), "
    "with which it reads all partitions itself and only commits"
)


class GroupListener(StreamingQueryListener):
    """Tells the coordinators of this driver of batches that have sunk. Never blocks or fails Spark's listener bus."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._teller = Teller(pid)
        self._stateful: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        """Renew the listener's mark: while no query runs, no coordinator keeps it from being cleaned away."""
        with suppress(OSError):
            control.announce_listener(self._pid)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch has sunk, and is in Spark's commit log: its coordinators are told, from a thread of its own."""
        try:
            progress = event.progress
            documents = list(documents_in(progress.sources, "endOffset"))
            if documents:
                self._heard(progress, documents)
        except Exception:
            log.warning(
                "a query's progress could not be read: its batches are committed by its triggers", exc_info=True
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has sunk."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The coordinator leaves by itself. A query that starts again is warned of again, if it must be."""
        self._stateful.discard(str(getattr(event, "id", "")))

    def _heard(self, progress: StreamingQueryProgress, documents: list[Value]) -> None:
        query = {"id": str(progress.id), "name": progress.name or ""}
        operators = sorted({operator.operatorName for operator in progress.stateOperators})
        told = (documents, progress.batchId, query, operators)
        threading.Thread(target=self._tell, args=told, name="streamgroup-sunk", daemon=True).start()

    def _tell(self, documents: list[Value], batch: int, query: dict[str, str], operators: list[str]) -> None:
        self._teller.tell(documents, batch, query)
        if not operators or query["id"] in self._stateful:
            return
        shared = self._teller.groups_joined(documents)
        if shared:
            self._stateful.add(query["id"])
            log.warning(_STATEFUL, query["name"] or query["id"], ", ".join(operators), ", ".join(shared))


_listening: weakref.WeakKeyDictionary[SparkContext, list[tuple[Any, GroupListener]]] = weakref.WeakKeyDictionary()
"""By application, the sessions that are listened to: each has a bus of its own. Spark keeps its sessions as long."""
_lock = threading.Lock()


def listen(spark: SparkSession) -> GroupListener:
    """Commit every batch of this session's queries as soon as it has sunk; the listener, one a session.

    Without it a batch is proven sunk when Spark asks for the next one: with a trigger of minutes that is minutes later,
    and after Trigger.Once never. Call it once, before or after the queries start. Raises ConfigError through Spark
    Connect: there the listener and the coordinators are on different machines.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "listen does not work through Spark Connect: listeners run in the client and the coordinators on the "
            "server; there a batch is committed with the next trigger"
        )
    context = driver_context("listen")
    pid = jvm_pid(context)
    bus: Any = spark._jsparkSession.streams()
    with _lock:
        sessions = _listening.setdefault(context, [])
        for listened, listener in sessions:
            if listened.equals(bus):
                return listener
        listener = GroupListener(pid)
        spark.streams.addListener(listener)
        sessions.append((bus, listener))
    _announce(pid)
    return listener


def _announce(pid: int) -> None:
    """Coordinators wait at their end for the last word of who tells them."""
    try:
        control.announce_listener(pid)
    except OSError as error:
        log.warning(
            "coordinators will not know of the listener, and may end before it tells of the last batch: %s", error
        )
        return
    atexit.register(control.unannounce_listener, pid)
