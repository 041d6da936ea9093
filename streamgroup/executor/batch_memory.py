"""The memory of the Arrow batches of a write, which slices of their records keep.

A slice of a few records holds all records of its batch. Where one partition is slow, its slices alone would hold many
times the bytes that `buffer.memory` counts.
"""

from __future__ import annotations

import weakref

from streamgroup.records.encode import RecordColumns


class BatchMemory:
    """Counts the bytes of the batches that are still in memory. Not for several threads."""

    def __init__(self) -> None:
        self.bytes = 0
        """The bytes of the batches of which at least one record is not acknowledged."""

    def hold(self, records: RecordColumns) -> None:
        """Count `records` until the last slice of them is gone."""
        size = sum(array.nbytes for array in (records.key, records.value, records.headers) if array is not None)
        self.bytes += size
        weakref.finalize(records, self._release, size).atexit = False

    def _release(self, size: int) -> None:
        self.bytes -= size
