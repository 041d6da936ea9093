"""A task decompresses the batches of one fetch together, within group.maxDecompressedBytes, before it reads records."""

from __future__ import annotations

import pytest

from streamgroup.errors import DecodeError, TooLarge
from streamgroup.kafka.records import codecs
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.regions import Layout, inflate_all, lay_out_nested
from tests.unit.kafka.records.encoder import compress
from tests.unit.kafka.records.encoder_sets import CODEC_NUMBERS, Message, encode_message, encode_set

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
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


# -- lay_out ----------------------------------------------------------------------------------------------------------


# -- lay_out_nested ---------------------------------------------------------------------------------------------------


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


# -- inflate_all ------------------------------------------------------------------------------------------------------


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
