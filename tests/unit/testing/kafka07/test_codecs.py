"""The emulated 0.7 broker reads gzip and snappy as other programs write them, and refuses damaged data."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import pytest
import snappy

from streamgroup.errors import DecodeError, TooLarge
from streamgroup.kafka.wire.kafka07 import message_set07
from streamgroup.testing.kafka07 import codecs
from streamgroup.testing.kafka07.codecs import GZIP, SNAPPY, compress_gzip, compress_snappy, decompress
from tests.kafka07_samples import samples

TEXT = b"some text, some text, some text " * 3000


CODECS = pytest.mark.parametrize(("codec", "compress"), [(GZIP, compress_gzip), (SNAPPY, compress_snappy)])


def test_gzip_and_raw_snappy_are_what_others_read_and_write() -> None:
    assert gzip.decompress(compress_gzip(TEXT)) == TEXT
    assert decompress(GZIP, gzip.compress(TEXT[:10]) + gzip.compress(TEXT[10:]) + b"behind") == TEXT
    assert compress_gzip(TEXT) == compress_gzip(TEXT)
    assert snappy.decompress(codecs.compress_snappy_raw(TEXT)) == TEXT
    assert decompress(SNAPPY, snappy.compress(TEXT)) == TEXT


def test_snappy_in_blocks_is_as_java_writes_it() -> None:
    packed = compress_snappy(TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    blocks, at = [], 16
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        blocks.append(snappy.decompress(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert [len(block) for block in blocks] == [32768, 32768, len(TEXT) - 65536]
    assert b"".join(blocks) == TEXT == decompress(SNAPPY, packed)


def test_captured_wrappers_are_read() -> None:
    sent = {sample.name: sample.sent for sample in samples()}
    framed = sent["PRODUCE snappy xerial-framed (magic1 x2) to s1/0"]
    raw = sent["PRODUCE snappy RAW block (magic1 x2) to s2/0"]
    # Request and set: 18 bytes, message: 10.
    expected = message_set07([b"s-a", b"s-b"])
    assert decompress(SNAPPY, framed[28:]) == decompress(SNAPPY, raw[28:]) == expected
    assert compress_snappy(expected)[:16] == framed[28:44]


@CODECS
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1], ids=["nothing", "a byte", "a block", "a byte more"])
def test_each_size_comes_back_as_it_was(codec: int, compress: Callable[[bytes], bytes], size: int) -> None:
    data = TEXT[:size]
    assert decompress(codec, compress(data)) == data


@CODECS
def test_a_message_that_expands_beyond_the_limit_is_refused(
    codec: int, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codecs, "MAX_INFLATED", len(TEXT))
    assert decompress(codec, compress(TEXT)) == TEXT
    monkeypatch.setattr(codecs, "MAX_INFLATED", len(TEXT) - 1)
    with pytest.raises(TooLarge, match=f"expands beyond {len(TEXT) - 1} bytes"):
        decompress(codec, compress(TEXT))


def test_a_raw_block_that_announces_more_than_snappy_can_compress_is_not_allocated() -> None:
    """The length is a varint of the first bytes: six bytes here, which announce 256 MB."""
    with pytest.raises(TooLarge, match="6 bytes of snappy announce 268435456"):
        decompress(SNAPPY, b"\x80\x80\x80\x80\x01\x00")


@pytest.mark.parametrize(
    ("codec", "data", "said"),
    [
        (GZIP, b"", None),
        (GZIP, b"\x1f\x8b", None),
        (GZIP, compress_gzip(TEXT)[:-9], "its gzip data ends too early"),
        (GZIP, compress_gzip(TEXT)[:-8] + bytes(8), "its gzip data is damaged: "),
        (SNAPPY, b"", None),
        (SNAPPY, b"\x82SNAPPY\x00", None),
        (SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + b"\xff\xff\xff\xff", None),
        (SNAPPY, compress_snappy(TEXT)[:12], "ends within its header"),
        (SNAPPY, compress_snappy(TEXT)[:-1], r"a snappy block of \d+ bytes where \d+ are left"),
    ],
)
def test_damaged_data_is_a_decode_error(codec: int, data: bytes, said: str | None) -> None:
    with pytest.raises(DecodeError, match=said):
        decompress(codec, data)
