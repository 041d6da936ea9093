"""Counts the dead letters of the queries of this driver, for its metrics."""

from __future__ import annotations

import threading


class DeadLetterCounts:
    """Dead letters by the id of their query. A batch that runs again counts again."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, query_id: str, records: int) -> None:
        """Count records that were set aside."""
        with self._lock:
            self._counts[query_id] = self._counts.get(query_id, 0) + records

    def of(self, query_id: str) -> int | None:
        """Return how many records of the query were set aside; None if none was."""
        with self._lock:
            return self._counts.get(query_id)


COUNTS = DeadLetterCounts()
"""Of this process. The function of `foreachBatch` adds to it, the metrics read it."""
