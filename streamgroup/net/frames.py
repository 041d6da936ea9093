"""Frames off a socket: a 4-byte length, then so many bytes.

A small frame is copied out of one read buffer that serves many of them; of a large one only the head is, the rest is
received straight into the memory it stays in. So a Fetch answer of some MiB is copied once, by the kernel.
"""

from __future__ import annotations

from streamgroup.errors import DecodeError, TooLarge

_LENGTH = 4
_SMALLEST = 4
"""A response has a correlation id at least."""
_READ_BUFFER = 64 * 1024
_TLS_RECORDS = range(20, 24)
"""The content types of TLS: what a TLS listener's alert or handshake begins with, read as the top byte of a length."""
_HTTP = int.from_bytes(b"HTTP", "big")


class FrameReader:
    """Bytes in, frames out: write at most `len(space())` bytes into `space()`, then say how many to `received`."""

    __slots__ = ("_begin", "_buffer", "_end", "_filled", "_frame", "_max", "_smallest")

    def __init__(self, max_bytes: int, smallest: int = _SMALLEST) -> None:
        self._max = max_bytes
        self._smallest = smallest
        self._buffer = memoryview(bytearray(_READ_BUFFER))
        self._begin = self._end = 0
        self._frame: memoryview | None = None
        self._filled = 0

    @property
    def missing(self) -> int:
        """How many bytes the frame that has begun still lacks, as far as its length is known; 0 between frames."""
        if self._frame is not None:
            return len(self._frame) - self._filled
        return _LENGTH - (self._end - self._begin) if self._end > self._begin else 0

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._buffer[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """`count` bytes now lie in `space()`: the frames that they complete, without their lengths, read-only.

        Raises TooLarge for a frame beyond the cap, before anything is allocated, and DecodeError for one too short.
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
        """Cut the read buffer into frames; begin the one that does not lie in it whole."""
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
            raise TooLarge(f"a frame of {size} bytes was announced, the cap is {self._max}{_hint(size)}")
        if size < self._smallest:
            raise DecodeError(f"a frame of {size} bytes was announced, which cannot hold a response")
        return size


def _hint(size: int) -> str:
    """Who else speaks like that, where a length is none."""
    if size >> 24 in _TLS_RECORDS:
        return "; is this a TLS listener?"
    return "; this is an HTTP server, not a Kafka broker: check the port" if size == _HTTP else ""
