"""Arrow columns to the bytes of a Produce request: equal to a reference, and read back by this project's decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import EncodeError
from streamgroup.kafka.records import encode_numpy
from streamgroup.kafka.records.codecs import CODEC_NUMBERS, fix_lz4_checksum, inflated
from streamgroup.kafka.records.decode import DecodeOptions
from streamgroup.kafka.records.encode import EncodedRecords, Encoder, RecordColumns, RecordFormat
from streamgroup.testing.kafka07.codecs import decompress
from streamgroup.testing.kafka07.log import check_set, messages_of
from tests.unit.kafka.records import encode_rows, reference, reference_sets
from tests.unit.kafka.records.encode_rows import PLAIN, Sent, Shape, columns_of, reference_batch, reference_records
from tests.unit.kafka.records.encoder_sets import Message, encode_message, message07
from tests.unit.kafka.records.reference import Row
from tests.unit.kafka.records.rows import decode, decode07, rows_of
from tests.unit.kafka.records.test_vectors import WRITTEN

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
VECTORS = Path(__file__).parents[3] / "vectors"
V07_0, V07_1, V0, V1, V2 = RecordFormat
HEAD_SIZES = {V07_0: 9, V07_1: 10, V0: 26, V1: 34, V2: 61}
"""The bytes before the compressed records."""
EVERY_CODEC = pytest.mark.parametrize(
    ("record_format", "codec"), [(each, codec) for each in RecordFormat for codec in each.codecs]
)

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
    if record_format is V2:
        return list(rows)
    return [Sent((row.value or b"") if record_format.is_kafka07 else row.value, row.key, row.timestamp) for row in rows]


def check(encoder: Encoder, codec: str, rows: Sequence[Sent], encoded: EncodedRecords) -> None:
    """Compare the bytes with the reference's, around the same compressed records. Let decoders read them back."""
    form, data, number = encoder.record_format, bytes(encoded.sealed()), CODEC_NUMBERS[codec]
    plain = reference_records(rows) if form is V2 else encode_rows.reference_set(rows, form)
    body = data[HEAD_SIZES[form] :]
    if form is V2:
        whole = reference_batch(rows, body, codec)
    elif codec == "none":
        whole = body = plain
    elif form.is_kafka07:
        whole = message07(body, 1, number)
    else:
        latest = max(row.timestamp for row in rows)
        whole = encode_message(Message(len(rows) - 1, body, None, latest), form.magic, number)
    assert data == whole
    frame = memoryview(body)
    if form is V0 and codec == "lz4":
        mended = fix_lz4_checksum(frame)
        assert mended != frame, "brokers before 0.10 take only the wrong checksum"
        frame = memoryview(mended)
    assert inflated(number, frame, 1 << 30) == plain
    assert (encoded.count, encoded.size, encoded.is_batch) == (len(rows), len(data), form is V2)
    assert encoder.overhead == (HEAD_SIZES[form] if codec != "none" or form is V2 else 0)
    assert encoded.uncompressed_size == len(plain) + (HEAD_SIZES[form] if form is V2 else 0)
    if form.is_kafka07:
        read_back07(data, rows)
    else:
        read_back(data, rows, form)


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
    by_reference = reference.decode if record_format is V2 else reference_sets.decode
    assert by_reference(data, 0, END) == (expected, len(rows))


def read_back07(data: bytes, rows: Sequence[Sent]) -> None:
    """Let the decoder of Kafka 0.7 and the emulated broker's log reader read `rows` out of `data`."""
    values = [row.value for row in rows]
    assert decode07(data, 0, END, DecodeOptions()).value.to_pylist() == values
    assert check_set(data, 2**31) == (len(data), len(rows))
    found: list[bytes] = []
    for message in messages_of(data):
        inner = messages_of(decompress(message.codec, message.payload)) if message.codec else [message]
        found += [each.payload for each in inner]
    assert found == values


EXAMPLES = [
    Sent(b"first", b"a", 9_000),
    Sent(b"value" * 40, b"k", 1_000, (("h", b"1"),)),
    Sent(None, None, 1_700),
    Sent(b"", b"", 1_200, ()),
]


@EVERY_CODEC
def test_the_rows_of_a_range_are_encoded_as_by_the_reference_and_read_back(
    record_format: RecordFormat, codec: str
) -> None:
    encoder, rows = Encoder(record_format, codec), fit(EXAMPLES, record_format)
    for start, stop in ((0, 4), (1, 4), (3, 4)):
        check(encoder, codec, rows[start:stop], encoder.encode(columns_of(rows), start, stop))


@pytest.mark.slow
@relaxed
@EVERY_CODEC
@given(rows=st.lists(sent | st.just(LONG), min_size=1, max_size=30), shape=shapes, data=st.data())
def test_compressed_bytes_are_the_references_in_a_batch_or_wrapper(
    record_format: RecordFormat, codec: str, rows: list[Sent], shape: Shape, data: st.DataObject
) -> None:
    encoder, rows = Encoder(record_format, codec), fit(rows, record_format)
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    check(encoder, codec, rows[start:stop], encoder.encode(columns_of(rows, shape), start, stop))


@pytest.mark.parametrize("writer", ["java", "librdkafka"])
def test_record_batches_as_java_and_librdkafka_write_them(writer: str) -> None:
    data = bytearray((VECTORS / "records" / f"{writer}-none.bin").read_bytes())
    if writer == "librdkafka":
        data[12:16] = b"\xff" * 4  # it writes the leader epoch 0; brokers overwrite either, and no checksum covers it
    rows = [
        Sent(row.value, row.key, row.timestamp // 1000, None if row.headers is None else tuple(row.headers))
        for row in WRITTEN
    ]
    assert bytes(Encoder(V2).encode(columns_of(rows), 0, len(rows)).sealed()) == data


@pytest.mark.parametrize(
    ("name", "record_format"),
    [
        ("java-0.8.2.2-producer", V0),
        ("java-0.8.2.2-stored", V0),
        ("java-0.10.2.2-magic0", V0),
        ("java-0.10.2.2-magic1", V1),
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


@EVERY_CODEC
def test_no_records_are_no_bytes(record_format: RecordFormat, codec: str) -> None:
    encoder, header = Encoder(record_format, codec), pa.struct([("key", pa.string()), ("value", pa.binary())])
    nothing = RecordColumns(None, pa.array([], pa.binary()), np.zeros(0, np.int64), pa.array([], pa.list_(header)))
    for columns, at in ((nothing, 0), (columns_of([Sent(b"v")]), 0), (columns_of([Sent(b"v")]), 1)):
        encoded = encoder.encode(columns, at, at)
        assert (encoded.count, encoded.size, encoded.uncompressed_size) == (0, 0, 0)
        assert bytes(encoded.sealed(1, 1, 1)) == b""
    assert encoder.sizes(nothing).tolist() == []


@pytest.mark.parametrize("shape", [PLAIN, Shape(text=True), Shape(large=True, text=True), Shape(large=True)])
def test_text_and_binary_of_either_width_give_the_same_bytes(shape: Shape) -> None:
    rows = [Sent("wörter".encode(), b"k"), Sent(None, None), Sent(b"", b"")] * 3
    encoded = Encoder(V2).encode(columns_of(rows, shape), 2, 8)
    assert bytes(encoded.sealed()) == reference_batch(rows[2:8], reference_records(rows[2:8]))


# -- sizes ------------------------------------------------------------------------------------------------------------


def check_sizes(record_format: RecordFormat, rows: Sequence[Sent], shape: Shape = PLAIN) -> None:
    """Compare the sizes with the bytes that any cut of the records takes."""
    encoder, columns = Encoder(record_format), columns_of(rows, shape)
    sizes = encoder.sizes(columns)
    assert sizes.dtype == np.int64
    middle = len(rows) // 2
    for start, stop in ((0, len(rows)), (0, middle), (middle, len(rows))):
        bound, size = encoder.overhead + int(sizes[start:stop].sum()), encoder.encode(columns, start, stop).size
        if record_format is not V2:
            assert size == bound
        elif stop > start:
            slack = (stop - start) * 15  # deltas, and the record's length that counts them
            assert bound - slack <= size <= bound


@pytest.mark.parametrize("record_format", RecordFormat)
def test_sizes_are_exact_or_bounds_and_a_null_takes_as_much_as_nothing(record_format: RecordFormat) -> None:
    rows = fit(EXAMPLES, record_format)
    check_sizes(record_format, rows)
    sizes = Encoder(record_format).sizes(columns_of(rows)).tolist()
    assert sizes[2] == sizes[3]


@pytest.mark.slow
@relaxed
@pytest.mark.parametrize("record_format", RecordFormat)
@given(rows=st.lists(sent | st.just(LONG), min_size=1, max_size=80), shape=shapes)
def test_sizes_bound_what_any_cut_of_the_records_takes(
    record_format: RecordFormat, rows: list[Sent], shape: Shape
) -> None:
    check_sizes(record_format, fit(rows, record_format), shape)


def test_records_of_one_time_have_exact_sizes_but_for_their_offset_deltas() -> None:
    columns, encoder = columns_of([Sent(b"v" * 100, timestamp=1_700_000_000_000)] * 64), Encoder(V2)
    assert encoder.encode(columns, 0, 64).size == encoder.overhead + int(encoder.sizes(columns).sum())


@pytest.mark.parametrize("spread", [0, 1, 31, 32, 63, 64, 2**13, 2**40, 2**63, 2**64 - 1])
def test_sizes_bound_the_batch_whatever_record_it_begins_with(spread: int) -> None:
    """A batch that begins with the latest record has negative deltas, whose varints may be as long."""
    early, encoder = -(2**63) if spread >= 2**63 else 0, Encoder(V2)
    for stamps in ((early, early + spread), (early + spread, early)):
        columns = columns_of([Sent(b"v", timestamp=stamp) for stamp in stamps])
        assert encoder.encode(columns, 0, 2).size <= encoder.overhead + int(encoder.sizes(columns).sum())


def test_a_head_that_brings_a_message_beyond_the_limit_is_counted() -> None:
    columns, longest = columns_of([Sent(b"value")]).buffers, 2**31 - 1
    assert encode_numpy.message_sizes(columns.key, columns.value, 1, longest - 5).tolist() == [longest]
    with pytest.raises(EncodeError, match=f"takes more than {longest} bytes"):
        encode_numpy.message_sizes(columns.key, columns.value, 1, longest - 4)


# -- rows, ranges, codecs and levels that are refused -----------------------------------------------------------------


def test_null_values_are_refused_in_kafka_07() -> None:
    columns = columns_of([Sent(b""), Sent(None)])
    assert Encoder(V07_1).encode(columns, 0, 1).count == 1
    with pytest.raises(EncodeError, match="null values"):
        Encoder(V07_1).encode(columns, 0, 2)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(
    ("record_format", "says"),
    [
        (V07_1, r"Kafka 0\.7 have no headers"),
        (V0, "magic 0 have no headers .*Kafka 0.11"),
        (V1, "magic 1 have no headers .*Kafka 0.11"),
    ],
)
def test_headers_are_refused_only_where_a_row_has_one(record_format: RecordFormat, says: str, codec: str) -> None:
    columns = columns_of([Sent(b"a"), Sent(b"b", headers=(("h", b"1"),)), Sent(b"c", headers=())])
    encoder = Encoder(record_format, codec)
    for start, stop in ((0, 1), (2, 3)):
        assert encoder.encode(columns, start, stop).count == 1
    with pytest.raises(EncodeError, match=f"{says}.*Write the records without them"):
        encoder.encode(columns, 0, 3)


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_ranges_outside_of_the_columns_are_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="range"):
        Encoder(V2).encode(columns_of([Sent(b"a"), Sent(b"b")]), start, stop)


@pytest.mark.parametrize(
    ("codec", "level", "says"),
    [
        ("brotli", None, "unknown codec 'brotli'"),
        ("gzip", 0, "1 to 9"),
        ("lz4", 18, "1 to 17"),
        ("zstd", 23, "-131072 to 22"),
        ("snappy", 1, "no levels"),
    ],
)
def test_codecs_and_levels_that_there_are_not_are_refused(codec: str, level: int | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Encoder(V2, codec, level)


@pytest.mark.parametrize(
    ("record_format", "magic", "codecs"),
    [
        (V07_0, 0, ["none"]),
        (V07_1, 1, ["none", "gzip", "snappy"]),
        (V0, 0, ["none", "gzip", "snappy", "lz4"]),
        (V1, 1, ["none", "gzip", "snappy", "lz4"]),
        (V2, 2, ["none", "gzip", "snappy", "lz4", "zstd"]),
    ],
)
def test_a_format_has_the_magic_and_the_codecs_of_its_generation_and_an_encoder_refuses_others(
    record_format: RecordFormat, magic: int, codecs: list[str]
) -> None:
    assert (record_format.magic, list(record_format.codecs)) == (magic, codecs)
    for codec in CODEC_NUMBERS.keys() - set(codecs):
        says = f"codec {codec} in {record_format.label}: it has the codecs {', '.join(codecs)}"
        with pytest.raises(ValueError, match=says):
            Encoder(record_format, codec)
    assert [CODEC_NUMBERS[codec] for codec in codecs] == list(range(len(codecs))), "a later format only adds numbers"


LZ4, TRANSACTIONAL = 3, 0x10


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("attributes", [LZ4, LZ4 | TRANSACTIONAL])
def test_sealing_changes_the_transactional_bit_and_leaves_the_other_attributes(
    attributes: int, transactional: bool
) -> None:
    data = bytearray(struct.pack(">qiibIhiqqqhii", 0, 54, -1, 2, 0, attributes, 0, 5, 5, -1, -1, -1, 1) + b"bytes")
    records = EncodedRecords(1, len(data), len(data), data)
    sealed = bytes(records.sealed(7, 1, 2, transactional=transactional))
    assert int.from_bytes(sealed[21:23], "big") == LZ4 | transactional << 4


def test_a_batch_is_sealed_with_its_producer_as_often_as_it_is_sent() -> None:
    encoded = Encoder(V2).encode(columns_of(EXAMPLES), 0, 4)
    for producer in ((7, 1, 2), (7, 2, 0)):
        expected = reference_batch(EXAMPLES, reference_records(EXAMPLES), producer=producer)
        assert bytes(encoded.sealed(*producer)) == expected
