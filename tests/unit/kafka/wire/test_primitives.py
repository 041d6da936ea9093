from __future__ import annotations

import pytest

from streamgroup.errors import DecodeError, EncodeError, TooLarge, Truncated
from streamgroup.kafka.wire import primitives
from streamgroup.kafka.wire.primitives import INT16, INT32, Reader, append_uuid, append_uvarint, encoded_text


def uvarint(value: int) -> bytes:
    out = bytearray()
    append_uvarint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (2**32 - 1, "ffffffff0f")],
)
def test_known_varints(value: int, text: str) -> None:
    assert uvarint(value).hex() == text
    assert Reader(bytes.fromhex(text)).uvarint() == value


@pytest.mark.parametrize("text", ["8080808080", "808080808000", "ffffffff10", "ffffffffff01"])
def test_a_varint_beyond_32_bits_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="more than 32 bits"):
        Reader(bytes.fromhex(text)).uvarint()


@pytest.mark.parametrize("text", ["", "80", "80808080"])
def test_a_varint_that_is_cut_off_is_truncated(text: str) -> None:
    with pytest.raises(Truncated):
        Reader(bytes.fromhex(text)).uvarint()


def test_numbers_are_signed_and_big_endian() -> None:
    reader = Reader(bytes.fromhex("ff fffe 80000000 0000000000000102"))
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -2, -(2**31), 258)
    assert reader.remaining == 0


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_number_that_is_cut_off_is_truncated(width: int) -> None:
    reader = Reader(bytes(width - 1))
    read = {1: reader.int8, 2: reader.int16, 4: reader.int32, 8: reader.int64}[width]
    with pytest.raises(Truncated, match=rf"it has {width} bytes, but only {width - 1} are left"):
        read()
    assert reader.position == 0


def test_take_returns_a_read_only_view_without_a_copy() -> None:
    data = bytearray(b"abcdef")
    reader = Reader(data)
    reader.take(2)
    view = reader.take(3)
    assert bytes(view) == b"cde"
    assert view.obj is data
    assert view.readonly
    with pytest.raises(Truncated, match="truncated value at byte 5: it has 2 bytes, but only 1 are left"):
        reader.take(2)
    with pytest.raises(DecodeError, match="invalid length -3"):
        reader.take(-3)


@pytest.mark.parametrize(("layout", "text"), [(INT16, "fffe"), (INT32, "80000000")])
def test_a_length_is_not_negative_but_for_null(layout: object, text: str) -> None:
    with pytest.raises(DecodeError, match="invalid length -"):
        Reader(bytes.fromhex(text)).length(layout)  # type: ignore[arg-type]
    assert Reader(b"\xff\xff").length(INT16) is None
    assert Reader(b"\xff\xff\xff\xff").length(INT32) is None


def test_compact_lengths_are_one_more() -> None:
    out = bytearray()
    for length in (None, 0, 126, 127):
        primitives.append_compact_length(out, length)
    assert out.hex() == "00017f8001"
    reader = Reader(out)
    assert [reader.compact_length() for _ in range(4)] == [None, 0, 126, 127]
    assert Reader(uvarint(2**31)).compact_length() == 2**31 - 1
    with pytest.raises(TooLarge):
        Reader(uvarint(2**31 + 1)).compact_length()


def test_a_text_is_utf8_or_refused() -> None:
    assert Reader("grüße".encode()).text(7) == "grüße"
    with pytest.raises(DecodeError, match="not UTF-8"):
        Reader(b"ab\xff").text(3)


def test_a_text_is_at_most_32767_bytes() -> None:
    assert len(encoded_text("x" * 32767)) == 32767
    with pytest.raises(EncodeError, match="32768 bytes"):
        encoded_text("ü" * 16384)
    with pytest.raises(EncodeError, match="invalid string"):
        encoded_text("\ud800")


def test_the_zero_uuid_is_read_as_no_topic_id() -> None:
    out = bytearray()
    append_uuid(out, "")
    assert bytes(out) == bytes(16)
    assert Reader(out).uuid() == ""
    with pytest.raises(EncodeError, match="invalid uuid"):
        append_uuid(out, "orders")


def test_the_number_of_tagged_fields_is_held_against_what_is_left() -> None:
    with pytest.raises(Truncated, match="invalid count of 4294967295 tagged fields at byte 5: only 2 bytes are left"):
        Reader(uvarint(2**32 - 1) + b"\0\0").skip_tags()
