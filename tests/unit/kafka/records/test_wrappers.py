"""Wrappers of magic 0 and 1 that no broker writes: in one another, and larger than they look."""

from __future__ import annotations

import tracemalloc

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge
from streamgroup.kafka.records import decode as records
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import DecodeOptions
from tests.unit.kafka.records.encoder_sets import Message, encode_message, encode_set, encode_wrapper
from tests.unit.kafka.records.rows import decode
from tests.unit.kafka.records.test_messages import CODECS, END, expected, outcome

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_in_wrappers(magic: int) -> None:
    messages = [Message(20 + i, b"%d" % i) for i in range(6)]
    # In magic 1 each level counts from its own first offset.
    innermost = encode_wrapper(messages[2:5], "snappy", magic, offset=24 if magic == 0 else 4)
    shift = 20 if magic else 0
    edges = [Message(m.offset - shift, m.value) for m in messages]
    inner = encode_set(edges[:2], magic) + innermost + encode_set(edges[5:], magic)
    data = encode_message(Message(19, b"before"), magic) + encode_wrapper([], "gzip", magic, offset=25, inner=inner)
    assert outcome(data, 0, END) == expected(data, 0, END)
    assert [row.value for row in outcome(data, 20, END)[0]] == [m.value for m in messages]


def test_wrappers_are_nested_so_deep_and_no_deeper() -> None:
    data = encode_message(Message(3, b"x"), 1)
    for depth in range(1, 12):
        data = encode_wrapper([], "gzip", 1, offset=3, inner=data)
        if depth <= 8:
            assert [row.value for row in outcome(data, 0, END)[0]] == [b"x"]
        else:
            with pytest.raises(DecodeError, match="nested more than 8 deep"):
                decode(data, 0, END, DecodeOptions())


def test_damage_in_a_nested_wrapper_is_found() -> None:
    inner = bytearray(encode_wrapper([Message(0, b"xyz")], "snappy", 1))
    inner[-2] ^= 1
    data = encode_wrapper([], "gzip", 1, offset=3, inner=bytes(inner))
    with pytest.raises(ChecksumMismatch, match="up to offset 3"):
        decode(data, 0, END, DecodeOptions())


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_without_a_message_in_a_wrapper_is_an_error(magic: int) -> None:
    empty = encode_wrapper([], "snappy", magic, offset=0, inner=b"")
    for inner in (empty, empty + encode_message(Message(3, b"x"), magic)):
        data = encode_wrapper([], "gzip", magic, offset=3, inner=inner)
        assert outcome(data, 0, END) == expected(data, 0, END) == "refused"
        with pytest.raises(DecodeError, match="up to offset 3: it decompresses to nothing"):
            decode(data, 0, END, DecodeOptions())


def test_what_exceeds_the_cap_together_is_decoded_in_several_calls() -> None:
    data = b"".join(encode_wrapper([Message(i, bytes(3_000))], "snappy", 1) for i in range(5))
    data += encode_message(Message(5, bytes(9_000)), 1)  # plain: nothing is decompressed
    frames = Frames(data, 0, END)
    position, seen = 0, []
    while position < 6:
        decoded = records.decode(frames, position, DecodeOptions(max_decompressed_bytes=7_000))
        seen.append(decoded.offset.to_pylist())
        position = decoded.next_offset
    assert seen == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_memory(codec: str, nested: bool) -> None:
    cap = 256 << 10
    inner = encode_message(Message(0, bytes(16 * cap)), 1)
    wrapper = encode_wrapper([], codec, 1, offset=3, inner=inner)
    data = encode_wrapper([], "gzip", 1, offset=3, inner=wrapper) if nested else wrapper
    decode(encode_message(Message(0), 1), 0, END, DecodeOptions())
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"up to offset 3.*maxDecompressedBytes is 262144") as caught:
            decode(data, 0, END, DecodeOptions(max_decompressed_bytes=cap))
        # Wrapper and inner wrapper at once, and zlib's own buffer.
        assert tracemalloc.get_traced_memory()[1] < 3 * cap + 4 * len(data)
    finally:
        tracemalloc.stop()
    assert (caught.value.base_offset, caught.value.next_offset) == (0, 4)


def test_many_nested_wrappers_share_the_cap() -> None:
    one = encode_wrapper([Message(0, bytes(900))], "gzip", 1)
    inner = b"".join(encode_wrapper([], "gzip", 1, offset=i, inner=one) for i in range(40))
    data = encode_wrapper([], "gzip", 1, offset=39, inner=inner)
    with pytest.raises(TooLarge, match="up to offset 39"):
        decode(data, 0, END, DecodeOptions(max_decompressed_bytes=20_000))
    assert decode(data, 0, END, DecodeOptions()).num_rows == 40
