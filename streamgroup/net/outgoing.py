"""The bytes of a connection that its socket has not taken yet."""

from __future__ import annotations

from collections import deque

from streamgroup.wire.primitives import Bytes

_SMALL = 16_384
"""Bytes up to which frames are joined, so that several requests share a packet. Larger frames are not copied."""


class Outgoing:
    """Whole frames in the order in which they are to be sent. The socket may take a part of one."""

    def __init__(self) -> None:
        self._chunks: deque[Bytes] = deque()
        self._taken = 0
        """Bytes of the first chunk that the socket has taken."""

    def __len__(self) -> int:
        """Return the bytes that are left."""
        return sum(map(len, self._chunks)) - self._taken

    def add(self, frame: Bytes) -> None:
        """Add a frame. The caller must not change it any more."""
        if self._chunks and len(self._chunks[-1]) + len(frame) <= _SMALL:
            self._chunks[-1] = bytes(self._chunks[-1]) + frame
        else:
            self._chunks.append(frame)

    def next(self) -> memoryview:
        """Return the bytes to send next, not all where there are many; empty if there are none."""
        return memoryview(self._chunks[0])[self._taken :] if self._chunks else memoryview(b"")

    def taken(self, count: int) -> None:
        """Forget the first `count` bytes of `next`, which the socket has taken."""
        self._taken += count
        if self._chunks and self._taken >= len(self._chunks[0]):
            self._chunks.popleft()
            self._taken = 0
