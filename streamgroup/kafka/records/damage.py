"""Damaged record batches and messages that can be set aside: their bytes are kept, and what follows is certain.

Kafka before 0.11 has messages instead of batches, compressed ones among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec, UnsupportedMagic
from streamgroup.kafka.records.batches import Batch, Frame, Frames
from streamgroup.kafka.records.columns import schema
from streamgroup.kafka.records.decode import DecodeOptions, decode
from streamgroup.kafka.records.message_sets import FRAME_SIZE
from streamgroup.kafka.records.messages import HEADER, UncompressedMessages
from streamgroup.kafka.records.transactions import Aborted

_READABLE_LATER = (TooLarge, UnsupportedCodec, UnsupportedMagic)
"""Errors about sound bytes, which another option or release can read."""
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """The bytes `[begin, end)` of `frames` are a damaged batch or message. The next one begins at `next_offset`."""

    frames: Frames
    base_offset: int
    next_offset: int
    begin: int
    end: int
    reason: str
    noun: str
    """`batch` or `message`."""
    is_followed: bool
    """Whether a sound batch or message begins at `end`. Otherwise the size may be the damaged number, which no checksum
    covers, so nothing behind it is to be read from these bytes."""

    def before(self, start: int) -> Frames:
        """Return the frames from the offset `start` on that lie before the batch."""
        return Frames(self.frames.data[: self.begin], start, self.frames.until)

    def behind(self) -> Frames:
        """Return the frames that lie behind the batch, which `is_followed`."""
        return Frames(self.frames.data[self.end :], self.next_offset, self.frames.until)

    def row(self, topic: str, partition: int, *, include_headers: bool) -> pa.RecordBatch:
        """Return the row that stands for the batch: its bytes, its base offset and the reason.

        Its timestamp is null, since that of the header may be damaged. Of a compressed message only the offset of the
        last one is written, so its row has the first offset that it can hold.
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
    """Return the batch or message that `error` is about, None where it cannot be set aside without the risk of a loss.

    The offset behind it has to be certain, since records that a damaged number skips would be lost without a trace.
    A sound batch or message that follows shows it. Otherwise two numbers have to agree: those of a batch's header that
    tell its length, or the offset of an uncompressed message and the one that is expected there. Under `read_committed`
    nothing is set aside beside an aborted transaction: a damaged batch may be the end of it, and without that later
    records of its producer would be hidden, too.
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
    """Return what `error` is about, if it lies in `frame`: base offset, begin, end, the offset behind by its own word.

    The latter is None where nothing confirms it.
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
    """Return where the sound batch or message that begins at `begin` has its first record; None if none begins there.

    The header of a compressed message has the offset of its last one, so the message is decoded.
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
