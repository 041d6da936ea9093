"""The scan of message sets in numpy: a tight loop finds where each message starts; all else is arithmetic on arrays.

Every length is compared with the end of its set before anything behind it is read. Where several messages are invalid,
the error is about the first one, as in the compiled scan.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamgroup.records.fields import BLOCK, Bytes, Longs
from streamgroup.records.message_sets import (
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

_HEAD = struct.Struct(">qi4xBB")
"""Offset, size, magic, attributes."""
_HEAD_07 = struct.Struct(">iBB")
"""Length, magic, attributes (or the first byte of the checksum)."""
_CRC_07 = 4
_LEAST_FRAME = FRAME_SIZE + LEAST_SIZES[0]
_LEAST_FRAME_07 = 4 + LEAST_SIZES_07[0]


def walk(data: memoryview, position: int, least: int, until: int) -> Walk:
    """Walk the whole uncompressed messages of magic 0 and 1 from `position` on.

    Their offsets ascend in `[least, until)`.
    The walk ends at the first frame that is anything else.
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
    """Walk the whole uncompressed messages of Kafka 0.7 from `position` on that begin before `stop`.

    The walk ends at the first frame that is anything else. `last_offset` is the position of the last one in `data`.
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
    """The first fault of each message, 0 where it has none."""

    def __init__(self, messages: int) -> None:
        self._fault = np.zeros(messages, np.int8)

    def note(self, wrong: npt.NDArray[np.bool_], fault: MessageFaultKind) -> None:
        self._fault[wrong & (self._fault == 0)] = fault

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which messages have no fault so far."""
        return np.asarray(self._fault == 0)

    def tell(self, index: Longs, start: Longs) -> None:
        """Raise MessageSetFault for the first message that has a fault."""
        wrong = np.flatnonzero(self._fault)
        if wrong.size:
            first = int(wrong[0])
            raise MessageSetFault(int(index[first]), int(start[first]), MessageFaultKind(int(self._fault[first])))


def _view(buffer: Bytes, kind: str) -> npt.NDArray[np.int64]:
    """Return `buffer` as integers of `kind`, one at every position."""
    width = np.dtype(kind).itemsize
    return np.ndarray((max(len(buffer) - width + 1, 0),), kind, buffer, 0, (1,))


@dataclass(frozen=True, slots=True)
class _Block:
    """Messages one behind the other: their rows, where each starts and ends, and the index of its set."""

    rows: slice
    start: Longs
    stop: Longs
    index: Longs


class _Starts:
    """Where each message starts, in 4 bytes each, and how many there are in each set."""

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
        """Return where these rows start."""
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
    """The frames of one format: where they have the size, how size and magic are read, and the least size by magic."""

    size_at: int
    head: struct.Struct
    least: Sequence[int]


_MESSAGES = _Layout(8, struct.Struct(">i4xB"), LEAST_SIZES)
_MESSAGES_07 = _Layout(0, struct.Struct(">iB"), LEAST_SIZES_07)


def _starts(buffer: Bytes, begin: Longs, end: Longs, layout: _Layout) -> _Starts:
    """Return where each message starts. This is the one loop over messages. Raises MessageSetFault."""
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
    """Return which of the `sound` messages have another CRC-32 of `[start, stop)` than `crc`."""
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
        for column, values in zip(found.arrays(), _fields(buffer, sets, block, checked, offsets), strict=True):
            column[block.rows] = values
    return found


def _fields(buffer: Bytes, sets: MessageSets, block: _Block, checked: bool, offsets: _Offsets) -> tuple[Longs, ...]:
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
    # An invalid message is read no further: its lengths are taken for 0, which fit into the smallest message.
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
    # The places where magic 0 has no timestamp are in bounds all the same: a frame has 26 bytes.
    moment = np.where(sets.timestamp_type[index] == 1, sets.timestamp[index], longs_at[start + 18])
    moment = np.where(timed, moment, NO_TIMESTAMP)

    offset = offsets.of(block, found)
    found.tell(index, start)
    return offset, moment, kind, key_start, key_length, value_start, value_length


class _Offsets:
    """Computes the offsets that messages have in the log. Within a set they ascend, and the last one is the set's."""

    def __init__(self, sets: MessageSets, longs_at: npt.NDArray[np.int64], starts: _Starts) -> None:
        self._longs_at = longs_at
        self._last_rows, held = starts.last, starts.held
        first_rows = np.concatenate(([0], starts.last + 1))[: len(held)]
        first, last = (longs_at[starts.of(rows)].astype(np.int64) for rows in (first_rows, starts.last))
        # Two numbers that are not negative: their difference fits.
        base = np.where(sets.relative[held], sets.last[held] - np.maximum(last, 0), 0)
        self._wrong = (base + np.maximum(first, 0) < sets.least[held]) | (base + last != sets.last[held])
        self._wrong |= base < 0  # the last message's own number is beyond the wrapper's offset: Java refuses that
        self._base = np.zeros(len(sets), np.int64)
        self._base[held] = base
        self._before = (-1, -1)
        """The set of the last message of the block before, and its offset as written."""

    def of(self, block: _Block, found: _Found) -> Longs:
        """Return the offsets of the next block, and note their faults in `found`."""
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
    """Return where the payloads of one block start. Raises MessageSetFault."""
    start, stop, index = block.start, block.stop, block.index
    found = _Found(len(start))
    magic = buffer[start + 4].astype(np.int64)
    found.note((magic == 1) & ((buffer[start + 5] & CODEC_BITS_07) != 0), MessageFaultKind.NESTED)
    value_start = start + 5 + magic + _CRC_07
    if checked:
        crc = _view(buffer, ">i4")[value_start - _CRC_07].astype(np.uint32).astype(np.int64)
        found.note(_checksums(buffer, crc, value_start, stop, found.sound), MessageFaultKind.CHECKSUM)
    found.tell(index, start)
    return value_start
