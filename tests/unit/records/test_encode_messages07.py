"""A producer sends the values of rows to Kafka 0.7, which keeps neither keys nor timestamps nor headers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest

from streamgroup.errors import EncodeError
from streamgroup.records.compress import CODECS, compressor
from streamgroup.records.compression import inflated
from streamgroup.records.encode_messages07 import HEAD_SIZES, encode_messages07, message_sizes07
from streamgroup.records.record_columns import ColumnBuffers
from tests.unit.records.encode_rows import Sent, Shape, columns_of
from tests.unit.records.encoder_sets import message07

pytestmark = pytest.mark.usefixtures("kernel")

MAGICS = pytest.mark.parametrize("magic", [0, 1])
ROWS = [Sent(b"first", b"key", 5), Sent(b"value" * 40, None, 6), Sent(b""), Sent(b"last", b"k")]


def buffers(rows: Sequence[Sent] = ROWS, shape: Shape | None = None) -> ColumnBuffers:
    return columns_of(rows, shape or Shape()).buffers


def plain(rows: Sequence[Sent], magic: int) -> bytes:
    return b"".join(message07(row.value or b"", magic) for row in rows)


@MAGICS
def test_uncompressed_messages_are_the_values_with_their_heads_and_nothing_of_the_keys(magic: int) -> None:
    encoded = encode_messages07(buffers(shape=Shape(before=2)), magic, 1, 4, None)
    expected = plain(ROWS[1:], magic)
    assert bytes(encoded.data) == expected
    assert (encoded.count, encoded.is_batch) == (3, False)
    assert encoded.size == encoded.uncompressed_size == len(expected)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_messages_are_the_payload_of_one_message_whose_checksum_covers_the_payload(codec: str) -> None:
    encoded = encode_messages07(buffers(), 1, 1, 4, compressor(codec, None))
    data = bytes(encoded.data)
    payload, inner = data[10:], plain(ROWS[1:], 1)
    assert struct.unpack_from(">iBBI", data) == (len(data) - 4, 1, CODECS[codec], zlib.crc32(payload))
    assert bytes(inflated(CODECS[codec], memoryview(payload), len(inner))) == inner
    assert (encoded.count, encoded.is_batch) == (3, False)
    assert (encoded.size, encoded.uncompressed_size) == (len(data), len(inner))


@MAGICS
def test_headers_are_refused_only_where_a_row_has_one(magic: int) -> None:
    columns = buffers([Sent(b"a"), Sent(b"b", headers=(("h", b"1"),)), Sent(b"c", headers=())])
    for start, stop in ((0, 1), (2, 3)):
        assert encode_messages07(columns, magic, start, stop, None).count == 1
    with pytest.raises(EncodeError, match=r"Kafka 0\.7 have no headers\. Write the records without them"):
        encode_messages07(columns, magic, 0, 3, None)


@MAGICS
def test_null_values_are_refused_only_where_a_row_has_one(magic: int) -> None:
    columns = buffers([Sent(b"a"), Sent(None), Sent(b"")])
    for start, stop in ((0, 1), (2, 3)):
        assert encode_messages07(columns, magic, start, stop, None).count == 1
    with pytest.raises(EncodeError, match=r"Kafka 0\.7 have no null values\. Leave out the records with one"):
        encode_messages07(columns, magic, 0, 3, None)


@MAGICS
def test_sizes_are_exact_and_leave_the_keys_out(magic: int) -> None:
    sizes = message_sizes07(buffers(), magic).tolist()
    assert sizes == [encode_messages07(buffers(), magic, row, row + 1, None).size for row in range(4)]
    assert sizes[2] == HEAD_SIZES[magic]
    assert message_sizes07(columns_of(ROWS).slice(0, 0).buffers, magic).tolist() == []
