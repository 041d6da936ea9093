"""The bytes of a connection that its socket has not taken yet."""

from __future__ import annotations

from collections import deque
from itertools import islice

from streamgroup.wire.primitives import Bytes

_SMALL = 16_384
"""Bytes up to which pieces are joined. Larger ones are not copied."""
_AT_ONCE = 16
"""Pieces for one call of the system."""


class Outgoing:
    """Whole frames in the order in which they are to be sent. The socket may take a part of one."""

    def __init__(self) -> None:
        self._chunks: deque[Bytes] = deque()
        self._taken = 0
        """Bytes of the first chunk that the socket has taken."""

    def __len__(self) -> int:
        """Return the bytes that are left."""
        return sum(map(len, self._chunks)) - self._taken

    def add(self, *pieces: Bytes) -> None:
        """Add a frame in pieces. The caller must not change them any more."""
        for piece in pieces:
            if self._chunks and len(self._chunks[-1]) + len(piece) <= _SMALL:
                self._chunks[-1] = bytes(self._chunks[-1]) + piece
            else:
                self._chunks.append(piece)

    def next(self) -> list[memoryview]:
        """Return the bytes to send next in pieces, not all where there are many; an empty list if there are none."""
        chunks = [memoryview(chunk) for chunk in islice(self._chunks, _AT_ONCE)]
        if chunks:
            chunks[0] = chunks[0][self._taken :]
        return chunks

    def taken(self, count: int) -> None:
        """Forget the first `count` bytes of `next`, which the socket has taken."""
        self._taken += count
        while self._chunks and self._taken >= len(self._chunks[0]):
            self._taken -= len(self._chunks.popleft())
