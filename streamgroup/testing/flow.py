"""The effect of a fault on the bytes of one direction of one connection, without a socket or a clock.

Pass received bytes to `put`, send the bytes of `piece`, and pass their number to `sent`. Bytes are never changed or
reordered: a fault does only what a network may do.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from streamgroup.frozen import frozen

CAPACITY = 256 * 1024
"""Bytes that a flow buffers at most; a faster sender is blocked, as by TCP."""

_LENGTH = 4
_NOTHING = memoryview(b"")
_BURST_S = 0.02
"""Seconds of unused rate that a throttled flow may send at once."""


class End(Enum):
    """The ways in which a flow ends."""

    STALL = "no bytes pass and none are lost: the flow continues when the fault is lifted"
    RESET = "both sides receive RST"
    FIN = "the receiver gets FIN; bytes in transit are discarded"
    HALF_OPEN = "sent bytes vanish, and no side learns that the other one has closed"


@frozen
class Fault:
    """A fault in one direction of a connection; without arguments bytes pass unchanged.

    Bytes are delayed by `delay_s`, limited to `bytes_per_s`, and written in pieces of at most `split` bytes. With `end`
    no bytes pass: at once or, with `mid_frame`, from the middle of the next Kafka frame (a 4-byte length and that many
    bytes) whose length is at least `min_frame`.
    """

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    split: int | None = None
    end: End | None = None
    mid_frame: bool = False
    min_frame: int = 0

    def __post_init__(self) -> None:
        if self.delay_s < 0 or (self.bytes_per_s is not None and self.bytes_per_s <= 0):
            raise ValueError(f"invalid {self}: delay_s must be at least 0 and bytes_per_s above 0")
        if self.split is not None and self.split < 1:
            raise ValueError(f"invalid {self}: split must be at least 1")
        if (self.mid_frame or self.min_frame) and self.end is None:
            raise ValueError(f"invalid {self}: mid_frame and min_frame need end")
        if self.min_frame and not self.mid_frame:
            raise ValueError(f"invalid {self}: min_frame requires mid_frame=True")


CLEAN = Fault()


class FramePosition:
    """The position of a byte stream within Kafka's frames."""

    __slots__ = ("_header", "_left", "_size")

    def __init__(self) -> None:
        self._header = b""
        self._size = self._left = 0

    def is_in_middle(self, smallest: int) -> bool:
        """Return whether at least half of a frame of `smallest` bytes or more has passed, and not all of it."""
        return self._size >= smallest and 0 < self._left <= self._size - self._size // 2

    def pass_over(self, data: memoryview) -> None:
        """Advance past `data`."""
        self._walk(data, None)

    def until_middle(self, data: memoryview, smallest: int) -> int:
        """Return how many bytes of `data` precede the middle of a frame of at least `smallest` bytes; all without such
        a frame."""
        ahead = FramePosition()
        ahead._header, ahead._size, ahead._left = self._header, self._size, self._left
        return ahead._walk(data, smallest)

    def _walk(self, data: memoryview, smallest: int | None) -> int:
        at = 0
        while at < len(data):
            if smallest is not None and self.is_in_middle(smallest):
                return at
            if not self._left:
                at += self._take_header(data[at : at + _LENGTH - len(self._header)])
                continue
            step = min(self._left, len(data) - at)
            half = self._size - self._size // 2
            if smallest is not None and self._size >= smallest and self._left > half:
                step = min(step, self._left - half)
            self._left -= step
            at += step
        return at

    def _take_header(self, data: memoryview) -> int:
        self._header += data
        if len(self._header) == _LENGTH:
            self._size = self._left = int.from_bytes(self._header, "big")
            self._header = b""
        return len(data)


class Flow:
    """One direction of one connection. Times are seconds on the caller's clock."""

    def __init__(self, fault: Fault, now: float) -> None:
        self.fault = fault
        self._chunks: deque[tuple[float, memoryview]] = deque()
        """The buffered chunks, each with the time before which it may not be sent."""
        self._held = 0
        self.passed = 0
        """Number of bytes that the receiver has got."""
        self._closes_at: float | None = None
        self._frames = FramePosition()
        self._tokens, self._tokens_at = 0.0, now

    @property
    def ended(self) -> End | None:
        """The end that the fault has caused, if any."""
        fault = self.fault
        return fault.end if not fault.mid_frame or self._frames.is_in_middle(fault.min_frame) else None

    @property
    def hungry(self) -> bool:
        """True if the source should be read."""
        if self._closes_at is not None:
            return False
        return self.ended is End.HALF_OPEN or (self.ended is not End.STALL and self._held < CAPACITY)

    @property
    def held(self) -> int:
        """Number of buffered bytes."""
        return self._held

    def put(self, data: bytes, now: float) -> None:
        """Buffer `data` from the source."""
        if self.ended in (None, End.STALL):
            self._chunks.append((now + self.fault.delay_s, memoryview(data)))
            self._held += len(data)

    def close(self, now: float) -> None:
        """Record that the source has closed its side."""
        self._closes_at = now + self.fault.delay_s

    def finished(self, now: float) -> bool:
        """Return whether to close the receiver's side."""
        if self.ended is not None:
            return self.ended is End.FIN
        return self._closes_at is not None and not self._chunks and now >= self._closes_at

    def piece(self, now: float) -> memoryview:
        """Return the bytes to send now in one write; empty if none may be sent."""
        if self.ended is not None or not self._chunks or self._chunks[0][0] > now:
            return _NOTHING
        fault = self.fault
        data = self._chunks[0][1][: fault.split]
        if fault.bytes_per_s is not None:
            self._earn(fault.bytes_per_s, now)
            data = data[: int(self._tokens)] if self._tokens >= _worthwhile(data, fault.bytes_per_s) else _NOTHING
        if fault.mid_frame:
            data = data[: self._frames.until_middle(data, fault.min_frame)]
        return data

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes of the last piece, which the socket has accepted."""
        due, data = self._chunks.popleft()
        self._frames.pass_over(data[:count])
        if count < len(data):
            self._chunks.appendleft((due, data[count:]))
        self._held -= count
        self.passed += count
        if self.fault.bytes_per_s is not None:
            self._tokens -= count

    def due(self, now: float) -> float | None:
        """Return when the next bytes may be sent; None if no buffered bytes wait for time."""
        if self.ended is not None:
            return None
        if not self._chunks:
            return self._closes_at
        due, data = self._chunks[0]
        rate = self.fault.bytes_per_s
        if rate is None:
            return due
        self._earn(rate, now)
        wanted = _worthwhile(data[: self.fault.split], rate)
        return max(due, now + max(0.0, wanted - self._tokens) / rate)

    def _earn(self, rate: float, now: float) -> None:
        self._tokens = min(max(1.0, rate * _BURST_S), self._tokens + (now - self._tokens_at) * rate)
        self._tokens_at = now


def _worthwhile(data: memoryview, rate: float) -> float:
    """Return the bytes that the rate must allow before a write: all of `data`, or the burst."""
    return max(1.0, min(len(data), rate * _BURST_S))
