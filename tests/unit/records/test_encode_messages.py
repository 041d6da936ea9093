"""A producer sends rows to Kafka 0.8 to 0.10 as plain messages, or as one compressed message around them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest

from streamgroup.errors import EncodeError
from streamgroup.records.compress import CODECS, compressor
from streamgroup.records.compression import inflated, mend_lz4
from streamgroup.records.encode_messages import HEAD_SIZES, encode_messages, message_sizes
from streamgroup.records.record_columns import ColumnBuffers
from streamgroup.records.record_format import RecordFormat
from tests.unit.records.encode_rows import Sent, columns_of, reference_set
from tests.unit.records.encoder_sets import Message, encode_message

pytestmark = pytest.mark.usefixtures("kernel")

FORMATS = (RecordFormat.V0, RecordFormat.V1)
MAGICS = pytest.mark.parametrize("magic", [0, 1])
ROWS = [Sent(b"a", b"k", 9_000), Sent(b"value" * 40, b"k", 1_000), Sent(None, None, 1_700), Sent(b"", b"", 1_200)]
WITH_HEADERS = [Sent(b"a"), Sent(b"b", headers=(("h", b"1"),)), Sent(b"c", headers=())]


def buffers(rows: Sequence[Sent] = ROWS) -> ColumnBuffers:
    return columns_of(rows).buffers


@MAGICS
def test_uncompressed_messages_lie_one_behind_the_other_with_offsets_from_0(magic: int) -> None:
    encoded = encode_messages(buffers(), magic, 1, 4, None)
    expected = reference_set(ROWS[1:], FORMATS[magic])
    assert bytes(encoded.data) == expected
    assert (encoded.count, encoded.is_batch) == (3, False)
    assert encoded.size == encoded.uncompressed_size == len(expected)


@MAGICS
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_compressed_message_holds_the_plain_ones_as_its_value_and_has_the_offset_of_the_last(
    magic: int, codec: str
) -> None:
    encoded = encode_messages(buffers(), magic, 1, 4, compressor(codec, None, broken_lz4=magic == 0))
    data = bytes(encoded.data)
    value = memoryview(data)[HEAD_SIZES[magic] :]
    assert data == encode_message(Message(2, bytes(value), None, 1_700), magic, CODECS[codec])
    plain = reference_set(ROWS[1:], FORMATS[magic])
    mended = mend_lz4(value) if codec == "lz4" else value
    assert bytes(inflated(CODECS[codec], memoryview(mended), len(plain))) == plain
    assert (encoded.count, encoded.is_batch) == (3, False)
    assert (encoded.size, encoded.uncompressed_size) == (len(data), len(plain))


@MAGICS
def test_a_compressed_message_of_one_row_has_the_offset_0(magic: int) -> None:
    data = encode_messages(buffers(), magic, 3, 4, compressor("gzip", None)).data
    assert int.from_bytes(data[:8], "big") == 0


def test_only_magic_1_has_the_latest_timestamp_in_its_compressed_message() -> None:
    first, last = (encode_messages(buffers(), magic, 0, 4, compressor("gzip", None)).data for magic in (0, 1))
    assert struct.unpack_from(">q", last, 18) == (9_000,)
    assert struct.unpack_from(">i", first, 18) == (-1,), "in magic 0 the null key is there"


@MAGICS
def test_the_checksum_of_a_compressed_message_covers_what_follows_it(magic: int) -> None:
    data = encode_messages(buffers(), magic, 0, 4, compressor("gzip", None)).data
    assert int.from_bytes(data[12:16], "big") == zlib.crc32(data[16:])


@MAGICS
def test_headers_are_refused_with_the_release_that_has_them_and_only_where_a_row_has_one(magic: int) -> None:
    columns = buffers(WITH_HEADERS)
    for start, stop in ((0, 1), (2, 3)):
        assert encode_messages(columns, magic, start, stop, None).count == 1
    for codec in (None, compressor("gzip", None)):
        with pytest.raises(EncodeError, match=f"magic {magic} have no headers .*Kafka 0.11.*Write the records without"):
            encode_messages(columns, magic, 0, 3, codec)


@MAGICS
def test_sizes_are_exact_and_a_null_takes_as_much_as_nothing(magic: int) -> None:
    sizes = message_sizes(buffers(), magic).tolist()
    assert sizes == [encode_messages(buffers(), magic, row, row + 1, None).size for row in range(4)]
    assert sizes[2] == sizes[3] == HEAD_SIZES[magic] == len(encode_message(Message(0), magic))
    assert message_sizes(columns_of(ROWS).slice(0, 0).buffers, magic).tolist() == []
