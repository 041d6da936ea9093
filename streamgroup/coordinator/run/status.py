"""Parts of a query's status: age of the batch in flight, time without an assignment, error, completed batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from streamgroup.coordinator.planning.pace import Pace
from streamgroup.coordinator.run.interface import RunConfig
from streamgroup.errors import SkippedBatchError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.holdings import InFlightBatch
from streamgroup.group.member import Member, MemberAction
from streamgroup.model import Document, OffsetRange


class BatchClock:
    """Measures how long a batch has been in flight.

    Batches are compared by identity: a replay of the same document is another batch.
    """

    __slots__ = ("_batch", "_since")

    def __init__(self) -> None:
        self._batch: InFlightBatch | None = None
        self._since = 0.0

    def look(self, batch: InFlightBatch | None, now: float) -> float | None:
        """Return the seconds since `batch` was first seen, at monotonic time `now`; None if none is in flight."""
        if batch is not self._batch:
            self._batch, self._since = batch, now
        return None if batch is None else now - self._since


class AssignmentClock:
    """Measures how long the member has been without an assignment.

    It adds up the seconds from each `Joining` that gives up the partitions, and from each `Lost`, to the next
    `Assigned`. An assignment of no partitions counts as an assignment.
    """

    __slots__ = ("_since", "_total_s")

    def __init__(self) -> None:
        self._since: float | None = None
        self._total_s = 0.0

    def on_action(self, action: object, now: float) -> None:
        """Follow an action of the member at monotonic time `now`."""
        match action:
            case ev.Joining(keeps=False) | ev.Lost():
                if self._since is None:
                    self._since = now
            case ev.Assigned() | ev.Left():
                self._total_s = self.seconds(now)
                self._since = None

    def seconds(self, now: float) -> float:
        """Return the seconds up to `now`, which grow while the member has no assignment."""
        return self._total_s + (0.0 if self._since is None else now - self._since)


class Failure:
    """Stores the first error that retrying will not resolve. Spark's next call raises it."""

    def __init__(self) -> None:
        self.error: StreamGroupError | None = None
        """None while the query can continue."""

    def set(self, error: StreamGroupError) -> None:
        """End the query with `error`, unless it has failed before."""
        self.error = self.error or error

    def raise_it(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error


MOST_BATCHES = 32
"""Maximum number of batches whose metrics are kept for the status: a few seconds of short batches."""


class BatchCompletion:
    """Serves the requests `sunk` and `ranges` of the control channel, with which a listener reports completed batches.

    `perform(actions)` carries out the member's actions in order. `on_skipped(document, error)` is called if the sink
    skipped a batch; `error` fails the query (R17).
    """

    def __init__(
        self,
        member: Member,
        perform: Callable[[Iterable[MemberAction]], None],
        on_skipped: Callable[[Document, SkippedBatchError], None],
        pace: Pace,
        config: RunConfig,
    ) -> None:
        self._member = member
        self._config = config
        self._perform = perform
        self._on_skipped = on_skipped
        self._pace = pace
        self._was_reported = False
        self.is_announced: Callable[[], bool] = lambda: False
        """Whether a listener has registered with the driver."""
        self.query: Mapping[str, Any] = {}
        """The query's `id` and `name` from the listener's report, which alone has them."""
        self.batches: deque[Mapping[str, Any]] = deque(maxlen=MOST_BATCHES)
        """Metrics of the newest batches from the listener's reports: rows, and the duration of each phase."""

    @property
    def is_listened(self) -> bool:
        """Whether a listener reports this query's completed batches."""
        return self._was_reported or self.is_announced()

    def on_report(
        self, document: Document, batch: int | None, query: Mapping[str, Any], now: float
    ) -> Mapping[str, Any]:
        """Process the listener's report that Spark has completed the batch of `document`, its batch number `batch`.

        The report counts if that batch is exactly the one in flight. The commit follows in the background, and so does
        a rejoin that waits for the commit (R21). Any other report has no effect, and the returned mapping gives the
        reason. If the sink skipped the batch (R17), the query fails at its next call.
        """
        self._was_reported = True
        self.query = {name: value for name, value in query.items() if name != "batch"} or self.query
        if isinstance(figures := query.get("batch"), dict):
            self.batches.append(figures)
        ledger = self._member.ledger
        if not ledger.on_batch_done(document, batch):
            flight = ledger.in_flight
            awaited = "nothing is in flight" if flight is None else f"in flight is {flight.document.sequence}"
            return {
                "proven": False,
                "why": f"document {document.sequence} of run {document.run} is not in flight: {awaited}",
            }
        self._pace.end(now)
        try:
            self._perform(self._member.batch_completed(document, now))
        except SkippedBatchError as error:
            self._on_skipped(document, error)
            return {"proven": False, "why": str(error)}
        return {"proven": True, "why": ""}

    def ranges(self) -> Mapping[str, Any]:
        """Return the ranges of the batch in flight, each as `[topic, partition, start, until]`.

        `ranges` is None if no batch is in flight, or Spark has not requested its tasks.
        """
        ledger = self._member.ledger
        flight = ledger.in_flight
        planned = None if flight is None else flight.planned_ranges
        return {
            "group": ledger.group,
            "run": ledger.run,
            "lineage": "" if flight is None else flight.document.lineage,
            "sequence": 0 if flight is None else flight.document.sequence,
            "ranges": None
            if planned is None
            else [[r.partition.topic, r.partition.partition, r.start, r.until] for r in planned],
            **self._stored(planned or ()),
            **self._committed_by_sink(planned or ()),
        }

    def _committed_by_sink(self, ranges: Collection[OffsetRange]) -> dict[str, Any]:
        """Return `transaction`: what a transaction of Kafka needs to commit these ranges (R38), else nothing.

        `is_held` is false if another member has the partition of a range now, and null while that is not known.
        """
        member = self._member
        if not member.in_transaction:
            return {}
        ledger = member.ledger
        after = ledger.stored_with_batch()
        may_store = ledger.may_store(ranges)
        return {
            "transaction": {
                "id": self._config.sink_id(ledger.lineage),
                "timeout_ms": self._config.transaction_timeout_ms,
                "member": ledger.member_id,
                "generation": ledger.generation,
                "instance": member.instance_id,
                "is_held": None if may_store is False and not ledger.held and member.is_joining else may_store,
                "after": [[after[r.partition].leader_epoch, after[r.partition].metadata] for r in ranges],
            }
        }

    def _stored(self, ranges: Iterable[OffsetRange]) -> dict[str, Any]:
        """Return `stored`: what a sink must store with each of these ranges, `[claim, leader epoch, metadata]` (R37).

        Empty without an offset table.
        """
        table = self._member.table
        if table is None:
            return {}
        parts = table.parts(ranges, self._member.ledger.stored_with_batch())
        return {"stored": [[part.claim, part.after.leader_epoch, part.after.metadata] for part in parts]}
