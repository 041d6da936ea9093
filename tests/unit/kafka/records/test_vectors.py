"""Bytes that others wrote: librdkafka 2.16 (through its mock broker) and Java's kafka-clients 4.1.1 (MemoryRecords).

Both were given the records of `WRITTEN`; librdkafka's lie as its broker returned them to a Fetch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.kafka.records.decode import Aborted, DecodeOptions
from tests.unit.kafka.records import reference
from tests.unit.kafka.records.encoder import CODECS
from tests.unit.kafka.records.reference import Row
from tests.unit.kafka.records.rows import decode, rows_of

VECTORS = Path(__file__).parents[3] / "vectors" / "records"
EPOCH = 1_700_000_000_000
END = 2**62


def written(index: int) -> Row:
    """The settings of the writers."""
    headers = [("trace", b"%d" % index), ("none", None), ("é", b"")]
    return Row(
        key=None if index % 3 == 0 else b"key-%d" % index,
        value=None if index % 5 == 4 else b"value %d; " % index * (index * 4),
        offset=index,
        timestamp=(EPOCH + 7 * index) * 1000,
        timestamp_type=0,
        headers=None if index % 4 else headers,
    )


WRITTEN = [written(index) for index in range(12)]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", ["librdkafka", "java"])
def test_every_codec_as_others_write_it(writer: str, codec: str) -> None:
    data = (VECTORS / f"{writer}-{codec}.bin").read_bytes()
    decoded = decode(data, 0, END, DecodeOptions(include_headers=True))
    assert rows_of(decoded) == WRITTEN
    assert decoded.next_offset == 12
    assert reference.decode(data, 0, END) == (WRITTEN, 12)


@pytest.mark.usefixtures("kernel")
def test_javas_log_append_time() -> None:
    data = (VECTORS / "java-log-append-time.bin").read_bytes()
    rows = rows_of(decode(data, 0, END, DecodeOptions(include_headers=True)))
    appended = (EPOCH + 9_999) * 1000
    assert rows == [row._replace(offset=100 + row.offset, timestamp=appended, timestamp_type=1) for row in WRITTEN]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (DecodeOptions(), [0, 1, 2, 3, 6, 7]),
        (DecodeOptions(read_committed=True), [2, 3, 6, 7]),
    ],
)
def test_javas_transactions_and_markers(options: DecodeOptions, offsets: list[int]) -> None:
    data = (VECTORS / "java-transactions.bin").read_bytes()
    decoded = decode(data, 0, END, options, [Aborted(7, 0)])
    assert decoded.offset.to_pylist() == offsets
    assert decoded.next_offset == 9
