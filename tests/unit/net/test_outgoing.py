"""Bytes that wait for the socket: they leave in their order, however many the socket takes at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroup.net.outgoing import Outgoing


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=40_000), st.integers(1, 50_000))))
def test_all_bytes_leave_in_their_order(steps: list[bytes | int]) -> None:
    """A step adds a frame, or the socket takes so many bytes."""
    outgoing, added, left = Outgoing(), b"", b""
    for step in steps:
        if isinstance(step, bytes):
            outgoing.add(step)
            added += step
        else:
            taken = b"".join(outgoing.next())[:step]
            outgoing.taken(len(taken))
            left += taken
        assert len(outgoing) == len(added) - len(left)
    while rest := b"".join(outgoing.next()):
        left += rest
        outgoing.taken(len(rest))
    assert left == added
    assert not len(outgoing)


def test_small_frames_leave_together() -> None:
    outgoing = Outgoing()
    for frame in (b"ab", b"c", b"def"):
        outgoing.add(frame)
    assert outgoing.next() == [b"abcdef"]


def test_a_large_frame_is_not_copied() -> None:
    outgoing, frame = Outgoing(), bytearray(20_000)
    outgoing.add(b"small", frame)
    assert [len(piece) for piece in outgoing.next()] == [5, 20_000], "one call of the system sends both"
    outgoing.taken(6)
    (rest,) = outgoing.next()
    assert rest.obj is frame
    assert len(rest) == 19_999


def test_a_small_frame_joins_one_that_has_left_in_part() -> None:
    outgoing = Outgoing()
    outgoing.add(b"abc")
    (held,) = outgoing.next()
    outgoing.taken(2)
    outgoing.add(b"def")
    assert outgoing.next() == [b"cdef"]
    assert bytes(held) == b"abc", "bytes that were handed out do not change"
