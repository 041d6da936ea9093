"""Answers the application's requests about the batch in flight: it has sunk (R15), and which ranges it covers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamgroup.errors import SkippedBatchError
from streamgroup.group.member import Member, MemberAction
from streamgroup.model import Document
from streamgroup.planning.pace import Pace

MOST_BATCHES = 32
"""Batches whose figures are kept for the status: those of a few seconds, where batches are short."""


class BatchCompletion:
    """The requests `sunk` and `ranges` of one run. `perform` takes the member's actions, in order.

    `on_skipped` takes a document whose batch the sink skipped, and the error that fails the query (R17).
    """

    def __init__(
        self,
        member: Member,
        perform: Callable[[Iterable[MemberAction]], None],
        on_skipped: Callable[[Document, SkippedBatchError], None],
        pace: Pace,
    ) -> None:
        self._member = member
        self._perform = perform
        self._on_skipped = on_skipped
        self._pace = pace
        self._was_reported = False
        self.is_announced: Callable[[], bool] = lambda: False
        """Whether a listener has registered with the driver."""
        self.query: Mapping[str, Any] = {}
        """The query's `id` and `name` from the listener's report, the only source that names them."""
        self.batches: deque[Mapping[str, Any]] = deque(maxlen=MOST_BATCHES)
        """The figures of the newest batches, as the listener reports them: rows, and the duration of each phase."""

    @property
    def is_listened(self) -> bool:
        """Whether a listener reports this run's sunk batches."""
        return self._was_reported or self.is_announced()

    def mark_sunk(
        self, document: Document, batch: int | None, query: Mapping[str, Any], now: float
    ) -> Mapping[str, Any]:
        """Take the listener's report that the batch of `document` has sunk, as Spark's batch `batch`.

        The report counts if the batch is exactly the one in flight. The commit follows in the background, and so does
        the rejoin that waits for it (R21). Any other report has no effect, and the answer gives the reason. A batch
        that the sink skipped (R17) fails the query at its next call.
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
            self._perform(self._member.mark_sunk(document, now))
        except SkippedBatchError as error:
            self._on_skipped(document, error)
            return {"proven": False, "why": str(error)}
        return {"proven": True, "why": ""}

    def ranges(self) -> Mapping[str, Any]:
        """Return the ranges of the batch in flight, each as `[topic, partition, start, until]`.

        `ranges` is None if no batch is in flight, or Spark has not asked for its tasks.
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
        }
