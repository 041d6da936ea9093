"""Connects a user's process to the coordinators of its queries: on this machine, or through Spark Connect."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from streamgroup.coordinator.control import channel, drains
from streamgroup.coordinator.control.drains import drain_together
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.group.offsets.table_rows import BatchPart
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from streamgroup.monitoring.query_totals import QueryFailure
from streamgroup.options.types import GroupMode
from streamgroup.spark.queries import (
    Value,
    documents_in_flight,
    documents_of_earlier_batches,
    driver_context,
    jvm_pid,
    query_id_of_thread,
    runs_with,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

    from streamgroup.sql.offset_table import GroupBatch, Transaction

log = logging.getLogger("streamgroup")

CONNECT = "pyspark.sql.connect"


class CoordinatorChannel(Protocol):
    """Sends requests to the coordinator processes of one driver. Several threads may use it."""

    def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each coordinator that responds, by run id."""

    def drain(self, runs: Sequence[str], timeout: float, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Drain the coordinators `runs` at the same time; return their responses in that order.

        Waits call `meanwhile`.
        """

    def notify(self, documents: Sequence[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report to the coordinators that the batch with these end documents is completed. Never raises."""

    def groups_joined(self, documents: Sequence[Value]) -> list[str]:
        """Return the groups in which the coordinators of these documents are members."""

    def announce_listener(self, cores: int) -> None:
        """Announce to the coordinators that a listener reports completed batches. Raises OSError.

        `cores`: the number of cores of the application's executors.
        """

    def record_failure(self, failure: QueryFailure) -> None:
        """Store the error that has ended a query for the live page, if the page can read it. Raises OSError."""


class LocalCoordinatorChannel:
    """Sends requests to the coordinator processes of the driver that this process runs in."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._notifier = SunkNotifier(pid)

    def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        return channel.statuses(self._pid)

    def drain(self, runs: Sequence[str], timeout: float, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        return drain_together(self._pid, runs, timeout, meanwhile=meanwhile)

    def notify(self, documents: Sequence[Value], batch: int, query: Mapping[str, Any]) -> None:
        self._notifier.notify(documents, batch, query)

    def groups_joined(self, documents: Sequence[Value]) -> list[str]:
        return self._notifier.groups_joined(documents)

    def announce_listener(self, cores: int) -> None:
        channel.announce_listener(self._pid, cores)

    def record_failure(self, failure: QueryFailure) -> None:
        """Add the failure to the file of this driver, which the live page reads. Raises OSError."""
        drains.record_failure(self._pid, failure)


def is_remote(of: Any) -> bool:
    """Return whether a session or a query belongs to a client of Spark Connect."""
    return type(of).__module__.startswith(CONNECT)


def channel_of(query: Any, what: str) -> CoordinatorChannel:
    """Return the channel to the coordinators of `query`.

    Raises ConfigError, which names the caller `what`, if this process has no driver.
    """
    if is_remote(query):
        from streamgroup.spark.connect import ConnectChannel  # noqa: PLC0415  (only for clients of Spark Connect)

        return ConnectChannel(query._session)
    return LocalCoordinatorChannel(jvm_pid(driver_context(what)))


REQUEST_TIMEOUT_S = 5.0
"""Timeout in seconds for the response of a coordinator process."""


class SunkNotifier:
    """Reports completed batches to the coordinator processes of one driver. Several threads may use it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lock = threading.Lock()
        # Both hold live runs only, because an application may start any number of queries.
        self._failed: set[str] = set()
        self._by_lineage: dict[str, str] = {}

    def notify(self, documents: Iterable[Value], batch: int, query: Mapping[str, Any]) -> None:
        """Report that the batch with these end documents is completed.

        Never raises; logs a failure once for each run.
        """
        for value in documents:
            run = self._run_of(value)
            if run is None:  # the query has ended
                continue
            try:
                answer = channel.ask(
                    self._pid, run, "sunk", answer_timeout=REQUEST_TIMEOUT_S, document=value, batch=batch, query=query
                )
            except StreamGroupError as error:
                self._warn_once(run, error)
            else:
                log.debug("reported batch %d (document %s) as completed: %s", batch, value.get("sequence"), answer)

    def groups_joined(self, documents: Iterable[Value]) -> list[str]:
        """Return the groups in which the coordinators of these documents are members, so that partitions may move."""
        runs = {run for value in documents if (run := self._run_of(value)) is not None}
        statuses = channel.statuses(self._pid)
        members = (
            status for run, status in statuses.items() if run in runs and status.get("mode") == GroupMode.MEMBER.value
        )
        return sorted({status["group"] for status in members})

    def log_ends(self, value: Value) -> Mapping[str, Any]:
        """List and return the log end offsets of the partitions that the coordinator of this document owns.

        They have the format of Spark's Kafka connector. Empty if the coordinator has ended or does not respond.
        """
        run = self._run_of(value)
        try:
            answer = {} if run is None else channel.ask(self._pid, run, "log_ends", answer_timeout=REQUEST_TIMEOUT_S)
        except StreamGroupError as error:
            log.debug("cannot get the log end offsets: %s", error)
            return {}
        ends: Mapping[str, Any] = answer.get("ends", {})
        return ends

    def _run_of(self, value: Value) -> str | None:
        """Return the run of the query with this document, which for a replay names the previous run."""
        runs = channel.runs(self._pid)
        if value["run"] in runs:
            return str(value["run"])
        lineage = str(value["lineage"])
        known = self._by_lineage.get(lineage)
        if known in runs:
            return known
        of_lineage = [run for run, status in channel.statuses(self._pid).items() if status["lineage"] == lineage]
        if len(of_lineage) != 1:  # with two copies of one checkpoint, the batch may be of either
            return None
        with self._lock:
            self._by_lineage = {known: run for known, run in self._by_lineage.items() if run in runs}
            self._by_lineage[lineage] = of_lineage[0]
        return of_lineage[0]

    def _warn_once(self, run: str, error: StreamGroupError) -> None:
        runs = channel.runs(self._pid)
        with self._lock:
            first = run not in self._failed
            self._failed = self._failed.intersection(runs) | {run}
        if first and run in runs:
            log.warning(
                "cannot report a completed batch to the coordinator process of run %s, which commits it only at the "
                "next trigger: %s",
                run,
                error,
            )


def ranges(group: str | None = None, member: str | None = None) -> tuple[OffsetRange, ...]:
    """Return the offsets `[start, until)` of every partition in the batch in flight, for sinks that store them.

    Call it inside a `foreachBatch` function, in the thread in which Spark calls that function. The ranges of a replay
    do not include offsets that the group has committed since the batch was planned. The result is empty for a batch in
    which the source reads nothing: the first batch of a query without new records, or one that Spark runs for state or
    for another source. If the query has several sources, `group` selects one by its group. If several sources are in
    one group, `member` selects one by its option `group.member`.

    Raises ConfigError outside a `foreachBatch` function, if several sources match, and through Spark Connect. Raises
    TransportError if the coordinator does not respond.
    """
    found = batch_of_thread("ranges")
    chosen = [b for b in found.parts if group in (None, b["group"]) and member in (None, b["name"])]
    if not chosen and not found.is_planned:
        return ()  # a source that has not planned yet: Spark runs batch 0 of a query even without records
    reading = [b for b in chosen if b["ranges"] is not None]
    if len(reading) > 1 or not chosen:
        raise ConfigError(_unclear(found.query_id, found.parts, reading, group, member))
    return tuple(one for part in reading for one in ranges_in(part))


@frozen
class ThreadBatch:
    """The batch that a thread writes in a `foreachBatch` function."""

    query_id: str
    parts: list[Mapping[str, Any]]
    """What each coordinator of the query reports about the batch; `ranges` is None if it reads nothing."""
    is_planned: bool
    """Whether every source of the query has planned a batch."""
    is_complete: bool
    """Whether the coordinators of all sources that have planned a batch have answered."""

    def check_complete(self, store: str, stored: str) -> None:
        """Raise ConfigError if a coordinator's answer is missing: the batch cannot be stored then.

        `store` and `stored` are the verb of the error.
        """
        if not self.is_complete:
            raise ConfigError(
                f"cannot {store} the batch of query {self.query_id}: its offsets are unknown. Nothing was {stored}. "
                "Either no source of the query has format('streamgroup'), or not all of their coordinator processes "
                "have answered: check the driver's log for a process that has ended or a control channel that could "
                "not be opened, and start the query again"
            )

    @property
    def is_stored_here(self) -> bool:
        """Whether `mark_stored` was called for this batch: the function has stored it, and is not done with it."""
        return bool(self._key) and _stored_here.get(self.query_id) == self._key

    def mark_stored(self) -> None:
        """Record that the function has stored this batch."""
        _stored_here[self.query_id] = self._key

    @property
    def _key(self) -> tuple[tuple[str, int], ...]:
        return tuple((part["run"], part["sequence"]) for part in self.parts if part["ranges"] is not None)


_stored_here: dict[str, tuple[tuple[str, int], ...]] = {}
"""By query: run and sequence of each source in the batch that this process has stored last."""


def batch_of_thread(what: str) -> ThreadBatch:
    """Return the batch that this thread writes. Raises ConfigError, which names the caller `what`, TransportError."""
    context = driver_context(what)
    query_id = query_id_of_thread(context)
    if not query_id:
        raise ConfigError(
            f"cannot determine the ranges: this thread writes no batch. Call {what}() inside a foreachBatch function, "
            "in the thread in which Spark calls that function"
        )
    documents = documents_in_flight(context, query_id)
    found = _batches(jvm_pid(context), query_id, documents)
    planned = [value for value in documents or () if value.get("lineage")]
    is_planned = len(planned) == len(documents or ())
    # After a restart, Spark does not call a source that reads nothing in the batch which it repeats.
    idle = documents_of_earlier_batches(context, query_id)
    reading = [value for value in planned if value not in idle]
    answered = {(part["lineage"], part["sequence"]) for part in found if part["ranges"] is not None}
    is_complete = all((value["lineage"], value["sequence"]) in answered for value in reading)
    is_complete = is_complete and bool(found or not is_planned or planned)
    return ThreadBatch(query_id, found, is_planned, is_complete)


def ranges_in(part: Mapping[str, Any]) -> tuple[OffsetRange, ...]:
    """Return the ranges that a coordinator has reported."""
    return tuple(OffsetRange(TopicPartition(t, p), start, until) for t, p, start, until in part["ranges"] or ())


def _batches(pid: int, query_id: str, documents: list[Value] | None) -> list[Mapping[str, Any]]:
    """Return what each coordinator of the query reports about the batch; `ranges` is None if it reads nothing.

    The documents identify the coordinators. Without documents the listener does, from the query's first progress on.
    """
    statuses = channel.statuses(pid)
    if documents is None:
        runs = runs_with((), statuses, query_id)
        if not runs:
            raise ConfigError(
                f"cannot determine the ranges of query {query_id}: this version of Spark does not show its "
                "coordinators. Call streamgroup.listen(spark) once in the application: it finds them from the second "
                "batch on"
            )
    else:
        runs = runs_with((value["lineage"] for value in documents if value.get("lineage")), statuses)
    wanted = None if documents is None else {(value.get("lineage"), value["sequence"]) for value in documents}
    found: list[Mapping[str, Any]] = []
    for run in runs:
        batch = {**channel.ask(pid, run, "ranges"), "name": statuses[run].get("name", "")}
        is_asked_for = wanted is None or (batch["lineage"], batch["sequence"]) in wanted
        # Without a lineage nothing is in flight: this source's part of the batch ends where the last batch did.
        if is_asked_for if batch["ranges"] is not None else not batch["lineage"]:
            found.append(batch)
    return found


def _unclear(
    query_id: str,
    found: list[Mapping[str, Any]],
    reading: list[Mapping[str, Any]],
    group: str | None,
    member: str | None,
) -> str:
    asked = "" if group is None else f" of group {group!r}"
    asked += "" if member is None else f" as member {member!r}"
    if not found:
        return (
            f"cannot determine the ranges of query {query_id}: no coordinator process reads a part of this batch. "
            f"Either its sources have another format, or a control channel could not be opened: check the driver's "
            f"log for a warning"
        )
    named = (f"group {b['group']!r}" + (f" as {b['name']!r}" if b["name"] else "") for b in reading or found)
    names = ", ".join(sorted(named))
    cause = "more than one source reads in this batch:" if reading else f"the query has no source{asked}, only"
    return f"cannot determine the ranges of query {query_id}: {cause} {names}. Choose one: ranges(group=…, member=…)"


# --- offsets in a database --------------------------------------------------------------------------------------------


@contextmanager
def transaction(engine: sa.Engine) -> Iterator[Transaction]:
    """Open a transaction that stores the rows of the batch in flight together with its offsets.

        def store(batch, batch_id):
            with streamgroup.transaction(engine) as tx:
                if not tx.is_replay:
                    tx.connection.execute(insert(orders), [row.asDict() for row in batch.toLocalIterator()])

    Call it inside a `foreachBatch` function, in the thread in which Spark calls that function, with an engine of the
    database that the option `offsets.store` of the sources names. All sources of the query are stored together. What is
    written by `connection` becomes visible with the offsets when the `with` block ends, and not at all after an
    exception. If `is_replay`, an earlier transaction has stored this batch: write nothing.

    Raises FencedError if another member has claimed a partition, and OffsetStoreError if the offsets in the database
    are not those of the batch; nothing is stored then. Raises ConfigError outside a `foreachBatch` function, through
    Spark Connect, and if a source has no `offsets.store`.
    """
    # It needs SQLAlchemy, which most applications do not have.
    from streamgroup.sql.offset_table import OffsetTable, batch_transaction  # noqa: PLC0415

    found = batch_of_thread("transaction")
    found.check_complete("store", "stored")
    reading = [part for part in found.parts if part["ranges"] is not None]
    with batch_transaction(engine, OffsetTable(), [_stored(part) for part in reading]) as open_transaction:
        if open_transaction.is_replay and found.is_stored_here:
            raise ConfigError(
                f"cannot store the batch of query {found.query_id}: an earlier transaction of the same call has stored "
                "its offsets. Write all rows of a batch in one transaction"
            )
        yield open_transaction
    found.mark_stored()


def _stored(part: Mapping[str, Any]) -> GroupBatch:
    """Return what one source has read, and what the offset table has afterwards."""
    if not part["group"]:
        raise ConfigError(
            "cannot store the offsets of a source with the batch: it has no consumer group. Set kafka.group.id, and "
            "leave out group.mode=off"
        )
    if "stored" not in part:
        raise ConfigError(
            f"cannot store the offsets of group {part['group']!r} with the batch: its source has no offset table. Set "
            "the option offsets.store of the source to the URL of the database"
        )
    from streamgroup.sql.offset_table import GroupBatch  # noqa: PLC0415

    parts = (
        BatchPart(one, claim, CommittedOffset(one.until, metadata, epoch))
        for one, (claim, epoch, metadata) in zip(ranges_in(part), part["stored"], strict=True)
    )
    return GroupBatch(part["group"], tuple(parts))
