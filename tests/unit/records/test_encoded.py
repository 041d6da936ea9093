"""A producer seals an encoded batch with its id, epoch and sequence, again for each attempt that changes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from streamgroup.records.encode import Encoder, RecordFormat
from streamgroup.records.encoded import EncodedRecords
from tests.unit.records.encode_rows import Sent, columns_of, reference_batch, reference_records
from tests.unit.records.encoder import crc32c

pytestmark = pytest.mark.usefixtures("kernel")

LZ4, TRANSACTIONAL = 3, 0x10


def one_batch(rows: Sequence[Sent] = (Sent(b"v"), Sent(b"w"))) -> EncodedRecords:
    return Encoder(RecordFormat.V2).encode(columns_of(rows), 0, len(rows))


def header_of(attributes: int) -> EncodedRecords:
    """One record batch whose records are any bytes, as an encoder leaves it: without checksum and producer."""
    data = bytearray(struct.pack(">qiibIhiqqqhii", 0, 54, -1, 2, 0, attributes, 0, 5, 5, -1, -1, -1, 1) + b"bytes")
    return EncodedRecords(1, len(data), len(data), data)


def test_sealing_writes_the_producer_and_may_be_repeated() -> None:
    rows = [Sent(b"v", timestamp=5), Sent(b"w", timestamp=3)]
    encoded = one_batch(rows)
    for producer in ((7, 0, 0), (7, 1, 2**31 - 1), (2**63 - 1, 2**15 - 1, 5), (-1, -1, -1)):
        for transactional in (True, False):
            sealed = encoded.sealed(*producer, transactional=transactional)
            expected = reference_batch(rows, reference_records(rows), producer=producer, bits=transactional << 4)
            assert bytes(sealed) == expected
            assert crc32c(expected[21:]) == int.from_bytes(expected[17:21], "big")


def test_sealed_bytes_cannot_be_written_to() -> None:
    assert one_batch().sealed().readonly


def test_message_sets_are_sealed_as_they_are() -> None:
    for record_format in set(RecordFormat) - {RecordFormat.V2}:
        encoded = Encoder(record_format).encode(columns_of([Sent(b"v")]), 0, 1)
        before = bytes(encoded.data)
        assert bytes(encoded.sealed(7, 1, 2, transactional=True)) == before


@pytest.mark.parametrize("transactional", [True, False])
def test_sealing_changes_the_transactional_bit_and_leaves_the_other_attributes(transactional: bool) -> None:
    for attributes in (LZ4, LZ4 | TRANSACTIONAL):
        sealed = bytes(header_of(attributes).sealed(7, 1, 2, transactional=transactional))
        assert int.from_bytes(sealed[21:23], "big") == LZ4 | transactional << 4


def test_sealing_writes_nothing_but_checksum_attributes_and_producer() -> None:
    encoded = header_of(LZ4)
    before = bytes(encoded.data)
    sealed = bytes(encoded.sealed(7, 1, 2, transactional=True))
    changed = [at for at in range(len(before)) if sealed[at] != before[at]]
    assert set(changed) <= {*range(17, 23), *range(43, 57)}
    assert struct.unpack_from(">qhi", sealed, 43) == (7, 1, 2)


def test_a_later_seal_replaces_the_bytes_of_an_earlier_one() -> None:
    """The view of an attempt is not a copy: an attempt that is under way must be over before the next seal."""
    encoded = one_batch()
    first = encoded.sealed(7, 0, 0)
    second = encoded.sealed(7, 1, 0)
    assert bytes(first) == bytes(second)


def test_no_records_stay_no_bytes_when_they_are_sealed() -> None:
    nothing = EncodedRecords(0, 0, 0, bytearray())
    assert bytes(nothing.sealed(7, 1, 2, transactional=True)) == b""
