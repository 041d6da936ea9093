"""The encoders in numpy, for installations without the compiled kernel.

Lengths and heads are arithmetic on arrays, and Arrow's C++ code joins the pieces. The bytes are the same as from
`_encode.c` and `_encode_messages.c`. Sizes are in bytes. The encoders raise EncodeError if a record or the result is
too long for its length field.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroup.errors import EncodeError
from streamgroup.kafka.records.fields import Longs
from streamgroup.kafka.records.record_columns import BinaryColumn, ColumnBuffers, scalar

UnsignedLongs = npt.NDArray[np.uint64]

_LONGEST = 2**31 - 1
TOO_LONG = f"a record or a batch takes more than {_LONGEST} bytes"


class _Varints:
    """Zigzag varints, one per row."""

    __slots__ = ("raw", "sizes", "width")

    def __init__(self, values: Longs) -> None:
        self.raw: UnsignedLongs = (values << 1 ^ values >> 63).view(np.uint64)
        self.width = -(-int(self.raw.max(initial=1)).bit_length() // 7)
        """The bytes of the longest one."""
        self.sizes: Longs | int = 1
        """The bytes of each one; a single number if all have one byte."""
        for index in range(1, self.width):
            self.sizes = self.sizes + (self.raw >= np.uint64(1 << 7 * index))


class _RecordFields:
    """The encoded fields of records that follow the deltas. `size` is the bytes of these fields of each record."""

    __slots__ = ("counts", "key_lengths", "size", "value_lengths")

    def __init__(self, columns: ColumnBuffers, start: int, stop: int) -> None:
        key_lengths, value_lengths = columns.key.lengths(start, stop), columns.value.lengths(start, stop)
        self.key_lengths, self.value_lengths = _Varints(key_lengths), _Varints(value_lengths)
        self.counts: _Varints | None = None
        self.size: Longs = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
        self.size += self.key_lengths.sizes
        self.size += self.value_lengths.sizes
        if columns.header_offsets is None:
            self.size += 1
            return
        marks = columns.header_offsets[start : stop + 1]
        self.counts = _Varints(np.diff(marks))
        first, last = int(marks[0]), int(marks[-1])
        ends = np.zeros(last - first + 1, np.int64)
        for column in (columns.header_key, columns.header_value):
            lengths = column.lengths(first, last)
            ends[1:] += np.maximum(lengths, 0)
            ends[1:] += _Varints(lengths).sizes
        self.size += self.counts.sizes
        sums: Longs = np.cumsum(ends)
        self.size += sums[marks[1:] - first] - sums[marks[:-1] - first]


def record_sizes(columns: ColumnBuffers, deltas: int) -> Longs:
    """Return the bytes of each record, if its two deltas take `deltas` bytes."""
    size = 1 + deltas + _RecordFields(columns, 0, len(columns.timestamp_ms)).size
    _check(int(size.max(initial=0)))
    return size + _Varints(size).sizes


def encode_records(columns: ColumnBuffers, start: int, stop: int, reserve: int) -> tuple[bytearray, int]:
    """Return the records `[start, stop)` after `reserve` zeros, with deltas from the first one.

    There is at least one record. The second value is the latest timestamp.
    """
    timestamps = columns.timestamp_ms[start:stop]
    time, offset = _Varints(timestamps - timestamps[0]), _Varints(np.arange(stop - start))
    fields = _RecordFields(columns, start, stop)
    size = 1 + time.sizes + offset.sizes + fields.size
    _check(reserve + int(size.sum()))
    pieces = [
        _bytes([_Varints(size), _ATTRIBUTES, time, offset, fields.key_lengths]),
        _elements(columns.key, start, stop),
    ]
    pieces += [_bytes([fields.value_lengths]), _elements(columns.value, start, stop)]
    if fields.counts is None:
        pieces.append(_NO_HEADERS)
    else:
        pieces += [_bytes([fields.counts]), _headers(columns, start, stop)]
    return _joined(pieces, reserve), int(timestamps.max())


def message_sizes(key: BinaryColumn, value: BinaryColumn, rows: int, head: int) -> Longs:
    """Return `head` and the bytes of key and value of each message."""
    size = head + np.maximum(key.lengths(0, rows), 0) + np.maximum(value.lengths(0, rows), 0)
    _check(int(size.max(initial=0)))
    return size


def encode_messages(columns: ColumnBuffers, magic: int, start: int, stop: int, reserve: int) -> bytearray:
    """Return the messages `[start, stop)` of magic 0 or 1 after `reserve` zeros, with offsets from 0 on."""
    rows = stop - start
    if not rows:
        return bytearray(reserve)
    key, value = columns.key, columns.value
    fields: list[tuple[str, str]] = [("magic", "u1"), ("attributes", "u1"), ("timestamp", ">i8"), ("key", ">i4")]
    head = np.zeros(rows, [field for field in fields if magic or field[0] != "timestamp"])
    key_length, value_length = key.lengths(start, stop), value.lengths(start, stop)
    _check(reserve + int((np.maximum(key_length, 0) + np.maximum(value_length, 0)).sum()))
    head["magic"], head["key"] = magic, key_length
    if magic:
        head["timestamp"] = columns.timestamp_ms[start:stop]
    pieces = [_fixed(head), _elements(key, start, stop)]
    pieces += [_fixed(value_length.astype(">i4")), _elements(value, start, stop)]
    covered = _join(pieces)
    frame = np.zeros(rows, [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4")])
    marks = _marks(covered)
    frame["offset"], frame["size"] = np.arange(rows), np.diff(marks) + 4
    frame["crc"] = _checksums(covered)
    return _joined([_fixed(frame), covered], reserve)


def encode_messages07(value: BinaryColumn, magic: int, start: int, stop: int, reserve: int) -> bytearray:
    """Return the messages `[start, stop)` of Kafka 0.7 behind `reserve` zeros."""
    rows = stop - start
    if not rows:
        return bytearray(reserve)
    fields: list[tuple[str, str]] = [("length", ">i4"), ("magic", "u1"), ("attributes", "u1"), ("crc", ">u4")]
    head = np.zeros(rows, [field for field in fields if magic or field[0] != "attributes"])
    _check(reserve + int(np.maximum(value.lengths(start, stop), 0).sum()))
    payloads = _join([_elements(value, start, stop)])
    head["length"] = np.diff(_marks(payloads)) + head.dtype.itemsize - 4
    head["magic"], head["crc"] = magic, _checksums(payloads)
    return _joined([_fixed(head), payloads], reserve)


_NO_DATA = pa.py_buffer(b"")
_NO_HEADERS = scalar(b"\0", pa.large_binary())
_NOTHING = scalar(b"", pa.large_binary())
_ATTRIBUTES = _Varints(np.zeros(1, np.int64))
"""Of every record: none."""


def _check(size: int) -> None:
    """Raise EncodeError for a size that does not fit a length field, before anything of that size is made."""
    if size > _LONGEST:
        raise EncodeError(TOO_LONG)


def _headers(columns: ColumnBuffers, start: int, stop: int) -> pa.Array:
    """Return one element per record: all its headers, each with its lengths."""
    assert columns.header_offsets is not None
    marks = columns.header_offsets[start : stop + 1]
    first, last = int(marks[0]), int(marks[-1])
    pieces = []
    for column in (columns.header_key, columns.header_value):
        pieces += [_bytes([_Varints(column.lengths(first, last))]), _elements(column, first, last)]
    joined = _join(pieces)
    return _array(_marks(joined)[marks - first], joined.buffers()[2])


def _bytes(columns: Sequence[_Varints]) -> pa.Array:
    """Return one element per row: the varints of all columns, one behind the other."""
    rows, width = max(len(column.raw) for column in columns), sum(column.width for column in columns)
    data = np.empty((rows, width), np.uint8)
    if width == len(columns):
        for place, column in enumerate(columns):
            data[:, place] = column.raw
        return _array(np.arange(0, data.size + 1, width), pa.py_buffer(data.reshape(-1)))
    kept = np.ones((rows, width), np.bool_)
    marks = np.zeros(rows + 1, np.int64)
    place = 0
    for column in columns:
        marks[1:] += column.sizes
        for index in range(column.width):
            data[:, place] = column.raw >> np.uint64(7 * index)
            if column.width > 1:
                data[:, place] &= np.uint8(0x7F)
                data[:, place] |= (column.sizes > index + 1) * np.uint8(0x80)
                kept[:, place] = column.sizes > index
            place += 1
    return _array(np.cumsum(marks), pa.py_buffer(data[kept]))


def _fixed(values: npt.NDArray[Any]) -> pa.Array:
    """Return one element per row: its bytes as they lie in memory."""
    width = values.dtype.itemsize
    return _array(np.arange(0, width * len(values) + 1, width), pa.py_buffer(values.view(np.uint8)))


def _elements(column: BinaryColumn, start: int, stop: int) -> Any:
    """Return the elements `[start, stop)`, null where they are."""
    if column.array is None:
        return _NOTHING
    # Arrow's own cast takes time for the whole array, however short the slice.
    validity, _, data, _, _ = column.buffers
    valid = None if validity is None else pa.py_buffer(np.packbits(~column.nulls(start, stop), bitorder="little"))
    offsets = pa.py_buffer(column.offsets(start, stop).astype(np.int64))
    return pa.Array.from_buffers(pa.large_binary(), stop - start, [valid, offsets, data or _NO_DATA])


def _array(marks: Longs, data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.large_binary(), len(marks) - 1, [None, pa.py_buffer(marks), data])


def _marks(array: pa.Array) -> Longs:
    """Return where the elements of a joined array begin, and where the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1)


def _join(pieces: Sequence[Any]) -> pa.Array:
    """Return one element per row: its pieces one behind the other, where null is nothing."""
    import pyarrow.compute as pc  # noqa: PLC0415 - it takes long, and a task that reads needs none of it

    return pc.binary_join_element_wise(*pieces, _NOTHING, null_handling="replace", null_replacement=b"")


def _joined(pieces: Sequence[Any], reserve: int) -> bytearray:
    joined = _join(pieces)
    size = int(_marks(joined)[-1])
    _check(reserve + size)
    out = bytearray(reserve)
    out += memoryview(joined.buffers()[2])[:size]
    return out


def _checksums(pieces: pa.Array) -> Longs:
    """Return the CRC-32 of each element. zlib computes one at a time; each costs a step in Python."""
    marks = _marks(pieces).tolist()
    data, crc32 = memoryview(pieces.buffers()[2]), zlib.crc32
    return np.array([crc32(data[a:b]) for a, b in pairwise(marks)], np.int64)
