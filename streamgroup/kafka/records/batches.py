"""Finds the frames (batches and messages) in fetched bytes: where each begins and ends, its header, its checksum.

Record batch v2 (KIP-98; magic 2), big-endian, 61 bytes before the records:

    baseOffset i64 | batchLength i32 | partitionLeaderEpoch i32 | magic i8 | crc u32 |
    attributes i16 | lastOffsetDelta i32 | baseTimestamp i64 | maxTimestamp i64 |
    producerId i64 | producerEpoch i16 | baseSequence i32 | count i32 | records

The CRC-32C covers everything from `attributes` on. Message sets (magic 0 and 1) share the first 17 bytes, and may occur
between batches if a topic has changed its format: see `messages.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import google_crc32c

from streamgroup.errors import ChecksumMismatch, DecodeError, UnsupportedMagic
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.message_sets import CODEC_BITS as MESSAGE_CODEC_BITS
from streamgroup.kafka.records.message_sets import LEAST_SIZES
from streamgroup.kafka.records.messages import HEADER as MESSAGE_HEADER
from streamgroup.kafka.records.messages import UncompressedMessages, Wrapper, parse_wrapper

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
FRAME = struct.Struct(">qiib")
"""The fields that all formats share: base offset, size, leader epoch (or checksum), magic."""
SIZE_END = 12
"""End of the size field. The size counts the bytes after it."""
CRC_COVERS = 21

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

E = TypeVar("E", bound=DecodeError)


class Batch(NamedTuple):
    """The header of one record batch, which is the bytes `[begin, end)` of the fetched bytes."""

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
        """The last offset that the batch covers, even if compaction has removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def log_append_time(self) -> bool:
        """Whether all records have the broker's timestamp, `max_timestamp`."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        """Whether it is a control batch: it marks the end of a transaction, and has no records of a user."""
        return bool(self.attributes & CONTROL_BIT)

    def error(self, what: str, kind: type[E]) -> E:
        """Return an error of `kind` about this batch, with its base offset and the offset after it."""
        error = kind(f"the record batch at offset {self.base_offset}: {what}")
        error.base_offset = self.base_offset
        if self.last_offset_delta >= 0:
            error.next_offset = self.last_offset + 1
        return error


Frame = Batch | UncompressedMessages | Wrapper
"""One piece of fetched bytes. All three have `base_offset`, `last_offset`, `begin`, `end` and `error`."""


class Frames:
    """The frames (batches and messages) in the bytes of one partition of a Fetch response.

    The constructor reads their headers. The fetcher continues at `next_offset`. The decoder later iterates over the
    frames.

    Reading ends at the first frame that begins at the offset `until` or later. One `UncompressedMessages` is a frame of
    many messages, but never of messages on both sides of the offset `start`.
    """

    def __init__(self, data: memoryview | bytes, start: int, until: int) -> None:
        self.data = memoryview(data).cast("B")
        self.start = start
        self.until = until
        self.truncated = False
        """Whether the bytes end within a frame. A broker may truncate the last frame at any byte; brokers before 0.10.1
        truncate even the first (KIP-74)."""
        self.size = 0
        """Bytes of the complete frames."""
        self.next_offset = start
        """The offset to fetch next: after the last complete frame. If a frame begins at `until` or later, it is the
        offset of that frame, since compaction has removed the offsets in between. If a frame cannot be read, it is
        `until`: the decoder raises the error, and nothing more is fetched before."""
        self.failure: DecodeError | None = None
        """The error of a frame that could not be read, where the walk ended."""
        self._frames: list[Frame] = []
        try:
            self._walk()
        except DecodeError as error:
            self.failure = error
            self.next_offset, self.size = max(start, until), len(self.data)

    def __iter__(self) -> Iterator[Frame]:
        """Iterate over the frames, then raise `failure` if there is one."""
        yield from self._frames
        if self.failure is not None:
            raise self.failure

    @property
    def walked(self) -> Sequence[Frame]:
        """The frames that were read, up to `until` or to the failure."""
        return self._frames

    def _walk(self) -> None:
        position, size, expected = 0, len(self.data), 0
        while position < size and expected < self.until:
            if size - position < FRAME.size:
                self.truncated = True  # only the magic shows whether the offset is the frame's first or last
                break
            magic = self.data[position + FRAME.size - 1]
            frame = self._batch(position, expected) if magic > 1 else self._messages(position, expected)
            if frame is None:
                break
            expected = frame.last_offset + 1
            position = frame.end
            self._frames.append(frame)
        self.size = position
        self.next_offset = max(self.next_offset, expected)

    def _batch(self, position: int, expected: int) -> Batch | None:
        """Return the batch at `position`; None if the walk ends there. Raises DecodeError."""
        data = self.data
        if len(data) - position < HEADER_SIZE:
            base_offset, size, _, magic = FRAME.unpack_from(data, position)
            if base_offset >= self.until:
                self.next_offset = base_offset
                return None
            if magic != 2 or size < HEADER_SIZE - SIZE_END or base_offset < 0:
                raise _unreadable(base_offset, size, magic)
            self.truncated = True
            return None
        header = HEADER.unpack_from(data, position)
        end = position + SIZE_END + header[1]
        batch = Batch._make((*header, position, end))
        if batch.base_offset >= self.until:
            self.next_offset = batch.base_offset
            return None
        if batch.magic != 2 or batch.size < HEADER_SIZE - SIZE_END or batch.base_offset < 0:
            raise _unreadable(batch.base_offset, batch.size, batch.magic)
        if end > len(data):
            self.truncated = True
            return None
        last_offset = batch.base_offset + batch.last_offset_delta
        if not 0 <= batch.record_count <= batch.last_offset_delta + 1 or last_offset > _MAX_OFFSET:
            what = f"{batch.record_count} records up to offset delta {batch.last_offset_delta} cannot be"
            raise self._damaged(batch, what, DecodeError)
        if batch.base_offset < expected:
            raise batch.error(f"the batch before it reaches to offset {expected - 1}", DecodeError)
        return batch

    def _messages(self, position: int, expected: int) -> UncompressedMessages | Wrapper | None:
        """Return the messages of magic 0 or 1 from `position`; None if the walk ends there. Raises DecodeError."""
        data = self.data
        left = len(data) - position
        if left < MESSAGE_HEADER.size:
            self.truncated = True  # without its attributes, its offset may be the offset of a wrapper's last message
            return None
        header = MESSAGE_HEADER.unpack_from(data, position)
        offset, size, _, magic, attributes = header
        if not attributes & MESSAGE_CODEC_BITS:
            uncompressed = self._uncompressed(position, expected, offset)
            if uncompressed is not None:
                return uncompressed
            if offset >= self.until:
                self.next_offset = offset
                return None
        if size < LEAST_SIZES[magic] or not 0 <= offset <= _MAX_OFFSET:
            raise _unreadable(offset, size, magic)
        if size > left - SIZE_END:
            self.truncated = True
            return None
        if offset < expected:
            error = DecodeError(f"the message at offset {offset}: the one before it has offset {expected - 1}")
            error.base_offset = offset
            raise error
        return parse_wrapper(data, position, header, expected, self.start)

    def _uncompressed(self, position: int, expected: int, offset: int) -> UncompressedMessages | None:
        """Return the uncompressed messages from `position` on, the first at `offset`; None if there is none."""
        bound = min(self.start, self.until) if offset < self.start else self.until
        end, messages, last_offset = kernel.current().walk(self.data, position, expected, bound)
        return UncompressedMessages(offset, last_offset, position, end, expected) if messages else None

    def verify(self, frame: Frame) -> None:
        """Check the checksum of a batch or wrapper. Raises ChecksumMismatch.

        `decode` checks the checksums of uncompressed messages.
        """
        if isinstance(frame, Batch):
            self._verify(frame)
        elif isinstance(frame, Wrapper):
            frame.verify(self.data)

    def _verify(self, batch: Batch) -> None:
        found = 0
        for begin in range(batch.begin + CRC_COVERS, batch.end, _CRC_PIECE):
            found = google_crc32c.extend(found, bytes(self.data[begin : min(begin + _CRC_PIECE, batch.end)]))
        if found != batch.crc:
            what = f"its CRC-32C is {found:#010x}, its header has {batch.crc:#010x}; the bytes are damaged"
            raise self._damaged(batch, what, ChecksumMismatch)

    def _damaged(self, batch: Batch, what: str, kind: type[E]) -> E:
        """Return an error about a batch whose header may be damaged. The next batch, if any, shows where it ends."""
        error = batch.error(what, kind)
        if len(self.data) - batch.end >= 8:
            after = int.from_bytes(self.data[batch.end : batch.end + 8], "big", signed=True)
            if after > batch.base_offset:
                error.next_offset = after
        return error


_CRC_PIECE = 128 << 10
"""The checksum is computed over copies of this size, which stay in the processor's cache."""
_MAX_OFFSET = 2**63 - 2
"""One less than a long holds: the offset after the last must fit as well."""


def _unreadable(base_offset: int, size: int, magic: int) -> DecodeError:
    """Return the error about a frame whose end is unknown."""
    least = (*LEAST_SIZES, HEADER_SIZE - SIZE_END)[magic] if 0 <= magic <= 2 else LEAST_SIZES[0]
    if base_offset < 0 or base_offset > _MAX_OFFSET or size < least:
        what = f"an impossible size of {size} bytes; the bytes are damaged"
        error = DecodeError(f"the record batch at offset {base_offset}: {what}")
    else:
        error = UnsupportedMagic(f"the records at offset {base_offset}: unknown magic {magic} (supported: 0, 1 and 2)")
    error.base_offset = base_offset
    return error
