"""Arrow arrays from the positions of fields. Arrow's C++ code copies the bytes, without a Python object per record.

The schema has the names and types of Spark's own Kafka source. Spark compares the first record batch
with `to_arrow_schema` of the declared schema: order, types and nullability.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.fields import MAX_MILLISECONDS, Bytes, Fields, Ints, Longs
from streamgroup.kafka.records.record_columns import scalar

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
INNER = pa.field("inner", pa.int32())
DAMAGE = pa.field("damage", pa.string())


@cache
def schema(
    include_headers: bool,
    include_inner_index: bool = False,
    include_damaged_batches: bool = False,
    timestamps_in_ms: bool = False,
) -> pa.Schema:
    """Return the schema of the record batches, with or without the columns `headers`, `inner` and `damage`.

    `inner` distinguishes the messages of one wrapper of Kafka 0.7, which share its offset. `damage` has the reason if a
    row is a damaged batch, or a record whose timestamp is null because it does not fit the column.
    `timestamps_in_ms` makes the timestamp a long of milliseconds.
    """
    fields = [*SCHEMA]
    if timestamps_in_ms:
        fields[SCHEMA.get_field_index("timestamp")] = pa.field("timestamp", pa.int64())
    if include_headers:
        fields.append(pa.field("headers", HEADERS))
    if include_inner_index:
        fields.append(INNER)
    if include_damaged_batches:
        fields.append(DAMAGE)
    return pa.schema(fields)


CONSTANT_ROWS = 16_384
"""The length of the cached constant columns, one per value. Shorter columns are slices of them."""


def longs(values: Longs) -> pa.Array:
    """Return an int64 array over the memory of `values`, without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def ints(values: Ints) -> pa.Array:
    """Return an int32 array over the memory of `values`, without a copy."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def timestamps(milliseconds: Longs) -> pa.Array:
    """Return a timestamp array that reuses the memory of `milliseconds`.

    Kafka stores any number as a timestamp, and some producers send nanoseconds. A number becomes null if its
    microseconds do not fit a long. Its milliseconds stay in the memory of the array (`unfit_timestamps`).
    """
    rows, limit, validity = len(milliseconds), MAX_MILLISECONDS, None
    if rows and (milliseconds.max() > limit or milliseconds.min() < -limit):
        fits = (milliseconds <= limit) & (milliseconds >= -limit)
        validity = bitmap(fits)
        np.multiply(milliseconds, 1000, out=milliseconds, where=fits)
    else:
        np.multiply(milliseconds, 1000, out=milliseconds)
    return pa.Array.from_buffers(TIMESTAMP, rows, [validity, pa.py_buffer(milliseconds)])


def unfit_timestamps(array: pa.Array) -> Iterator[tuple[int, str]]:
    """Iterate over the rows of `timestamps` that are null, with the reason."""
    if array.null_count:
        stored = np.frombuffer(array.buffers()[1], np.int64)[array.offset :]
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            yield row, f"its timestamp of {stored[row]} ms does not fit microseconds (was it written in ns?)"


def binary(buffer: Bytes, start: Ints, length: Ints) -> pa.Array:
    """Copy the bytes `[start, start + length)` of each element out of `buffer`; a length of -1 is null."""
    offsets, data = kernel.current().gather(buffer, start, length)
    nulls = int(np.count_nonzero(length < 0))
    validity = bitmap(length >= 0) if nulls else None
    return pa.Array.from_buffers(pa.binary(), len(start), [validity, offsets, data], null_count=nulls)


def bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return Arrow's validity bitmap of `valid`."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def headers(buffer: Bytes, fields: Fields) -> pa.Array:
    """Return the column `headers`, which is null for a record without headers."""
    count = fields.header_count
    with_headers = count > 0
    found = kernel.current().headers(buffer, fields.headers_start[with_headers], count[with_headers])
    keys = utf8(binary(buffer, found.key_start, found.key_length))
    values = binary(buffer, found.value_start, found.value_length)
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    offsets = np.zeros(len(count) + 1, np.int32)
    np.cumsum(count, out=offsets[1:])
    return pa.Array.from_buffers(HEADERS, len(count), [bitmap(with_headers), pa.py_buffer(offsets)], children=[entries])


def utf8(array: pa.Array) -> pa.Array:
    """Return a binary array as text. Bytes that are not UTF-8 become U+FFFD as in Java (`new String(bytes, UTF_8)`)."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (_SURROGATE.sub(_REPLACEMENT, item).decode("utf-8", "replace") for item in array.to_pylist())
        return pa.array(texts, pa.string())


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A surrogate, complete or truncated. Java replaces it by one U+FFFD, Python replaces each byte."""
_REPLACEMENT = "\ufffd".encode()


@lru_cache(maxsize=32)
def _constant(value: str | int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(scalar(value, kind), CONSTANT_ROWS)


def constant(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    """Return an array of `rows` times the same value."""
    if rows > CONSTANT_ROWS:
        return pa.repeat(scalar(value, kind), rows)
    return _constant(value, kind).slice(0, rows)
