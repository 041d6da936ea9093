"""The records to encode: as Arrow arrays, and as the buffers of these arrays that the encoders read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroup.errors import EncodeError
from streamgroup.kafka.records.fields import Longs


@dataclass(frozen=True, slots=True, eq=False)
class BinaryColumn:
    """One column of keys, values or headers: the Arrow array, and its buffers as arguments of the compiled kernel."""

    array: pa.Array | None
    """Binary or large_binary; None where every element is null."""
    buffers: tuple[pa.Buffer | None, pa.Buffer | None, pa.Buffer | None, int, int]
    """Validity bitmap (None where no element is null), offsets, data, index of the first element, bytes per offset."""

    @classmethod
    def of(cls, array: pa.Array | None, name: str) -> BinaryColumn:
        """Return the column over the memory of `array`. Raises TypeError for an array that is not binary or text."""
        if array is None or pa.types.is_null(array.type):
            return cls(None, (None, None, None, 0, 0))
        if pa.types.is_string(array.type):
            array = array.view(pa.binary())
        elif pa.types.is_large_string(array.type):
            array = array.view(pa.large_binary())
        large = pa.types.is_large_binary(array.type)
        if not (isinstance(array, pa.Array) and (large or pa.types.is_binary(array.type))):
            raise TypeError(f"the column {name} is {array.type}: expected binary, large_binary, string or large_string")
        validity, offsets, data = array.buffers()
        return cls(array, (validity if array.null_count else None, offsets, data, array.offset, 8 if large else 4))

    def lengths(self, start: int, stop: int) -> Longs:
        """Return the number of bytes of the elements `[start, stop)`, -1 for null."""
        if self.array is None:
            return np.full(stop - start, -1, np.int64)
        lengths = np.diff(self.offsets(start, stop)).astype(np.int64)
        if self.buffers[0] is not None:
            lengths[self.nulls(start, stop)] = -1
        return lengths

    def offsets(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the begins of the elements `[start, stop)`, and the end of the last one. Not all elements are null."""
        _, offsets, _, first, width = self.buffers
        if start == stop or offsets is None:  # an empty array may have no offsets at all
            return np.zeros(1, np.int64)
        return np.frombuffer(offsets, np.int64 if width == 8 else np.int32)[first + start : first + stop + 1]

    def nulls(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which of the elements `[start, stop)` are null."""
        if self.array is None:
            return np.ones(stop - start, np.bool_)
        rows = self.array.slice(start, stop - start)
        return cast("npt.NDArray[np.bool_]", rows.is_null().to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBuffers:
    """The input of the encoders: the buffers of `RecordColumns`. The headers of all records are two flat columns."""

    timestamp_ms: Longs
    key: BinaryColumn
    value: BinaryColumn
    header_offsets: Longs | None
    """The index of each record's first header in the next two columns, and the end; None without headers."""
    header_key: BinaryColumn
    header_value: BinaryColumn

    def arguments(self) -> tuple[Any, ...]:
        """Return the columns in the order in which the compiled kernel takes them."""
        key, value = self.header_key.buffers, self.header_value.buffers
        return self.timestamp_ms, *self.key.buffers, *self.value.buffers, self.header_offsets, *key, *value

    def has_headers(self, start: int, stop: int) -> bool:
        """Return whether one of the records `[start, stop)` has a header."""
        return self.header_offsets is not None and bool(self.header_offsets[start] != self.header_offsets[stop])


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RecordColumns:
    """The records to encode, as Arrow arrays of one length.

    Raises ValueError for columns of different lengths, TypeError for columns of another type, EncodeError for a header
    whose key is null.
    """

    key: pa.Array | None
    """Binary, large_binary or text; None where every key is null."""
    value: pa.Array | None
    """As `key`."""
    timestamp_ms: Longs
    """Milliseconds since 1970."""
    headers: pa.Array | None = None
    """A list or large_list of structs of key (text or binary) and value (binary). Null or empty without headers."""
    buffers: ColumnBuffers = field(init=False, repr=False)
    """The same columns in the form that the kernels read."""

    def __post_init__(self) -> None:
        rows = len(self.timestamp_ms)
        for name, array in (("key", self.key), ("value", self.value), ("headers", self.headers)):
            if array is not None and len(array) != rows:
                raise ValueError(f"the column {name} has {len(array)} elements, there are {rows} timestamps")
        timestamps = np.ascontiguousarray(self.timestamp_ms, np.int64)
        key, value = BinaryColumn.of(self.key, "key"), BinaryColumn.of(self.value, "value")
        object.__setattr__(self, "buffers", ColumnBuffers(timestamps, key, value, *_headers(self.headers)))

    def __len__(self) -> int:
        return len(self.timestamp_ms)

    def take(self, indices: npt.NDArray[np.int64]) -> RecordColumns:
        """Return the records at `indices`, in their order."""
        chosen = numbers(indices)
        key, value, headers = (a if a is None else a.take(chosen) for a in (self.key, self.value, self.headers))
        return RecordColumns(key, value, self.timestamp_ms[indices], headers)

    def slice(self, start: int, count: int) -> RecordColumns:
        """Return the records `[start, start + count)`, without a copy."""
        key, value, headers = (a if a is None else a.slice(start, count) for a in (self.key, self.value, self.headers))
        return RecordColumns(key, value, self.timestamp_ms[start : start + count], headers)

    def copy(self, start: int, count: int) -> RecordColumns:
        """Return a copy of the records `[start, start + count)`."""
        return concat([self.slice(start, count)])


def concat(parts: Sequence[RecordColumns]) -> RecordColumns:
    """Return the records of all `parts`, at least one, in their order. Raises ArrowInvalid for different types."""
    return RecordColumns(
        _concat([part.key for part in parts], [len(part) for part in parts]),
        _concat([part.value for part in parts], [len(part) for part in parts]),
        np.concatenate([part.timestamp_ms for part in parts]),
        _concat([part.headers for part in parts], [len(part) for part in parts]),
    )


def _concat(arrays: Sequence[pa.Array | None], lengths: Sequence[int]) -> pa.Array | None:
    kind = next((array.type for array in arrays if array is not None), None)
    if kind is None:
        return None
    parts = [pa.nulls(n, kind) if a is None else a for a, n in zip(arrays, lengths, strict=True)]
    return pa.concat_arrays(parts)


_NO_HEADERS = (None, BinaryColumn.of(None, "key"), BinaryColumn.of(None, "value"))


def _headers(headers: pa.Array | None) -> tuple[Longs | None, BinaryColumn, BinaryColumn]:
    """Return the index of each record's first header, and the columns of keys and values."""
    if headers is None or headers.null_count == len(headers):
        return _NO_HEADERS
    import pyarrow.compute as pc  # noqa: PLC0415 - it takes long, and a task that reads needs none of it

    kind = headers.type
    if not ((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type)):
        raise TypeError(f"the column headers is {kind}: expected a list of structs of key and value")
    # A null list may have hidden elements, which `flatten` omits.
    entries = headers.flatten()
    if not len(entries):
        return _NO_HEADERS
    offsets = np.zeros(len(headers) + 1, np.int64)
    np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False), out=offsets[1:])
    key, value = entries.field("key"), entries.field("value")
    if entries.null_count or key.null_count:
        raise EncodeError("a header has no key: its key is null, which Kafka does not allow")
    return offsets, BinaryColumn.of(key, "headers.key"), BinaryColumn.of(value, "headers.value")


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return a one-dimensional array of numbers as an Arrow array, without a copy if it is contiguous."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def scalar(value: str | bytes | int, kind: pa.DataType) -> pa.Scalar:
    """Return a value as an Arrow scalar of a type of integers, times, texts or bytes. A time is its integer."""
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(np.array([value], f"int{kind.bit_width}"))])[0]
    data = value.encode() if isinstance(value, str) else value
    width = np.int64 if kind in (pa.large_binary(), pa.large_string()) else np.int32
    offsets = pa.py_buffer(np.array([0, len(data)], width))
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(data)])[0]
