"""The frames of record batches: where each begins and ends, what its header says, whether its checksum holds.

Record batch v2 (KIP-98; magic 2), big-endian, 61 bytes before the records:

    baseOffset i64 | batchLength i32 | partitionLeaderEpoch i32 | magic i8 | crc u32 |
    attributes i16 | lastOffsetDelta i32 | baseTimestamp i64 | maxTimestamp i64 |
    producerId i64 | producerEpoch i16 | baseSequence i32 | count i32 | records

The CRC-32C covers everything from `attributes` on. Message sets (magic 0 and 1) share the first 17 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import google_crc32c

from streamgroup.errors import ChecksumMismatch, DecodeError, UnsupportedMagic

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
FRAME = struct.Struct(">qiib")
"""What all formats share: base offset, size, leader epoch (or checksum), magic."""
SIZE_END = 12
"""The size counts the bytes after itself, and itself ends here."""
CRC_COVERS = 21
LEAST_SIZE = 14
"""The smallest size that any format can have (Kafka's `LegacyRecord.RECORD_OVERHEAD_V0`)."""

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

E = TypeVar("E", bound=DecodeError)


class Batch(NamedTuple):
    """The header of one batch, with where it lies in the fetched bytes: `[begin, end)`."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    begin: int
    end: int

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers, whether or not compaction has left a record there."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The number of the compression codec, 0 for none."""
        return self.attributes & CODEC_BITS

    @property
    def log_append_time(self) -> bool:
        """Whether all records have the broker's time, `max_timestamp`."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        """Whether the batch holds the end of a transaction and no user's records."""
        return bool(self.attributes & CONTROL_BIT)

    def error(self, what: str, kind: type[E]) -> E:
        """An error of `kind` about this batch, with its base offset and the offset that steps over it."""
        error = kind(f"the record batch at offset {self.base_offset}: {what}")
        error.base_offset = self.base_offset
        if self.last_offset_delta >= 0:
            error.next_offset = self.last_offset + 1
        return error


class Frames:
    """The batches of one fetch, in order; `tail` tells, after the walk, what lay behind the last whole one.

    A walk ends at the first batch whose base offset is `until` or beyond: what lies there is nobody's business here,
    be it sound or not.
    """

    def __init__(self, data: memoryview, until: int) -> None:
        self._data = data
        self._until = until
        self.truncated = False
        """The bytes end inside of a batch. A broker cuts the last one where it likes, but never the first."""
        self.beyond: int | None = None
        """The base offset of the first batch at `until` or beyond, where one was seen."""

    def __iter__(self) -> Iterator[Batch]:
        data, position, expected = self._data, 0, -1
        while position < len(data):
            left = len(data) - position
            if left >= 8:
                base_offset = int.from_bytes(data[position : position + 8], "big", signed=True)
                if base_offset >= self._until:
                    self.beyond = base_offset
                    return
            if left < FRAME.size:
                self.truncated = True
                return
            batch = self._read(position, left)
            if batch is None:
                self.truncated = True
                return
            if batch.base_offset < expected:
                raise batch.error(f"the batch before it reaches to offset {expected - 1}", DecodeError)
            expected = batch.last_offset + 1
            position = batch.end
            yield batch

    def _read(self, position: int, left: int) -> Batch | None:
        """The batch at `position`, None where the bytes end before it does."""
        base_offset, size, _, magic = FRAME.unpack_from(self._data, position)
        if base_offset < 0 or size < LEAST_SIZE:
            raise _unframed(base_offset, f"impossible size of {size} bytes")
        if magic != 2:
            raise _unsupported(base_offset, magic)
        if size < HEADER_SIZE - SIZE_END:
            raise _unframed(base_offset, f"its size of {size} bytes is less than its header's")
        if size + SIZE_END > left:
            return None
        end = position + SIZE_END + size
        batch = Batch._make((*HEADER.unpack_from(self._data, position), position, end))
        if not 0 <= batch.record_count <= batch.last_offset_delta + 1 or batch.last_offset > _MAX_OFFSET:
            what = f"{batch.record_count} records up to offset delta {batch.last_offset_delta} cannot be"
            raise self._damaged(batch, what, DecodeError)
        return batch

    def verify(self, batch: Batch) -> None:
        """Hold the batch against its checksum. Raises ChecksumMismatch."""
        found = google_crc32c.value(bytes(self._data[batch.begin + CRC_COVERS : batch.end]))
        if found != batch.crc:
            what = f"its CRC-32C is {found:#010x}, its header says {batch.crc:#010x}; the bytes are damaged"
            raise self._damaged(batch, what, ChecksumMismatch)

    def _damaged(self, batch: Batch, what: str, kind: type[E]) -> E:
        """An error about a batch whose very header may be damaged: where it ends, the next batch knows better."""
        error = batch.error(what, kind)
        if len(self._data) - batch.end >= 8:
            after = int.from_bytes(self._data[batch.end : batch.end + 8], "big", signed=True)
            if after > batch.base_offset:
                error.next_offset = after
        return error


_MAX_OFFSET = 2**63 - 2
"""One less than a long holds: the offset after the last must fit as well."""


def _unframed(base_offset: int, what: str) -> DecodeError:
    error = DecodeError(f"the record batch at offset {base_offset}: {what}; the bytes are damaged")
    error.base_offset = base_offset
    return error


def _unsupported(base_offset: int, magic: int) -> DecodeError:
    if magic in (0, 1):
        what = f"a message set of magic {magic} (written before Kafka 0.11), which is not read yet"
    else:
        what = f"magic {magic}, which is none of Kafka's (0, 1, 2)"
    error = UnsupportedMagic(f"the records at offset {base_offset}: {what}")
    error.base_offset = base_offset
    return error
