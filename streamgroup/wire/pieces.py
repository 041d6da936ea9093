"""Encoded bytes whose large values stand apart, so that they are not copied."""

from __future__ import annotations

from streamgroup.wire.primitives import Bytes

LARGE = 32_768
"""Bytes from which on a value is not copied. A copy of fewer costs less than a piece of its own."""


class Pieces(bytearray):
    """A message under construction, of which `keep` takes large values without a copy.

    The owner of a value must not change it before the message is sent.
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self._kept: list[tuple[int, Bytes]] = []
        """Where in the other bytes each value belongs, and the value."""
        self._kept_size = 0

    @property
    def size(self) -> int:
        """The bytes of the whole message."""
        return len(self) + self._kept_size

    def keep(self, value: Bytes) -> None:
        """Append a large value."""
        self._kept.append((len(self), value))
        self._kept_size += len(value)

    def pieces(self) -> list[Bytes]:
        """Return the whole message in pieces, in their order."""
        if not self._kept:
            return [self]
        pieces: list[Bytes] = []
        start, others = 0, memoryview(self)
        for at, value in self._kept:
            pieces += [others[start:at], value]
            start = at
        return [piece for piece in (*pieces, others[start:]) if len(piece)]
