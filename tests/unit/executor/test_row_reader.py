"""The rows of a task, batch by batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamgroup.errors import EncodeError
from streamgroup.executor.row_reader import RowReader
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions


def reader(topic: str | None) -> RowReader:
    return RowReader(SinkOptions(ClientOptions(()), ProducerOptions(), topic), clock=lambda: 1_700_000_000.5)


def test_records_have_the_time_of_the_read() -> None:
    columns, records = reader("orders").read(pa.record_batch({"value": pa.array([b"a", None]), "key": [b"k", None]}))
    assert columns.topic == "orders"
    assert (records.value, records.key, records.headers) == (columns.value, columns.key, None)
    assert records.timestamp_ms.tolist() == [1_700_000_000_500] * 2


def test_an_error_counts_the_rows_of_the_task_from_its_first_batch() -> None:
    rows = reader(topic=None)
    for _ in range(2):
        rows.read(pa.record_batch({"value": [b"a", b"b", b"c"], "topic": ["t", "t", "t"]}))
    with pytest.raises(EncodeError, match="row 7 of the task: null topic"):
        rows.read(pa.record_batch({"value": [b"a", b"b"], "topic": ["t", None]}))
