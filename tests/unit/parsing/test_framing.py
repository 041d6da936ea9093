from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.parsing.framing import (
    UnreadableError,
    id_in_error,
    split_message_index,
    split_schema_id,
    unknown_id_error,
)


@given(st.integers(-(2**31), 2**31 - 1), st.binary())
def test_a_prefix_is_split_off(schema_id: int, payload: bytes) -> None:
    assert split_schema_id(b"\0" + schema_id.to_bytes(4, "big", signed=True) + payload) == (schema_id, payload)
    assert id_in_error(unknown_id_error("Avro", schema_id)) == schema_id


@pytest.mark.parametrize(
    ("value", "said"), [(b"", "has 0 bytes"), (b"\0\0\0\1", "has 4 bytes"), (b'{"id":1}', "begins with byte 123")]
)
def test_a_value_without_a_prefix_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        split_schema_id(value)


def test_other_reasons_have_no_id() -> None:
    assert id_in_error("the value is null") is None


def zigzag(number: int) -> bytes:
    """Write a varint by itself, as Confluent's serializers do."""
    left, out = (number << 1) ^ (number >> 31), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary())
def test_a_message_index_is_split_off(index: list[int], payload: bytes) -> None:
    prefix = b"".join(zigzag(n) for n in (len(index), *index))
    assert split_message_index(prefix + payload) == (tuple(index), payload)
    assert split_message_index(b"\0" + payload) == ((0,), payload), "the short form of [0]"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "is not a list of varints"),
        (b"\x80", "is not a list of varints"),
        (b"\xff\xff\xff\xff\xff", "is not a list of varints"),
        (b"\xff\xff\xff\xff\x1f", "is not a list of varints"),
        (b"\2", "has 1 positions, and 0 bytes follow"),
        (b"\1\0", "has -1 positions"),
        (b"\2\1", "has the position -1"),
        (zigzag(2**31 - 1) + b"abc", "has 2147483647 positions, and 3 bytes follow"),
        (b"\4\0\x80", "is not a list of varints"),
    ],
)
def test_a_value_without_a_message_index_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        split_message_index(value)
