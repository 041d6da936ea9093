"""A producer sends rows to Kafka 0.11 and later as one record batch, whose header describes the records in it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from streamgroup.records.compress import CODECS, compressor
from streamgroup.records.compression import inflated
from streamgroup.records.encode_batch import encode_batch, record_sizes
from streamgroup.records.record_columns import ColumnBuffers
from tests.unit.records.encode_rows import Sent, columns_of, reference_batch, reference_records

pytestmark = pytest.mark.usefixtures("kernel")

HEADER_SIZE = 61
ROWS = [
    Sent(b"first", b"a", 900),
    Sent(b"value" * 40, b"k", 1_000, (("h", b"1"),)),
    Sent(None, None, 1_700),
    Sent(b"value" * 40, b"", 1_200),
]


def buffers(rows: Sequence[Sent] = ROWS) -> ColumnBuffers:
    return columns_of(rows).buffers


def header(data: bytearray) -> dict[str, int]:
    """The header's fields, by their names in Kafka's description (KIP-98)."""
    names = (
        "baseOffset batchLength partitionLeaderEpoch magic crc attributes lastOffsetDelta baseTimestamp maxTimestamp "
        "producerId producerEpoch baseSequence count"
    )
    return dict(zip(names.split(), struct.unpack_from(">qiibIhiqqqhii", data), strict=True))


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_header_describes_the_records_of_the_range_and_leaves_the_producer_open(codec: str) -> None:
    encoded = encode_batch(buffers(), 1, 4, compressor(codec, None))
    assert header(encoded.data) == {
        "baseOffset": 0,
        "batchLength": len(encoded.data) - 12,
        "partitionLeaderEpoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": CODECS[codec],
        "lastOffsetDelta": 2,
        "baseTimestamp": 1_000,
        "maxTimestamp": 1_700,
        "producerId": -1,
        "producerEpoch": -1,
        "baseSequence": -1,
        "count": 3,
    }
    assert (encoded.count, encoded.size, encoded.is_batch) == (3, len(encoded.data), True)


@pytest.mark.parametrize("codec", CODECS)
def test_behind_the_header_are_the_records_of_the_range_compressed_together(codec: str) -> None:
    encoded = encode_batch(buffers(), 1, 4, compressor(codec, None))
    records = reference_records(ROWS[1:])
    assert bytes(inflated(CODECS[codec], memoryview(encoded.data)[HEADER_SIZE:], len(records))) == records
    assert encoded.uncompressed_size == HEADER_SIZE + len(records)
    assert (encoded.size < encoded.uncompressed_size) is (codec != "none")


def test_an_uncompressed_batch_is_that_of_the_reference_once_it_is_sealed() -> None:
    encoded = encode_batch(buffers(), 0, 4, None)
    assert bytes(encoded.sealed(7, 1, 2)) == reference_batch(ROWS, reference_records(ROWS), producer=(7, 1, 2))


def test_one_record_is_a_batch_of_its_own() -> None:
    fields = header(encode_batch(buffers(), 2, 3, None).data)
    assert (fields["count"], fields["lastOffsetDelta"]) == (1, 0)
    assert fields["baseTimestamp"] == fields["maxTimestamp"] == 1_700


def test_the_latest_timestamp_may_be_before_1970() -> None:
    fields = header(encode_batch(buffers([Sent(timestamp=-5), Sent(timestamp=-9)]), 0, 2, None).data)
    assert (fields["baseTimestamp"], fields["maxTimestamp"]) == (-5, -5)


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 50, 56, 57, 58, 8_180, 8_190])
def test_the_size_of_a_single_record_is_exact(value: int) -> None:
    columns = buffers([Sent(bytes(value))])
    assert record_sizes(columns).tolist() == [encode_batch(columns, 0, 1, None).size - HEADER_SIZE]


@pytest.mark.parametrize("spread", [0, 1, 31, 32, 63, 64, 2**13, 2**40, 2**63, 2**64 - 1])
def test_sizes_bound_the_batch_whatever_record_it_begins_with(spread: int) -> None:
    """A batch that begins with the latest record has negative deltas, whose varints may be as long."""
    early = -(2**63) if spread >= 2**63 else 0
    for stamps in ((early, early + spread), (early + spread, early)):
        columns = buffers([Sent(b"v", timestamp=stamp) for stamp in stamps])
        bound = HEADER_SIZE + int(record_sizes(columns).sum())
        assert encode_batch(columns, 0, 2, None).size <= bound


def test_sizes_grow_with_the_spread_of_the_timestamps_by_15_bytes_at_most() -> None:
    near, far = (record_sizes(buffers([Sent(b"v"), Sent(b"v", timestamp=t)])).tolist() for t in (1, 2**62))
    assert near[0] == near[1] < far[0] == far[1] <= near[0] + 15


def test_no_records_have_no_sizes() -> None:
    assert record_sizes(columns_of(ROWS).slice(0, 0).buffers).tolist() == []
