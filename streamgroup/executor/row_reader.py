"""Reads the rows of a Spark task from its Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from streamgroup.options.types import SinkOptions
from streamgroup.producer.columns import SinkColumns, read_columns
from streamgroup.records.encode import RecordColumns


class RowReader:
    """Reads the rows of one task, and counts them for the errors that name a row."""

    def __init__(self, options: SinkOptions, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._clock = clock
        self._rows = 0

    def read(self, batch: pa.RecordBatch) -> tuple[SinkColumns, RecordColumns]:
        """Return the columns of the next batch, and its records without a copy. Raises as `read_columns` does."""
        columns = read_columns(
            batch,
            topic=self._options.topic,
            now_ms=int(self._clock() * 1000),
            include_timestamp=self._options.include_timestamp,
            first_row=self._rows,
        )
        self._rows += len(columns)
        return columns, RecordColumns(columns.key, columns.value, columns.timestamp_ms, columns.headers)
