"""The frames of fetched bytes: what a task fetches next, and which offsets damaged bytes cost."""

from __future__ import annotations

import struct

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge, UnsupportedMagic
from streamgroup.kafka.records import codecs
from streamgroup.kafka.records.batches import Batch, Frames
from streamgroup.kafka.records.messages import UncompressedMessages, Wrapper
from streamgroup.kafka.records.regions import Layout, inflate_all, lay_out_nested
from tests.unit.kafka.records.encoder import Record, compress, encode_batch
from tests.unit.kafka.records.encoder_sets import CODEC_NUMBERS, Message, encode_message, encode_set, encode_wrapper

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62


def batch(first: int, last: int | None = None, value: bytes = b"v") -> bytes:
    """A batch with one record at offset `first`, which covers the offsets up to `last`."""
    return encode_batch([Record(first, value=value)], last_offset=last)


def flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


# -- the walk ---------------------------------------------------------------------------------------------------------


def test_frames_come_as_runs_wrappers_and_batches() -> None:
    data = encode_set([Message(i) for i in range(5)], 0) + encode_set([Message(i) for i in range(5, 9)], 1)
    data += encode_wrapper([Message(9), Message(12)], "gzip", 1) + encode_batch([Record(13), Record(14)])
    frames = list(Frames(data, 2, END))
    assert [type(frame) for frame in frames] == [UncompressedMessages, UncompressedMessages, Wrapper, Batch]
    assert [(frame.base_offset, frame.last_offset) for frame in frames] == [(0, 1), (2, 8), (9, 12), (13, 14)]
    assert [frame.begin for frame in frames[1:]] == [frame.end for frame in frames[:-1]]


@pytest.mark.parametrize(
    ("until", "walked", "next_offset"),
    [
        (3, [], 3),  # nothing is wanted of the first batch
        (4, [3], 6),
        (6, [3], 6),
        (7, [3], 9),  # compaction has left nothing between 6 and 9
        (9, [3], 9),
        (10, [3, 9], 12),
    ],
)
def test_the_walk_ends_at_the_first_batch_at_or_behind_the_end(until: int, walked: list[int], next_offset: int) -> None:
    frames = Frames(batch(3, 5) + batch(9, 11), 3, until)
    assert [frame.base_offset for frame in frames.walked] == walked
    assert frames.next_offset == next_offset


@pytest.mark.parametrize("cut", [0, 1, 16, 17, 60, 61, 68])
def test_a_batch_that_the_broker_has_cut_is_left_for_the_next_fetch(cut: int) -> None:
    whole, other = batch(3), batch(4)
    frames = Frames(whole + other[:cut], 3, END)
    assert [frame.base_offset for frame in frames] == [3]
    assert (frames.next_offset, frames.size, frames.truncated) == (4, len(whole), cut > 0)


# -- frames that cannot be read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [20, END])
def test_a_frame_that_cannot_be_read_ends_the_walk_and_the_sound_ones_come_first(until: int) -> None:
    sound = batch(3)
    bad = batch(4)[:8] + struct.pack(">i", 48) + batch(4)[12:]  # a batch has 49 bytes behind its size
    frames = Frames(sound + bad + batch(5), 3, until)
    assert (frames.next_offset, frames.size) == (until, len(frames.data))
    walk = iter(frames)
    assert next(walk).base_offset == 3
    with pytest.raises(DecodeError, match="offset 4: an impossible size of 48 bytes; the bytes are damaged") as raised:
        next(walk)
    assert raised.value is frames.failure
    assert (raised.value.base_offset, raised.value.next_offset) == (4, None)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (
            batch(4)[:16] + b"\3" + batch(4)[17:],
            UnsupportedMagic,
            "at offset 4: unknown magic 3 (supported: 0, 1 and",
        ),
        (batch(4)[:16] + b"\3", UnsupportedMagic, "at offset 4: unknown magic 3 (supported: 0, 1 and"),
        (struct.pack(">q", -1) + batch(4)[8:], DecodeError, "at offset -1: an impossible size"),
        (encode_message(Message(-1), 1), DecodeError, "at offset -1: an impossible size"),
        (struct.pack(">qi", 4, 13) + encode_message(Message(4), 0)[12:], DecodeError, "size of 13 bytes"),
        (encode_batch([Record(4)], count=2), DecodeError, "at offset 4: 2 records up to offset delta 0 cannot be"),
        (encode_batch([Record(4)], count=-1), DecodeError, "at offset 4: -1 records up to offset delta 0 cannot be"),
        (batch(2**63 - 2, 2**63 - 1), DecodeError, "1 records up to offset delta 1 cannot be"),
    ],
    ids=[
        "a later magic",
        "a later magic, cut",
        "a batch before offset 0",
        "a message before offset 0",
        "a message of 13 bytes",
        "more records than offsets",
        "fewer records than none",
        "an offset beyond a long",
    ],
)
def test_a_header_that_cannot_be_is_an_error_with_the_offset(data: bytes, kind: type[DecodeError], text: str) -> None:
    frames = Frames(data, 0, 2**63 - 1)
    with pytest.raises(kind) as raised:
        list(frames)
    assert text in str(raised.value)


def test_the_last_offset_that_a_long_can_step_over_is_read() -> None:
    frames = Frames(batch(2**63 - 2), 0, 2**63 - 1)
    assert [frame.last_offset for frame in frames] == [2**63 - 2]
    assert frames.next_offset == 2**63 - 1


# -- checksums --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [21, 22, 61, -1])
def test_a_byte_that_the_checksum_covers_shows_in_the_check(index: int) -> None:
    data = batch(10, 14)
    frames = Frames(flipped(data, index % len(data)), 0, END)
    (frame,) = frames
    with pytest.raises(ChecksumMismatch, match=r"offset 10: its CRC-32C is 0x\w{8}, its header has 0x\w{8}") as raised:
        frames.verify(frame)
    assert (raised.value.base_offset, raised.value.next_offset) == (10, 15)


# -- the records of many frames in one buffer -------------------------------------------------------------------------

CAP = 1 << 20


def nested(data: bytes, limit: int = CAP) -> Layout:
    frames = Frames(data, 0, END)
    return lay_out_nested(frames.data, list(frames), limit, True)


def messages_of(layout: Layout) -> list[bytes]:
    """The bytes of the messages of each set."""
    spans = zip(layout.sets.begin.tolist(), layout.sets.end.tolist(), strict=True)
    return [bytes(layout.buffer[begin:end]) for begin, end in spans]


def about(index: int, what: str, kind: type[DecodeError]) -> DecodeError:
    return kind(f"piece {index}: {what}")


def in_another(inner: bytes, offset: int, magic: int = 1) -> bytes:
    """A compressed message at this offset whose value is the set `inner`."""
    return encode_message(Message(offset, compress("gzip", inner)), magic, CODEC_NUMBERS["gzip"])


def test_messages_in_compressed_ones_in_a_compressed_one_become_a_plain_set_with_their_offsets_in_the_log() -> None:
    inner = encode_set([Message(0, b"a"), Message(1, b"b")], 1)
    data = in_another(in_another(inner, 1) + encode_message(Message(2, b"c"), 1), 12)
    layout = nested(data)
    assert messages_of(layout) == [encode_set([Message(10, b"a"), Message(11, b"b"), Message(12, b"c")], 1)]
    assert layout.sets.relative.tolist() == [False], "the plain set has the offsets of the log"


def test_a_nested_frame_beyond_the_limit_is_left_or_an_error_where_it_is_the_first() -> None:
    data = in_another(encode_message(Message(0, bytes(100)), 1), 4)
    more = data + in_another(encode_message(Message(0, bytes(100)), 1), 5)
    assert nested(more, limit=200).held == 1
    assert nested(more, limit=268).held == 2
    with pytest.raises(TooLarge, match=r"up to offset 4: .*\(group\.maxDecompressedBytes is 133\)"):
        nested(data, limit=133)


def gzipped(data: bytes) -> memoryview:
    return memoryview(compress("gzip", data))


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([b"", gzipped(b"text")[:5]], r"^piece 1: its gzip data ends too early"),
        ([b"", b"no gzip data, only bytes"], r"^piece 1: its gzip data is damaged"),
        ([gzipped(b"text")], r"^piece 0: its gzip data expands beyond .* \(group\.maxDecompressedBytes is 3\)$"),
    ],
    ids=["a cut header", "damage", "beyond the limit"],
)
def test_an_error_is_about_the_piece_that_is_wrong(pieces: list[bytes | memoryview], says: str) -> None:
    coded = [(codecs.GZIP if piece else codecs.NONE, memoryview(piece)) for piece in pieces]
    with pytest.raises(DecodeError, match=says):
        inflate_all(coded, 3, about)
