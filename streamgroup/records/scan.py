"""The scan in numpy: a tight loop finds where each record starts, all else is arithmetic on arrays of positions.

Records are scanned in blocks, so that damaged bytes cost no more than the arrays of one block.

Every position is compared with the end of its record before the byte there is read, and every end of a record with the
end of its batch. So no byte of one record is read as another's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroup.records.fields import (
    BLOCK,
    Bytes,
    FaultCode,
    Fields,
    HeaderFields,
    Ints,
    Longs,
    RecordFault,
    Regions,
)
from streamgroup.records.record_columns import numbers

VARINT, VARLONG = 5, 10
_LAST_BITS = {VARINT: 0x0F, VARLONG: 0x01}
"""The bits that the last possible byte may hold, for 32 and 64 bits."""
_FEW = 32
"""Fewer records than this are cheaper one by one than as arrays."""


class _Cursor:
    """A position in each of many records, which moves field by field."""

    def __init__(self, buffer: Bytes, position: Longs, end: Longs, batch: Longs) -> None:
        self.buffer = buffer
        self.position = position
        self.end = end
        self.batch = batch
        """The index of each record's batch, for errors."""

    def check(self, wrong: npt.NDArray[np.bool_], fault: FaultCode) -> None:
        """Raise `fault` for the first record that is wrong."""
        if wrong.any():
            raise RecordFault(int(self.batch[int(wrong.argmax())]), fault)

    def varint(self, width: int = VARINT) -> Longs:
        """Read a zigzag varint of each record and step over it."""
        self.check(self.position >= self.end, FaultCode.OVERRUN)
        byte = self.buffer[self.position]
        self.position = self.position + 1
        raw = byte.astype(np.uint64)
        if byte.max(initial=0) >= 0x80:
            self._more(raw, np.flatnonzero(byte >= 0x80), width)
        return ((raw >> np.uint64(1)) ^ (np.uint64(0) - (raw & np.uint64(1)))).view(np.int64)

    def _more(self, raw: npt.NDArray[np.uint64], more: npt.NDArray[np.intp], width: int) -> None:
        """Read the second and later bytes of those varints that have them."""
        value = raw[more] & np.uint64(0x7F)
        position = self.position[more]
        end = self.end[more]
        for index in range(1, width):
            if (position >= end).any():
                raise RecordFault(int(self.batch[more[int((position >= end).argmax())]]), FaultCode.OVERRUN)
            byte = self.buffer[position]
            value |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
            position = position + 1
            ends = byte < 0x80
            if index == width - 1:
                ends &= byte <= _LAST_BITS[width]
                if not ends.all():
                    raise RecordFault(int(self.batch[more[int(ends.argmin())]]), FaultCode.VARINT)
            if ends.all():
                raw[more], self.position[more] = value, position
                return
            done = more[ends]
            raw[done], self.position[done] = value[ends], position[ends]
            go = ~ends
            more, value, position, end = more[go], value[go], position[go], end[go]

    def field(self, nullable: FaultCode | None = None) -> tuple[Longs, Longs]:
        """Read a length and step over as many bytes. Return where they start, and the length; -1 is null.

        With `nullable` null is that fault.
        """
        length = self.varint()
        if nullable is None:
            self.check(length < -1, FaultCode.LENGTH)
        else:
            self.check(length < 0, nullable)
        start = self.position
        self.position = start + np.maximum(length, 0)
        self.check(self.position > self.end, FaultCode.OVERRUN)
        return start, length

    def of(self, rows: npt.NDArray[np.intp]) -> _Cursor:
        """Return a cursor for some of the records."""
        return _Cursor(self.buffer, self.position[rows], self.end[rows], self.batch[rows])


def _blocks(buffer: Bytes, regions: Regions) -> Iterator[tuple[Longs, Longs]]:
    """Iterate over where each record's length begins, and the index of its batch, up to `BLOCK` records at a time.

    This is the one loop over records. It may step beyond a batch with damaged lengths: `scan` compares all positions of
    a block before it asks for the next one. Raises RecordFault.
    """
    data = buffer.data
    starts: list[int] = []
    batches: list[int] = []
    counts: list[int] = []
    for index, (begin, count) in enumerate(zip(regions.begin.tolist(), regions.count.tolist(), strict=True)):
        position, left = begin, count
        while left:
            some = min(left, BLOCK - len(starts))
            position = _walk(data, position, some, index, starts)
            batches.append(index)
            counts.append(some)
            left -= some
            if len(starts) == BLOCK:
                yield np.array(starts, np.int64), np.repeat(batches, counts)
                starts, batches, counts = [], [], []
    if starts:
        yield np.array(starts, np.int64), np.repeat(batches, counts)


def _walk(data: memoryview, position: int, count: int, index: int, starts: list[int]) -> int:
    """Add the starts of `count` records from `position` on to `starts`, and return where the next one begins."""
    append = starts.append
    try:
        for _ in range(count):
            append(position)
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
                continue
            second = data[position + 1]
            if second < 0x80:
                position += 2 + (byte - 0x80 >> 1) + (second << 6)
                continue
            position = _step(data, position)
    except IndexError:
        raise RecordFault(index, FaultCode.RECORD_LENGTH) from None
    except ValueError:
        raise RecordFault(index, FaultCode.VARINT) from None
    return position


def _step(data: memoryview, position: int) -> int:
    """Return the end of the record at `position`, whose length takes three bytes or more."""
    length = 0
    for index in range(VARINT):
        byte = data[position + index]
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if length > 0xFFFFFFFF:
                raise ValueError
            return position + index + 1 + (length >> 1)
    raise ValueError


def scan(buffer: Bytes, regions: Regions) -> Fields:
    """Find the fields of all records of `regions`. Raises RecordFault."""
    regions.check_counts()
    empty = np.flatnonzero((regions.count == 0) & (regions.begin != regions.end))
    if empty.size:
        raise RecordFault(int(empty[0]), FaultCode.RECORDS_LEFT)
    fields = Fields.empty(regions.rows)
    columns = fields.arrays()
    lasts, first = _Lasts(regions), 0
    for starts, batch in _blocks(buffer, regions):
        region_end = regions.end[batch]
        cursor = _Cursor(buffer, starts, region_end, batch)
        cursor.check(starts >= region_end, FaultCode.RECORD_LENGTH)
        length = cursor.varint()
        cursor.check((length < 0) | (length > region_end - cursor.position), FaultCode.RECORD_LENGTH)
        cursor.end = cursor.position + length
        lasts.check_ends(first, cursor.end)
        for column, found in zip(columns, _fields(cursor, regions, lasts), strict=True):
            column[first : first + len(starts)] = found
        first += len(starts)
    return fields


def _fields(cursor: _Cursor, regions: Regions, lasts: _Lasts) -> tuple[Longs, ...]:
    """Return the fields of one block of records, in the order of `Fields`. Raises RecordFault."""
    cursor.position = cursor.position + 1  # attributes, of which there are none
    timestamp_delta = cursor.varint(VARLONG)
    offset = _offsets(cursor, regions, cursor.varint(), lasts)
    timestamp = _timestamps(cursor, regions, timestamp_delta)
    key_start, key_length = cursor.field()
    value_start, value_length = cursor.field()
    header_count = cursor.varint()
    cursor.check(header_count < 0, FaultCode.LENGTH)
    # A header takes two bytes at least.
    cursor.check(header_count > (cursor.end - cursor.position) // 2, FaultCode.OVERRUN)
    headers_start = cursor.position
    if header_count.any():
        cursor.position = headers_start.copy()
        _walk_headers(cursor, header_count)
    cursor.check(cursor.position != cursor.end, FaultCode.TRAILING)
    return (offset, timestamp, key_start, key_length, value_start, value_length, headers_start, header_count)


class _Lasts:
    """The last record of each batch, and the last one of the block before, which one block does not know by itself."""

    def __init__(self, regions: Regions) -> None:
        self._batch = np.flatnonzero(regions.count)
        self._row = np.cumsum(regions.count)[self._batch] - 1
        self._end = regions.end[self._batch]
        self.batch = self.delta = -1
        """Batch and offset delta of the last record of the block before."""

    def check_ends(self, first: int, ends: Longs) -> None:
        """Raise RecordFault where the last record of a batch does not end where its batch does.

        `first` is the row of the first of `ends`.
        """
        within = slice(*np.searchsorted(self._row, [first, first + len(ends)]).tolist())
        wrong = np.flatnonzero(ends[self._row[within] - first] != self._end[within])
        if wrong.size:
            raise RecordFault(int(self._batch[within][wrong[0]]), FaultCode.RECORDS_LEFT)


def _offsets(cursor: _Cursor, regions: Regions, delta: Longs, lasts: _Lasts) -> Longs:
    batch = cursor.batch
    cursor.check((delta < 0) | (delta > regions.last_offset_delta[batch]), FaultCode.OFFSET)
    backwards = np.zeros(len(delta), np.bool_)
    np.logical_and(delta[1:] <= delta[:-1], batch[1:] == batch[:-1], out=backwards[1:])
    backwards[0] = batch[0] == lasts.batch and delta[0] <= lasts.delta
    cursor.check(backwards, FaultCode.OFFSET)
    lasts.batch, lasts.delta = int(batch[-1]), int(delta[-1])
    return np.asarray(regions.base_offset[batch] + delta)


def _timestamps(cursor: _Cursor, regions: Regions, delta: Longs) -> Longs:
    """Return timestamps in milliseconds. Any number is one, and the sum wraps around as in Java."""
    return np.asarray(regions.timestamp[cursor.batch] + np.where(regions.append_time[cursor.batch], 0, delta))


def _walk_headers(cursor: _Cursor, count: Longs) -> None:
    """Step over all headers: the first of each record, then the second, and the last few records one by one."""
    rows = np.flatnonzero(count)
    part, left = cursor.of(rows), count[rows]
    while len(rows) >= _FEW:
        part.field(nullable=FaultCode.HEADER_KEY)
        part.field()
        cursor.position[rows] = part.position
        left = left - 1
        go = np.flatnonzero(left)
        rows, left, part = rows[go], left[go], part.of(go)
    data = cursor.buffer.data
    for row, headers in zip(rows.tolist(), left.tolist(), strict=True):
        position, end = int(cursor.position[row]), int(cursor.end[row])
        try:
            for _ in range(headers):
                for kind in (FaultCode.HEADER_KEY, None):
                    _, _, position = _field(data, position, end, kind)
        except RecordFault as error:
            raise RecordFault(int(cursor.batch[row]), error.fault) from None
        cursor.position[row] = position


def _field(data: memoryview, position: int, end: int, nullable: FaultCode | None) -> tuple[int, int, int]:
    """Return where the bytes of one field of a header start, its length, and where it ends.

    Raises RecordFault for batch 0, since the caller knows the batch.
    """
    raw = 0
    for index in range(VARINT):
        if position >= end:
            raise RecordFault(0, FaultCode.OVERRUN)
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise RecordFault(0, FaultCode.VARINT)
    if raw > 0xFFFFFFFF:
        raise RecordFault(0, FaultCode.VARINT)
    length = (raw >> 1) ^ -(raw & 1)
    if length < -1 or (nullable is not None and length < 0):
        raise RecordFault(0, nullable or FaultCode.LENGTH)
    if length > end - position:
        raise RecordFault(0, FaultCode.OVERRUN)
    return position, length, position + max(length, 0)


def headers(buffer: Bytes, start: Ints, count: Ints) -> HeaderFields:
    """Find where the headers of some records lie, given where the first of each starts and how many there are.

    The records have been scanned, so no header can be out of bounds.
    """
    data = buffer.data
    end = len(data)
    found = array("i")  # 16 bytes for each: a record may have millions of empty ones
    for first, headers_left in zip(start.tolist(), count.tolist(), strict=True):
        position = first
        for _ in range(headers_left):
            key_start, key_length, position = _field(data, position, end, FaultCode.HEADER_KEY)
            value_start, value_length, position = _field(data, position, end, None)
            found.extend((key_start, key_length, value_start, value_length))
    columns = np.array(found, np.int32).reshape(-1, 4).T
    return HeaderFields(*(np.ascontiguousarray(column) for column in columns))


def gather(buffer: Bytes, start: Ints, length: Ints) -> tuple[pa.Buffer, pa.Buffer]:
    """Copy the pieces `[start, start + length)` together: the offsets and the data of an Arrow binary array.

    The pieces ascend and do not overlap, so start0, end0, start1, end1 ... are the offsets of a binary array over
    `buffer` itself, of which every other element is wanted; Arrow's C++ copies those.
    """
    rows = len(start)
    if not rows:
        return pa.py_buffer(bytes(4)), pa.py_buffer(b"")
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2] = start
    np.add(start, np.maximum(length, 0), out=bounds[1::2])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, buffers, null_count=0)
    _, offsets, data = pieces.take(numbers(np.arange(0, 2 * rows, 2, dtype=np.int32))).buffers()
    return offsets, data
