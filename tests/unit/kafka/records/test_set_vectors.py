"""Message sets as the classes of old Kafkas wrote them, given the records of `WRITTEN`.

`java-0.8.2.2-producer` is what its producer sends (MemoryRecords), `stored` the same as its broker keeps it (with
offsets from 1000 assigned by ByteBufferMessageSet); `java-0.10.2.2` is what its MemoryRecordsBuilder makes: `gaps` has
every other record, `append-time` the broker's time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.kafka.records.decode import DecodeOptions
from tests.unit.kafka.records import reference_sets
from tests.unit.kafka.records.reference import Row
from tests.unit.kafka.records.rows import decode, rows_of
from tests.unit.kafka.records.test_vectors import EPOCH, WRITTEN

VECTORS = Path(__file__).parents[3] / "vectors" / "message_sets"
END = 2**62
CODECS = ["none", "gzip", "snappy", "lz4"]
NO_TIMESTAMP = -1_000


def old(row: Row, base: int) -> Row:
    """The same record before there were timestamps and headers."""
    return row._replace(offset=base + row.offset, timestamp=NO_TIMESTAMP, timestamp_type=-1, headers=None)


def timed(row: Row) -> Row:
    """The same record before there were headers."""
    return row._replace(offset=1_000 + row.offset, headers=None)


EXPECTED = {
    **{f"java-0.8.2.2-producer-{codec}": [old(row, 0) for row in WRITTEN] for codec in CODECS},
    **{f"java-0.8.2.2-stored-{codec}": [old(row, 1_000) for row in WRITTEN] for codec in CODECS},
    **{f"java-0.10.2.2-magic0-{codec}": [old(row, 1_000) for row in WRITTEN] for codec in CODECS},
    **{f"java-0.10.2.2-magic1-{codec}": [timed(row) for row in WRITTEN] for codec in CODECS},
    "java-0.10.2.2-magic1-gaps": [timed(row) for row in WRITTEN[::2]],
    "java-0.10.2.2-magic1-append-time": [
        timed(row)._replace(timestamp=(EPOCH + 9_999) * 1000, timestamp_type=1) for row in WRITTEN
    ],
}


def test_every_vector_is_looked_at() -> None:
    assert {file.stem for file in VECTORS.glob("*.bin")} == set(EXPECTED)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", EXPECTED)
def test_messages_as_old_kafkas_write_them(name: str) -> None:
    data = (VECTORS / f"{name}.bin").read_bytes()
    decoded = decode(data, 0, END, DecodeOptions())
    rows = EXPECTED[name]
    assert rows_of(decoded) == rows
    assert decoded.next_offset == rows[-1].offset + 1
    assert reference_sets.decode(data, 0, END) == (rows, decoded.next_offset)


@pytest.mark.usefixtures("kernel")
def test_one_log_of_all_of_them() -> None:
    """A topic that was upgraded twice, with compression changed in between."""
    parts, rows = [], []
    for index, name in enumerate(name for name in EXPECTED if "magic1" in name and not name.endswith("gaps")):
        data, shift = bytearray((VECTORS / f"{name}.bin").read_bytes()), 100 * index
        position = 0
        while position < len(data):  # no checksum covers the offsets
            offset = int.from_bytes(data[position : position + 8], "big") + shift
            data[position : position + 8] = offset.to_bytes(8, "big")
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        parts.append(bytes(data))
        rows += [row._replace(offset=row.offset + shift) for row in EXPECTED[name]]
    decoded = decode(b"".join(parts), 1_005, END, DecodeOptions())
    assert rows_of(decoded) == rows[5:]
