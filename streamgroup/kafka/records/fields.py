"""The input (`Regions`) and the output (`Fields`) of a scan of record batches, as arrays.

A *scan* reads the records of some batches in one buffer and returns the position of every field of every record. There
are two, which accept and reject the same bytes: `scan.py` in numpy and `_kernel.c` compiled. `kernel.py` chooses.

A record (v2) is: length varint | attributes i8 | timestampDelta varlong | offsetDelta varint | keyLength varint | key |
valueLength varint | value | headerCount varint | headers, each: keyLength varint | key | valueLength varint | value. A
varint is zigzag, at most 5 bytes; a varlong at most 10; a length of -1 is null.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from streamgroup.frozen import frozen

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

LEAST_RECORD = 7
"""Bytes of a record without key, value and headers. It limits how many records given bytes can hold."""
BLOCK = 1 << 15
"""Records per step of the numpy scans, so that a fault is found before arrays for all records are allocated.

A few KB of zstd may hold millions of records of `LEAST_RECORD` bytes, of which the first is already invalid.
"""
MAX_MILLISECONDS = (2**63 - 1) // 1000
"""The largest timestamp whose microseconds fit a long."""
MAX_BUFFER = 2**31 - 2**20
"""Positions are 32-bit, as are the offsets of Arrow's binary arrays."""


class FaultCode(IntEnum):
    """Why a scan rejects a record. The numbers are those of `_kernel.c`."""

    RECORD_LENGTH = 1
    RECORDS_LEFT = 2
    OVERRUN = 3
    VARINT = 4
    OFFSET = 5
    LENGTH = 6
    TRAILING = 7
    HEADER_KEY = 8
    RECORD_COUNT = 9

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    FaultCode.RECORD_LENGTH: "a record's length reaches beyond its batch",
    FaultCode.RECORDS_LEFT: "there are bytes after its last record",
    FaultCode.OVERRUN: "a field reaches beyond its record",
    FaultCode.VARINT: "a varint is too long",
    FaultCode.OFFSET: "a record's offset is out of order or beyond the batch's last",
    FaultCode.LENGTH: "a field's length is negative",
    FaultCode.TRAILING: "a record is longer than its fields",
    FaultCode.HEADER_KEY: "a header's key is null",
    FaultCode.RECORD_COUNT: "it declares more records than its bytes can hold",
}


class RecordFault(Exception):
    """A scan has found an invalid record. `batch` is the index of its batch in `Regions`."""

    def __init__(self, batch: int, fault: FaultCode) -> None:
        super().__init__(batch, fault)
        self.batch = batch
        self.fault = fault


class Arrays:
    """Base class of dataclasses whose fields are arrays of one length."""

    __slots__: tuple[str, ...] = ()

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Return all arrays, in the order of the fields."""
        return tuple(getattr(self, name) for name in self.__slots__)


@frozen
class Regions(Arrays):
    """The record batches to scan: arrays with one element per batch. `[begin, end)` are positions in the buffer."""

    begin: Longs
    end: Longs
    count: Longs
    base_offset: Longs
    last_offset_delta: Longs
    timestamp: Longs
    """Milliseconds: the base timestamp, or the timestamp of all records if `append_time`."""
    append_time: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def rows(self) -> int:
        """The number of records that the batches declare."""
        return int(self.count.sum())

    def check_counts(self) -> None:
        """Raise RecordFault for a count that the bytes cannot hold, before arrays of that size are allocated."""
        wrong = np.flatnonzero(self.count * LEAST_RECORD > self.end - self.begin)
        if wrong.size:
            raise RecordFault(int(wrong[0]), FaultCode.RECORD_COUNT)


@frozen
class Fields(Arrays):
    """The positions of the fields of records: arrays with one element per record. A length of -1 is null."""

    offset: Longs
    timestamp: Longs
    """Milliseconds, any number."""
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    headers_start: Ints
    """The position of the first header, after the count."""
    header_count: Ints

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def empty(cls, rows: int) -> Fields:
        """Return uninitialized arrays for `rows` records."""
        offset, timestamp = (np.empty(rows, np.int64) for _ in range(2))
        return cls(offset, timestamp, *(np.empty(rows, np.int32) for _ in range(6)))

    def between(self, start: int, until: int) -> slice:
        """Return the slice of the records with offsets in `[start, until)`. Offsets ascend."""
        first, last = np.searchsorted(self.offset, [start, until])
        return slice(int(first), int(last))

    def of(self, rows: slice) -> Fields:
        """Return the fields of some of the records."""
        if rows == slice(0, len(self)):
            return self
        return Fields(*(array[rows] for array in self.arrays()))


@frozen
class HeaderFields(Arrays):
    """The positions of header keys and values: arrays with one element per header, in the order of the records."""

    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints

    @classmethod
    def empty(cls, headers: int) -> HeaderFields:
        """Return uninitialized arrays for `headers` headers."""
        return cls(*(np.empty(headers, np.int32) for _ in range(4)))
