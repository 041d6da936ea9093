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
from streamgroup.kafka.records import codecs as compression
from streamgroup.kafka.records import encode_numpy
from streamgroup.kafka.records.codecs import CODECS, compressor, fix_lz4_checksum, inflated
from streamgroup.kafka.records.decode import DecodeOptions
from streamgroup.kafka.records.encode import (
    HEAD_SIZES,
    HEAD_SIZES_07,
    EncodedRecords,
    Encoder,
    RecordColumns,
    RecordFormat,
    encode_batch,
    encode_messages,
    encode_messages07,
    message_sizes,
    message_sizes07,
    record_sizes,
)
from streamgroup.kafka.records.record_columns import ColumnBuffers
from streamgroup.testing.kafka07.codecs import decompress
from streamgroup.testing.kafka07.log import check_set, messages_of
from tests.unit.kafka.records import reference, reference_sets
from tests.unit.kafka.records.encode_rows import (
    PLAIN,
    Sent,
    Shape,
    columns_of,
    reference_batch,
    reference_records,
    reference_set,
)
from tests.unit.kafka.records.encoder_sets import Message, encode_message, message07
from tests.unit.kafka.records.reference import Row
from tests.unit.kafka.records.rows import decode, decode07, rows_of
from tests.unit.kafka.records.test_vectors import WRITTEN

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
VECTORS = Path(__file__).parents[3] / "vectors"
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
        mended = compression.fix_lz4_checksum(frame)
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


V07_0, V07_1, V0, V1, V2 = RecordFormat


@pytest.mark.parametrize(
    ("record_format", "magic", "codecs"),
    [
        (V07_0, 0, {"none"}),
        (V07_1, 1, {"none", "gzip", "snappy"}),
        (V0, 0, {"none", "gzip", "snappy", "lz4"}),
        (V1, 1, {"none", "gzip", "snappy", "lz4"}),
        (V2, 2, {"none", "gzip", "snappy", "lz4", "zstd"}),
    ],
)
def test_magic_and_codecs_are_those_of_kafkas_generations(
    record_format: RecordFormat, magic: int, codecs: set[str]
) -> None:
    assert (record_format.magic, set(record_format.codecs)) == (magic, codecs)


@pytest.mark.parametrize("record_format", RecordFormat)
def test_an_encoder_takes_the_codecs_of_its_format_and_names_them_where_it_refuses_another(
    record_format: RecordFormat,
) -> None:
    for codec in CODECS:
        if codec in record_format.codecs:
            assert Encoder(record_format, codec).record_format is record_format
            continue
        with pytest.raises(ValueError, match=f"codec {codec} in {record_format.label}: it has the codecs none"):
            Encoder(record_format, codec)


def test_a_codec_has_the_same_number_in_every_format_that_has_it() -> None:
    """The attributes hold the number, so the order of the names is Kafka's: a longer list only adds codecs."""
    for record_format in RecordFormat:
        numbers = [CODECS[codec] for codec in record_format.codecs]
        assert numbers == list(range(len(numbers)))


LZ4, TRANSACTIONAL = 3, 0x10


def header_of(attributes: int) -> EncodedRecords:
    """One record batch whose records are any bytes, as an encoder leaves it: without checksum and producer."""
    data = bytearray(struct.pack(">qiibIhiqqqhii", 0, 54, -1, 2, 0, attributes, 0, 5, 5, -1, -1, -1, 1) + b"bytes")
    return EncodedRecords(1, len(data), len(data), data)


@pytest.mark.parametrize("transactional", [True, False])
def test_sealing_changes_the_transactional_bit_and_leaves_the_other_attributes(transactional: bool) -> None:
    for attributes in (LZ4, LZ4 | TRANSACTIONAL):
        sealed = bytes(header_of(attributes).sealed(7, 1, 2, transactional=transactional))
        assert int.from_bytes(sealed[21:23], "big") == LZ4 | transactional << 4


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


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0, 1, 31, 32, 63, 64, 2**13, 2**40, 2**63, 2**64 - 1])
def test_sizes_bound_the_batch_whatever_record_it_begins_with(spread: int) -> None:
    """A batch that begins with the latest record has negative deltas, whose varints may be as long."""
    early = -(2**63) if spread >= 2**63 else 0
    for stamps in ((early, early + spread), (early + spread, early)):
        columns = buffers([Sent(b"v", timestamp=stamp) for stamp in stamps])
        bound = HEADER_SIZE + int(record_sizes(columns).sum())
        assert encode_batch(columns, 0, 2, None).size <= bound


def test_no_records_have_no_sizes() -> None:
    assert record_sizes(columns_of(ROWS).slice(0, 0).buffers).tolist() == []


FORMATS = (RecordFormat.V0, RecordFormat.V1)
MAGICS = pytest.mark.parametrize("magic", [0, 1])
MESSAGE_ROWS = [
    Sent(b"a", b"k", 9_000),
    Sent(b"value" * 40, b"k", 1_000),
    Sent(None, None, 1_700),
    Sent(b"", b"", 1_200),
]
WITH_HEADERS = [Sent(b"a"), Sent(b"b", headers=(("h", b"1"),)), Sent(b"c", headers=())]


def message_buffers(rows: Sequence[Sent] = MESSAGE_ROWS) -> ColumnBuffers:
    return columns_of(rows).buffers


@MAGICS
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_compressed_message_holds_the_plain_ones_as_its_value_and_has_the_offset_of_the_last(
    magic: int, codec: str
) -> None:
    encoded = encode_messages(message_buffers(), magic, 1, 4, compressor(codec, None, broken_lz4=magic == 0))
    data = bytes(encoded.data)
    value = memoryview(data)[HEAD_SIZES[magic] :]
    assert data == encode_message(Message(2, bytes(value), None, 1_700), magic, CODECS[codec])
    plain = reference_set(MESSAGE_ROWS[1:], FORMATS[magic])
    mended = fix_lz4_checksum(value) if codec == "lz4" else value
    assert bytes(inflated(CODECS[codec], memoryview(mended), len(plain))) == plain
    assert (encoded.count, encoded.is_batch) == (3, False)
    assert (encoded.size, encoded.uncompressed_size) == (len(data), len(plain))


@MAGICS
def test_a_compressed_message_of_one_row_has_the_offset_0(magic: int) -> None:
    data = encode_messages(message_buffers(), magic, 3, 4, compressor("gzip", None)).data
    assert int.from_bytes(data[:8], "big") == 0


def test_only_magic_1_has_the_latest_timestamp_in_its_compressed_message() -> None:
    first, last = (encode_messages(message_buffers(), magic, 0, 4, compressor("gzip", None)).data for magic in (0, 1))
    assert struct.unpack_from(">q", last, 18) == (9_000,)
    assert struct.unpack_from(">i", first, 18) == (-1,), "in magic 0 the null key is there"


@MAGICS
def test_headers_are_refused_with_the_release_that_has_them_and_only_where_a_row_has_one(magic: int) -> None:
    columns = message_buffers(WITH_HEADERS)
    for start, stop in ((0, 1), (2, 3)):
        assert encode_messages(columns, magic, start, stop, None).count == 1
    for codec in (None, compressor("gzip", None)):
        with pytest.raises(EncodeError, match=f"magic {magic} have no headers .*Kafka 0.11.*Write the records without"):
            encode_messages(columns, magic, 0, 3, codec)


@MAGICS
def test_sizes_are_exact_and_a_null_takes_as_much_as_nothing(magic: int) -> None:
    sizes = message_sizes(message_buffers(), magic).tolist()
    assert sizes == [encode_messages(message_buffers(), magic, row, row + 1, None).size for row in range(4)]
    assert sizes[2] == sizes[3] == HEAD_SIZES[magic] == len(encode_message(Message(0), magic))
    assert message_sizes(columns_of(MESSAGE_ROWS).slice(0, 0).buffers, magic).tolist() == []


ROWS_07 = [Sent(b"first", b"key", 5), Sent(b"value" * 40, None, 6), Sent(b""), Sent(b"last", b"k")]


def buffers07(rows: Sequence[Sent] = ROWS_07, shape: Shape | None = None) -> ColumnBuffers:
    return columns_of(rows, shape or Shape()).buffers


def plain(rows: Sequence[Sent], magic: int) -> bytes:
    return b"".join(message07(row.value or b"", magic) for row in rows)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_messages_are_the_payload_of_one_message_whose_checksum_covers_the_payload(codec: str) -> None:
    encoded = encode_messages07(buffers07(), 1, 1, 4, compressor(codec, None))
    data = bytes(encoded.data)
    payload, inner = data[10:], plain(ROWS_07[1:], 1)
    assert struct.unpack_from(">iBBI", data) == (len(data) - 4, 1, CODECS[codec], zlib.crc32(payload))
    assert bytes(inflated(CODECS[codec], memoryview(payload), len(inner))) == inner
    assert (encoded.count, encoded.is_batch) == (3, False)
    assert (encoded.size, encoded.uncompressed_size) == (len(data), len(inner))


@MAGICS
def test_headers_are_refused_only_where_a_row_has_one(magic: int) -> None:
    columns = buffers07([Sent(b"a"), Sent(b"b", headers=(("h", b"1"),)), Sent(b"c", headers=())])
    for start, stop in ((0, 1), (2, 3)):
        assert encode_messages07(columns, magic, start, stop, None).count == 1
    with pytest.raises(EncodeError, match=r"Kafka 0\.7 have no headers\. Write the records without them"):
        encode_messages07(columns, magic, 0, 3, None)


@MAGICS
def test_sizes_are_exact_and_leave_the_keys_out(magic: int) -> None:
    sizes = message_sizes07(buffers07(), magic).tolist()
    assert sizes == [encode_messages07(buffers07(), magic, row, row + 1, None).size for row in range(4)]
    assert sizes[2] == HEAD_SIZES_07[magic]
    assert message_sizes07(columns_of(ROWS_07).slice(0, 0).buffers, magic).tolist() == []


# -- the encoders in numpy --------------------------------------------------------------------------------------------

LONGEST = 2**31 - 1

NUMPY_ROWS = [
    Sent(b"value", b"key", 5, (("h", b"1"), ("i", None))),
    Sent(None, None, 3, None),
    Sent(b"", b"", 5 + 2**40, ()),
    Sent(b"v" * 64, b"k" * 63, -(2**40), (("h" * 64, b""),)),
]


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (3, 4), (1, 2)])
def test_deltas_count_from_the_first_record_of_the_range(start: int, stop: int) -> None:
    data, latest = encode_numpy.encode_records(buffers(NUMPY_ROWS), start, stop, 0)
    assert bytes(data) == reference_records(NUMPY_ROWS[start:stop])
    assert latest == max(row.timestamp for row in NUMPY_ROWS[start:stop])


def test_a_head_that_brings_a_message_beyond_the_limit_is_counted() -> None:
    columns = buffers([Sent(b"value")])
    assert encode_numpy.message_sizes(columns.key, columns.value, 1, LONGEST - 5).tolist() == [LONGEST]
    with pytest.raises(EncodeError, match=f"takes more than {LONGEST} bytes"):
        encode_numpy.message_sizes(columns.key, columns.value, 1, LONGEST - 4)
