import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, TooLarge
from streamgroup.kafka.net.frames import FrameReader, Outgoing, TlsAnswer

MIB = 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(reader: FrameReader, data: bytes, most: int) -> list[bytes]:
    """Hand `data` in, at most `most` bytes at a time and never more than there is space for."""
    frames: list[bytes] = []
    while data:
        space = reader.space()
        count = min(len(space), len(data), most)
        assert count > 0
        space[:count] = data[:count]
        frames += [bytes(frame) for frame in reader.received(count)]
        data = data[count:]
    return frames


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(4, 64), st.integers(65_000, 70_000), st.just(200_000)), max_size=5),
    pieces=st.lists(st.one_of(st.integers(1, 9), st.integers(2_000, 100_000)), max_size=5).map(lambda p: [*p, 9_999]),
)
def test_any_split_of_the_stream_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    stream = b"".join(framed(body) for body in bodies)
    reader = FrameReader(MIB)
    frames: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        piece = stream[at : at + pieces[turn % len(pieces)]]
        frames += feed(reader, piece, len(piece))
        at, turn = at + len(piece), turn + 1
    assert frames == bodies
    assert reader.missing == 0


def test_the_rest_of_a_large_frame_is_received_in_place() -> None:
    reader = FrameReader(MIB)
    head = framed(b"a" * 500_000)[:1000]
    feed(reader, head, len(head))
    assert len(reader.space()) == reader.missing == 500_000 - 996


def test_a_frame_at_the_cap_passes_and_one_byte_more_does_not() -> None:
    assert feed(FrameReader(100), framed(b"a" * 100), 200) == [b"a" * 100]
    with pytest.raises(TooLarge, match="101 bytes: the limit is 100"):
        feed(FrameReader(100), framed(b"a" * 101), 200)


def test_a_length_is_checked_before_anything_is_allocated() -> None:
    with pytest.raises(TooLarge, match="2147483647"):
        feed(FrameReader(100 * MIB), struct.pack(">i", 2**31 - 1), 4)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3])
def test_a_frame_that_cannot_hold_a_correlation_id_is_refused(size: int) -> None:
    with pytest.raises(DecodeError, match="a response has at least 4"):
        feed(FrameReader(MIB), struct.pack(">i", size), 4)


def test_the_alert_of_a_tls_listener_is_recognised() -> None:
    with pytest.raises(TlsAnswer, match=r"the listener speaks TLS\. Set kafka\.security\.protocol to SSL"):
        feed(FrameReader(100 * MIB), b"\x15\x03\x03\x00\x02\x02\x50", 7)


@pytest.mark.parametrize("damage", [b"\x15\x03\x03\x00", b"HTTP"])
def test_damage_behind_a_whole_frame_is_not_taken_for_tls_or_another_kind_of_server(damage: bytes) -> None:
    with pytest.raises(TooLarge, match=r"invalid frame of \d+ bytes: the limit is 104857600$") as caught:
        feed(FrameReader(100 * MIB), framed(b"whole") + damage, 64)
    assert not isinstance(caught.value, TlsAnswer)


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "uses HTTP, not Kafka's protocol"),
        (b"E\x00\x00\x00\x0a8.0.36\x00", "does not use Kafka's protocol"),  # MySQL
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not use Kafka's protocol"),
        (b"\x00\x00\x00\x00", "does not use Kafka's protocol"),
        (b"\xff\xfb\x01\xff", "does not use Kafka's protocol"),  # Telnet
    ],
    ids=["HTTP", "MySQL", "SSH", "zeros", "Telnet"],
)
def test_the_first_bytes_of_another_kind_of_server_are_recognised(first: bytes, protocol: str) -> None:
    with pytest.raises(DecodeError, match=f"The server {protocol}: check the port"):
        feed(FrameReader(100 * MIB), first, 26)


def test_a_frame_is_read_only_and_keeps_its_bytes_while_others_arrive() -> None:
    reader = FrameReader(MIB)
    space = reader.space()
    data = framed(b"kept") + framed(b"gone")[:6]
    space[: len(data)] = data
    (frame,) = reader.received(len(data))
    feed(reader, b"ne" + framed(b"more"), 3)
    assert bytes(frame) == b"kept"
    with pytest.raises(TypeError):
        frame[0] = 1


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
