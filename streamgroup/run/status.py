"""Measures the age of the batch in flight."""

from __future__ import annotations

from streamgroup.errors import StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.holdings import InFlightBatch


class BatchClock:
    """Remembers when the batch in flight was first seen.

    Each batch, and each replay, is an object of its own. It does not mix up two that are equal.
    """

    __slots__ = ("_batch", "_since")

    def __init__(self) -> None:
        self._batch: InFlightBatch | None = None
        self._since = 0.0

    def look(self, batch: InFlightBatch | None, now: float) -> float | None:
        """Return the seconds since `batch` was first seen, at monotonic time `now`; None where none is in flight."""
        if batch is not self._batch:
            self._batch, self._since = batch, now
        return None if batch is None else now - self._since


class AssignmentClock:
    """Adds up the seconds from each `Joining` that gives up the partitions, or `Lost`, to the next `Assigned`.

    A member that has an assignment of no partitions counts as one with an assignment.
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
        """Return the seconds so far. They go on while the member has no assignment."""
        return self._total_s + (0.0 if self._since is None else now - self._since)


class Failure:
    """The first error that no retry ends. Spark's next call raises it."""

    def __init__(self) -> None:
        self.error: StreamGroupError | None = None
        """None while the query can go on."""

    def set(self, error: StreamGroupError) -> None:
        """End the query with `error`, unless it has failed before."""
        self.error = self.error or error

    def raise_it(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error
