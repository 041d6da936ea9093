"""Finds damaged record batches and messages that can become a row of their own, if the next offset is certain.

Kafka before 0.11 has messages instead of batches, compressed ones among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec, UnsupportedMagic
from streamgroup.frozen import frozen
from streamgroup.kafka.records.batches import Batch, Frame, Frames
from streamgroup.kafka.records.columns import schema
from streamgroup.kafka.records.decode import DecodeOptions, decode
from streamgroup.kafka.records.message_sets import FRAME_SIZE
from streamgroup.kafka.records.messages import HEADER, UncompressedMessages
from streamgroup.kafka.records.transactions import Aborted

_READABLE_LATER = (TooLarge, UnsupportedCodec, UnsupportedMagic)
"""Errors about undamaged bytes, which another option or release can read."""
_MAX_LONG = 2**63 - 1


@frozen
class DamagedBatch:
    """A damaged batch or message: the bytes `[begin, end)` of `frames`. The next one begins at `next_offset`."""

    frames: Frames
    base_offset: int
    next_offset: int
    begin: int
    end: int
    reason: str
    noun: str
    """`batch` or `message`."""
    is_followed: bool
    """Whether an undamaged batch or message begins at `end`. If not, the size may be the damaged number, since no
    checksum covers it. The bytes after `end` must then not be read."""

    def before(self, start: int) -> Frames:
        """Return the frames before the batch, from the offset `start` on."""
        return Frames(self.frames.data[: self.begin], start, self.frames.until)

    def behind(self) -> Frames:
        """Return the frames after the damaged batch. Call it only if `is_followed`."""
        return Frames(self.frames.data[self.end :], self.next_offset, self.frames.until)

    def row(self, topic: str, partition: int, *, include_headers: bool) -> pa.RecordBatch:
        """Return the row of the damaged batch: its bytes, its base offset and the reason.

        The timestamp is null, since the header may be damaged. A compressed message stores only the offset of its last
        inner message, so its row has the first offset that it can hold.
        """
        fields = schema(include_headers, include_damaged_batches=True)
        known = {
            "value": bytes(self.frames.data[self.begin : self.end]),
            "topic": topic,
            "partition": partition,
            "offset": self.base_offset,
            "timestampType": -1,
            "damage": f"{self.reason}; the next {self.noun} begins at offset {self.next_offset}",
        }
        return pa.RecordBatch.from_pylist([known], schema=fields)


def damaged_batch(
    frames: object, error: DecodeError, options: DecodeOptions, aborted: Sequence[Aborted]
) -> DamagedBatch | None:
    """Return the damaged batch or message of `error`; None if it cannot be skipped without the risk of losing records.

    The offset after it must be certain, since a wrong offset would skip records without a trace. The next undamaged
    batch or message shows it. Without one, two numbers must agree: record count and offset delta of a batch, or the
    offset of an uncompressed message and the expected offset. Under `read_committed` the result is None if there is an
    aborted transaction: the damaged batch may be its ABORT marker, without which later records of its producer would be
    hidden.
    """
    hides_aborted = options.read_committed and bool(aborted)
    if not isinstance(frames, Frames) or hides_aborted or isinstance(error, _READABLE_LATER):
        return None
    for frame in frames.walked:
        piece = _piece(frames, frame, error)
        if piece is not None:
            base_offset, begin, end, after = piece
            following = _first_offset(frames, end, options)
            next_offset = after if following is None else following
            if next_offset is None or next_offset <= base_offset:
                return None
            noun = "batch" if isinstance(frame, Batch) else "message"
            return DamagedBatch(frames, base_offset, next_offset, begin, end, str(error), noun, following is not None)
    return None


def _piece(frames: Frames, frame: Frame, error: DecodeError) -> tuple[int, int, int, int | None] | None:
    """Return the piece of `frame` that `error` is about: base offset, begin, end, and the next offset.

    The next offset is None if nothing confirms it.
    """
    if isinstance(frame, UncompressedMessages):
        expected = max(frame.least_offset, frames.start)
        for offset, begin, end in _messages(frames, frame):
            if offset == error.base_offset:
                return offset, begin, end, offset + 1 if offset == expected else None
            expected = offset + 1
        return None
    if frame.base_offset != error.base_offset:
        return None
    agree = isinstance(frame, Batch) and frame.record_count == frame.last_offset_delta + 1
    return frame.base_offset, frame.begin, frame.end, frame.last_offset + 1 if agree else None


def _messages(frames: Frames, run: UncompressedMessages) -> Iterator[tuple[int, int, int]]:
    """Iterate over the messages of `run`: offset, begin and end of each."""
    begin = run.begin
    while begin < run.end:
        offset, size, *_ = HEADER.unpack_from(frames.data, begin)
        yield offset, begin, begin + FRAME_SIZE + size
        begin += FRAME_SIZE + size


def _first_offset(frames: Frames, begin: int, options: DecodeOptions) -> int | None:
    """Return the first offset of the undamaged batch or message at `begin`; None if there is none.

    The header of a compressed message has only the offset of its last inner message, so it is decoded.
    """
    for frame in frames.walked:
        if isinstance(frame, Batch):
            if frame.begin == begin:
                return frame.base_offset if _is_sound(frames, frame) else None
        elif frame.begin <= begin < frame.end:
            end = frame.end
            if isinstance(frame, UncompressedMessages):
                end = next(end for _, start, end in _messages(frames, frame) if start == begin)
            alone = Frames(frames.data[begin:end], 0, _MAX_LONG)
            try:
                decoded = decode(alone, 0, replace(options, check_crcs=True))
            except DecodeError:
                return None
            return int(decoded.offset[0].as_py()) if decoded.num_rows else None
    return None


def _is_sound(frames: Frames, batch: Batch) -> bool:
    try:
        frames.verify(batch)
    except DecodeError:
        return False
    return True
