"""The emulated 0.7 broker validates a message set before it appends it, message by message and at any depth."""

from __future__ import annotations

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge, Truncated, UnsupportedCodec, UnsupportedMagic
from streamgroup.testing.kafka07 import Compressed, message_set
from streamgroup.testing.kafka07.codecs import GZIP, NONE, SNAPPY, compress_gzip
from streamgroup.testing.kafka07.messages import Checked, Message, check_set, messages_of
from streamgroup.wire.kafka07 import message07, message_set07

LIMIT = 1_000
ONE = message07(b"one")  # 4 bytes of length, 6 of header, 3 of payload
assert len(ONE) == 13


def damaged(message: bytes) -> bytes:
    """Return the message with another last byte."""
    return message[:-1] + bytes([message[-1] ^ 1])


# -- the messages of a set --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_has_the_messages_that_were_put_into_it(magic: int) -> None:
    data = message_set07([b"one", b"", b"three"], magic)
    found = list(messages_of(data))
    assert [(message.codec, message.payload) for message in found] == [(NONE, b"one"), (NONE, b""), (NONE, b"three")]
    assert sum(message.size for message in found) == len(data)


def test_a_message_of_magic_1_has_the_codec_in_two_bits_of_its_attributes() -> None:
    codecs = [message.codec for codec in (NONE, GZIP, SNAPPY) for message in messages_of(message07(b"x", codec=codec))]
    assert codecs == [NONE, GZIP, SNAPPY]
    others = bytearray(message07(b"x", codec=GZIP))
    others[5] |= 0xFC
    assert [message.codec for message in messages_of(others)] == [GZIP]


@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0", ONE[:4], ONE[:-1]], ids=["a byte", "3 bytes", "length", "cut"])
def test_a_partial_message_at_the_end_is_left_out(rest: bytes) -> None:
    assert list(messages_of(ONE + rest)) == [Message(NONE, b"one", 13)]


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0"])
def test_a_set_of_fewer_bytes_than_a_length_has_no_messages(data: bytes) -> None:
    assert list(messages_of(data)) == []


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (ONE[:-1], Truncated, "at byte 0: a message of 9 bytes, 8 are left"),
        (b"\xff\xff\xff\xff", Truncated, "at byte 0: a message of -1 bytes, 0 are left"),
        (ONE + b"\xff\xff\xff\xff", Truncated, "at byte 13: a message of -1 bytes, 0 are left"),
        (b"\0\0\0\4\1\0\0\0", Truncated, "at byte 0: a message of 4 bytes"),
        (b"\0\0\0\5\1\0\0\0\0", Truncated, "at byte 0: a message of 5 bytes"),
        (ONE + b"\0\0\0\0", Truncated, "at byte 13: a message of 0 bytes"),
        (ONE + b"\0\0\0\6\2\0\0\0\0\0", UnsupportedMagic, "at byte 13: magic 2; Kafka 0.7 has 0 and 1"),
        (ONE + damaged(ONE), ChecksumMismatch, "at byte 13: the payload's checksum does not fit"),
    ],
)
def test_damage_is_named_with_the_byte_where_its_message_begins(data: bytes, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}$"):
        list(messages_of(data))


def test_the_messages_before_the_damage_are_yielded() -> None:
    found = messages_of(ONE + damaged(ONE))
    assert next(found).payload == b"one"
    with pytest.raises(ChecksumMismatch):
        next(found)


# -- a set of a PRODUCE -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "checked"),
    [
        (b"", Checked(0, 0)),
        (ONE * 3, Checked(39, 3)),
        (ONE + ONE[:7], Checked(13, 1)),
        (message_set([Compressed("gzip", [])]), Checked(len(message_set([Compressed("gzip", [])])), 0)),
    ],
    ids=["empty", "three", "a partial one", "an empty wrapper"],
)
def test_a_set_counts_its_whole_messages_and_their_bytes(data: bytes, checked: Checked) -> None:
    assert check_set(data, LIMIT) == checked


@pytest.mark.parametrize("codec", ["gzip", "snappy", "snappy-raw"])
def test_a_consumer_reads_the_messages_within_wrappers_of_any_depth(codec: str) -> None:
    data = message_set([b"a", Compressed(codec, [b"b", Compressed(codec, [b"c", b"d"])])])
    assert check_set(data, LIMIT) == Checked(len(data), 4)


@pytest.mark.parametrize(("size", "is_taken"), [(LIMIT, True), (LIMIT + 1, False)])
def test_one_payload_above_the_limit_drops_the_whole_set(size: int, is_taken: bool) -> None:
    data = message_set07([b"a", bytes(size), b"b"])
    assert check_set(data, LIMIT) == (Checked(len(data), 3) if is_taken else None)


def test_the_limit_holds_for_the_wrapper_and_not_for_the_messages_in_it() -> None:
    data = message_set([Compressed("gzip", [bytes(LIMIT + 1)])])
    assert check_set(data, LIMIT) == Checked(len(data), 1)
    assert check_set(data, 10) is None


def test_a_payload_above_the_limit_is_found_before_the_damage_in_a_wrapper() -> None:
    data = message07(compress_gzip(damaged(ONE)), codec=GZIP) + message07(bytes(LIMIT + 1))
    assert check_set(data, LIMIT) is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (message07(compress_gzip(damaged(ONE)), codec=GZIP), ChecksumMismatch),
        (message07(compress_gzip(ONE[:-1]), codec=GZIP), Truncated),
        (message07(b"not gzip", codec=GZIP), DecodeError),
        (message07(ONE, codec=3), UnsupportedCodec),
    ],
    ids=["checksum", "cut off", "not compressed", "unknown codec"],
)
def test_damage_within_a_wrapper_is_an_error(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_set(data, LIMIT)


@pytest.mark.parametrize(("levels", "is_taken"), [(32, True), (33, False)])
def test_wrappers_are_nested_32_levels_deep_at_most(levels: int, is_taken: bool) -> None:
    data = ONE
    for _ in range(levels):
        data = message07(compress_gzip(data), codec=GZIP)
    if is_taken:
        assert check_set(data, LIMIT * 10) == Checked(len(data), 1)
    else:
        with pytest.raises(TooLarge, match="nested more than 32 levels deep"):
            check_set(data, LIMIT * 10)
