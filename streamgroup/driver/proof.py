"""What the rest of the application tells and asks about the batch in flight: that it has sunk (R15), what it covers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from streamgroup.driver.membership.seats import Carrier
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.group.member import Member
from streamgroup.model import Document
from streamgroup.planning.document import from_value


class Proof:
    """The requests `sunk` and `ranges` of one run. `state` is the coordinator's lock, notified after every change."""

    def __init__(
        self,
        state: threading.Condition,
        member: Member,
        thread: Carrier,
        on_skipped: Callable[[Document, StreamGroupError], None],
    ) -> None:
        self._state = state
        self._member = member
        self._thread = thread
        self._on_skipped = on_skipped
        self._heard = False
        self.announced: Callable[[], bool] = lambda: False
        """Whether the driver has a listener, as far as others know."""
        self.query: dict[str, Any] = {}
        """What the listener has told of the query: its `id`, its `name`. Nothing else names a coordinator's query."""

    @property
    def is_listened(self) -> bool:
        """Whether somebody tells this run of batches that have sunk."""
        return self._heard or self.announced()

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        """The listener has said that the batch of `document` has sunk, as Spark's batch `batch`.

        It is proven if it is exactly the one in flight; commits follow in the background, and the rejoin that waits for
        them (R21). Anything else has no effect: the answer says why. A batch that the sink skipped (R17) fails the
        query at its next call.
        """
        sunk = from_value(document)
        with self._state:
            self._heard = True
            self.query = dict(query) or self.query
            ledger = self._member.ledger
            if not ledger.on_batch_done(sunk, batch):
                flight = ledger.in_flight
                awaited = "nothing is in flight" if flight is None else f"in flight is {flight.document.sequence}"
                return {
                    "proven": False,
                    "why": f"document {sunk.sequence} of run {sunk.run} is not in flight: {awaited}",
                }
            try:
                actions = self._member.mark_sunk(sunk, time.monotonic())
            except ConfigError as error:
                self._on_skipped(sunk, error)
                return {"proven": False, "why": str(error)}
            self._thread.carry_out(actions)
            self._state.notify_all()
            return {"proven": True, "why": ""}

    def ranges(self) -> dict[str, Any]:
        """What the batch in flight covers, `[topic, partition, start, until]` each: what was handed out, no more.

        `ranges` is None where no batch is in flight, or its tasks were not asked for.
        """
        with self._state:
            flight = self._member.ledger.in_flight
            handed = None if flight is None else flight.planned_ranges
            return {
                "group": self._member.ledger.group,
                "run": self._member.ledger.run,
                "lineage": "" if flight is None else flight.document.lineage,
                "sequence": 0 if flight is None else flight.document.sequence,
                "ranges": None
                if handed is None
                else [[r.partition.topic, r.partition.partition, r.start, r.until] for r in handed],
            }
