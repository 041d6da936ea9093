"""Messages of Kafka 0.7 to rows: captured bytes, and equal to the scalar reference on whatever is thrown at both."""

from __future__ import annotations

import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import ChecksumMismatch, DecodeError, TooLarge, UnsupportedCodec
from streamgroup.kafka.records import messages07
from streamgroup.kafka.records.decode import DecodeOptions, record_batches, schema
from streamgroup.kafka.records.messages07 import Frames07, walk07
from tests.unit.kafka.records import reference, reference_sets
from tests.unit.kafka.records.encoder_sets import message07, wrapper07
from tests.unit.kafka.records.rows import decode07

pytestmark = pytest.mark.usefixtures("kernel")

EVERYTHING = DecodeOptions(include_inner_index=True)
UNCHECKED = DecodeOptions(include_inner_index=True, check_crcs=False)
END = 2**62
CODECS = ["gzip", "snappy", "snappy-raw"]

relaxed = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def captured() -> dict[str, bytes]:
    """The message sets that a broker of Kafka 0.7.2 sent or was sent, by what the samples call them."""
    found: dict[str, bytes] = {}
    for name, request, answer in re.findall(
        r"^(\S.*)\n  > ([0-9a-f]+)\n  < (\S+)",
        (Path(__file__).parents[3] / "vectors" / "kafka07.txt").read_text(),
        re.MULTILINE,
    ):
        if name.startswith("FETCH") and answer.startswith("0000") and answer[8:12] == "0000":
            found.setdefault(f"{name}: {len(answer)}", bytes.fromhex(answer[12:]))
        elif name.startswith("PRODUCE") and name != "PRODUCE bad crc":
            body = bytes.fromhex(request)
            topic = int.from_bytes(body[6:8], "big")
            found[name] = body[8 + topic + 8 :]
    return found


CAPTURED = captured()
WHOLE = {name: data for name, data in CAPTURED.items() if data and walk07(data, 0).next_offset == len(data)}
PAYLOADS = {
    "PRODUCE one magic-1 message": [b"hello"],
    "PRODUCE two magic-0": [b"zero-a", b"zero-b"],
    "PRODUCE gzip(magic1 x3)": [b"g-a", b"g-b", b"g-c"],
    "PRODUCE gzip(magic0 x2)": [b"z-a", b"z-b"],
    "PRODUCE snappy xerial": [b"s-a", b"s-b"],
    "PRODUCE snappy RAW": [b"s-a", b"s-b"],
}


def rows_of(decoded: Any) -> list[tuple[bytes, int, int]]:
    for column in (decoded.key, decoded.value, decoded.offset, decoded.timestamp, decoded.timestamp_type):
        column.validate(full=True)
        assert len(column) == decoded.num_rows
    assert decoded.key.null_count == decoded.num_rows
    assert set(decoded.timestamp_type.to_pylist()) <= {-1}
    assert set(decoded.timestamp.cast("int64").to_pylist()) <= {-1_000}
    columns = (decoded.value, decoded.offset, decoded.inner)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def outcome(data: bytes, start: int, until: int = END, options: DecodeOptions = EVERYTHING) -> Any:
    try:
        decoded = decode07(data, start, until, options)
    except DecodeError as error:
        return "refused" if f"position {error.base_offset}" in str(error) else f"without a position: {error}"
    return rows_of(decoded), decoded.next_offset


def expected(data: bytes, start: int, until: int = END, check_crcs: bool = True) -> Any:
    try:
        return reference_sets.decode07(data, start, until, check_crcs=check_crcs)
    except reference.Refused:
        return "refused"


@pytest.mark.parametrize("begin", PAYLOADS)
def test_captured_messages(begin: str) -> None:
    (data,) = (data for name, data in WHOLE.items() if name.startswith(begin))
    rows, next_offset = outcome(data, 1_000)
    assert [row[0] for row in rows] == PAYLOADS[begin]
    assert next_offset == 1_000 + len(data)
    assert (rows, next_offset) == expected(data, 1_000)


@pytest.mark.parametrize("name", CAPTURED)
def test_all_captured_bytes_equal_the_reference(name: str) -> None:
    assert outcome(CAPTURED[name], 77) == expected(CAPTURED[name], 77) != "refused"


def test_captured_gzip_in_gzip_is_one_wrapper() -> None:
    (data,) = (data for name, data in WHOLE.items() if name.startswith("PRODUCE gzip in gzip"))
    rows, next_offset = outcome(data, 0)
    assert next_offset == 92
    assert [row[1:] for row in rows] == [(0, index) for index in range(len(rows))]
    assert len(rows) > 1


def test_inner_messages_share_the_offset_of_their_wrapper() -> None:
    """The set a [gzip b, c] d [snappy e, f] of a real broker; what compresses otherwise begins elsewhere."""
    parts = [
        message07(b"a"),
        wrapper07(message07(b"b") + message07(b"c"), "gzip"),
        message07(b"d", magic=0),
        wrapper07(message07(b"e") + message07(b"f"), "snappy"),
    ]
    starts = [sum(map(len, parts[:index])) for index in range(5)]
    assert starts[1] == 11
    assert starts[3] - starts[2] == 10
    rows, next_offset = outcome(b"".join(parts), 0)
    a, b, d, e, end = starts
    assert rows == [(b"a", a, 0), (b"b", b, 0), (b"c", b, 1), (b"d", d, 0), (b"e", e, 0), (b"f", e, 1)]
    assert next_offset == end
    walk = walk07(b"".join(parts), 0, check_crcs=True)
    assert (walk.boundaries.tolist(), walk.truncated) == (starts, False)


@st.composite
def sets(draw: st.DrawFn, depth: int = 0) -> bytes:
    """A message set: uncompressed messages of both magics, wrappers, wrappers in wrappers."""
    out = b""
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["plain", "plain", "magic 0", "wrapper"]))
        payload = draw(st.binary(max_size=60))
        if kind == "wrapper" and depth < 3:
            out += wrapper07(draw(sets(depth + 1)), draw(st.sampled_from(CODECS)))
        else:
            attributes = draw(st.sampled_from([0, 0, 4, 0xFC]))
            out += message07(payload, magic=0) if kind == "magic 0" else message07(payload, 1, attributes)
    return out


@pytest.mark.slow
@relaxed
@given(data=sets(), start=st.integers(0, 2**40), cut=st.integers(0, 40))
def test_random_sets_equal_the_reference(data: bytes, start: int, cut: int) -> None:
    assert outcome(data, start) == expected(data, start)
    assert outcome(data[: len(data) - cut], start) == expected(data[: len(data) - cut], start)
    boundaries = walk07(data, start, check_crcs=True).boundaries.tolist()
    assert boundaries[-1] == start + len(data)
    for boundary in boundaries[1:]:
        assert outcome(data, start, boundary) == expected(data, start, boundary)
        assert outcome(data[boundary - start :], boundary) == expected(data[boundary - start :], boundary)


@pytest.mark.slow
@relaxed
@given(data=sets(), start=st.integers(0, 2**40), changes=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255))))
def test_damage_gives_the_references_rows_or_an_error(
    data: bytes, start: int, changes: list[tuple[float, int]]
) -> None:
    damaged = bytearray(data)
    for place, bits in changes:
        damaged[int(place * (len(data) - 1))] ^= bits
    assert outcome(bytes(damaged), start) == expected(bytes(damaged), start)
    found = outcome(bytes(damaged), start, options=UNCHECKED)
    assert found == "refused" or isinstance(found, tuple)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_each_flipped_bit_is_refused_or_changes_no_row_but_for_what_means_nothing(name: str) -> None:
    data = WHOLE[name]
    sound, _ = outcome(data, 0)
    for index in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[index] ^= 1 << bit
            found = outcome(bytes(damaged), 0)
            assert found == expected(bytes(damaged), 0)
            if found != "refused":
                # No checksum covers lengths and attributes: a message may seem cut off, or plain where it is a wrapper.
                # What there is of payloads is what was there.
                known = [row[0] for row in sound]
                assert all(row[0] in known or row[0] in data for row in found[0])


def test_a_position_that_is_no_boundary_is_named_wherever_it_is() -> None:
    data = message07(b"first message") + wrapper07(message07(b"x" * 300), "gzip") + message07(b"last", magic=0)
    boundaries = set(walk07(data, 0).boundaries.tolist())
    for position in range(len(data)):
        if position in boundaries:
            continue
        rest = data[position:]
        # Where what would be its length reaches beyond the bytes it is, to the caller, larger than the fetch.
        assert outcome(rest, position) in ("refused", ([], position))


def test_text_where_a_length_should_be_is_no_message_that_is_still_to_come() -> None:
    with pytest.raises(DecodeError, match=r"position 5: .* no message begins there"):
        decode07(b'{"a"\x01 and more of a payload', 5, END, EVERYTHING)


def test_a_plausible_length_off_a_boundary_is_found_out_by_the_checksum() -> None:
    fake = message07(b"inside")[:-1] + b"!"
    data = message07(b"ab" + fake + b"cd")
    position = data.index(fake)
    with pytest.raises(ChecksumMismatch, match=f"position {position}: .*no message begins there") as caught:
        decode07(data[position:], position, END, EVERYTHING)
    assert (caught.value.base_offset, caught.value.next_offset) == (position, None)
    assert walk07(data[position : position + len(fake)], position).next_offset == position + len(fake)
    with pytest.raises(ChecksumMismatch, match=f"position {position}"):
        walk07(data[position:], position, check_crcs=True)


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_a_damaged_message_before_a_sound_one_can_be_stepped_over(codec: str | None) -> None:
    one = message07(b"one")
    two = bytearray(wrapper07(message07(b"two"), codec) if codec else message07(b"two"))
    two[-1] ^= 1
    data = one + bytes(two) + message07(b"three")
    with pytest.raises(ChecksumMismatch, match=f"position {500 + len(one)}") as caught:
        decode07(data, 500, END, EVERYTHING)
    assert caught.value.base_offset == 500 + len(one)
    assert caught.value.next_offset == 500 + len(one) + len(two)


def test_until_inside_of_a_message_is_no_boundary() -> None:
    data = message07(b"one") + wrapper07(message07(b"two"), "gzip")
    for until in range(14, len(data)):
        with pytest.raises(DecodeError, match=f"position {until}: the message at 13 reaches beyond it") as caught:
            decode07(data, 0, until, EVERYTHING)
        assert caught.value.base_offset == until
    assert decode07(data, 0, 13, EVERYTHING).next_offset == 13


def test_nothing_at_until_or_beyond_is_looked_at() -> None:
    data = message07(b"one") + b"\xff" * 40
    assert outcome(data, 5, 18) == ([(b"one", 5, 0)], 18)
    assert walk07(data, 5, 18).boundaries.tolist() == [5, 18]
    assert walk07(data, 5, 5).boundaries.tolist() == [5]
    with pytest.raises(DecodeError, match="position 18"):
        walk07(data, 5)


def test_an_empty_fetch() -> None:
    assert outcome(b"", 9) == ([], 9)


XERIAL_HEADER = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
NOTHING = {codec: wrapper07(b"", codec) for codec in CODECS} | {
    "a length of zero before other bytes": message07(b"\0" + b"x" * 42, 1, 2),
    "a xerial header alone": message07(XERIAL_HEADER, 1, 2),
    "nothing in a wrapper in a wrapper": wrapper07(wrapper07(b"", "gzip"), "snappy"),
    "nothing in a wrapper beside a message": wrapper07(wrapper07(b"", "gzip") + message07(b"x"), "gzip"),
}


@pytest.mark.parametrize("wrapper", NOTHING.values(), ids=NOTHING)
def test_a_wrapper_without_a_message_is_an_error_that_can_be_stepped_over(wrapper: bytes) -> None:
    assert expected(wrapper, 9) == "refused"
    for before in (b"", message07(b"a"), wrapper07(message07(b"a"), "gzip")):
        position = 9 + len(before)
        with pytest.raises(DecodeError, match=f"the message at position {position}: ") as caught:
            decode07(before + wrapper + message07(b"b"), 9, END, EVERYTHING)
        assert (caught.value.base_offset, caught.value.next_offset) == (position, position + len(wrapper))


def test_a_partial_message_at_the_end_is_left_for_the_next_fetch() -> None:
    for second in (message07(b"second"), wrapper07(message07(b"second"), "snappy")):
        for size in range(1, len(second)):
            decoded = decode07(message07(b"one") + second[:size], 3, END, EVERYTHING)
            assert (decoded.num_rows, decoded.next_offset, decoded.truncated) == (1, 16, True)
            walk = walk07(second[:size], 3)
            assert (walk.starts.tolist(), walk.next_offset, walk.truncated) == ([], 3, True)


def test_codec_3_is_refused_inside_and_outside() -> None:
    for data in (message07(b"x", 1, 3), wrapper07(message07(b"x", 1, 7), "gzip")):
        with pytest.raises(UnsupportedCodec, match="position 20: compressed by codec 3") as caught:
            decode07(data, 20, END, EVERYTHING)
        assert (caught.value.base_offset, caught.value.next_offset) == (20, 20 + len(data))


def test_damage_in_an_inner_message_is_found_under_a_right_outer_checksum() -> None:
    inner = bytearray(message07(b"one") + message07(b"two"))
    inner[-1] ^= 1
    for data in (wrapper07(bytes(inner), "gzip"), wrapper07(wrapper07(bytes(inner), "snappy"), "gzip")):
        with pytest.raises(ChecksumMismatch, match="the message at position 8:"):
            decode07(data, 8, END, EVERYTHING)


def test_wrappers_are_nested_so_deep_and_no_deeper() -> None:
    data = message07(b"x")
    for depth in range(1, 12):
        data = wrapper07(data, "gzip")
        if depth <= 8:
            assert outcome(data, 0)[0] == [(b"x", 0, 0)]
        else:
            with pytest.raises(DecodeError, match="position 0: compressed messages are nested more than 8 deep"):
                decode07(data, 0, END, EVERYTHING)


def test_what_exceeds_the_cap_together_is_decoded_in_several_calls() -> None:
    parts = [wrapper07(message07(bytes(3_000)) * 2, "gzip") for _ in range(3)] + [message07(bytes(9_000))]
    data = b"".join(parts)
    frames = Frames07(data, 500, END)
    position, seen = 500, []
    while position < 500 + len(data):
        decoded = messages07.decode07(frames, position, DecodeOptions(max_decompressed_bytes=14_000))
        seen.append(decoded.offset.to_pylist())
        position = decoded.next_offset
    first, second, third, last = (500 + sum(map(len, parts[:index])) for index in range(4))
    assert seen == [[first, first, second, second], [third, third, last]]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_memory(codec: str, nested: bool) -> None:
    cap = 256 << 10
    bomb = wrapper07(message07(bytes(16 * cap)), codec)
    data = wrapper07(bomb, "gzip") if nested else bomb
    decode07(message07(b"x"), 0, END, EVERYTHING)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"position 6: .*maxDecompressedBytes is 262144"):
            decode07(data, 6, END, DecodeOptions(max_decompressed_bytes=cap))
        assert tracemalloc.get_traced_memory()[1] < 3 * cap + 4 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("headers", [False, True])
def test_record_batches_have_the_columns_that_were_asked_for(inner: bool, headers: bool) -> None:
    data = message07(b"a") + wrapper07(message07(b"b") + message07(b"c"), "gzip")
    decoded = decode07(data, 0, END, DecodeOptions(include_headers=headers, include_inner_index=inner))
    (batch,) = record_batches(decoded, "t", 10_002)
    assert batch.schema.equals(schema(headers, inner), check_metadata=True)
    rows = batch.to_pylist()
    assert [(row["key"], row["value"], row["partition"], row["offset"]) for row in rows] == [
        (None, b"a", 10_002, 0),
        (None, b"b", 10_002, 11),
        (None, b"c", 10_002, 11),
    ]
    assert [row.get("inner") for row in rows] == ([0, 0, 1] if inner else [None] * 3)
    assert [row.get("headers") for row in rows] == [None] * 3


def test_many_rows_are_the_references() -> None:
    parts = [
        wrapper07(b"".join(message07(b"%d-%d" % (i, j)) for j in range(30)), CODECS[i % 3])
        if i % 4
        else message07(b"p")
        for i in range(120)
    ]
    assert outcome(b"".join(parts), 12) == expected(b"".join(parts), 12)


def test_a_fetch_of_small_messages_is_walked_soon() -> None:
    data = message07(b"v" * 90) * 40_000
    began = time.thread_time()
    assert len(walk07(data, 0).starts) == 40_000
    assert time.thread_time() - began < 0.5
