"""Frames on a connection (a 4-byte length, then that many bytes): splits received bytes, and queues bytes to send.

Small frames are copied out of a shared read buffer. Of a large frame only the first bytes are copied, and the socket
writes the rest directly into the memory of the frame. So a Fetch response of some MiB is copied only by the kernel.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from streamgroup.errors import DecodeError, TooLarge
from streamgroup.kafka.wire.primitives import Bytes

_LENGTH = 4
SMALLEST = 4
"""The size of a correlation id, which every response has."""
_READ_BUFFER = 64 * 1024
_TLS_RECORDS = range(20, 24)
"""The content types of TLS: the first byte of a TLS record, at the place of the highest byte of a length."""
_HTTP = int.from_bytes(b"HTTP", "big")


class TlsAnswer(TooLarge):
    """The client uses no TLS, but the first bytes of the server are a TLS record."""


class FrameReader:
    """Splits received bytes into frames.

    Write at most `len(space())` bytes into `space()`, then pass their number to `received`, which returns the frames.
    """

    __slots__ = ("_begin", "_buffer", "_end", "_filled", "_frame", "_is_first", "_max", "smallest")

    def __init__(self, max_bytes: int, smallest: int = SMALLEST) -> None:
        self._max = max_bytes
        self.smallest = smallest
        """The fewest bytes that a frame may have."""
        self._buffer = memoryview(bytearray(_READ_BUFFER))
        self._begin = self._end = 0
        self._frame: memoryview | None = None
        self._filled = 0
        self._is_first = True

    @property
    def missing(self) -> int:
        """The number of bytes that the incomplete frame (or its length field) lacks; 0 between frames."""
        if self._frame is not None:
            return len(self._frame) - self._filled
        return _LENGTH - (self._end - self._begin) if self._end > self._begin else 0

    def space(self) -> memoryview:
        """Return the memory to write the next received bytes to. It is never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._buffer[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """Take `count` bytes from `space()`. Return the frames that they complete, without their lengths, read-only.

        Raises TooLarge for a frame above the limit, before memory for it is allocated, and DecodeError for one that is
        too short.
        """
        if self._frame is None:
            self._end += count
            return self._split()
        self._filled += count
        if self._filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [frame.toreadonly()]

    def _split(self) -> list[memoryview]:
        """Split the read buffer into frames, and start the frame that it holds only in part."""
        frames: list[memoryview] = []
        while self._end - self._begin >= _LENGTH:
            size = self._checked(int.from_bytes(self._buffer[self._begin : self._begin + _LENGTH], "big", signed=True))
            start = self._begin + _LENGTH
            if self._end - start >= size:
                self._begin = start + size
                frames.append(memoryview(bytes(self._buffer[start : self._begin])))
                continue
            self._frame = memoryview(bytearray(size))
            self._filled = self._end - start
            self._frame[: self._filled] = self._buffer[start : self._end]
            self._begin = self._end
        left = self._end - self._begin
        self._buffer[:left] = bytes(self._buffer[self._begin : self._end])
        self._begin, self._end = 0, left
        return frames

    def _checked(self, size: int) -> int:
        if size > self._max:
            if self._is_first and size >> 24 in _TLS_RECORDS:
                raise TlsAnswer(
                    "the listener requires TLS. Set kafka.security.protocol to SSL, or to SASL_SSL for a listener with "
                    "SASL, or set the port of a plaintext listener"
                )
            raise TooLarge(f"invalid frame of {size} bytes: the limit is {self._max}{_hint(size, self._is_first)}")
        if size < self.smallest:
            raise DecodeError(
                f"invalid frame of {size} bytes: a response has at least {self.smallest}{_hint(size, self._is_first)}"
            )
        self._is_first = False
        return size


def _hint(size: int, is_first: bool) -> str:
    """Return the next step if the first bytes of a server are not a length: it is not a Kafka broker."""
    if not is_first:
        return ""
    if size == _HTTP:
        return ". The server uses HTTP, not Kafka's protocol: check the port"
    return ". The server does not use Kafka's protocol: check the port"


# -- bytes to send -----------------------------------------------------------------------------------------------------

_SMALL = 16_384
"""Pieces of up to so many bytes are joined. Larger ones are not copied."""
_AT_ONCE = 16
"""Pieces per system call."""


class Outgoing:
    """The queue of frames to send. The socket may accept only a part of a frame."""

    def __init__(self) -> None:
        self._chunks: deque[Bytes] = deque()
        self._taken = 0
        """Bytes of the first chunk that the socket has accepted."""

    def __len__(self) -> int:
        return sum(map(len, self._chunks)) - self._taken

    def add(self, *pieces: Bytes) -> None:
        """Add a frame in pieces. The caller must not change the pieces afterwards."""
        for piece in pieces:
            if self._chunks and len(self._chunks[-1]) + len(piece) <= _SMALL:
                self._chunks[-1] = bytes(self._chunks[-1]) + piece
            else:
                self._chunks.append(piece)

    def next(self) -> list[memoryview]:
        """Return the first pieces to send; an empty list if there are none."""
        chunks = [memoryview(chunk) for chunk in islice(self._chunks, _AT_ONCE)]
        if chunks:
            chunks[0] = chunks[0][self._taken :]
        return chunks

    def taken(self, count: int) -> None:
        """Remove the first `count` bytes of the queue, which the socket has accepted."""
        self._taken += count
        while self._chunks and self._taken >= len(self._chunks[0]):
            self._taken -= len(self._chunks.popleft())
