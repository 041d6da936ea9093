"""Rows in the binary format of PostgreSQL's COPY, from Arrow columns and without a loop over rows.

A row is the count of its fields (int16) and for each field its length (int32, -1 for null) and its value in network
byte order: https://www.postgresql.org/docs/current/sql-copy.html. The server does not convert binary values, so the
table that takes them has exactly the types of `type_of`. Decimal numbers travel as text, because PostgreSQL's own
format has digits to the base 10 000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.errors import OffsetStoreError

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

_MICROSECONDS_TO_2000 = 946_684_800_000_000
_DAYS_TO_2000 = 10_957
_NULL = pa.scalar(b"\xff\xff\xff\xff", pa.binary())

Matrix = np.ndarray[Any, np.dtype[np.uint8]]
"""Bytes: a row for each record, with as many columns as each record has bytes."""


def type_of(kind: pa.DataType) -> str:
    """Return the type of PostgreSQL for a column of Arrow that `rows` can encode."""
    fixed = _fixed(kind)
    if fixed is not None:
        return fixed[0]
    return "bytea" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "text"


def rows(batch: pa.RecordBatch) -> memoryview:
    """Return the rows of a batch, without header and trailer of the format. Its columns have types of `type_of`."""
    count = batch.num_rows
    pieces: list[pa.Array] = []
    pending = [_repeated(np.array(batch.num_columns, ">i2"), count)]

    def flush() -> None:
        if pending:
            pieces.append(_as_binary(np.concatenate(pending, axis=1)))
            pending.clear()

    for column in batch.columns:
        fixed = _fixed(column.type)
        if fixed is None:
            column = _as_bytes(column)  # noqa: PLW2901  (the same values)
            lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
            pending.append(_bytes_of(lengths.astype(">i4")))
            flush()
            pieces.append(pc.fill_null(column, b""))
            continue
        values = _bytes_of(fixed[1](pc.fill_null(column, False) if fixed[0] == "boolean" else column.fill_null(0)))
        field = [_repeated(np.array(values.shape[1], ">i4"), count), values]
        if not column.null_count:
            pending += field
            continue
        flush()
        pieces.append(pc.if_else(pc.is_valid(column), _as_binary(np.concatenate(field, axis=1)), _NULL))
    flush()
    joined = pc.binary_join_element_wise(*pieces, b"")
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32, count + 1, joined.offset * 4)
    return memoryview(data)[int(ends[0]) : int(ends[-1])] if count else memoryview(b"")


def _fixed(kind: pa.DataType) -> tuple[str, Callable[[pa.Array], np.ndarray[Any, Any]]] | None:
    """Return the type of PostgreSQL and the values in network byte order, if they have a fixed size."""
    if pa.types.is_timestamp(kind):
        name = "timestamp with time zone" if kind.tz else "timestamp"
        return name, lambda column: _integers(column.cast(pa.timestamp("us", kind.tz)), ">i8", _MICROSECONDS_TO_2000)
    return _FIXED.get(kind)


def _integers(column: pa.Array, network: str, origin: int = 0) -> np.ndarray[Any, Any]:
    width = pa.int32() if network == ">i4" else pa.int64()
    values: np.ndarray[Any, Any] = column.cast(width).to_numpy(zero_copy_only=False)
    if origin and len(values) and int(values.min()) < np.iinfo(values.dtype).min + 2 * origin:
        raise OffsetStoreError(
            f"cannot store the {column.type} values of a column: one is too early for PostgreSQL. Nothing was stored. "
            "Filter it out"
        )
    return (values - origin).astype(network)


_FIXED: dict[pa.DataType, tuple[str, Callable[[pa.Array], np.ndarray[Any, Any]]]] = {
    pa.bool_(): ("boolean", lambda column: column.cast(pa.uint8()).to_numpy(zero_copy_only=False)),
    pa.int8(): ("smallint", lambda column: column.to_numpy(zero_copy_only=False).astype(">i2")),
    pa.int16(): ("smallint", lambda column: column.to_numpy(zero_copy_only=False).astype(">i2")),
    pa.int32(): ("integer", lambda column: _integers(column, ">i4")),
    pa.int64(): ("bigint", lambda column: _integers(column, ">i8")),
    pa.float32(): ("real", lambda column: column.to_numpy(zero_copy_only=False).astype(">f4")),
    pa.float64(): ("double precision", lambda column: column.to_numpy(zero_copy_only=False).astype(">f8")),
    pa.date32(): ("date", lambda column: _integers(column, ">i4", _DAYS_TO_2000)),
}


def _as_bytes(column: pa.Array) -> pa.Array:
    """Return the bytes of text, of bytes, or of the digits of a decimal number."""
    if pa.types.is_decimal(column.type):
        digits = [None if value is None else f"{value:f}".encode() for value in column.to_pylist()]
        return pa.array(digits, pa.binary())
    return column.cast(pa.binary())


def _bytes_of(values: np.ndarray[Any, Any]) -> Matrix:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)


def _repeated(value: np.ndarray[Any, Any], count: int) -> Matrix:
    return np.broadcast_to(np.frombuffer(value.tobytes(), np.uint8), (count, value.dtype.itemsize))


def _as_binary(matrix: Matrix) -> pa.Array:
    count, width = matrix.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
