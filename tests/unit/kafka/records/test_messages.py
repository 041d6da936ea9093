"""Message sets of magic 0 and 1 become rows, the same as by the scalar reference."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge, UnsupportedCodec
from streamgroup.kafka.records import decode as records
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import DecodeOptions, record_batches, schema
from tests.unit.kafka.records import encoder_sets, reference, reference_sets
from tests.unit.kafka.records.encoder import Record, encode_batch
from tests.unit.kafka.records.encoder_sets import COMPRESS, Message, encode_message, encode_set, encode_wrapper, seal
from tests.unit.kafka.records.rows import decode, outcome

pytestmark = pytest.mark.usefixtures("kernel")

UNCHECKED = DecodeOptions(check_crcs=False)
END = 2**62
CODECS = [codec for codec in COMPRESS if codec != "none"]

relaxed = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
payloads = st.none() | st.binary(max_size=120)
stamps = st.integers(-1, 2**41) | st.sampled_from([10**18, 2**63 - 1, -(2**63)])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """The bytes of a partition that has seen several formats: uncompressed messages, wrappers, batches, with gaps."""
    out, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        messages = []
        for _ in range(draw(st.integers(1, 6))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 70]))
            messages.append(Message(offset, draw(payloads), draw(payloads), draw(stamps)))
            offset += 1
        magic = draw(st.sampled_from([0, 1, 1, 2]))
        append_time = draw(st.none() | st.integers(0, 2**41))
        match draw(st.sampled_from(["plain", "wrapper", "wrapper", "absolute"])) if magic < 2 else "batch":
            case "plain":
                out += encode_set(messages, magic, 8 if magic and append_time is not None else 0)
            case "batch":
                records = [Record(m.offset, m.timestamp, m.key, m.value) for m in messages]
                out += encode_batch(records, codec=draw(st.sampled_from(["none", "lz4"])), log_append_time=append_time)
            case kind:
                append_time = append_time if magic else None
                codec = draw(st.sampled_from(CODECS))
                relative = kind == "wrapper"
                out += encode_wrapper(messages, codec, magic, relative=relative, log_append_time=append_time)
    return out


def expected(data: bytes, start: int, until: int, check_crcs: bool = True) -> Any:
    try:
        return reference_sets.decode(data, start, until, check_crcs=check_crcs)
    except reference.Refused:
        return "refused"


@pytest.mark.slow
@relaxed
@given(data=logs(), cut=st.integers(0, 80), left=st.integers(0, 30), right=st.integers(0, 30))
def test_random_logs_of_mixed_formats_equal_the_reference(data: bytes, cut: int, left: int, right: int) -> None:
    rows, _ = expected(data, 0, END)
    first = rows[0].offset
    data = data[: len(data) - cut]
    start, until = first + left, first + left + right
    for bounds in ((0, END), (start, until), (start, END), (0, until)):
        assert outcome(data, *bounds) == expected(data, *bounds)


@pytest.mark.slow
@relaxed
@given(data=logs(), position=st.integers(0, 2**41))
def test_the_look_ahead_knows_what_decode_will_say(data: bytes, position: int) -> None:
    ahead = Frames(data, 0, position).next_offset
    assert ahead == decode(data, 0, position, DecodeOptions()).next_offset


@pytest.mark.slow
@relaxed
@given(data=logs(), changes=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=3))
def test_damage_gives_the_references_rows_or_an_error(data: bytes, changes: list[tuple[float, int]]) -> None:
    damaged = bytearray(data)
    for place, bits in changes:
        damaged[int(place * (len(data) - 1))] ^= bits
    # Codecs differ in what damage they notice; behind the checksums nothing of it is left to them.
    assert outcome(bytes(damaged), 0, END) == expected(bytes(damaged), 0, END)
    found = outcome(bytes(damaged), 0, END, UNCHECKED)
    assert found == "refused" or isinstance(found, tuple)


@relaxed
@given(body=st.binary(max_size=200), magic=st.integers(0, 1), data=st.data())
def test_any_bytes_as_a_message_give_the_references_rows_or_an_error(
    body: bytes, magic: int, data: st.DataObject
) -> None:
    attributes = data.draw(st.sampled_from([0, 0, 8, 1, 2, 3, 5]))
    message = encode_message(Message(7, b"v" * 5, b"k", 9), magic)
    for damaged in (
        seal(3, bytes([magic, attributes]) + body),
        encoder_sets.reseal(message[: 18 + data.draw(st.integers(0, 8))] + body + message[30:]),
    ):
        sized = damaged[:8] + (len(damaged) - 12).to_bytes(4, "big") + damaged[12:]
        assert outcome(sized, 0, END) == expected(sized, 0, END)


SAMPLE = [Message(10, b"v" * 5, b"k", 1_000), Message(11, b"", None, 999), Message(15, None, b"", 2**40)]
SETS = {
    f"{codec} {magic}": encode_wrapper(SAMPLE, codec, magic) if codec != "none" else encode_set(SAMPLE, magic)
    for magic in (0, 1)
    for codec in COMPRESS
}


@pytest.mark.parametrize("data", SETS.values(), ids=SETS)
def test_every_codec_and_magic(data: bytes) -> None:
    rows, next_offset = outcome(data, 0, END)
    assert [(row.key, row.value, row.offset) for row in rows] == [(m.key, m.value, m.offset) for m in SAMPLE]
    assert next_offset == 16
    magic = data[16]
    assert [row.timestamp for row in rows] == [m.timestamp * 1000 if magic else -1_000 for m in SAMPLE]
    assert {row.timestamp_type for row in rows} == {0 if magic else -1}


@pytest.mark.slow
@pytest.mark.parametrize("data", SETS.values(), ids=SETS)
def test_each_flipped_bit_is_refused_or_changes_no_row(data: bytes) -> None:
    sound = outcome(data, 0, END)
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    # No checksum covers offset and size.
    uncovered = {start + byte for start in starts for byte in range(12)}
    for index in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[index] ^= 1 << bit
            found = outcome(bytes(damaged), 0, END)
            if found != "refused":
                assert index in uncovered
                assert found == expected(bytes(damaged), 0, END)
                assert [row[:2] for row in found[0]] == [row[:2] for row in sound[0]][: len(found[0])]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_codec_in_large(codec: str, magic: int) -> None:
    chance = random.Random(codec)
    messages = [
        Message(i, chance.randbytes(i % 90) * 3, b"key-%d" % i if i % 3 else None, 10**12 + i) for i in range(1_500)
    ]
    data = b"".join(encode_wrapper(messages[i : i + 500], codec, magic) for i in range(0, 1_500, 500))
    data += encode_set([Message(1_500, b"x")], magic)
    assert outcome(data, 0, END) == expected(data, 0, END)
    assert outcome(data, 700, 1_200) == expected(data, 700, 1_200)


def test_a_wrapper_returns_earlier_offsets_than_asked() -> None:
    data = encode_wrapper([Message(i, b"%d" % i) for i in range(90, 110)], "gzip", 1)
    decoded = decode(data, 100, 105, DecodeOptions())
    assert decoded.offset.to_pylist() == [100, 101, 102, 103, 104]
    assert decoded.next_offset == 110


def test_a_wrapper_whose_own_offset_is_beyond_until_holds_what_is_wanted() -> None:
    wrapper = encode_wrapper([Message(i, b"%d" % i) for i in range(100, 110)], "snappy", 1)
    decoded = decode(wrapper, 100, 103, DecodeOptions())
    assert (decoded.offset.to_pylist(), decoded.next_offset) == ([100, 101, 102], 110)
    for cut in range(len(wrapper)):  # cut off it must be fetched again, however little of it is there
        decoded = decode(wrapper[:cut], 100, 103, DecodeOptions())
        assert (decoded.num_rows, decoded.next_offset, decoded.truncated) == (0, 100, cut > 0)


def test_compacted_wrappers_have_gaps_and_relative_offsets_that_begin_anywhere() -> None:
    inner = encode_set([Message(3, b"a"), Message(7, b"b")], 1)
    data = encode_wrapper([], "gzip", 1, offset=1_007, inner=inner)
    rows, next_offset = outcome(data, 0, END)
    assert ([row.offset for row in rows], next_offset) == ([1_003, 1_007], 1_008)


def test_absolute_inner_offsets_that_a_client_wrote_in_magic_1() -> None:
    data = encode_wrapper([Message(500, b"a"), Message(501, b"b")], "lz4", 1, relative=False)
    assert [row.offset for row in outcome(data, 0, END)[0]] == [500, 501]


@pytest.mark.parametrize(
    ("inner", "magic"),
    [
        *[([5, 4], 1), ([5, 5], 1), ([-2, -1], 1), ([0, 90], 1)],
        *[([3, 4], 0), ([9, 11], 0), ([0, 1], 0), ([8, 8], 0)],
        *[([10, 11], 1), ([11], 1), ([9, 12], 1)],  # beyond the wrapper's offset, from which they would count back
    ],
)
def test_inner_offsets_that_cannot_be_are_an_error(inner: list[int], magic: int) -> None:
    before = encode_message(Message(8), magic)
    data = encode_wrapper([], "gzip", magic, offset=10, inner=encode_set([Message(i, b"x") for i in inner], magic))
    with pytest.raises(DecodeError, match="up to offset 10: the offsets") as caught:
        decode(before + data, 9, END, DecodeOptions())
    assert (caught.value.base_offset, caught.value.next_offset) == (9, 11)


XERIAL_HEADER = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
NOTHING = {codec: (encoder_sets.CODEC_NUMBERS[codec], COMPRESS[codec](b"")) for codec in CODECS} | {
    "a length of zero before other bytes": (2, b"\0" + b"x" * 42),
    "a xerial header alone": (2, XERIAL_HEADER),
    "a xerial block of nothing": (2, XERIAL_HEADER + b"\0\0\0\1\0"),
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("codec", "value"), NOTHING.values(), ids=NOTHING)
def test_a_wrapper_without_a_message_is_an_error_as_in_java(codec: int, value: bytes, magic: int) -> None:
    """Java: `Found invalid compressed record set with no inner records`, or the codec's own error."""
    sound = encode_message(Message(5, b"x"), magic)
    wrapper = encode_message(Message(11, value), magic, codec)
    for before in (b"", sound, encode_wrapper([Message(5, b"x")], "gzip", magic)):
        assert expected(before + wrapper, 0, END) == "refused"
        with pytest.raises(DecodeError, match="the compressed messages up to offset 11: ") as caught:
            decode(before + wrapper + encode_message(Message(12), magic), 0, END, DecodeOptions())
        assert (caught.value.base_offset, caught.value.next_offset) == (6 if before else 0, 12)
        assert decode(before + wrapper, 12, END, DecodeOptions()).num_rows == 0


@pytest.mark.parametrize(
    ("magic", "append_time", "times", "kinds"),
    [(1, None, [-1, 99], [0, 0]), (1, 77, [-1, 77], [1, 1]), (0, None, [-1, 99], [-1, -1])],
)
@pytest.mark.parametrize("attributes", [0, 8])
def test_the_wrapper_says_the_timestamp_type_of_inner_messages_of_either_magic(
    magic: int, append_time: int | None, times: list[int], kinds: list[int], attributes: int
) -> None:
    """As Java's consumer has it: a record's type is its batch's, and a message of magic 0 has the timestamp -1."""
    inner = encode_message(Message(0, b"a"), 0) + encode_message(Message(1, b"b", None, 99), 1, attributes)
    data = encode_wrapper([], "gzip", magic, offset=1, inner=inner, log_append_time=append_time)
    rows, _ = outcome(data, 0, END)
    assert (rows, 2) == expected(data, 0, END)
    assert [row.timestamp for row in rows] == [time * 1000 for time in times]
    assert [row.timestamp_type for row in rows] == kinds


def test_a_plain_message_with_log_append_time_keeps_its_own() -> None:
    rows, _ = outcome(encode_message(Message(0, b"x", None, 5), 1, 8), 0, END)
    assert (rows[0].timestamp, rows[0].timestamp_type) == (5_000, 1)


def test_damage_in_an_inner_message_is_found_under_a_right_outer_checksum() -> None:
    inner = bytearray(encode_set(SAMPLE, 1))
    inner[-1] ^= 1
    data = encode_message(Message(1, b"sound"), 1) + encode_wrapper([], "gzip", 1, offset=15, inner=bytes(inner))
    with pytest.raises(ChecksumMismatch, match="up to offset 15") as caught:
        decode(data, 0, END, DecodeOptions())
    assert (caught.value.base_offset, caught.value.next_offset) == (2, 16)


def test_a_damaged_plain_message_is_named_among_its_neighbours() -> None:
    data = bytearray(encode_set([Message(i, b"%d" % i) for i in range(50)], 1))
    place = bytes(data).index(encode_message(Message(30, b"30"), 1)) + 33
    data[place] ^= 1
    with pytest.raises(ChecksumMismatch, match="the message at offset 30") as caught:
        decode(bytes(data), 0, END, DecodeOptions())
    assert (caught.value.base_offset, caught.value.next_offset) == (30, 31)
    assert decode(bytes(data), 31, END, DecodeOptions()).offset.to_pylist() == list(range(31, 50))
    assert decode(bytes(data), 0, 30, DecodeOptions()).num_rows == 30


def test_messages_that_go_backwards_are_an_error() -> None:
    data = encode_set([Message(5), Message(6), Message(6)], 0)
    with pytest.raises(DecodeError, match="offset 6: the one before it has offset 6"):
        decode(data, 0, END, DecodeOptions())


@pytest.mark.parametrize("magic", [0, 1])
def test_a_partial_message_at_the_end_is_left_for_the_next_fetch(magic: int) -> None:
    whole, second = encode_message(Message(3, b"a"), magic), encode_message(Message(4, b"b"), magic)
    for size in range(1, len(second)):
        decoded = decode(whole + second[:size], 3, END, DecodeOptions())
        assert (decoded.num_rows, decoded.next_offset, decoded.truncated) == (1, 4, True)
        decoded = decode(second[:size], 4, END, DecodeOptions())
        assert (decoded.num_rows, decoded.next_offset, decoded.truncated) == (0, 4, True)


def test_a_gap_up_to_until_ends_the_range_at_a_plain_message_only() -> None:
    plain, wrapper = (encode_set([Message(9, b"x")], 1), encode_wrapper([Message(4, b"x"), Message(9)], "gzip", 1))
    assert decode(encode_message(Message(3), 1) + plain[:18], 3, 6, DecodeOptions()).next_offset == 9
    assert decode(encode_message(Message(3), 1) + wrapper[:18], 3, 6, DecodeOptions()).next_offset == 4


def test_runs_end_at_start_so_that_nothing_before_it_is_looked_into() -> None:
    damaged = bytearray(encode_message(Message(0, b"x"), 1))
    damaged[-1] ^= 1
    data = bytes(damaged) + encode_set([Message(1, b"y"), Message(2, b"z")], 1)
    assert decode(data, 1, END, DecodeOptions()).value.to_pylist() == [b"y", b"z"]


def test_a_wrapper_without_a_value_or_with_bytes_left_over() -> None:
    with pytest.raises(DecodeError, match="up to offset 3: it has no value"):
        decode(encode_message(Message(3), 1, attributes=1), 0, END, DecodeOptions())
    wrapper = encode_wrapper([Message(3)], "gzip", 0)
    with pytest.raises(DecodeError, match="up to offset 3: its value has"):
        decode(seal(3, wrapper[16:] + b"\0"), 0, END, DecodeOptions())


def test_an_unknown_codec() -> None:
    with pytest.raises(UnsupportedCodec, match=r"offset 3.*codec 6") as caught:
        decode(encode_message(Message(3, b"abc"), 1, attributes=6), 0, END, DecodeOptions())
    assert caught.value.next_offset == 4


def test_an_lz4_frame_whose_header_checksum_is_neither_of_the_two() -> None:
    wrapper = bytearray(encode_wrapper([Message(3, b"abc" * 50)], "lz4", 0))
    frame = wrapper.index(b"\x04\x22\x4d\x18")
    wrapper[frame + 6 + (8 if wrapper[frame + 4] & 8 else 0)] ^= 0x55
    with pytest.raises(DecodeError, match="up to offset 3: its lz4 data has a frame with a damaged header"):
        decode(encoder_sets.reseal(bytes(wrapper)), 0, END, DecodeOptions())


def test_a_timestamp_that_fits_no_microseconds_is_null() -> None:
    rows = [Message(4, b"x", None, 10**18), Message(5, b"y", None, 6)]
    appended = encode_wrapper([Message(4, b"x")], "gzip", 1, log_append_time=10**18)
    cases = ((encode_set(rows, 1), [None, 6_000]), (encode_wrapper(rows, "gzip", 1), [None, 6_000]), (appended, [None]))
    for data, stamps in cases:
        found, _ = outcome(data, 0, END)
        assert [row.timestamp for row in found] == stamps
    in_ms = decode(encode_set(rows, 1), 0, END, DecodeOptions(timestamps_in_ms=True))
    assert in_ms.timestamp.to_pylist() == [10**18, 6]


def test_headers_are_null_and_inner_is_0_where_they_are_asked_for() -> None:
    data = encode_set([Message(0, b"a")], 0) + encode_batch([Record(1, value=b"b", headers=(("h", b"1"),))])
    for part, headers in ((data, [None, [{"key": "h", "value": b"1"}]]), (encode_set([Message(0, b"a")], 0), [None])):
        decoded = decode(part, 0, END, DecodeOptions(include_headers=True, include_inner_index=True))
        (batch,) = record_batches(decoded, "t", 0)
        assert batch.schema.equals(schema(True, True))
        assert [row["headers"] for row in batch.to_pylist()] == headers
        assert batch.column("inner").to_pylist() == [0] * len(headers)


def test_read_committed_sees_all_messages_of_old_formats() -> None:
    data = encode_set(SAMPLE, 0) + encode_wrapper([Message(16, b"x")], "gzip", 1)
    assert decode(data, 0, END, DecodeOptions(read_committed=True)).num_rows == 4


def test_a_fetch_of_small_messages_is_looked_through_soon() -> None:
    data = encode_set([Message(i, b"v" * 70) for i in range(40_000)], 1)
    began = time.thread_time()
    assert Frames(data, 0, END).next_offset == 40_000
    assert time.thread_time() - began < 0.25


# -- nested wrappers, which no broker writes, and wrappers that expand too far ----------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_in_wrappers(magic: int) -> None:
    messages = [Message(20 + i, b"%d" % i) for i in range(6)]
    # In magic 1 each level counts from its own first offset.
    innermost = encode_wrapper(messages[2:5], "snappy", magic, offset=24 if magic == 0 else 4)
    shift = 20 if magic else 0
    edges = [Message(m.offset - shift, m.value) for m in messages]
    inner = encode_set(edges[:2], magic) + innermost + encode_set(edges[5:], magic)
    data = encode_message(Message(19, b"before"), magic) + encode_wrapper([], "gzip", magic, offset=25, inner=inner)
    assert outcome(data, 0, END) == expected(data, 0, END)
    assert [row.value for row in outcome(data, 20, END)[0]] == [m.value for m in messages]


def test_wrappers_are_nested_so_deep_and_no_deeper() -> None:
    data = encode_message(Message(3, b"x"), 1)
    for depth in range(1, 12):
        data = encode_wrapper([], "gzip", 1, offset=3, inner=data)
        if depth <= 8:
            assert [row.value for row in outcome(data, 0, END)[0]] == [b"x"]
        else:
            with pytest.raises(DecodeError, match="nested more than 8 deep"):
                decode(data, 0, END, DecodeOptions())


def test_damage_in_a_nested_wrapper_is_found() -> None:
    inner = bytearray(encode_wrapper([Message(0, b"xyz")], "snappy", 1))
    inner[-2] ^= 1
    data = encode_wrapper([], "gzip", 1, offset=3, inner=bytes(inner))
    with pytest.raises(ChecksumMismatch, match="up to offset 3"):
        decode(data, 0, END, DecodeOptions())


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_without_a_message_in_a_wrapper_is_an_error(magic: int) -> None:
    empty = encode_wrapper([], "snappy", magic, offset=0, inner=b"")
    for inner in (empty, empty + encode_message(Message(3, b"x"), magic)):
        data = encode_wrapper([], "gzip", magic, offset=3, inner=inner)
        assert outcome(data, 0, END) == expected(data, 0, END) == "refused"
        with pytest.raises(DecodeError, match="up to offset 3: it decompresses to nothing"):
            decode(data, 0, END, DecodeOptions())


def test_what_exceeds_the_cap_together_is_decoded_in_several_calls() -> None:
    data = b"".join(encode_wrapper([Message(i, bytes(3_000))], "snappy", 1) for i in range(5))
    data += encode_message(Message(5, bytes(9_000)), 1)  # plain: nothing is decompressed
    frames = Frames(data, 0, END)
    position, seen = 0, []
    while position < 6:
        decoded = records.decode(frames, position, DecodeOptions(max_decompressed_bytes=7_000))
        seen.append(decoded.offset.to_pylist())
        position = decoded.next_offset
    assert seen == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_memory(codec: str, nested: bool) -> None:
    cap = 256 << 10
    inner = encode_message(Message(0, bytes(16 * cap)), 1)
    wrapper = encode_wrapper([], codec, 1, offset=3, inner=inner)
    data = encode_wrapper([], "gzip", 1, offset=3, inner=wrapper) if nested else wrapper
    decode(encode_message(Message(0), 1), 0, END, DecodeOptions())
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"up to offset 3.*maxDecompressedBytes is 262144") as caught:
            decode(data, 0, END, DecodeOptions(max_decompressed_bytes=cap))
        # Wrapper and inner wrapper at once, and zlib's own buffer.
        assert tracemalloc.get_traced_memory()[1] < 3 * cap + 4 * len(data)
    finally:
        tracemalloc.stop()
    assert (caught.value.base_offset, caught.value.next_offset) == (0, 4)


def test_many_nested_wrappers_share_the_cap() -> None:
    one = encode_wrapper([Message(0, bytes(900))], "gzip", 1)
    inner = b"".join(encode_wrapper([], "gzip", 1, offset=i, inner=one) for i in range(40))
    data = encode_wrapper([], "gzip", 1, offset=39, inner=inner)
    with pytest.raises(TooLarge, match="up to offset 39"):
        decode(data, 0, END, DecodeOptions(max_decompressed_bytes=20_000))
    assert decode(data, 0, END, DecodeOptions()).num_rows == 40
