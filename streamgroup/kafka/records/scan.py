"""The scans of records and messages in numpy.

A tight loop finds the start of each record; all else is arithmetic on arrays of positions. Records are scanned in
blocks, so that damaged bytes take no more memory than the arrays of one block.

Every position is compared with the end of its record before the byte is read, and every end of a record with the end of
its batch. So no byte of one record is read as part of another.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroup.frozen import frozen
from streamgroup.kafka.records.fields import (
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
from streamgroup.kafka.records.message_sets import (
    CODEC_BITS,
    CODEC_BITS_07,
    FRAME_SIZE,
    LEAST_SIZES,
    LEAST_SIZES_07,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    OWN,
    MessageFaultKind,
    MessageFields,
    MessageFields07,
    MessageSetFault,
    MessageSets,
    MessageSets07,
    Walk,
)
from streamgroup.kafka.records.record_columns import numbers

VARINT, VARLONG = 5, 10
_LAST_BITS = {VARINT: 0x0F, VARLONG: 0x01}
"""The bits that the last possible byte may have, for 32 and 64 bits."""
_FEW = 32
"""Below so many records, one by one is faster than arrays."""


class _Cursor:
    """Reads many records in parallel, field by field: it has the current position in each record."""

    def __init__(self, buffer: Bytes, position: Longs, end: Longs, batch: Longs) -> None:
        self.buffer = buffer
        self.position = position
        self.end = end
        self.batch = batch
        """The index of each record's batch, for errors."""

    def check(self, wrong: npt.NDArray[np.bool_], fault: FaultCode) -> None:
        """Raise `fault` for the first record in `wrong`."""
        if wrong.any():
            raise RecordFault(int(self.batch[int(wrong.argmax())]), fault)

    def varint(self, width: int = VARINT) -> Longs:
        """Read a zigzag varint of each record and advance past it."""
        self.check(self.position >= self.end, FaultCode.OVERRUN)
        byte = self.buffer[self.position]
        self.position = self.position + 1
        raw = byte.astype(np.uint64)
        if byte.max(initial=0) >= 0x80:
            self._more(raw, np.flatnonzero(byte >= 0x80), width)
        return ((raw >> np.uint64(1)) ^ (np.uint64(0) - (raw & np.uint64(1)))).view(np.int64)

    def _more(self, raw: npt.NDArray[np.uint64], more: npt.NDArray[np.intp], width: int) -> None:
        """Read the second and later bytes of longer varints."""
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
        """Read a length and advance past as many bytes. Return their start, and the length; -1 is null.

        With `nullable`, null is this fault.
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
    """Yield the start of each record and the index of its batch, up to `BLOCK` records at a time.

    This is the only loop over records. With damaged lengths it may go beyond a batch: `scan` checks all positions of a
    block before it requests the next one. Raises RecordFault.
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
    """Add the starts of `count` records from `position` on to `starts`, and return the start of the next record."""
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
    cursor.position = cursor.position + 1  # attributes, which are unused
    timestamp_delta = cursor.varint(VARLONG)
    offset = _offsets(cursor, regions, cursor.varint(), lasts)
    timestamp = _timestamps(cursor, regions, timestamp_delta)
    key_start, key_length = cursor.field()
    value_start, value_length = cursor.field()
    header_count = cursor.varint()
    cursor.check(header_count < 0, FaultCode.LENGTH)
    # A header takes at least two bytes.
    cursor.check(header_count > (cursor.end - cursor.position) // 2, FaultCode.OVERRUN)
    headers_start = cursor.position
    if header_count.any():
        cursor.position = headers_start.copy()
        _walk_headers(cursor, header_count)
    cursor.check(cursor.position != cursor.end, FaultCode.TRAILING)
    return (offset, timestamp, key_start, key_length, value_start, value_length, headers_start, header_count)


class _Lasts:
    """Checks where the last record of each batch ends, also across blocks: it keeps the last record of each block."""

    def __init__(self, regions: Regions) -> None:
        self._batch = np.flatnonzero(regions.count)
        self._row = np.cumsum(regions.count)[self._batch] - 1
        self._end = regions.end[self._batch]
        self.batch = self.delta = -1
        """Batch and offset delta of the last record of the previous block."""

    def check_ends(self, first: int, ends: Longs) -> None:
        """Raise RecordFault for a batch whose last record does not end at the end of the batch.

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
    """Advance past all headers: first of each record, then second; the last few records one by one."""
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
    """Return start and length of one field of a header, and its end.

    Raises RecordFault for batch 0; the caller sets the batch.
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
    """Find the headers of some records, by the start of the first and the number of headers of each record.

    The records are scanned, so no header is out of bounds.
    """
    data = buffer.data
    end = len(data)
    found = array("i")  # 16 bytes for each header: a record may have millions of empty headers
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
    `buffer` itself. Arrow's C++ code copies every other element of it.
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


_HEAD = struct.Struct(">qi4xBB")
"""Offset, size, magic, attributes."""
_HEAD_07 = struct.Struct(">iBB")
"""Length, magic, attributes (or the first byte of the checksum)."""
_CRC_07 = 4
_LEAST_FRAME = FRAME_SIZE + LEAST_SIZES[0]
_LEAST_FRAME_07 = 4 + LEAST_SIZES_07[0]


def walk(data: memoryview, position: int, least: int, until: int) -> Walk:
    """Walk the complete uncompressed messages of magic 0 and 1 from `position` on.

    Their offsets ascend in `[least, until)`. The walk ends at the first other frame.
    """
    size, unpack = len(data), _HEAD.unpack_from
    count = 0
    while size - position >= _LEAST_FRAME:
        offset, length, magic, attributes = unpack(data, position)
        if magic > 1 or attributes & CODEC_BITS or not least <= offset < until:
            break
        if not LEAST_SIZES[magic] <= length <= size - position - FRAME_SIZE:
            break
        position += FRAME_SIZE + length
        count += 1
        least = offset + 1
    return Walk(position, count, least - 1)


def walk07(data: memoryview, position: int, stop: int) -> Walk:
    """Walk the complete uncompressed messages of Kafka 0.7 from `position` on that begin before `stop`.

    The walk ends at the first other frame. `last_offset` is the position of the last message in `data`.
    """
    size, unpack = len(data), _HEAD_07.unpack_from
    stop = min(stop, size - _LEAST_FRAME_07 + 1)
    count, last = 0, -1
    while position < stop:
        length, magic, attributes = unpack(data, position)
        if magic > 1 or (magic and attributes & CODEC_BITS_07):
            break
        if not LEAST_SIZES_07[magic] <= length <= size - position - 4:
            break
        last = position
        position += 4 + length
        count += 1
    return Walk(position, count, last)


class _Found:
    """Collects the first fault of each message; 0 means no fault."""

    def __init__(self, messages: int) -> None:
        self._fault = np.zeros(messages, np.int8)

    def note(self, wrong: npt.NDArray[np.bool_], fault: MessageFaultKind) -> None:
        self._fault[wrong & (self._fault == 0)] = fault

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which messages have no fault so far."""
        return np.asarray(self._fault == 0)

    def raise_first(self, index: Longs, start: Longs) -> None:
        """Raise MessageSetFault for the first message that has a fault."""
        wrong = np.flatnonzero(self._fault)
        if wrong.size:
            first = int(wrong[0])
            raise MessageSetFault(int(index[first]), int(start[first]), MessageFaultKind(int(self._fault[first])))


def _view(buffer: Bytes, kind: str) -> npt.NDArray[np.int64]:
    """Return `buffer` as integers of `kind`, one at every position."""
    width = np.dtype(kind).itemsize
    return np.ndarray((max(len(buffer) - width + 1, 0),), kind, buffer, 0, (1,))


@frozen
class _Block:
    """A block of consecutive messages: their rows, the start and end of each, and the index of its set."""

    rows: slice
    start: Longs
    stop: Longs
    index: Longs


class _Starts:
    """The start of each message as a 4-byte number, and the number of messages in each set."""

    def __init__(self, starts: array[int], counts: list[int], end: Longs) -> None:
        self._starts = np.array(starts, np.int32)
        self._end = end
        self._bounds = np.cumsum(np.array(counts, np.int64))
        self.held = np.flatnonzero(counts)
        """The indices of the sets that have messages."""
        self.last = self._bounds[self.held] - 1
        """The row of the last message of each of those."""
        self.rows = len(self._starts)

    def of(self, rows: Longs) -> Longs:
        return self._starts[rows].astype(np.int64)

    def blocks(self) -> Iterator[_Block]:
        """Iterate over all messages, up to `BLOCK` at a time."""
        for first in range(0, self.rows, BLOCK):
            rows = slice(first, min(first + BLOCK, self.rows))
            numbers = np.arange(rows.start, rows.stop)
            index = np.searchsorted(self._bounds, numbers, side="right")
            start = self.of(numbers)
            following = self.of(np.minimum(numbers + 1, self.rows - 1))
            stop = np.where(numbers + 1 == self._bounds[index], self._end[index], following)
            yield _Block(rows, start, stop, index)


class _Layout(NamedTuple):
    """The positions of the header fields in one message format: the size, the magic, and the least size by magic."""

    size_at: int
    head: struct.Struct
    least: Sequence[int]


_MESSAGES = _Layout(8, struct.Struct(">i4xB"), LEAST_SIZES)
_MESSAGES_07 = _Layout(0, struct.Struct(">iB"), LEAST_SIZES_07)


def _starts(buffer: Bytes, begin: Longs, end: Longs, layout: _Layout) -> _Starts:
    """Return the start of each message. This is the only loop over messages. Raises MessageSetFault."""
    size_at, head, least = layout
    data, unpack = buffer.data, head.unpack_from
    uncounted = size_at + 4
    least_frame = uncounted + least[0]
    starts = array("i")
    counts: list[int] = []
    for index, (first, stop) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        position, before = first, len(starts)
        while position < stop:
            if stop - position < least_frame:
                raise MessageSetFault(index, position, MessageFaultKind.FRAME)
            size, magic = unpack(data, position + size_at)
            if magic > 1:
                raise MessageSetFault(index, position, MessageFaultKind.MAGIC)
            if not least[magic] <= size <= stop - position - uncounted:
                raise MessageSetFault(index, position, MessageFaultKind.FRAME)
            starts.append(position)
            position += uncounted + size
        counts.append(len(starts) - before)
    return _Starts(starts, counts, end)


def _checksums(
    buffer: Bytes, crc: Longs, start: Longs, stop: Longs, sound: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return the `sound` messages whose CRC-32 of `[start, stop)` is not `crc`."""
    data, crc32 = buffer.data, zlib.crc32
    found = [
        crc32(data[a:b]) if s else 0 for a, b, s in zip(start.tolist(), stop.tolist(), sound.tolist(), strict=True)
    ]
    return np.asarray(sound & (np.array(found, np.int64) != crc))


def messages(buffer: Bytes, sets: MessageSets, checked: bool) -> MessageFields:
    """Find the fields of all messages of `sets`, and check the CRC-32 of each if `checked`. Raises MessageSetFault."""
    starts = _starts(buffer, sets.begin, sets.end, _MESSAGES)
    found = MessageFields.empty(starts.rows)
    offsets = _Offsets(sets, _view(buffer, ">i8"), starts)
    for block in starts.blocks():
        for column, values in zip(found.arrays(), _message_fields(buffer, sets, block, checked, offsets), strict=True):
            column[block.rows] = values
    return found


def _message_fields(
    buffer: Bytes, sets: MessageSets, block: _Block, checked: bool, offsets: _Offsets
) -> tuple[Longs, ...]:
    """Return the fields of the messages of one block, in the order of `MessageFields`. Raises MessageSetFault."""
    start, stop, index = block.start, block.stop, block.index
    found = _Found(len(start))
    bytes_at, ints_at, longs_at = buffer, _view(buffer, ">i4"), _view(buffer, ">i8")
    magic, attributes = bytes_at[start + 16], bytes_at[start + 17]
    found.note((attributes & CODEC_BITS) != 0, MessageFaultKind.NESTED)
    if checked:
        crc = ints_at[start + FRAME_SIZE].astype(np.uint32).astype(np.int64)
        found.note(_checksums(buffer, crc, start + 16, stop, found.sound), MessageFaultKind.CHECKSUM)

    key_start = start + np.where(magic == 1, 30, 22)
    key_length = ints_at[key_start - 4].astype(np.int64)
    found.note(key_length < -1, MessageFaultKind.LENGTH)
    # The rest of an invalid message is not read: its lengths are set to 0, which fit into the smallest message.
    key_length = np.where(found.sound, key_length, 0)
    found.note(np.maximum(key_length, 0) > stop - key_start - 4, MessageFaultKind.OVERRUN)
    key_length = np.where(found.sound, key_length, 0)
    value_start = key_start + np.maximum(key_length, 0) + 4
    value_length = ints_at[value_start - 4].astype(np.int64)
    found.note(value_length < -1, MessageFaultKind.LENGTH)
    value_end = value_start + np.maximum(value_length, 0)
    found.note(value_end > stop, MessageFaultKind.OVERRUN)
    found.note(value_end < stop, MessageFaultKind.TRAILING)

    timed = magic == 1
    own_kind = np.where(timed, attributes.astype(np.int64) >> 3 & 1, NO_TIMESTAMP_TYPE)
    kind = np.where(sets.timestamp_type[index] == OWN, own_kind, sets.timestamp_type[index])
    # Magic 0 has no timestamp, but the position is within the frame, which has at least 26 bytes.
    moment = np.where(sets.timestamp_type[index] == 1, sets.timestamp[index], longs_at[start + 18])
    moment = np.where(timed, moment, NO_TIMESTAMP)

    offset = offsets.of(block, found)
    found.raise_first(index, start)
    return offset, moment, kind, key_start, key_length, value_start, value_length


class _Offsets:
    """Computes the offsets of messages in the log. Within a set they ascend, up to the offset of the set."""

    def __init__(self, sets: MessageSets, longs_at: npt.NDArray[np.int64], starts: _Starts) -> None:
        self._longs_at = longs_at
        self._last_rows, held = starts.last, starts.held
        first_rows = np.concatenate(([0], starts.last + 1))[: len(held)]
        first, last = (longs_at[starts.of(rows)].astype(np.int64) for rows in (first_rows, starts.last))
        # Two numbers that are not negative: their difference fits.
        base = np.where(sets.relative[held], sets.last[held] - np.maximum(last, 0), 0)
        self._wrong = (base + np.maximum(first, 0) < sets.least[held]) | (base + last != sets.last[held])
        self._wrong |= base < 0  # the last relative offset is greater than the wrapper's offset: Java rejects it
        self._base = np.zeros(len(sets), np.int64)
        self._base[held] = base
        self._before = (-1, -1)
        """The set of the last message of the previous block, and its stored offset."""

    def of(self, block: _Block, found: _Found) -> Longs:
        """Return the offsets of the next block, and add their faults to `found`."""
        raw, index = self._longs_at[block.start].astype(np.int64), block.index
        backwards = raw < 0
        backwards[1:] |= (raw[1:] <= raw[:-1]) & (index[1:] == index[:-1])
        backwards[0] |= index[0] == self._before[0] and raw[0] <= self._before[1]
        found.note(backwards, MessageFaultKind.OFFSET)
        self._before = int(index[-1]), int(raw[-1])
        ends_wrong = np.zeros(len(raw), np.bool_)
        within = slice(*np.searchsorted(self._last_rows, [block.rows.start, block.rows.stop]).tolist())
        ends_wrong[self._last_rows[within][self._wrong[within]] - block.rows.start] = True
        found.note(ends_wrong, MessageFaultKind.OFFSET)
        return np.asarray(raw + self._base[index])


def messages07(buffer: Bytes, sets: MessageSets07, checked: bool) -> MessageFields07:
    """Find the payloads of all messages of Kafka 0.7, as `messages` does. Raises MessageSetFault."""
    starts = _starts(buffer, sets.begin, sets.end, _MESSAGES_07)
    found = MessageFields07.empty(starts.rows)
    first_rows = np.zeros(len(sets), np.int64)
    first_rows[starts.held] = np.concatenate(([0], starts.last + 1))[: len(starts.held)]
    for block in starts.blocks():
        rows, index = block.rows, block.index
        value_start = _values07(buffer, block, checked)
        wrapped = sets.wrapped[index]
        found.offset[rows] = sets.offset[index] + np.where(wrapped, 0, block.start - sets.begin[index])
        found.inner[rows] = np.where(wrapped, np.arange(rows.start, rows.stop) - first_rows[index], 0)
        found.value_start[rows] = value_start
        found.value_length[rows] = block.stop - value_start
    return found


def _values07(buffer: Bytes, block: _Block, checked: bool) -> Longs:
    """Return the starts of the payloads of one block. Raises MessageSetFault."""
    start, stop, index = block.start, block.stop, block.index
    found = _Found(len(start))
    magic = buffer[start + 4].astype(np.int64)
    found.note((magic == 1) & ((buffer[start + 5] & CODEC_BITS_07) != 0), MessageFaultKind.NESTED)
    value_start = start + 5 + magic + _CRC_07
    if checked:
        crc = _view(buffer, ">i4")[value_start - _CRC_07].astype(np.uint32).astype(np.int64)
        found.note(_checksums(buffer, crc, value_start, stop, found.sound), MessageFaultKind.CHECKSUM)
    found.raise_first(index, start)
    return value_start
