"""Damaged record batches that can be set aside whole: their bytes are kept, and the next batch is known for certain."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec, UnsupportedMagic
from streamgroup.records.batches import Batch, Frames
from streamgroup.records.columns import schema

_READABLE_LATER = (TooLarge, UnsupportedCodec, UnsupportedMagic)
"""Errors about sound bytes, which another option or release can read."""


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """The bytes `[begin, end)` of `frames` are a damaged batch. The next one begins at `next_offset`."""

    frames: Frames
    base_offset: int
    next_offset: int
    begin: int
    end: int
    reason: str

    def before(self, start: int) -> Frames:
        """Return the frames from the offset `start` on that lie before the batch."""
        return Frames(self.frames.data[: self.begin], start, self.frames.until)

    def behind(self) -> Frames:
        """Return the frames that lie behind the batch."""
        return Frames(self.frames.data[self.end :], self.next_offset, self.frames.until)

    def row(self, topic: str, partition: int, *, include_headers: bool) -> pa.RecordBatch:
        """Return the row that stands for the batch: its bytes, its base offset and the reason.

        Its timestamp is null, since that of the header may be damaged.
        """
        fields = schema(include_headers, include_damaged_batches=True)
        known = {
            "value": bytes(self.frames.data[self.begin : self.end]),
            "topic": topic,
            "partition": partition,
            "offset": self.base_offset,
            "timestampType": -1,
            "damage": f"{self.reason}; the next batch begins at offset {self.next_offset}",
        }
        return pa.RecordBatch.from_pylist([known], schema=fields)


def damaged_batch(frames: object, error: DecodeError, *, hides_aborted: bool) -> DamagedBatch | None:
    """Return the batch that `error` is about, None where it cannot be set aside without the risk of a loss.

    The offset behind it is certain only if a sound batch follows, or if the two fields of its header that tell its
    length agree: records that were skipped by a damaged number would be lost without a trace. `hides_aborted` tells
    whether aborted transactions are hidden in these frames. A damaged batch may be the end of one, and later records
    of its producer would be hidden, too.
    """
    if not isinstance(frames, Frames) or hides_aborted or isinstance(error, _READABLE_LATER):
        return None
    for number, batch in enumerate(frames.walked):
        if isinstance(batch, Batch) and batch.base_offset == error.base_offset:
            following = frames.walked[number + 1 : number + 2]
            if following and following[0].begin == batch.end and _is_sound(frames, following[0]):
                next_offset = following[0].base_offset
            elif batch.record_count == batch.last_offset_delta + 1:
                next_offset = batch.last_offset + 1
            else:
                return None
            return DamagedBatch(frames, batch.base_offset, next_offset, batch.begin, batch.end, str(error))
    return None


def _is_sound(frames: Frames, frame: object) -> bool:
    if not isinstance(frame, Batch):
        return False  # the checksums of messages are those of single records
    try:
        frames.verify(frame)
    except DecodeError:
        return False
    return True
