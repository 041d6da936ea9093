"""The records of `WRITTEN` as other clients wrote them: record batches, and message sets of old Kafkas.

Record batches: `librdkafka` is librdkafka 2.16 (as its mock broker returned them to a Fetch), `java` is kafka-clients
4.1.1 (MemoryRecords). Message sets: `java-0.8.2.2-producer` is what its producer sends (MemoryRecords), `stored` the
same as its broker stores it (ByteBufferMessageSet assigns offsets from 1000); `java-0.10.2.2` is from its
MemoryRecordsBuilder: `gaps` has every other record, `append-time` the broker's time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import DecodeError
from streamgroup.kafka.records.decode import Aborted, DecodeOptions
from tests.unit.kafka.records import reference, reference_sets
from tests.unit.kafka.records.encoder import CODECS
from tests.unit.kafka.records.reference import Row
from tests.unit.kafka.records.rows import decode, rows_of

pytestmark = pytest.mark.usefixtures("kernel")

RECORDS = Path(__file__).parents[3] / "vectors" / "records"
MESSAGE_SETS = RECORDS.parent / "message_sets"
EPOCH = 1_700_000_000_000
END = 2**62


def written(index: int) -> Row:
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


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", ["librdkafka", "java"])
def test_every_codec_as_others_write_it(writer: str, codec: str) -> None:
    data = (RECORDS / f"{writer}-{codec}.bin").read_bytes()
    decoded = decode(data, 0, END, DecodeOptions(include_headers=True))
    assert rows_of(decoded) == WRITTEN
    assert decoded.next_offset == 12
    assert reference.decode(data, 0, END) == (WRITTEN, 12)


def test_javas_log_append_time() -> None:
    data = (RECORDS / "java-log-append-time.bin").read_bytes()
    rows = rows_of(decode(data, 0, END, DecodeOptions(include_headers=True)))
    appended = (EPOCH + 9_999) * 1000
    assert rows == [row._replace(offset=100 + row.offset, timestamp=appended, timestamp_type=1) for row in WRITTEN]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (DecodeOptions(), [0, 1, 2, 3, 6, 7]),
        (DecodeOptions(read_committed=True), [2, 3, 6, 7]),
    ],
)
def test_javas_transactions_and_markers(options: DecodeOptions, offsets: list[int]) -> None:
    data = (RECORDS / "java-transactions.bin").read_bytes()
    decoded = decode(data, 0, END, options, [Aborted(7, 0)])
    assert decoded.offset.to_pylist() == offsets
    assert decoded.next_offset == 9


# -- message sets -----------------------------------------------------------------------------------------------------

OLD_CODECS = ["none", "gzip", "snappy", "lz4"]
NO_TIMESTAMP = -1_000


def old(row: Row, base: int) -> Row:
    """The same record before there were timestamps and headers."""
    return row._replace(offset=base + row.offset, timestamp=NO_TIMESTAMP, timestamp_type=-1, headers=None)


def timed(row: Row) -> Row:
    """The same record before there were headers."""
    return row._replace(offset=1_000 + row.offset, headers=None)


EXPECTED = {
    **{f"java-0.8.2.2-producer-{codec}": [old(row, 0) for row in WRITTEN] for codec in OLD_CODECS},
    **{f"java-0.8.2.2-stored-{codec}": [old(row, 1_000) for row in WRITTEN] for codec in OLD_CODECS},
    **{f"java-0.10.2.2-magic0-{codec}": [old(row, 1_000) for row in WRITTEN] for codec in OLD_CODECS},
    **{f"java-0.10.2.2-magic1-{codec}": [timed(row) for row in WRITTEN] for codec in OLD_CODECS},
    "java-0.10.2.2-magic1-gaps": [timed(row) for row in WRITTEN[::2]],
    "java-0.10.2.2-magic1-append-time": [
        timed(row)._replace(timestamp=(EPOCH + 9_999) * 1000, timestamp_type=1) for row in WRITTEN
    ],
}


def test_every_vector_is_looked_at() -> None:
    assert {file.stem for file in MESSAGE_SETS.glob("*.bin")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_messages_as_old_kafkas_write_them(name: str) -> None:
    data = (MESSAGE_SETS / f"{name}.bin").read_bytes()
    decoded = decode(data, 0, END, DecodeOptions())
    rows = EXPECTED[name]
    assert rows_of(decoded) == rows
    assert decoded.next_offset == rows[-1].offset + 1
    assert reference_sets.decode(data, 0, END) == (rows, decoded.next_offset)


def test_one_log_of_all_of_them() -> None:
    """A topic that was upgraded twice, with compression changed in between."""
    parts, rows = [], []
    for index, name in enumerate(name for name in EXPECTED if "magic1" in name and not name.endswith("gaps")):
        data, shift = bytearray((MESSAGE_SETS / f"{name}.bin").read_bytes()), 100 * index
        position = 0
        while position < len(data):  # no checksum covers the offsets
            offset = int.from_bytes(data[position : position + 8], "big") + shift
            data[position : position + 8] = offset.to_bytes(8, "big")
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        parts.append(bytes(data))
        rows += [row._replace(offset=row.offset + shift) for row in EXPECTED[name]]
    decoded = decode(b"".join(parts), 1_005, END, DecodeOptions())
    assert rows_of(decoded) == rows[5:]


# -- damage -----------------------------------------------------------------------------------------------------------


def keys_and_values(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    decoded = decode(data, 0, END, DecodeOptions())
    return list(zip(decoded.key.to_pylist(), decoded.value.to_pylist(), strict=True))


def flipped(data: bytes, index: int) -> bytes:
    damaged = bytearray(data)
    damaged[index] ^= 1 << index % 8
    return bytes(damaged)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(MESSAGE_SETS.glob("*.bin")), ids=lambda file: file.stem)
def test_each_flipped_bit_of_a_message_set_is_refused_or_changes_no_key_or_value(file: Path) -> None:
    sound = file.read_bytes()
    rows = keys_and_values(sound)
    for index in range(len(sound)):
        try:
            found = keys_and_values(flipped(sound, index))
        except DecodeError:
            continue
        assert found == rows[: len(found)]  # an offset, or a size that now reaches beyond the bytes


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(RECORDS.glob("*.bin")), ids=lambda file: file.stem)
def test_each_flipped_bit_of_a_batch_is_refused(file: Path) -> None:
    sound = file.read_bytes()
    first = 12 + int.from_bytes(sound[8:12], "big")
    for index in range(17, first):  # before it: base offset, size, leader epoch, magic, which no checksum covers
        with pytest.raises(DecodeError):
            decode(flipped(sound, index), 0, END, DecodeOptions())
