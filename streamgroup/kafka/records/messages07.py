"""Decodes messages of Kafka 0.7 into Arrow columns.

An offset is the position of a message's frame in the log. Nothing in the bytes marks the beginning of a message: data
that begins within a message has invalid lengths, magics or checksums. The messages in a wrapper share its offset, and
have an index. The index continues through nested wrappers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge, UnsupportedCodec
from streamgroup.frozen import frozen
from streamgroup.kafka.records import codecs, columns, kernel
from streamgroup.kafka.records.columns import HEADERS, TIMESTAMP
from streamgroup.kafka.records.decode import Decoded, DecodeOptions
from streamgroup.kafka.records.fields import MAX_BUFFER, Bytes, Longs
from streamgroup.kafka.records.message_sets import (
    CODEC_BITS_07,
    LEAST_SIZES_07,
    NO_MESSAGES,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    MessageFaultKind,
    MessageFields07,
    MessageSetFault,
    MessageSets07,
)
from streamgroup.kafka.records.messages import MAX_DEPTH
from streamgroup.kafka.records.regions import Place, inflate_all

__all__ = ["Frames07", "Walk07", "decode07", "walk07"]

_HEAD = struct.Struct(">iB")
"""Length and magic."""
_CRC = struct.Struct(">I")
_LONGEST = 100 << 20
"""No broker accepts a longer request (`max.socket.request.bytes`), so larger numbers are not lengths."""
_CODECS = (codecs.NONE, codecs.GZIP, codecs.SNAPPY)

E = TypeVar("E", bound=DecodeError)


class _Frame(NamedTuple):
    """One message, the bytes `[begin, end)`. Its payload is `[payload, end)`."""

    begin: int
    end: int
    codec: int
    crc: int
    payload: int


class _Uncompressed(NamedTuple):
    """Consecutive uncompressed messages of Kafka 0.7."""

    begin: int
    end: int


@frozen
class Walk07:
    """The positions in the log of the complete messages in some bytes, ascending, and the position of the next message.

    `truncated`: a part of another message follows. If `starts` is then empty, that message is larger than the fetched
    bytes, or no message begins at the requested position.
    """

    starts: Longs
    next_offset: int
    truncated: bool

    @property
    def boundaries(self) -> Longs:
        """The positions where a range may begin or end: `starts` and `next_offset`."""
        return np.append(self.starts, np.int64(self.next_offset))


def walk07(data: memoryview | bytes, start: int, until: int | None = None, *, check_crcs: bool = False) -> Walk07:
    """Find the positions of the messages in `data`, which begins at the position `start` of the log.

    Messages that begin at `until` or later are omitted. A wrapper counts as one message: nothing is decompressed. With
    `check_crcs` a start within a message is an error even if its bytes look like a length. Raises DecodeError if no
    message can begin at the position of the next one.
    """
    frames = Frames07(data, start, start + len(data) if until is None else until)
    data = frames.data
    pieces: list[Longs] = []
    for frame in frames:
        if isinstance(frame, _Uncompressed):
            sets = _sets([(frame, (frame.begin, frame.end))], start)
            pieces.append(_scan(np.frombuffer(data, np.uint8), sets, [frame], frames, check_crcs).offset)
            continue
        if check_crcs:
            frames.verify(frame)
        pieces.append(np.array([start + frame.begin], np.int64))
    starts = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    return Walk07(starts, frames.next_offset, frames.truncated)


def decode07(frames: Frames07, start: int, options: DecodeOptions) -> Decoded:
    """Decode the messages of `frames` from the position `start` on, up to `frames.until`.

    `start` is `frames.start`, or the `next_offset` of a call that ended early. The offset of a record is the position
    of its outer message; `inner` is its index there, 0 for an uncompressed message. There are no keys, no timestamps
    (-1, type -1) and no headers. `next_offset` is the position after the last complete message.

    Raises DecodeError and its subclasses: `base_offset` is the position of the invalid message, or a position where no
    message begins, such as `until` within a message. `next_offset` is the position after it, if known. If the next
    wrapper exceeds `max_decompressed_bytes`, the call ends before it.
    """
    wanted = [frame for frame in frames if frames.start + frame.begin >= start]
    if frames.next_offset > frames.until:
        reaching = frames.start + wanted[-1].begin
        raise frames.no_boundary(frames.until - frames.start, f"the message at {reaching} reaches beyond it")
    if options.check_crcs:
        for frame in wanted:
            if isinstance(frame, _Frame):
                frames.verify(frame)
    buffer, found, held = _found(wanted, frames, options)
    rows = len(found.offset)
    return Decoded(
        key=pa.nulls(rows, pa.binary()),
        value=columns.binary(buffer, found.value_start, found.value_length),
        offset=columns.longs(found.offset),
        timestamp=(
            columns.constant(NO_TIMESTAMP, pa.int64(), rows)
            if options.timestamps_in_ms
            else columns.constant(NO_TIMESTAMP * 1000, TIMESTAMP, rows)
        ),
        timestamp_type=columns.constant(NO_TIMESTAMP_TYPE, pa.int32(), rows),
        headers=pa.nulls(rows, HEADERS) if options.include_headers else None,
        num_rows=rows,
        next_offset=frames.start + wanted[held].begin if held < len(wanted) else frames.next_offset,
        truncated=frames.truncated,
        inner=columns.ints(found.inner) if options.include_inner_index else None,
    )


class Frames07:
    """The messages of Kafka 0.7 in the bytes of one response, up to the position `until`.

    The constructor reads their lengths. `data` begins at the position `start` of the log. The fetcher continues at
    `next_offset`. The decoder later iterates over the messages.
    """

    def __init__(self, data: memoryview | bytes, start: int, until: int) -> None:
        self.data = memoryview(data).cast("B")
        self.start = start
        self.until = until
        self.size = 0
        """Bytes of the complete messages."""
        self.truncated = False
        """Whether the bytes end within a message."""
        self.failure: DecodeError | None = None
        """The error of a position at which no message can begin, where the walk ended."""
        self._frames: list[_Uncompressed | _Frame] = []
        try:
            self._walk()
        except DecodeError as error:
            self.failure = error

    @property
    def next_offset(self) -> int:
        """The position to fetch next: after the last complete message.

        With a `failure` it is `until`: the decoder raises the error, and nothing more is fetched before.
        """
        return self.start + self.size if self.failure is None else self.until

    def __iter__(self) -> Iterator[_Uncompressed | _Frame]:
        """Iterate over the messages, then raise `failure` if there is one."""
        yield from self._frames
        if self.failure is not None:
            raise self.failure

    def _walk(self) -> None:
        stop = min(self.until - self.start, len(self.data))
        while self.size < stop:
            begin = self.size
            walked = kernel.current().walk07(self.data, begin, stop)
            if walked.messages:
                self.size = walked.end
                self._frames.append(_Uncompressed(begin, walked.end))
                continue
            frame = self._frame(begin)
            if frame is None:
                self.truncated = True
                return
            self.size = frame.end
            self._frames.append(frame)

    def _frame(self, begin: int) -> _Frame | None:
        """Return the message at `begin`; None if it is truncated. Raises DecodeError if none can begin there."""
        try:
            return _frame(self.data, begin)
        except DecodeError as error:
            raise self.no_boundary(begin, str(error), type(error)) from None

    def no_boundary(self, begin: int, what: str, kind: type[DecodeError] = DecodeError) -> DecodeError:
        """Return an error of `kind`: no undamaged message begins at `begin`."""
        position = self.start + begin
        error = kind(f"position {position}: {what}; no message begins there, or it is damaged")
        error.base_offset = position
        return error

    def verify(self, frame: _Frame) -> None:
        """Check the CRC-32 of a wrapper. Raises ChecksumMismatch."""
        if kernel.current().crc32(self.data[frame.payload : frame.end]) != frame.crc:
            raise self.damaged(frame.begin, MessageFaultKind.CHECKSUM)

    def damaged(self, begin: int, fault: MessageFaultKind) -> DecodeError:
        """Return an error about the message at `begin`.

        It has the next offset only if an undamaged message or the end of the data follows. Otherwise the length may be
        damaged.
        """
        kind = ChecksumMismatch if fault is MessageFaultKind.CHECKSUM else DecodeError
        error = self.no_boundary(begin, fault.text, kind)
        try:
            frame = _frame(self.data, begin)
            after = None if frame is None else _frame(self.data, frame.end)
        except DecodeError:
            return error
        if frame is None:
            return error
        follows = after is not None and kernel.current().crc32(self.data[after.payload : after.end]) == after.crc
        if follows or frame.end == len(self.data):
            error.next_offset = self.start + frame.end
        return error

    def error(self, frame: _Uncompressed | _Frame, what: str, kind: type[E]) -> E:
        """Return an error of `kind` about a complete message with a correct checksum."""
        error = kind(f"the message at position {self.start + frame.begin}: {what}")
        error.base_offset, error.next_offset = self.start + frame.begin, self.start + frame.end
        return error


def _frame(data: memoryview, begin: int) -> _Frame | None:
    """Return the message at `begin` of `data`; None if it is truncated. Raises DecodeError if none can begin there."""
    left = len(data) - begin
    if left < _HEAD.size:
        return None
    length, magic = _HEAD.unpack_from(data, begin)
    if magic > 1:
        raise DecodeError(f"magic {magic} is neither 0 nor 1")
    if not LEAST_SIZES_07[magic] <= length <= _LONGEST:
        raise DecodeError(f"a message length of {length} bytes is invalid")
    if length > left - 4:
        return None
    codec = data[begin + _HEAD.size] & CODEC_BITS_07 if magic else codecs.NONE
    (crc,) = _CRC.unpack_from(data, begin + _HEAD.size + magic)
    return _Frame(begin, begin + 4 + length, codec, crc, begin + _HEAD.size + magic + _CRC.size)


def _found(
    wanted: list[_Uncompressed | _Frame], frames: Frames07, options: DecodeOptions
) -> tuple[Bytes, MessageFields07, int]:
    """Return the buffer, the messages in it, and of how many elements of `wanted` they are."""
    buffer, places = _laid_out(wanted, frames, options.max_decompressed_bytes)
    checked = options.check_crcs
    try:
        found = _scan(buffer, _sets(list(zip(wanted, places, strict=False)), frames.start), wanted, frames, checked)
    except _Nested07:
        buffer, places = _flattened(wanted, frames, options)
        found = _scan(buffer, _sets(list(zip(wanted, places, strict=False)), frames.start), wanted, frames, checked)
    return buffer, found, len(places)


def _laid_out(wanted: list[_Uncompressed | _Frame], frames: Frames07, limit: int) -> tuple[Bytes, list[Place]]:
    """Return the sets of `wanted` in one buffer, wrappers decompressed, as far as they fit into `limit`."""
    data = frames.data
    if all(isinstance(frame, _Uncompressed) for frame in wanted) and len(data) <= MAX_BUFFER:
        return np.frombuffer(data, np.uint8), [(frame.begin, frame.end) for frame in wanted]
    pieces = [
        (codecs.NONE, data[frame.begin : frame.end])
        if isinstance(frame, _Uncompressed)
        else (_codec(frame, frames), data[frame.payload : frame.end])
        for frame in wanted
    ]
    buffer, places = inflate_all(pieces, limit, lambda index, what, kind: frames.error(wanted[index], what, kind))
    for frame, (begin, end) in zip(wanted, places, strict=False):
        if begin == end:
            raise frames.error(frame, NO_MESSAGES, DecodeError)
    return buffer, places


def _codec(frame: _Frame, frames: Frames07) -> int:
    if frame.codec not in _CODECS:
        raise frames.error(frame, f"compressed by codec {frame.codec}; supported: 1 gzip, 2 snappy", UnsupportedCodec)
    return frame.codec


def _flattened(
    wanted: list[_Uncompressed | _Frame], frames: Frames07, options: DecodeOptions
) -> tuple[Bytes, list[Place]]:
    """Do as `_laid_out` for nested wrappers: one by one, each as the uncompressed messages in it, depth first."""
    data = frames.data
    left = options.max_decompressed_bytes
    parts: list[bytes] = []
    for frame in wanted:
        if isinstance(frame, _Uncompressed):
            parts.append(bytes(data[frame.begin : frame.end]))
            continue
        flattening = _Flattening07(left, options.check_crcs)
        try:
            flattening.add(data, frame, 1)
        except TooLarge as error:
            if parts:
                break
            what = f"{error} (group.maxDecompressedBytes is {options.max_decompressed_bytes})"
            raise frames.error(frame, what, TooLarge) from error
        except DecodeError as error:
            raise frames.error(frame, str(error), type(error)) from error
        left = flattening.left
        parts.append(b"".join(flattening.flat))
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return np.frombuffer(b"".join(parts), np.uint8), list(zip([0, *ends[:-1]], ends, strict=True))


class _Flattening07:
    """Collects the uncompressed messages of a wrapper and of wrappers in it.

    `left` is how many bytes may still be decompressed.
    """

    def __init__(self, limit: int, check_crcs: bool) -> None:
        self.left = limit
        self.flat: list[bytes] = []
        self._check_crcs = check_crcs

    def add(self, data: memoryview, wrapper: _Frame, depth: int) -> None:
        """Add the messages in `wrapper`, at nesting depth `depth`. Raises DecodeError."""
        if depth > MAX_DEPTH:
            raise DecodeError(f"compressed messages are nested more than {MAX_DEPTH} deep")
        if wrapper.codec not in _CODECS:
            raise UnsupportedCodec(f"compressed by codec {wrapper.codec}; supported: 1 gzip, 2 snappy")
        inner = codecs.inflated(wrapper.codec, data[wrapper.payload : wrapper.end], self.left)
        if not inner:
            raise DecodeError(NO_MESSAGES)
        self.left -= len(inner)
        position = 0
        while position < len(inner):
            frame = _frame(inner, position)
            if frame is None:
                raise DecodeError(MessageFaultKind.FRAME.text)
            if frame.codec == codecs.NONE:
                self.flat.append(bytes(inner[frame.begin : frame.end]))
            else:
                if self._check_crcs and kernel.current().crc32(inner[frame.payload : frame.end]) != frame.crc:
                    raise ChecksumMismatch(MessageFaultKind.CHECKSUM.text)
                self.add(inner, frame, depth + 1)
            position = frame.end


class _Nested07(Exception):
    """A scan has found a compressed message within a compressed message."""


def _sets(placed: list[tuple[_Uncompressed | _Frame, Place]], start: int) -> MessageSets07:
    rows = [(begin, end, start + frame.begin, isinstance(frame, _Frame)) for frame, (begin, end) in placed]
    table = np.array(rows, np.int64).reshape(len(rows), 4).T
    begin, end, offset, wrapped = (np.ascontiguousarray(column) for column in table)
    return MessageSets07(begin, end, offset, wrapped.astype(np.bool_))


def _scan(
    buffer: Bytes, sets: MessageSets07, wanted: list[_Uncompressed | _Frame], frames: Frames07, checked: bool
) -> MessageFields07:
    """Return the messages of `sets`, which are those of `wanted`. Raises DecodeError, or _Nested."""
    try:
        return kernel.current().messages07(buffer, sets, checked)
    except MessageSetFault as error:
        if error.fault is MessageFaultKind.NESTED:
            raise _Nested07 from None
        frame = wanted[error.index]
        if isinstance(frame, _Uncompressed):
            raise frames.damaged(frame.begin + error.position - int(sets.begin[error.index]), error.fault) from None
        kind = ChecksumMismatch if error.fault is MessageFaultKind.CHECKSUM else DecodeError
        raise frames.error(frame, error.fault.text, kind) from None
