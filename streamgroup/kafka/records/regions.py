"""Collects the records of many frames in one buffer for a scan. Compressed records are decompressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamgroup.errors import DecodeError, TooLarge
from streamgroup.frozen import frozen
from streamgroup.kafka.records import codecs
from streamgroup.kafka.records.batches import HEADER_SIZE, Batch, Frame
from streamgroup.kafka.records.fields import MAX_BUFFER, Bytes, Regions
from streamgroup.kafka.records.message_sets import NO_MESSAGES, OWN, MessageSets
from streamgroup.kafka.records.messages import UncompressedMessages, Wrapper, flatten

Place = tuple[int, int]
"""`[begin, end)` in a buffer."""
Piece = tuple[int, memoryview]
"""A codec, and bytes compressed by it."""
About = Callable[[int, str, type[DecodeError]], DecodeError]
"""Returns an error about the piece with this index."""


@frozen
class Layout:
    """The records of the first `held` frames in one buffer: record batches are in `regions`, messages in `sets`."""

    buffer: Bytes
    regions: Regions
    sets: MessageSets
    batches: Sequence[Batch]
    """The batches of `regions`, for errors."""
    messages: Sequence[UncompressedMessages | Wrapper]
    """The frames of `sets`, for errors."""
    held: int


def lay_out(data: memoryview, frames: Sequence[Frame], limit: int) -> Layout:
    """Bring the records of `frames` into one buffer, decompressed to at most `limit` bytes.

    Frames that do not fit are left for the next call, but the first must fit. Raises DecodeError about a frame:
    TooLarge, UnsupportedCodec, or DecodeError itself if its compressed data is damaged.
    """
    pieces = [_piece(data, frame) for frame in frames]
    if all(codec == codecs.NONE for codec, _ in pieces) and len(data) <= MAX_BUFFER:
        places = [(f.begin + HEADER_SIZE if isinstance(f, Batch) else f.begin, f.end) for f in frames]
        return _layout(np.frombuffer(data, np.uint8), frames, places)

    def about(index: int, what: str, kind: type[DecodeError]) -> DecodeError:
        return frames[index].error(what, kind)

    buffer, places = inflate_all(pieces, limit, about)
    for frame, (begin, end) in zip(frames, places, strict=False):
        if begin == end and isinstance(frame, Wrapper):
            raise frame.error(NO_MESSAGES, DecodeError)
    return _layout(buffer, frames, places)


def lay_out_nested(data: memoryview, frames: Sequence[Frame], limit: int, check_crcs: bool) -> Layout:
    """Do as `lay_out` for nested wrappers: one by one, flattened."""
    parts: list[bytes] = []
    left = limit
    for frame in frames:
        try:
            if isinstance(frame, Wrapper):
                part = flatten(data, frame, left, check_crcs)
                left -= len(part)
            else:
                codec, piece = _piece(data, frame)
                plain = codec == codecs.NONE
                part = bytes(codecs.inflated(codec, piece, len(piece) if plain else left))
                left -= 0 if plain else len(part)
        except TooLarge as error:
            if parts:
                break
            raise frame.error(f"{error}{_CAP.format(limit)}", TooLarge) from error
        except DecodeError as error:
            raise frame.error(str(error), type(error)) from error
        parts.append(part)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    places = list(zip([0, *ends[:-1]], ends, strict=True))
    return _layout(np.frombuffer(b"".join(parts), np.uint8), frames, places, nested=True)


_CAP = " (group.maxDecompressedBytes is {})"


def inflate_all(pieces: Sequence[Piece], limit: int, about: About) -> tuple[Bytes, list[Place]]:
    """Decompress `pieces` into one buffer, to at most `limit` bytes. Uncompressed pieces are copied and do not count.

    Return the buffer and the places of the pieces, up to the first that does not fit.
    """
    compressed = plain = 0
    for index, (codec, piece) in enumerate(pieces):
        if codec == codecs.NONE:
            plain += len(piece)
            continue
        try:
            compressed += codecs.bound(codec, piece)
        except DecodeError as error:
            raise about(index, str(error), type(error)) from error
    limit = min(limit, MAX_BUFFER)
    # The system assigns pages only when they are written, so a bound that is too high takes no memory.
    buffer = np.empty(min(min(compressed, limit) + plain, MAX_BUFFER), np.uint8)
    places: list[Place] = []
    position, left = 0, limit
    for index, (codec, piece) in enumerate(pieces):
        room = len(piece) if codec == codecs.NONE else left
        try:
            size = codecs.inflate(codec, piece, buffer[position : position + room])
        except TooLarge as error:
            if places:
                break
            raise about(index, f"{error}{_CAP.format(limit)}", TooLarge) from error
        except DecodeError as error:
            raise about(index, str(error), type(error)) from error
        places.append((position, position + size))
        position += size
        left -= 0 if codec == codecs.NONE else size
    return buffer[:position], places


def _piece(data: memoryview, frame: Frame) -> Piece:
    """Return codec and bytes of a frame's records. Raises DecodeError."""
    if isinstance(frame, UncompressedMessages):
        return codecs.NONE, data[frame.begin : frame.end]
    if isinstance(frame, Batch):
        return frame.codec, data[frame.begin + HEADER_SIZE : frame.end]
    try:
        return frame.codec, frame.value(data)
    except DecodeError as error:
        raise frame.error(str(error), type(error)) from error


def _layout(buffer: Bytes, frames: Sequence[Frame], places: Sequence[Place], nested: bool = False) -> Layout:
    placed = list(zip(frames[: len(places)], places, strict=True))
    batches = [(frame, place) for frame, place in placed if isinstance(frame, Batch)]
    messages = [(frame, place) for frame, place in placed if not isinstance(frame, Batch)]
    return Layout(
        buffer,
        _regions(batches),
        _sets(messages, nested),
        [batch for batch, _ in batches],
        [message for message, _ in messages],
        len(places),
    )


def _regions(placed: Sequence[tuple[Batch, Place]]) -> Regions:
    rows = [
        (
            begin,
            end,
            batch.record_count,
            batch.base_offset,
            batch.last_offset_delta,
            batch.max_timestamp if batch.log_append_time else batch.base_timestamp,
            batch.log_append_time,
        )
        for batch, (begin, end) in placed
    ]
    columns = np.array(rows, np.int64).reshape(len(rows), 7).T
    begin, end, count, base, delta, timestamp, append_time = (np.ascontiguousarray(column) for column in columns)
    return Regions(begin, end, count, base, delta, timestamp, append_time.astype(np.bool_))


def _sets(placed: Sequence[tuple[UncompressedMessages | Wrapper, Place]], nested: bool) -> MessageSets:
    rows = [
        (
            begin,
            end,
            frame.least_offset,
            frame.last_offset,
            isinstance(frame, Wrapper) and frame.magic == 1 and not nested,
            frame.timestamp if isinstance(frame, Wrapper) else 0,
            frame.timestamp_type if isinstance(frame, Wrapper) else OWN,
        )
        for frame, (begin, end) in placed
    ]
    columns = np.array(rows, np.int64).reshape(len(rows), 7).T
    begin, end, least, last, relative, timestamp, kind = (np.ascontiguousarray(column) for column in columns)
    return MessageSets(begin, end, least, last, relative.astype(np.bool_), timestamp, kind)
