"""Single values and arrays of the protocol by type name, in the old and the compact (KIP-482) encoding."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, EncodeError, Truncated
from streamgroup.wire.pieces import LARGE, Pieces
from streamgroup.wire.primitives import Reader
from streamgroup.wire.values import array_reader, array_writer, reader, writer

UUID = "0c1d2e3f-4a5b-6c7d-8e9f-0a1b2c3d4e5f"
OLD, COMPACT = False, True


def written(type_: str, flexible: bool, value: Any) -> bytes:
    out = bytearray()
    writer(type_, flexible)(out, value)
    return bytes(out)


def read(type_: str, flexible: bool, data: bytes, *, nullable: bool = False) -> Any:
    source = Reader(data)
    value = reader(type_, flexible, nullable)[0](source)
    assert source.remaining == 0
    return bytes(value) if isinstance(value, memoryview) else value


def written_array(type_: str, flexible: bool, values: Any) -> bytes:
    out = bytearray()
    array_writer(writer(type_, flexible), flexible)(out, values)
    return bytes(out)


def read_array(type_: str, flexible: bool, data: bytes, *, nullable: bool = False) -> Any:
    item, least = reader(type_, flexible, False)
    return array_reader(item, least, flexible, nullable)(Reader(data))


ENCODINGS = [
    ("bool", OLD, True, "01"),
    ("int8", OLD, -1, "ff"),
    ("int16", OLD, -2, "fffe"),
    ("int32", COMPACT, 258, "00000102"),
    ("int64", COMPACT, -(2**63), "8000000000000000"),
    ("uuid", COMPACT, UUID, UUID.replace("-", "")),
    ("uuid", COMPACT, "", "00" * 16),
    ("string", OLD, "", "0000"),
    ("string", OLD, "é", "0002 c3a9"),
    ("string", COMPACT, "", "01"),
    ("string", COMPACT, "é", "03 c3a9"),
    ("bytes", OLD, b"", "00000000"),
    ("bytes", OLD, b"ab", "00000002 6162"),
    ("bytes", COMPACT, b"ab", "03 6162"),
    ("records", OLD, b"ab", "00000002 6162"),
    ("records", COMPACT, b"a" * 127, "8001" + "61" * 127),
]


@pytest.mark.parametrize(("type_", "flexible", "value", "data"), ENCODINGS)
def test_each_type_is_written_as_the_protocol_guide_has_it_and_read_back(
    type_: str, flexible: bool, value: Any, data: str
) -> None:
    assert written(type_, flexible, value) == bytes.fromhex(data)
    assert read(type_, flexible, bytes.fromhex(data)) == value


NULLS = [("string", OLD, "ffff"), ("bytes", OLD, "ffffffff"), ("records", COMPACT, "00"), ("string", COMPACT, "00")]


@pytest.mark.parametrize(("type_", "flexible", "data"), NULLS)
def test_a_null_is_read_only_where_the_field_may_be_null(type_: str, flexible: bool, data: str) -> None:
    assert written(type_, flexible, None) == bytes.fromhex(data)
    assert read(type_, flexible, bytes.fromhex(data), nullable=True) is None
    with pytest.raises(DecodeError, match=rf"at byte {len(data) // 2}: a null where a {type_} must be"):
        read(type_, flexible, bytes.fromhex(data))


@pytest.mark.parametrize(
    ("type_", "flexible", "least"),
    [
        *(("bool", OLD, 1), ("int8", OLD, 1), ("int16", COMPACT, 2), ("int32", OLD, 4), ("int64", OLD, 8)),
        *(("uuid", OLD, 16), ("string", OLD, 2), ("bytes", OLD, 4), ("records", OLD, 4)),
        *(("string", COMPACT, 1), ("bytes", COMPACT, 1)),
    ],
)
def test_the_fewest_bytes_of_a_type_are_those_of_its_smallest_value(type_: str, flexible: bool, least: int) -> None:
    assert reader(type_, flexible, False)[1] == least
    with pytest.raises(Truncated):
        read(type_, flexible, bytes(least - 1))


@pytest.mark.parametrize(
    ("flexible", "data"), [(OLD, "00000002 0001 0002"), (COMPACT, "03 0001 0002")], ids=["old", "compact"]
)
def test_an_array_is_its_length_and_its_items(flexible: bool, data: str) -> None:
    assert written_array("int16", flexible, (1, 2)) == bytes.fromhex(data)
    assert read_array("int16", flexible, bytes.fromhex(data)) == (1, 2)


@pytest.mark.parametrize(("flexible", "empty", "null"), [(OLD, "00000000", "ffffffff"), (COMPACT, "01", "00")])
def test_an_empty_array_and_a_null_one_are_not_the_same(flexible: bool, empty: str, null: str) -> None:
    assert written_array("int16", flexible, ()) == bytes.fromhex(empty)
    assert written_array("int16", flexible, None) == bytes.fromhex(null)
    assert read_array("int16", flexible, bytes.fromhex(empty), nullable=True) == ()
    assert read_array("int16", flexible, bytes.fromhex(null), nullable=True) is None
    with pytest.raises(DecodeError, match="a null where an array must be"):
        read_array("int16", flexible, bytes.fromhex(null))


@pytest.mark.parametrize(
    ("flexible", "data", "announced"), [(OLD, "7fffffff 0001", 2**31 - 1), (COMPACT, "03 0001 00", 2)]
)
def test_an_array_that_announces_more_items_than_fit_is_refused_before_its_items_are_read(
    flexible: bool, data: str, announced: int
) -> None:
    def item(_: Reader) -> Any:
        raise AssertionError("no item may be read")

    with pytest.raises(Truncated, match=f"{announced} elements are announced"):
        array_reader(item, 2, flexible, False)(Reader(bytes.fromhex(data)))


def test_items_without_bytes_of_their_own_do_not_make_an_array_of_any_length() -> None:
    with pytest.raises(Truncated, match="3 elements are announced, 2 bytes are left"):
        array_reader(lambda _: None, 0, OLD, False)(Reader(bytes.fromhex("00000003 0000")))


def test_a_large_value_is_kept_in_its_place_without_a_copy_and_a_smaller_one_is_copied() -> None:
    large, small = bytearray(LARGE), bytearray(LARGE - 1)
    pieces = Pieces()
    for value in (large, small):
        writer("records", OLD)(pieces, value)
    kept = [memoryview(piece).obj is large for piece in pieces.pieces()]
    assert kept == [False, True, False]
    assert b"".join(pieces.pieces()) == written("records", OLD, large) + written("records", OLD, small)


def test_a_value_that_its_type_cannot_hold_is_not_written() -> None:
    with pytest.raises(struct.error):
        written("int8", OLD, 128)
    with pytest.raises(EncodeError, match="it has 32768 bytes, the limit is 32767"):
        written("string", COMPACT, "x" * 32_768)
    with pytest.raises(EncodeError, match="invalid uuid 'x'"):
        written("uuid", COMPACT, "x")


@given(st.sampled_from([OLD, COMPACT]), st.none() | st.lists(st.text(max_size=4), max_size=4).map(tuple))
def test_arrays_of_strings_are_read_back(flexible: bool, values: tuple[str, ...] | None) -> None:
    assert read_array("string", flexible, written_array("string", flexible, values), nullable=True) == values
