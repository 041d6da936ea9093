"""A task decompresses the batches of one fetch together, within group.maxDecompressedBytes, before it reads records."""

from __future__ import annotations

import numpy as np
import pytest

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec
from streamgroup.kafka.records import codecs
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.message_sets import NO_MESSAGES, OWN
from streamgroup.kafka.records.messages import MAX_DEPTH
from streamgroup.kafka.records.regions import Layout, inflate_all, lay_out, lay_out_nested
from tests.unit.kafka.records.encoder import CODECS, Record, compress, encode_batch, encode_record, seal
from tests.unit.kafka.records.encoder_sets import CODEC_NUMBERS, Message, encode_message, encode_set, encode_wrapper

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
CAP = 1 << 20
RECORDS = [Record(5, 1_000, b"k", b"value"), Record(6, 2_000, None, b"w")]
BODY = b"".join(encode_record(record, 5, 1_000) for record in RECORDS)
MESSAGES = [Message(7, b"a", None, 3_000), Message(8, b"b", b"k", 4_000)]


def laid_out(data: bytes, limit: int = CAP) -> Layout:
    frames = Frames(data, 0, END)
    return lay_out(frames.data, list(frames), limit)


def nested(data: bytes, limit: int = CAP) -> Layout:
    frames = Frames(data, 0, END)
    return lay_out_nested(frames.data, list(frames), limit, True)


def records_of(layout: Layout) -> list[bytes]:
    """The bytes of the records of each batch."""
    spans = zip(layout.regions.begin.tolist(), layout.regions.end.tolist(), strict=True)
    return [bytes(layout.buffer[begin:end]) for begin, end in spans]


def messages_of(layout: Layout) -> list[bytes]:
    """The bytes of the messages of each set."""
    spans = zip(layout.sets.begin.tolist(), layout.sets.end.tolist(), strict=True)
    return [bytes(layout.buffer[begin:end]) for begin, end in spans]


def about(index: int, what: str, kind: type[DecodeError]) -> DecodeError:
    return kind(f"piece {index}: {what}")


# -- lay_out ----------------------------------------------------------------------------------------------------------


def test_uncompressed_frames_are_left_where_they_are() -> None:
    data = encode_set([Message(3, b"before")], 1) + encode_batch(RECORDS)
    layout = laid_out(data, limit=0)
    assert np.shares_memory(layout.buffer, np.frombuffer(data, np.uint8))
    assert records_of(layout) == [BODY]
    assert messages_of(layout) == [encode_set([Message(3, b"before")], 1)]
    assert layout.held == 2


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_batches_are_decompressed_one_behind_the_other_beside_plain_ones(codec: str) -> None:
    other = [Record(9, 0, None, b"x" * 300)]
    data = encode_batch(RECORDS, codec=codec) + encode_batch([Record(7)]) + encode_batch(other, codec=codec)
    layout = laid_out(data)
    assert records_of(layout) == [BODY, encode_record(Record(7), 7, 0), encode_record(other[0], 9, 0)]
    assert [batch.base_offset for batch in layout.batches] == [5, 7, 9]
    assert layout.held == 3


def test_the_header_of_a_batch_says_how_its_records_are_scanned() -> None:
    own = encode_batch(RECORDS, base_offset=4, last_offset=8)
    brokers = encode_batch([Record(9, 1_000)], log_append_time=77_000)
    regions = laid_out(own + brokers).regions
    assert regions.base_offset.tolist() == [4, 9]
    assert regions.last_offset_delta.tolist() == [4, 0]
    assert regions.count.tolist() == [2, 1]
    assert regions.timestamp.tolist() == [1_000, 77_000], "that of the first record, or the broker's"
    assert regions.append_time.tolist() == [False, True]


@pytest.mark.parametrize(("magic", "relative", "own_type"), [(0, False, -1), (1, True, 0)])
def test_plain_and_compressed_messages_say_how_their_offsets_and_timestamps_are_read(
    magic: int, relative: bool, own_type: int
) -> None:
    data = encode_set([Message(3)], magic) + encode_wrapper(MESSAGES, "gzip", magic)
    sets = laid_out(data).sets
    assert sets.least.tolist() == [0, 4]
    assert sets.last.tolist() == [3, 8]
    assert sets.relative.tolist() == [False, relative]
    assert sets.timestamp_type.tolist() == [OWN, own_type]


def test_a_compressed_message_of_log_append_time_gives_its_timestamp_to_all() -> None:
    sets = laid_out(encode_wrapper(MESSAGES, "gzip", 1, log_append_time=77_000)).sets
    assert (sets.timestamp.tolist(), sets.timestamp_type.tolist()) == ([77_000], [1])


def test_frames_beyond_the_limit_are_left_for_the_next_call() -> None:
    data = encode_batch(RECORDS, codec="gzip") + encode_batch([Record(7, value=bytes(500))], codec="gzip")
    for limit, held in ((len(BODY), 1), (len(BODY) + 505, 1), (len(BODY) + 510, 2)):
        layout = laid_out(data, limit)
        assert (layout.held, records_of(layout)[0]) == (held, BODY)
        assert len(layout.regions) == held


def test_a_first_batch_beyond_the_limit_is_an_error_that_names_its_offset_and_the_option() -> None:
    data = encode_batch(RECORDS, codec="gzip")
    assert laid_out(data, len(BODY)).held == 1
    with pytest.raises(TooLarge, match=rf"offset 5: .*\(group\.maxDecompressedBytes is {len(BODY) - 1}\)") as caught:
        laid_out(data, len(BODY) - 1)
    assert (caught.value.base_offset, caught.value.next_offset) == (5, 7)


@pytest.mark.parametrize(
    ("attributes", "kind", "says"),
    [
        (1, DecodeError, "its gzip data"),
        (4, DecodeError, "its zstd data"),
        (6, UnsupportedCodec, "compressed by codec 6; known are"),
    ],
    ids=["gzip", "zstd", "an unknown codec"],
)
def test_data_that_its_codec_refuses_is_an_error_about_its_batch(
    attributes: int, kind: type[DecodeError], says: str
) -> None:
    broken = seal(7, b"no compressed data, whatever the codec is", attributes=attributes, last_offset_delta=2, count=1)
    with pytest.raises(kind, match=f"offset 7: {says}") as caught:
        laid_out(encode_batch(RECORDS, codec="gzip") + broken)
    assert (caught.value.base_offset, caught.value.next_offset) == (7, 10)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_message_that_holds_none_is_refused(magic: int) -> None:
    data = encode_wrapper(MESSAGES, "gzip", magic, inner=b"")
    for lay in (laid_out, nested):
        with pytest.raises(DecodeError, match=f"up to offset 8: {NO_MESSAGES}") as caught:
            lay(data)
        assert caught.value.next_offset == 9


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


def test_batches_and_plain_messages_beside_them_are_copied_as_they_are() -> None:
    plain = encode_set([Message(3, b"before")], 1)
    wrapped = in_another(in_another(encode_message(Message(0, b"a"), 1), 0), 4)
    layout = nested(plain + wrapped + encode_batch(RECORDS, codec="gzip"))
    assert messages_of(layout) == [plain, encode_message(Message(4, b"a"), 1)]
    assert records_of(layout) == [BODY]
    assert layout.held == 3


def test_a_nested_frame_beyond_the_limit_is_left_or_an_error_where_it_is_the_first() -> None:
    data = in_another(encode_message(Message(0, bytes(100)), 1), 4)
    more = data + in_another(encode_message(Message(0, bytes(100)), 1), 5)
    assert nested(more, limit=200).held == 1
    assert nested(more, limit=268).held == 2
    with pytest.raises(TooLarge, match=r"up to offset 4: .*\(group\.maxDecompressedBytes is 133\)"):
        nested(data, limit=133)


def test_compressed_messages_may_lie_only_so_deep() -> None:
    data = encode_message(Message(0, b"a"), 1)
    for _ in range(MAX_DEPTH):
        data = in_another(data, 0)
    assert messages_of(nested(data)) == [encode_message(Message(0, b"a"), 1)]
    with pytest.raises(DecodeError, match=f"up to offset 0: .*nested more than {MAX_DEPTH} deep"):
        nested(in_another(data, 0))


# -- inflate_all ------------------------------------------------------------------------------------------------------


def test_plain_pieces_are_copied_and_do_not_count_against_the_limit() -> None:
    text = b"text" * 50
    pieces = [
        (codecs.NONE, memoryview(bytes(1_000))),
        (codecs.GZIP, memoryview(compress("gzip", text))),
        (codecs.NONE, memoryview(b"behind")),
    ]
    buffer, places = inflate_all(pieces, len(text), about)
    assert places == [(0, 1_000), (1_000, 1_200), (1_200, 1_206)]
    assert bytes(buffer) == bytes(1_000) + text + b"behind"


def test_compressed_pieces_do_not_take_the_room_of_plain_ones() -> None:
    text = gzipped(bytes(200))
    pieces = [(codecs.GZIP, text), (codecs.GZIP, text), (codecs.NONE, memoryview(bytes(1_000)))]
    assert inflate_all(pieces, 399, about)[1] == [(0, 200)]
    assert inflate_all(pieces, 400, about)[1] == [(0, 200), (200, 400), (400, 1_400)]


def test_pieces_of_nothing_have_places_of_no_bytes() -> None:
    buffer, places = inflate_all([(codecs.NONE, memoryview(b"")), (codecs.GZIP, gzipped(b""))], 0, about)
    assert (bytes(buffer), places) == (b"", [(0, 0), (0, 0)])
    assert inflate_all([], 0, about)[1] == []


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
