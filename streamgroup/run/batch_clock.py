"""Measures the age of the batch in flight."""

from __future__ import annotations

from streamgroup.group.in_flight import InFlightBatch


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
