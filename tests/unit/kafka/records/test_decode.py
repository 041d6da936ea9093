"""Fetches become rows, the same as by the scalar reference. read_committed hides aborted records and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge, UnsupportedCodec
from streamgroup.kafka.records import decode as records
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import Aborted, DecodeOptions, record_batches, schema
from tests.unit.kafka.records import encoder, reference
from tests.unit.kafka.records.encoder import ABORT, CODECS, COMMIT, Record, encode_batch, end_marker, reseal, seal
from tests.unit.kafka.records.rows import decode, outcome, rows_of

pytestmark = pytest.mark.usefixtures("kernel")

EVERYTHING = DecodeOptions(include_headers=True)
UNCHECKED = DecodeOptions(include_headers=True, check_crcs=False)
END = 2**62
NANOSECONDS = 1_700_000_000_123_456_789

relaxed = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

payloads = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """The bytes of a partition: batches of all kinds, with gaps in and between them."""
    out, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        base = offset
        records = []
        for _ in range(draw(st.integers(0, 12))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 70, 20_000]))
            moment = draw(st.integers(-1, 2**41) | st.sampled_from([NANOSECONDS, 2**63 - 1, -(2**63)]))
            records.append(Record(offset, moment, draw(payloads), draw(payloads), draw(header_lists)))
            offset += 1
        offset += draw(st.integers(0, 3))
        out += encode_batch(
            records,
            base_offset=base,
            last_offset=max(offset - 1, base),
            codec=draw(st.sampled_from(["none", "gzip", "snappy", "snappy-raw", "lz4", "zstd"])),
            log_append_time=draw(st.none() | st.integers(0, 2**41)),
            producer_id=draw(st.sampled_from([-1, 7, 8])),
            transactional=draw(st.booleans()),
            control=draw(st.sampled_from([False, False, False, True])) and not records,
        )
        offset = max(offset, base + 1) + draw(st.integers(0, 2))
    return out


def expected(data: bytes, start: int, until: int, check_crcs: bool = True) -> Any:
    """Decode them by the reference."""
    try:
        return reference.decode(data, start, until, check_crcs=check_crcs)
    except reference.Refused:
        return "refused"


@pytest.mark.slow
@relaxed
@given(data=batches(), cut=st.integers(0, 80), left=st.integers(0, 30), right=st.integers(0, 30))
def test_random_batches_equal_the_reference(data: bytes, cut: int, left: int, right: int) -> None:
    first = int.from_bytes(data[:8], "big")
    data = data[: len(data) - cut]
    start, until = first + left, first + left + right
    for bounds in ((0, END), (start, until), (start, END)):
        assert outcome(data, *bounds, EVERYTHING) == expected(data, *bounds)


@pytest.mark.slow
@relaxed
@given(data=batches(), changes=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=3))
def test_damage_without_checksums_gives_the_references_rows_or_an_error(
    data: bytes, changes: list[tuple[float, int]]
) -> None:
    damaged = bytearray(data)
    for place, bits in changes:
        damaged[int(place * (len(data) - 1))] ^= bits
    if any(batch_codec(bytes(damaged))):
        # Codecs differ in what damage they notice; whatever the bytes, only a DecodeError may come of them.
        outcome(bytes(damaged), 0, END, UNCHECKED)
    else:
        assert outcome(bytes(damaged), 0, END, UNCHECKED) == expected(bytes(damaged), 0, END, check_crcs=False)


def batch_codec(data: bytes) -> list[int]:
    """The codecs of the batches, as far as they can be followed."""
    codecs, position = [], 0
    while position + 61 <= len(data):
        codecs.append(data[position + 22] & 7)
        position += 12 + max(49, int.from_bytes(data[position + 8 : position + 12], "big"))
    return codecs


SAMPLE = encode_batch(
    [
        Record(10, 1_000, b"k", b"v" * 5, (("h", b"1"), ("g", None))),
        Record(11, 999, None, b""),
        Record(15, 2**40, b"", None, (("é", b""),)),
        Record(16, 1_001, b"x" * 64, b"y"),
    ],
    last_offset=18,
)


def test_each_flipped_bit_is_refused_or_changes_no_row() -> None:
    sound = outcome(SAMPLE, 0, END, EVERYTHING)
    assert len(sound[0]) == 4
    # The checksum covers neither the base offset, the size, the leader epoch nor the magic.
    for index in range(len(SAMPLE)):
        for bit in range(8):
            damaged = bytearray(SAMPLE)
            damaged[index] ^= 1 << bit
            found = outcome(bytes(damaged), 0, END, EVERYTHING)
            if index >= 17:
                assert found == "refused"
            else:
                assert found == expected(bytes(damaged), 0, END)
                if found != "refused" and found[0]:
                    assert [row[:2] for row in found[0]] == [row[:2] for row in sound[0]]


@pytest.mark.slow
def test_each_changed_byte_under_a_right_checksum_equals_the_reference() -> None:
    for index in range(21, len(SAMPLE)):
        for value in (0, 0x7F, 0x80, 0xFF, SAMPLE[index] ^ 1):
            damaged = reseal(SAMPLE[:index] + bytes([value]) + SAMPLE[index + 1 :])
            if damaged[22] & 7 in (1, 2, 3, 4):
                assert outcome(damaged, 0, END, EVERYTHING) == "refused"
            else:
                assert outcome(damaged, 0, END, EVERYTHING) == expected(damaged, 0, END)


@relaxed
@given(body=st.binary(max_size=400), count=st.integers(-1, 40), delta=st.integers(-1, 50), codec=st.integers(0, 7))
def test_any_bytes_as_records_give_the_references_rows_or_an_error(
    body: bytes, count: int, delta: int, codec: int
) -> None:
    data = seal(3, body, attributes=codec, last_offset_delta=delta, count=count)
    found = outcome(data, 0, END, EVERYTHING)
    if codec == 0:
        assert found == expected(data, 0, END)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "snappy-raw", "lz4", "zstd"])
def test_every_codec_in_large(codec: str) -> None:
    chance = random.Random(codec)
    records = [
        Record(i, 1_600_000_000_000 + i, b"key-%d" % i, chance.randbytes(i % 90) * 3, (("n", b"%d" % i),) * (i % 3))
        for i in range(3_000)
    ]
    data = b"".join(encode_batch(records[i : i + 500], codec=codec) for i in range(0, 3_000, 500))
    assert outcome(data, 0, END, EVERYTHING) == expected(data, 0, END)
    assert outcome(data, 700, 2_200, EVERYTHING) == expected(data, 700, 2_200)


def test_an_empty_fetch() -> None:
    decoded = decode(b"", 5, 9, EVERYTHING)
    assert (decoded.num_rows, decoded.next_offset, decoded.truncated) == (0, 5, False)
    assert list(record_batches(decoded, "t", 0)) == []


def test_records_outside_of_the_range_are_dropped_but_the_position_passes_them() -> None:
    data = encode_batch([Record(i, value=b"%d" % i) for i in range(100)])
    decoded = decode(data, 40, 50, DecodeOptions())
    assert decoded.value.to_pylist() == [b"%d" % i for i in range(40, 50)]
    assert decoded.next_offset == 100


def test_batches_before_the_start_are_not_looked_into() -> None:
    damaged = bytearray(encode_batch([Record(0, value=b"x")]))
    damaged[-1] ^= 1
    decoded = decode(bytes(damaged) + encode_batch([Record(1, value=b"y")]), 1, END, DecodeOptions())
    assert decoded.value.to_pylist() == [b"y"]


@pytest.mark.parametrize(("cut", "until", "found"), [(17, 9, (9, False)), (17, 10, (4, True)), (16, 9, (4, True))])
def test_a_gap_up_to_until_ends_the_range_if_the_magic_of_the_next_frame_is_there(
    cut: int, until: int, found: tuple[int, bool]
) -> None:
    """The offset of a wrapper of magic 0 or 1 is its last one: records before `until` may be in it."""
    decoded = decode(encode_batch([Record(3)]) + encode_batch([Record(9)])[:cut], 3, until, DecodeOptions())
    assert (decoded.next_offset, decoded.truncated) == found


def test_a_batch_that_compaction_has_emptied_moves_the_position() -> None:
    decoded = decode(encode_batch([], base_offset=3, last_offset=9), 3, 20, DecodeOptions())
    assert (decoded.num_rows, decoded.next_offset) == (0, 10)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_inflates_to_nothing_holds_no_records(codec: int) -> None:
    body = encode_batch([], base_offset=3, codec=CODECS[codec])[61:]
    data = seal(3, body, attributes=codec, last_offset_delta=0, count=1)
    with pytest.raises(DecodeError, match="offset 3: it declares more records") as caught:
        decode(data, 0, END, EVERYTHING)
    assert (caught.value.base_offset, caught.value.next_offset) == (3, 4)
    assert outcome(encode_batch([], base_offset=3, codec=CODECS[codec]), 0, END) == ([], 4)


def test_a_batch_of_no_records_that_holds_bytes_is_an_error_as_in_java() -> None:
    record = encode_batch([Record(3, value=b"x")])[61:]
    for codec, body in ((0, record), (1, encoder.compress("gzip", record)), (2, b"\0" + b"x" * 42)):
        data = seal(3, body, attributes=codec, last_offset_delta=0, count=0)
        assert expected(data, 0, END) == "refused"
        with pytest.raises(DecodeError, match="the record batch at offset 3: ") as caught:
            decode(data, 0, END, EVERYTHING)
        assert (caught.value.base_offset, caught.value.next_offset) == (3, 4)


@pytest.mark.parametrize("moment", [2**63 // 1000 + 1, -(2**63 // 1000) - 1, 1_700_000_000_000_000_000, 2**63 - 1])
def test_a_timestamp_that_fits_no_microseconds_is_null_and_the_rest_of_its_batch_is_read(moment: int) -> None:
    mixed = [Record(3, 5, value=b"a"), Record(4, moment, b"k", b"b", (("h", b"1"),)), Record(5, -7, value=b"c")]
    rows, _ = outcome(encode_batch(mixed), 0, END, EVERYTHING)
    assert [(row.timestamp, row.value) for row in rows] == [(5_000, b"a"), (None, b"b"), (-7_000, b"c")]
    assert (rows[1].key, rows[1].headers) == (b"k", [("h", b"1")])
    appended = decode(encode_batch([Record(4, 0)], log_append_time=moment), 0, END, DecodeOptions())
    assert appended.timestamp.to_pylist() == [None]


def test_the_largest_and_the_smallest_timestamp_that_fit_microseconds_are_kept() -> None:
    stamps = [2**63 // 1000, -(2**63 // 1000), 0]
    decoded = decode(encode_batch([*map(Record, range(3), stamps)]), 0, END, DecodeOptions())
    assert decoded.timestamp.cast("int64").to_pylist() == [stamp * 1000 for stamp in stamps]


def test_timestamps_in_milliseconds_are_those_of_kafka_whatever_their_size() -> None:
    stamps = [1, NANOSECONDS, 2**63 - 1, -(2**63), -1]
    data = encode_batch([*map(Record, range(5), stamps)])
    decoded = decode(data, 1, END, DecodeOptions(timestamps_in_ms=True))
    (batch,) = record_batches(decoded, "t", 0)
    assert batch.schema == schema(include_headers=False, timestamps_in_ms=True)
    assert batch["timestamp"].to_pylist() == stamps[1:]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_record_whose_timestamp_does_not_fit_has_a_reason_in_the_column_damage(first: int) -> None:
    data = encode_batch([*map(Record, range(4), [1, 2, NANOSECONDS, 3])])
    decoded = decode(data, first, END, DecodeOptions())
    batches = pa.Table.from_batches(record_batches(decoded, "t", 0, rows=2, with_damage=True))
    batches.validate(full=True)
    reason = f"its timestamp of {NANOSECONDS} ms does not fit microseconds (was it written in ns?)"
    assert batches["damage"].to_pylist() == [None, None, reason, None][first:]
    assert batches["timestamp"].cast("int64").to_pylist() == [1_000, 2_000, None, 3_000][first:]


KEYS_AS_JAVA_READS_THEM = {
    "edbfa0": "\ufffd",
    "eda080": "\ufffd",
    "eda080edb080": "\ufffd\ufffd",
    "61eda0": "a\ufffd",
    "eda061": "\ufffda",
    "ed": "\ufffd",
    "ed9fbf": "\ud7ff",
    "edff": "\ufffd\ufffd",
    "edbfa0a0": "\ufffd\ufffd",
    "e180edbfa0": "\ufffd\ufffd",
    "e0a0": "\ufffd",
    "e080": "\ufffd\ufffd",
    "f09080": "\ufffd",
    "f4908080": "\ufffd" * 4,
    "c080": "\ufffd\ufffd",
    "edbfa0c3a4": "\ufffdä",
}
"""By hex: what `Utils.utf8` of kafka-clients 3.9.1 and 4.1.1 makes of it on Java 17."""


def test_header_keys_that_are_no_utf8_are_what_java_makes_of_them() -> None:
    headers = tuple((bytes.fromhex(key), None) for key in KEYS_AS_JAVA_READS_THEM)
    data = encode_batch([Record(3, 0, None, None, headers)])
    assert outcome(data, 0, END, EVERYTHING) == expected(data, 0, END)
    ((row,), _) = outcome(data, 0, END, EVERYTHING)
    assert [key for key, _ in row.headers] == list(KEYS_AS_JAVA_READS_THEM.values())


def test_many_headers_on_many_records_and_very_many_on_one() -> None:
    records = [Record(i, headers=(("k", b"v"),) * (i % 7)) for i in range(100)]
    records.append(Record(100, headers=(("k", None),) * 2_000))
    data = encode_batch(records)
    assert outcome(data, 0, END, EVERYTHING) == expected(data, 0, END)


def test_a_bad_record_is_blamed_on_its_own_batch() -> None:
    good = encode_batch([Record(i) for i in range(5)])
    bad = seal(8, encoder.varint(50) + bytes(10), attributes=0, last_offset_delta=5, count=1)
    with pytest.raises(DecodeError) as caught:
        decode(good + bad + encode_batch([Record(20)]), 0, END, DecodeOptions())
    assert (caught.value.base_offset, caught.value.next_offset) == (8, 14)


def test_a_damaged_last_offset_does_not_lead_astray_where_the_next_batch_is_seen() -> None:
    damaged = bytearray(SAMPLE)
    damaged[26] ^= 0x40
    with pytest.raises(ChecksumMismatch) as caught:
        decode(bytes(damaged) + encode_batch([Record(19)]), 0, END, DecodeOptions())
    assert caught.value.next_offset == 19


def test_a_batch_that_overlaps_the_one_before_it() -> None:
    with pytest.raises(DecodeError, match="offset 18: the batch before it reaches to offset 18"):
        decode(SAMPLE + encode_batch([Record(18)]), 0, END, DecodeOptions())


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_is_no_message_of_another_magic(magic: int) -> None:
    with pytest.raises(DecodeError, match=r"offset 1[08]"):
        decode(SAMPLE[:16] + bytes([magic]) + SAMPLE[17:], 0, END, DecodeOptions())


def test_an_unknown_codec() -> None:
    data = seal(3, b"abc", attributes=5, last_offset_delta=0, count=1)
    with pytest.raises(UnsupportedCodec, match=r"offset 3.*codec 5") as caught:
        decode(data, 0, END, DecodeOptions())
    assert caught.value.next_offset == 4


def test_what_exceeds_the_cap_together_is_decoded_in_several_calls() -> None:
    data = b"".join(encode_batch([Record(i, value=bytes(3_000))], codec="lz4") for i in range(5))
    options = DecodeOptions(max_decompressed_bytes=7_000)
    frames = Frames(data, 0, END)
    position, seen = 0, []
    while position < 5:
        decoded = records.decode(frames, position, options)
        seen.append(decoded.offset.to_pylist())
        position = decoded.next_offset
    assert seen == [[0, 1], [2, 3], [4]]


def test_a_batch_beyond_the_cap_by_itself_is_an_error() -> None:
    data = encode_batch([Record(3, value=bytes(9_000))], codec="zstd")
    with pytest.raises(TooLarge, match=r"offset 3.*7000") as caught:
        decode(data, 0, END, DecodeOptions(max_decompressed_bytes=7_000))
    assert (caught.value.base_offset, caught.value.next_offset) == (3, 4)


def test_memoryviews_inside_of_a_frame_and_readonly_bytes_decode_alike() -> None:
    frame = memoryview(bytearray(b"\0" * 3 + SAMPLE))[3:]
    assert rows_of(decode(frame, 0, END, EVERYTHING)) == rows_of(decode(SAMPLE, 0, END, EVERYTHING))


def test_rows_outlive_the_fetched_bytes() -> None:
    fetched = bytearray(SAMPLE)
    decoded = decode(memoryview(fetched), 0, END, EVERYTHING)
    before = rows_of(decoded)
    fetched[:] = bytes(len(fetched))
    assert rows_of(decoded) == before


def test_record_batches_are_sparks_and_hold_every_row_once() -> None:
    data = encode_batch([Record(i, i, b"k", b"v" * (i % 5), (("h", b"1"),)) for i in range(1_000)])
    decoded = decode(data, 0, END, EVERYTHING)
    found = list(record_batches(decoded, "orders", 3, rows=300))
    assert [batch.num_rows for batch in found] == [300, 300, 300, 100]
    assert all(batch.schema.equals(schema(True), check_metadata=True) for batch in found)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(1_000))
    assert {(row["topic"], row["partition"], row["key"]) for row in rows} == {("orders", 3, b"k")}
    assert rows[7]["headers"] == [{"key": "h", "value": b"1"}]


def test_large_rows_make_small_record_batches() -> None:
    data = encode_batch([Record(i, value=bytes(1 << 20)) for i in range(12)])
    found = list(record_batches(decode(data, 0, END, DecodeOptions()), "t", 0))
    assert sum(batch.num_rows for batch in found) == 12
    assert max(batch.num_rows for batch in found) <= 4


# -- transactions -----------------------------------------------------------------------------------------------------

COMMITTED = DecodeOptions(read_committed=True)


def sent(offset: int, producer: int, count: int = 2) -> bytes:
    """A batch of a transaction."""
    records = [Record(offset + i) for i in range(count)]
    return encode_batch(records, producer_id=producer, transactional=True)


def offsets(data: bytes, aborted: Sequence[tuple[int, int]], options: DecodeOptions = COMMITTED) -> list[int]:
    transactions = [Aborted(producer, first) for producer, first in aborted]
    found: list[int] = decode(data, 0, END, options, transactions).offset.to_pylist()
    return found


def test_what_exceeds_the_cap_together_is_decoded_in_several_calls_without_aborted_records() -> None:
    data = b"".join(
        encode_batch([Record(i, 0, None, bytes(3_000))], codec="lz4", producer_id=7 + i % 2, transactional=True)
        for i in range(8)
    )
    data += end_marker(8, 7, ABORT) + end_marker(9, 8, COMMIT)
    frames = Frames(data, 0, END)
    options = DecodeOptions(read_committed=True, max_decompressed_bytes=7_000)
    position, seen = 0, []
    while position < 10:
        decoded = records.decode(frames, position, options, [Aborted(7, 0)])
        seen.append(decoded.offset.to_pylist())
        position = decoded.next_offset
    assert seen == [[1, 3], [5, 7]]


TWO_ABORTED = sent(0, 7) + end_marker(2, 7, ABORT) + sent(3, 7) + end_marker(5, 7, COMMIT) + sent(6, 7)
PLAIN = encode_batch([Record(2)], producer_id=7)
EMPTIED = encode_batch([], base_offset=2, producer_id=7, transactional=True, control=True)
ABORTED = {
    "two transactions, told in another order": (TWO_ABORTED + end_marker(8, 7, ABORT), [(7, 6), (7, 0)], [3, 4]),
    "a batch outside of transactions": (sent(0, 7) + PLAIN + end_marker(3, 7, ABORT), [(7, 0)], [2]),
    "a marker that compaction has emptied": (sent(0, 7) + EMPTIED + sent(3, 7), [(7, 0)], []),
    "an unknown kind of marker": (sent(0, 7) + end_marker(2, 7, 5) + sent(3, 7), [(7, 0)], []),
}


@pytest.mark.parametrize(("data", "aborted", "seen"), ABORTED.values(), ids=ABORTED)
def test_records_of_aborted_transactions_are_hidden_up_to_the_marker_and_no_others(
    data: bytes, aborted: list[tuple[int, int]], seen: list[int]
) -> None:
    assert offsets(data, aborted) == seen


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_control_record_without_a_type_is_refused(key: bytes | None) -> None:
    control = encode_batch([Record(2, key=key)], producer_id=7, transactional=True, control=True)
    with pytest.raises(DecodeError, match=r"offset 2: .*a control record") as caught:
        offsets(sent(0, 7) + control, [(7, 0)])
    assert caught.value.next_offset == 3


def test_a_damaged_control_record_is_refused() -> None:
    control = bytearray(end_marker(2, 7, ABORT))
    control[61] = 0x7E
    with pytest.raises(DecodeError, match="offset 2"):
        offsets(sent(0, 7) + reseal(bytes(control)), [(7, 0)])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from(["send", "plain", "abort", "commit"]), st.integers(1, 3)), max_size=14),
    aborted=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=4),
    start=st.integers(0, 20),
)
def test_random_transactions_equal_the_reference(
    steps: list[tuple[str, int]], aborted: list[tuple[int, int]], start: int
) -> None:
    data, offset = b"", 0
    for what, producer in steps:
        if what == "send":
            data, offset = data + sent(offset, producer), offset + 2
        elif what == "plain":
            data, offset = data + encode_batch([Record(offset)]), offset + 1
        else:
            data, offset = data + end_marker(offset, producer, ABORT if what == "abort" else COMMIT), offset + 1
    decoded = decode(data, start, END, COMMITTED, [Aborted(*a) for a in aborted])
    rows, next_offset = reference.decode(data, start, END, read_committed=True, aborted=aborted)
    assert decoded.offset.to_pylist() == [row.offset for row in rows]
    assert decoded.next_offset == next_offset
