"""The columns that a write reads from Spark: checks of the query's schema, and conversion of each Arrow batch.

Names, types and errors are the same as in Spark's own sink (`KafkaWriter`). Other columns are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.errors import ConfigError, EncodeError

Longs = npt.NDArray[np.int64]

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TYPES = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The types of each column as Spark writes them (`DataType.simpleString`), in the order of Spark's checks."""


def check_columns(columns: Iterable[tuple[str, str]], topic: str | None, *, include_timestamp: bool = False) -> None:
    """Check the columns of a query before a write. `columns` are (name, type as Spark's `simpleString`).

    `topic` is the option. If it is set, the column `topic` is ignored. Names are case-sensitive, as in Spark's sink. If
    two columns have one name, the first counts. Raises ConfigError for a missing column or a wrong type.
    """
    found: dict[str, str] = {}
    for name, kind in columns:
        found.setdefault(name, kind)
    if topic is None and "topic" not in found:
        raise ConfigError(
            "cannot write: the option 'topic' is required when the query has no column 'topic'"
            f"{_in_another_case('topic', found)}. Add option('topic', '<name>')"
        )
    if "value" not in found:
        raise ConfigError(
            f"cannot write: the required column 'value' is missing{_in_another_case('value', found)}. Add it with the "
            "type string or binary"
        )
    unused = {"topic" if topic is not None else "", "timestamp" if not include_timestamp else ""}
    for name, kinds in _TYPES.items():
        # Names of fields within a type may have any case, as Spark compares types.
        if name in found and name not in unused and found[name].lower() not in kinds:
            raise ConfigError(
                f"cannot write: column '{name}' has the unsupported type {found[name]}. It must be "
                f"{' or '.join(kinds)}. Cast it in the query"
            )


def _in_another_case(name: str, found: Iterable[str]) -> str:
    near = [other for other in found if other.lower() == name]
    return f" (it has '{near[0]}', and names are case-sensitive)" if near else ""


@dataclass(frozen=True, slots=True, eq=False)
class SinkColumns:
    """The columns of one Arrow batch to write, in the types that the producer needs. One element per row."""

    key: pa.Array | None
    """Binary or large binary. None without the column."""
    value: pa.Array
    """Binary or large binary. A null is a tombstone."""
    timestamp_ms: Longs
    headers: pa.Array | None
    """list<struct<key: string, value: binary>>. None without the column."""
    topic: str | pa.Array
    """One topic for all rows, or the column, which has no null."""
    partition: pa.Array | None
    """int32. The partitioner chooses where it is null. None without the column."""
    first_row: int
    """How many rows the task had before this batch. Errors count rows from 0."""

    def __len__(self) -> int:
        return len(self.value)

    def rows_by_topic(self) -> list[tuple[str, Longs | None]]:
        """Return each topic with the indices of its rows, ascending. None means all rows."""
        if isinstance(self.topic, str):
            return [(self.topic, None)] if len(self) else []
        encoded = self.topic.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) <= 1:
            return [(name, None) for name in names]
        numbers = encoded.indices.to_numpy()
        order = stable_order(numbers)
        starts = np.searchsorted(numbers[order], np.arange(len(names) + 1))
        return [(name, order[starts[i] : starts[i + 1]]) for i, name in enumerate(names)]


def stable_order(numbers: npt.NDArray[np.int32]) -> Longs:
    """Return the indices that sort non-negative numbers. Equal numbers keep their order."""
    # numpy sorts 16-bit numbers by radix, which is several times faster.
    narrow = numbers.astype(np.uint16) if len(numbers) and numbers.max() < 1 << 16 else numbers
    return np.argsort(narrow, kind="stable")


def read_columns(
    batch: pa.RecordBatch, *, topic: str | None, now_ms: int, include_timestamp: bool = False, first_row: int = 0
) -> SinkColumns:
    """Return the columns of an Arrow batch, whose schema `check_columns` has accepted. Keys and values are not copied.

    `now_ms` is the timestamp of records without one, in milliseconds since 1970. `first_row` is the number of the
    batch's first row in the task, for errors. Raises EncodeError with the row for a null or empty topic, a header
    without a key, or a timestamp before 1970.
    """
    value = _binary(_column(batch, "value"))
    assert value is not None
    headers = _column(batch, "headers")
    times = _column(batch, "timestamp") if include_timestamp else None
    return SinkColumns(
        key=_binary(_column(batch, "key")),
        value=value,
        timestamp_ms=np.full(len(value), now_ms, np.int64) if times is None else _times(times, now_ms, first_row),
        headers=None if headers is None else _headers(headers, first_row),
        topic=_topics(batch, first_row) if topic is None else topic,
        partition=_column(batch, "partition"),
        first_row=first_row,
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    indices = batch.schema.get_all_field_indices(name)
    return batch.column(indices[0]) if indices else None


def _binary(column: pa.Array | None) -> pa.Array | None:
    """Return a column of strings as one of bytes. Both have the same buffers."""
    if column is None or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    return column.view(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())


def _topics(batch: pa.RecordBatch, first_row: int) -> pa.Array:
    topics = _column(batch, "topic")
    assert topics is not None
    if topics.null_count:
        raise EncodeError(
            f"cannot write row {first_row + _first(pc.is_null(topics))} of the task: null topic present in the data. "
            "Use the option 'topic' for setting a default topic"
        )
    empty = pc.equal(pc.binary_length(topics), 0)
    if pc.any(empty).as_py():  # brokers leave it out of their metadata, and the task would wait for it
        raise EncodeError(
            f"cannot write row {first_row + _first(empty)} of the task: its topic is empty. Correct the column 'topic'"
        )
    return topics


def _times(times: pa.Array, now_ms: int, first_row: int) -> Longs:
    """Return Spark's timestamps in milliseconds, rounded down."""
    in_us = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).fill_null(now_ms * 1000)
    # Arrow's cast to milliseconds rounds towards 0, so a time just before 1970 would become 1970.
    milliseconds: Longs = in_us.to_numpy(zero_copy_only=False) // 1000
    if len(milliseconds) and milliseconds.min() < 0:
        row = int(np.argmax(milliseconds < 0))
        raise EncodeError(
            f"cannot write row {first_row + row} of the task: its timestamp is {milliseconds[row]} ms, and Kafka has "
            "none before 1970. Correct the column 'timestamp', or leave it null"
        )
    return milliseconds


def _headers(headers: pa.Array, first_row: int) -> pa.Array | None:
    """Return the headers with the names of their fields in lower case, or None if no record has any."""
    structs = headers.flatten()
    if not len(structs):
        return None
    keyless = pc.is_null(structs)
    if structs.type.num_fields:
        keyless = pc.or_(keyless, pc.is_null(structs.field(0)))
    if pc.any(keyless).as_py():
        row = pc.list_parent_indices(headers)[_first(keyless)].as_py()
        raise EncodeError(
            f"cannot write row {first_row + row} of the task: null header keys are not permitted. Give each header of "
            "the column 'headers' a key"
        )
    names = [structs.type.field(i).name for i in range(structs.type.num_fields)]
    if names == ["key", "value"]:
        return headers
    fields = [pa.field(name, structs.type.field(i).type) for i, name in enumerate(("key", "value"))]
    lists = pa.large_list if pa.types.is_large_list(headers.type) else pa.list_
    return headers.view(lists(pa.struct(fields)))


def _first(mask: pa.Array) -> int:
    """Return the index of the first true element."""
    return int(pc.index(mask, True).as_py())
