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
        data, position, size, expected = self._data, 0, len(self._data), 0
        while position < size:
            if size - position < HEADER_SIZE:
                self._tail(position)
                return
            header = HEADER.unpack_from(data, position)
            end = position + SIZE_END + header[1]
            batch = Batch._make((*header, position, end))
            if batch.base_offset >= self._until:
                self.beyond = batch.base_offset
                return
            if batch.magic != 2 or batch.size < HEADER_SIZE - SIZE_END or batch.base_offset < 0:
                raise _unreadable(batch.base_offset, batch.size, batch.magic)
            if end > size:
                self.truncated = True
                return
            last_offset = batch.base_offset + batch.last_offset_delta
            if not 0 <= batch.record_count <= batch.last_offset_delta + 1 or last_offset > _MAX_OFFSET:
                what = f"{batch.record_count} records up to offset delta {batch.last_offset_delta} cannot be"
                raise self._damaged(batch, what, DecodeError)
            if batch.base_offset < expected:
                raise batch.error(f"the batch before it reaches to offset {expected - 1}", DecodeError)
            expected = last_offset + 1
            position = end
            yield batch

    def _tail(self, position: int) -> None:
        """The last bytes, too few for a header: what can be told of them."""
        tail = self._data[position:]
        base_offset = int.from_bytes(tail[:8], "big", signed=True)
        if len(tail) >= 8 and base_offset >= self._until:
            self.beyond = base_offset
            return
        if len(tail) >= FRAME.size:
            _, size, _, magic = FRAME.unpack_from(tail)
            if magic != 2 or size < HEADER_SIZE - SIZE_END or base_offset < 0:
                raise _unreadable(base_offset, size, magic)
        self.truncated = True

    def verify(self, batch: Batch) -> None:
        """Hold the batch against its checksum. Raises ChecksumMismatch."""
        found = 0
        for begin in range(batch.begin + CRC_COVERS, batch.end, _CRC_PIECE):
            found = google_crc32c.extend(found, bytes(self._data[begin : min(begin + _CRC_PIECE, batch.end)]))
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


_CRC_PIECE = 128 << 10
"""The checksum is taken of copies; copies of this size stay in the cache."""
_MAX_OFFSET = 2**63 - 2
"""One less than a long holds: the offset after the last must fit as well."""


def _unreadable(base_offset: int, size: int, magic: int) -> DecodeError:
    """Why a batch with this base offset, size and magic cannot even be framed."""
    if base_offset < 0 or size < LEAST_SIZE or (magic == 2 and size < HEADER_SIZE - SIZE_END):
        what = f"an impossible size of {size} bytes; the bytes are damaged"
        error = DecodeError(f"the record batch at offset {base_offset}: {what}")
    elif magic in (0, 1):
        what = f"a message set of magic {magic} (written before Kafka 0.11), which is not read yet"
        error = UnsupportedMagic(f"the records at offset {base_offset}: {what}")
    else:
        error = UnsupportedMagic(
            f"the records at offset {base_offset}: magic {magic}, which is none of Kafka's (0, 1, 2)"
        )
    error.base_offset = base_offset
    return error
