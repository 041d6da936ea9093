"""Records that cannot be, one kind of damage each, under a right checksum."""

from __future__ import annotations

import pytest

from streamgroup.errors import DecodeError
from streamgroup.records.decode import DecodeOptions, decode
from tests.unit.records import reference
from tests.unit.records.encoder import Record, encode_record, seal, varint

END = 2**62


def body(record: bytes) -> bytes:
    """A batch with this one record."""
    return seal(8, record, attributes=0, last_offset_delta=5, count=1)


DAMAGED = {
    "length beyond the batch": body(varint(50) + bytes(10)),
    "length negative": body(varint(-5) + bytes(10)),
    "length over-long": body(b"\xff" * 11),
    "length of 33 bits": body(b"\x80\x80\x80\x80\x10" + bytes(10)),
    "key beyond the record": body(varint(10) + bytes(3) + varint(60) + bytes(6)),
    "key length -2": body(varint(6) + bytes(3) + varint(-2) + bytes(2)),
    "value length -9": body(varint(6) + bytes(4) + varint(-9) + bytes(1)),
    "header count negative": body(varint(6) + bytes(3) + b"\1\1" + varint(-1)),
    "header count beyond the record": body(varint(8) + bytes(3) + b"\1\1" + varint(2**31 - 1)[:3]),
    "header key null": body(varint(8) + bytes(3) + b"\1\1" + varint(1) + b"\1\1"),
    "header value beyond the record": body(varint(8) + bytes(3) + b"\1\1" + varint(1) + b"\0\2"),
    "offset beyond the batch's last": body(varint(6) + bytes(2) + varint(6) + b"\1\1\0"),
    "offset negative": body(varint(6) + bytes(2) + varint(-1) + b"\1\1\0"),
    "bytes behind the headers": body(varint(7) + bytes(3) + b"\1\1\0\0"),
    "bytes behind the last record": body(encode_record(Record(8), 8, 0) + b"\0"),
    "record of no bytes": body(b"\0" * 7),
    "timestamp over-long": body(varint(20) + b"\0" + b"\x80" * 10 + bytes(9)),
    "more records than bytes": seal(8, bytes(20), attributes=0, last_offset_delta=2**31 - 2, count=2**31 - 1),
    "same offset twice": seal(8, encode_record(Record(8), 8, 0) * 2, attributes=0, last_offset_delta=5, count=2),
    "more records than offsets": seal(8, b"", attributes=0, last_offset_delta=0, count=2),
    "a negative count": seal(8, b"", attributes=0, last_offset_delta=0, count=-1),
}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_records_that_cannot_be(data: bytes) -> None:
    with pytest.raises(DecodeError, match="offset 8: ") as caught:
        decode(data, 0, END, DecodeOptions())
    assert caught.value.base_offset == 8
    assert caught.value.next_offset is not None
    assert caught.value.next_offset > 8
    with pytest.raises(reference.Refused):
        reference.decode(data, 0, END)
