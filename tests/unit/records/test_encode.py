"""Arrow columns to the bytes of a Produce request: equal to a reference, and read back by this project's decoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import EncodeError
from streamgroup.records import compression
from streamgroup.records.decode import DecodeOptions
from streamgroup.records.encode import Encoder, RecordColumns, RecordFormat
from streamgroup.testing.kafka07.codecs import decompress
from streamgroup.testing.kafka07.messages import check_set, messages_of
from tests.unit.records import reference, reference_sets
from tests.unit.records.encode_rows import (
    PLAIN,
    Sent,
    Shape,
    columns_of,
    reference_batch,
    reference_records,
    reference_set,
)
from tests.unit.records.reference import Row
from tests.unit.records.rows import decode, decode07, rows_of
from tests.unit.records.test_vectors import WRITTEN

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
VECTORS = Path(__file__).parents[2] / "vectors"
EVERY_CODEC = [(record_format, codec) for record_format in RecordFormat for codec in record_format.codecs]
HEADER_SIZE = 61

relaxed = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

payloads = st.none() | st.binary(max_size=200)
headers = st.none() | st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)
moments = st.integers(-1, 2**41) | st.integers(-(2**52), 2**52)
sent = st.builds(Sent, payloads, payloads, moments, headers)
shapes = st.builds(Shape, large=st.booleans(), before=st.integers(0, 9), after=st.integers(0, 2), hidden=st.booleans())
LONG = Sent(b"v" * 20_000, b"k" * 130, 2**41, (("h" * 70, b"x" * 9_000),))


def fit(rows: Sequence[Sent], record_format: RecordFormat) -> list[Sent]:
    """The rows without what the format does not have."""
    if record_format is RecordFormat.V2:
        return list(rows)
    return [Sent((row.value or b"") if record_format.is_kafka07 else row.value, row.key, row.timestamp) for row in rows]


def read_back(data: bytes, rows: Sequence[Sent], record_format: RecordFormat) -> None:
    """Let both decoders of record batches and message sets read `rows` out of `data`."""
    expected = [
        Row(
            row.key,
            row.value,
            index,
            row.timestamp * 1000 if record_format.magic else -1_000,
            0 if record_format.magic else -1,
            [(str(name), value) for name, value in row.headers] if row.headers else None,
        )
        for index, row in enumerate(rows)
    ]
    decoded = decode(data, 0, END, DecodeOptions(include_headers=True))
    assert rows_of(decoded) == expected
    assert (decoded.next_offset, decoded.truncated) == (len(rows), False)
    by_reference = reference.decode if record_format is RecordFormat.V2 else reference_sets.decode
    assert by_reference(data, 0, END) == (expected, len(rows))


def read_back07(data: bytes, rows: Sequence[Sent]) -> None:
    """Let the decoder of Kafka 0.7 and the emulated broker's log reader read `rows` out of `data`."""
    values = [row.value for row in rows]
    assert decode07(data, 0, END, DecodeOptions()).value.to_pylist() == values
    checked = check_set(data, 2**31)
    assert checked is not None
    assert checked == (len(data), len(rows))
    payloads: list[bytes] = []
    for message in messages_of(data):
        inner = messages_of(decompress(message.codec, message.payload)) if message.codec else [message]
        payloads += [each.payload for each in inner]
    assert payloads == values


@pytest.mark.slow
@relaxed
@pytest.mark.parametrize(("record_format", "codec"), EVERY_CODEC)
@given(rows=st.lists(sent, min_size=1, max_size=30), shape=shapes)
def test_what_is_encoded_is_decoded(record_format: RecordFormat, codec: str, rows: list[Sent], shape: Shape) -> None:
    rows = fit(rows, record_format)
    encoded = Encoder(record_format, codec).encode(columns_of(rows, shape), 0, len(rows))
    data = bytes(encoded.sealed())
    assert (encoded.count, encoded.size) == (len(rows), len(data))
    if record_format.is_kafka07:
        read_back07(data, rows)
    else:
        read_back(data, rows, record_format)


@pytest.mark.slow
@relaxed
@pytest.mark.parametrize("record_format", RecordFormat)
@given(rows=st.lists(sent | st.just(LONG), min_size=1, max_size=30), shape=shapes, data=st.data())
def test_uncompressed_bytes_are_those_of_the_reference(
    record_format: RecordFormat, rows: list[Sent], shape: Shape, data: st.DataObject
) -> None:
    rows = fit(rows, record_format)
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    encoded = Encoder(record_format).encode(columns_of(rows, shape), start, stop)
    part = rows[start:stop]
    v2 = record_format is RecordFormat.V2
    expected = reference_batch(part, reference_records(part)) if v2 else reference_set(part, record_format)
    assert bytes(encoded.sealed()) == expected
    assert encoded.uncompressed_size == encoded.size == len(expected)


@pytest.mark.slow
@relaxed
@pytest.mark.parametrize(("record_format", "codec"), [pair for pair in EVERY_CODEC if pair[1] != "none"])
@given(rows=st.lists(sent | st.just(LONG), min_size=1, max_size=12))
def test_compressed_bytes_are_the_references_in_a_batch_or_wrapper(
    record_format: RecordFormat, codec: str, rows: list[Sent]
) -> None:
    rows = fit(rows, record_format)
    encoded = Encoder(record_format, codec).encode(columns_of(rows), 0, len(rows))
    data, number = bytes(encoded.sealed()), ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    if record_format is RecordFormat.V2:
        body = data[HEADER_SIZE:]
        inner = reference_records(rows)
        assert data == reference_batch(rows, body, codec)
        assert encoded.uncompressed_size == HEADER_SIZE + len(inner)
    elif record_format.is_kafka07:
        body = data[10:]
        inner = reference_set(rows, record_format)
        assert data[:10] == struct.pack(">iBBI", len(body) + 6, 1, number, zlib.crc32(body))
        assert encoded.uncompressed_size == len(inner)
    else:
        magic = record_format.magic
        stamp = struct.pack(">q", max(row.timestamp for row in rows)) if magic else b""
        head = bytes([magic, number]) + stamp + struct.pack(">i", -1)
        body = data[16 + len(head) + 4 :]
        covered = head + struct.pack(">i", len(body)) + body
        inner = reference_set(rows, record_format)
        assert data == struct.pack(">qiI", len(rows) - 1, len(covered) + 4, zlib.crc32(covered)) + covered
        assert encoded.uncompressed_size == len(inner)
    frame = memoryview(body)
    if record_format is RecordFormat.V0 and codec == "lz4":
        mended = compression.mend_lz4(frame)
        assert mended != frame  # brokers before 0.10 take only the wrong checksum
        frame = mended
    assert compression.inflated(number, frame, 1 << 30) == inner


@pytest.mark.parametrize("writer", ["java", "librdkafka"])
def test_record_batches_as_java_and_librdkafka_write_them(writer: str) -> None:
    data = bytearray((VECTORS / "records" / f"{writer}-none.bin").read_bytes())
    if writer == "librdkafka":
        data[12:16] = b"\xff" * 4  # it writes the leader epoch 0; brokers overwrite either, and no checksum covers it
    rows = [
        Sent(row.value, row.key, row.timestamp // 1000, None if row.headers is None else tuple(row.headers))
        for row in WRITTEN
    ]
    assert bytes(Encoder(RecordFormat.V2).encode(columns_of(rows), 0, len(rows)).sealed()) == data


@pytest.mark.parametrize(
    ("name", "record_format"),
    [
        ("java-0.8.2.2-producer", RecordFormat.V0),
        ("java-0.8.2.2-stored", RecordFormat.V0),
        ("java-0.10.2.2-magic0", RecordFormat.V0),
        ("java-0.10.2.2-magic1", RecordFormat.V1),
    ],
)
def test_message_sets_as_old_kafkas_write_them(name: str, record_format: RecordFormat) -> None:
    data = bytearray((VECTORS / "message_sets" / f"{name}-none.bin").read_bytes())
    position = 0
    for offset in range(len(WRITTEN)):  # what a broker has stored begins at 1000, and no checksum covers offsets
        data[position : position + 8] = struct.pack(">q", offset)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    rows = [Sent(row.value, row.key, row.timestamp // 1000) for row in WRITTEN]
    assert bytes(Encoder(record_format).encode(columns_of(rows), 0, len(rows)).sealed()) == data


def test_deltas_count_from_the_first_record_and_the_latest_time_is_the_batchs() -> None:
    stamps = [1_000, -5, 2**50, 999]
    encoded = Encoder(RecordFormat.V2).encode(columns_of([Sent(b"", timestamp=stamp) for stamp in stamps]), 1, 4)
    assert struct.unpack_from(">qq", encoded.data, 27) == (-5, 2**50)
    decoded = decode(bytes(encoded.sealed()), 0, END, DecodeOptions())
    assert decoded.timestamp.cast("int64").to_pylist() == [stamp * 1000 for stamp in stamps[1:]]


def test_a_distance_of_timestamps_beyond_a_long_wraps_as_in_java() -> None:
    rows = [Sent(timestamp=-(2**63)), Sent(timestamp=2**63 - 1), Sent(timestamp=0)]
    encoded = Encoder(RecordFormat.V2).encode(columns_of(rows), 0, 3)
    first = Sent(timestamp=-(2**63))
    wrapped = [(2**63 - 1 + 2**63 + 2**63) % 2**64 - 2**63 + first.timestamp, -(2**63) + first.timestamp]
    body = reference_records([first, Sent(timestamp=wrapped[0]), Sent(timestamp=wrapped[1])])
    assert bytes(encoded.data[HEADER_SIZE:]) == body


@pytest.mark.parametrize(("record_format", "codec"), EVERY_CODEC)
def test_no_records_are_no_bytes(record_format: RecordFormat, codec: str) -> None:
    encoder = Encoder(record_format, codec)
    nothing = RecordColumns(None, pa.array([], pa.binary()), np.zeros(0, np.int64), pa.array([], pa.list_(HEADER)))
    for columns, at in ((nothing, 0), (columns_of([Sent(b"v")]), 0), (columns_of([Sent(b"v")]), 1)):
        encoded = encoder.encode(columns, at, at)
        assert (encoded.count, encoded.size, encoded.uncompressed_size) == (0, 0, 0)
        assert bytes(encoded.sealed(1, 1, 1)) == b""
    assert encoder.sizes(nothing).tolist() == []


HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.slow
@relaxed
@pytest.mark.parametrize("record_format", RecordFormat)
@given(rows=st.lists(sent | st.just(LONG), min_size=1, max_size=80), shape=shapes)
def test_sizes_bound_what_any_cut_of_the_records_takes(
    record_format: RecordFormat, rows: list[Sent], shape: Shape
) -> None:
    rows = fit(rows, record_format)
    encoder, columns = Encoder(record_format), columns_of(rows, shape)
    sizes = encoder.sizes(columns)
    assert sizes.dtype == np.int64
    middle = len(rows) // 2
    for start, stop in ((0, len(rows)), (0, middle), (middle, len(rows))):
        bound, size = encoder.overhead + int(sizes[start:stop].sum()), encoder.encode(columns, start, stop).size
        if record_format is not RecordFormat.V2:
            assert size == bound
        elif stop > start:
            slack = (stop - start) * 15  # deltas, and the record's length that counts them
            assert bound - slack <= size <= bound


def test_records_of_one_time_have_exact_sizes_but_for_their_offset_deltas() -> None:
    columns = columns_of([Sent(b"v" * 100, timestamp=1_700_000_000_000)] * 64)
    encoder = Encoder(RecordFormat.V2)
    assert encoder.encode(columns, 0, 64).size == encoder.overhead + int(encoder.sizes(columns).sum())


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "none"])
@pytest.mark.parametrize("record_format", [RecordFormat.V0, RecordFormat.V1])
def test_the_overhead_is_that_of_the_wrapper(record_format: RecordFormat, codec: str) -> None:
    encoder = Encoder(record_format, codec)
    data = bytes(encoder.encode(columns_of([Sent(b"v")]), 0, 1).sealed())
    if codec == "none":
        assert encoder.overhead == 0
    else:
        assert int.from_bytes(data[encoder.overhead - 4 : encoder.overhead], "big") == len(data) - encoder.overhead


@pytest.mark.parametrize("shape", [PLAIN, Shape(text=True), Shape(large=True, text=True), Shape(large=True)])
def test_text_and_binary_of_either_width_give_the_same_bytes(shape: Shape) -> None:
    rows = [Sent("wörter".encode(), b"k"), Sent(None, None), Sent(b"", b"")] * 3
    encoded = Encoder(RecordFormat.V2).encode(columns_of(rows, shape), 2, 8)
    assert bytes(encoded.sealed()) == reference_batch(rows[2:8], reference_records(rows[2:8]))


def test_columns_that_are_all_null_may_be_left_out() -> None:
    stamps = np.array([1, 2], np.int64)
    rows = [Sent(timestamp=1), Sent(timestamp=2)]
    for column in (None, pa.nulls(2), pa.nulls(2, pa.binary())):
        encoded = Encoder(RecordFormat.V2).encode(RecordColumns(column, column, stamps), 0, 2)
        assert bytes(encoded.sealed()) == reference_batch(rows, reference_records(rows))


def test_columns_are_taken_and_sliced() -> None:
    rows = [Sent(b"%d" % i, b"k", i, (("n", b"%d" % i),) if i % 3 else None) for i in range(20)]
    order = np.array([7, 7, 0, 19, 3], np.int64)
    columns = columns_of(rows, Shape(before=3)).take(order).slice(1, 3)
    assert len(columns) == 3
    chosen = [rows[index] for index in (7, 0, 19)]
    assert bytes(Encoder(RecordFormat.V2).encode(columns, 0, 3).sealed()) == reference_batch(
        chosen, reference_records(chosen)
    )


@pytest.mark.parametrize("record_format", [RecordFormat.V0, RecordFormat.V1, RecordFormat.V07_0, RecordFormat.V07_1])
def test_headers_before_record_batches_are_refused(record_format: RecordFormat) -> None:
    rows = [Sent(b"a"), Sent(b"b", headers=(("h", None),)), Sent(b"c", headers=())]
    columns = columns_of(rows)
    for start, stop in ((0, 1), (2, 3)):
        assert Encoder(record_format).encode(columns, start, stop).count == 1
    with pytest.raises(EncodeError, match="no headers"):
        Encoder(record_format).encode(columns, 0, 3)


def test_null_values_are_refused_in_kafka_07() -> None:
    columns = columns_of([Sent(b""), Sent(None)])
    assert Encoder(RecordFormat.V07_1).encode(columns, 0, 1).count == 1
    with pytest.raises(EncodeError, match="null values"):
        Encoder(RecordFormat.V07_1).encode(columns, 0, 2)


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_ranges_outside_of_the_columns_are_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="range"):
        Encoder(RecordFormat.V2).encode(columns_of([Sent(b"a"), Sent(b"b")]), start, stop)


@pytest.mark.parametrize(
    ("record_format", "codec", "level", "says"),
    [
        (RecordFormat.V07_0, "gzip", None, "magic 0: it has the codecs none"),
        (RecordFormat.V07_1, "lz4", None, "none, gzip, snappy"),
        (RecordFormat.V1, "zstd", None, "message sets v1"),
        (RecordFormat.V2, "brotli", None, "unknown codec 'brotli'"),
        (RecordFormat.V2, "gzip", 0, "1 to 9"),
        (RecordFormat.V2, "lz4", 18, "1 to 17"),
        (RecordFormat.V2, "zstd", 23, "-131072 to 22"),
        (RecordFormat.V2, "snappy", 1, "no levels"),
    ],
)
def test_codecs_and_levels_that_there_are_not_are_refused(
    record_format: RecordFormat, codec: str, level: int | None, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Encoder(record_format, codec, level)
