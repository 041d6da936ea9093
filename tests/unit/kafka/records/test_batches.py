"""The frames of fetched bytes: what a task fetches next, and which offsets damaged bytes cost."""

from __future__ import annotations

import struct

import pytest

from streamgroup.errors import ChecksumMismatch, DecodeError, UnsupportedMagic
from streamgroup.kafka.records.batches import Batch, Frames
from streamgroup.kafka.records.messages import UncompressedMessages, Wrapper
from tests.unit.kafka.records.encoder import CODECS, Record, encode_batch, end_marker, seal
from tests.unit.kafka.records.encoder_sets import Message, encode_message, encode_set, encode_wrapper

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
WRAPPER = encode_wrapper([Message(4, b"x"), Message(9)], "gzip", 1)


def batch(first: int, last: int | None = None, value: bytes = b"v") -> bytes:
    """A batch with one record at offset `first`, which covers the offsets up to `last`."""
    return encode_batch([Record(first, value=value)], last_offset=last)


def only(data: bytes) -> Batch:
    (frame,) = Frames(data, 0, END)
    assert isinstance(frame, Batch)
    return frame


def flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


# -- a header ---------------------------------------------------------------------------------------------------------


def test_a_header_has_the_fields_of_the_batch_and_its_place_in_the_fetch() -> None:
    before = batch(3)
    data = encode_batch([Record(10, 1_000), Record(12, 1_007)], last_offset=14, producer_id=7)
    _, found = Frames(before + data, 0, END)
    assert isinstance(found, Batch)
    assert (found.base_offset, found.last_offset_delta, found.last_offset, found.record_count) == (10, 4, 14, 2)
    assert (found.base_timestamp, found.max_timestamp) == (1_000, 1_007)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 0, 0)
    assert (found.begin, found.end, found.size) == (len(before), len(before) + len(data), len(data) - 12)


@pytest.mark.parametrize("codec", CODECS)
def test_the_attributes_name_the_codec(codec: str) -> None:
    assert only(encode_batch([Record(0)], codec=codec)).codec == CODECS.index(codec)


@pytest.mark.parametrize(
    ("data", "log_append_time", "transactional", "control"),
    [
        (encode_batch([Record(0)], codec="zstd"), False, False, False),
        (encode_batch([Record(0)], log_append_time=5), True, False, False),
        (encode_batch([Record(0)], producer_id=7, transactional=True), False, True, False),
        (end_marker(0, 7, 1), False, True, True),
    ],
    ids=["plain", "append time", "transactional", "end of a transaction"],
)
def test_the_attributes_tell_the_kind_of_the_batch(
    data: bytes, log_append_time: bool, transactional: bool, control: bool
) -> None:
    found = only(data)
    assert (found.log_append_time, found.transactional, found.control) == (log_append_time, transactional, control)


def test_an_error_about_a_batch_names_its_offset_and_the_one_that_steps_over_it() -> None:
    error = only(batch(10, 14)).error("a record is too long", DecodeError)
    assert str(error) == "the record batch at offset 10: a record is too long"
    assert (error.base_offset, error.next_offset) == (10, 15)
    unknown = only(batch(10))._replace(last_offset_delta=-1).error("x", DecodeError)
    assert (unknown.base_offset, unknown.next_offset) == (10, None)


# -- the walk ---------------------------------------------------------------------------------------------------------


def test_frames_come_as_runs_wrappers_and_batches() -> None:
    data = encode_set([Message(i) for i in range(5)], 0) + encode_set([Message(i) for i in range(5, 9)], 1)
    data += encode_wrapper([Message(9), Message(12)], "gzip", 1) + encode_batch([Record(13), Record(14)])
    frames = list(Frames(data, 2, END))
    assert [type(frame) for frame in frames] == [UncompressedMessages, UncompressedMessages, Wrapper, Batch]
    assert [(frame.base_offset, frame.last_offset) for frame in frames] == [(0, 1), (2, 8), (9, 12), (13, 14)]
    assert [frame.begin for frame in frames[1:]] == [frame.end for frame in frames[:-1]]


@pytest.mark.parametrize("wrapped", [bytes, bytearray, memoryview])
def test_the_offset_to_fetch_next_is_the_one_behind_the_last_batch(wrapped: type) -> None:
    data = batch(3, 5) + batch(9, 11)
    frames = Frames(wrapped(data), 3, END)
    assert [(frame.base_offset, frame.last_offset) for frame in frames] == [(3, 5), (9, 11)]
    assert (frames.next_offset, frames.size, frames.truncated) == (12, len(data), False)
    assert frames.failure is None


def test_no_bytes_leave_the_position_where_it_is() -> None:
    frames = Frames(b"", 7, END)
    assert list(frames) == []
    assert (frames.next_offset, frames.size, frames.truncated) == (7, 0, False)


def test_a_batch_before_the_start_does_not_move_the_position_back() -> None:
    assert Frames(batch(3), 7, END).next_offset == 7


@pytest.mark.parametrize(
    ("until", "walked", "next_offset"),
    [
        (3, [], 3),  # nothing is wanted of the first batch
        (4, [3], 6),
        (6, [3], 6),
        (7, [3], 9),  # compaction has left nothing between 6 and 9
        (9, [3], 9),
        (10, [3, 9], 12),
    ],
)
def test_the_walk_ends_at_the_first_batch_at_or_behind_the_end(until: int, walked: list[int], next_offset: int) -> None:
    frames = Frames(batch(3, 5) + batch(9, 11), 3, until)
    assert [frame.base_offset for frame in frames.walked] == walked
    assert frames.next_offset == next_offset


@pytest.mark.parametrize("cut", [0, 1, 16, 17, 60, 61, 68])
def test_a_batch_that_the_broker_has_cut_is_left_for_the_next_fetch(cut: int) -> None:
    whole, other = batch(3), batch(4)
    frames = Frames(whole + other[:cut], 3, END)
    assert [frame.base_offset for frame in frames] == [3]
    assert (frames.next_offset, frames.size, frames.truncated) == (4, len(whole), cut > 0)


def test_a_cut_batch_behind_the_end_shows_that_nothing_lies_before_it() -> None:
    assert Frames(batch(3) + batch(9)[:17], 3, 9).next_offset == 9
    # The 17th byte is the magic: without it, the offset may be that of the last message of a wrapper.
    assert Frames(batch(3) + batch(9)[:16], 3, 9).next_offset == 4


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("cut", [17, 18, 25])
def test_a_message_that_the_broker_has_cut_is_left_for_the_next_fetch(magic: int, cut: int) -> None:
    first = encode_message(Message(3, b"x"), magic)
    frames = Frames(first + encode_message(Message(4, b"yy"), magic)[:cut], 3, END)
    assert [frame.last_offset for frame in frames] == [3]
    assert (frames.next_offset, frames.size, frames.truncated) == (4, len(first), True)


def test_a_cut_wrapper_does_not_show_where_its_messages_begin() -> None:
    frames = Frames(encode_message(Message(3), 1) + WRAPPER[:18], 3, 6)
    assert (frames.next_offset, frames.truncated) == (4, True)


# -- frames that cannot be read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [20, END])
def test_a_frame_that_cannot_be_read_ends_the_walk_and_the_sound_ones_come_first(until: int) -> None:
    sound = batch(3)
    bad = batch(4)[:8] + struct.pack(">i", 48) + batch(4)[12:]  # a batch has 49 bytes behind its size
    frames = Frames(sound + bad + batch(5), 3, until)
    assert (frames.next_offset, frames.size) == (until, len(frames.data))
    walk = iter(frames)
    assert next(walk).base_offset == 3
    with pytest.raises(DecodeError, match="offset 4: an impossible size of 48 bytes; the bytes are damaged") as raised:
        next(walk)
    assert raised.value is frames.failure
    assert (raised.value.base_offset, raised.value.next_offset) == (4, None)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (
            batch(4)[:16] + b"\3" + batch(4)[17:],
            UnsupportedMagic,
            "at offset 4: unknown magic 3 (known are 0, 1 and",
        ),
        (batch(4)[:16] + b"\3", UnsupportedMagic, "at offset 4: unknown magic 3 (known are 0, 1 and"),
        (struct.pack(">q", -1) + batch(4)[8:], DecodeError, "at offset -1: an impossible size"),
        (encode_message(Message(-1), 1), DecodeError, "at offset -1: an impossible size"),
        (struct.pack(">qi", 4, 13) + encode_message(Message(4), 0)[12:], DecodeError, "size of 13 bytes"),
        (encode_batch([Record(4)], count=2), DecodeError, "at offset 4: 2 records up to offset delta 0 cannot be"),
        (encode_batch([Record(4)], count=-1), DecodeError, "at offset 4: -1 records up to offset delta 0 cannot be"),
        (batch(2**63 - 2, 2**63 - 1), DecodeError, "1 records up to offset delta 1 cannot be"),
    ],
    ids=[
        "a later magic",
        "a later magic, cut",
        "a batch before offset 0",
        "a message before offset 0",
        "a message of 13 bytes",
        "more records than offsets",
        "fewer records than none",
        "an offset beyond a long",
    ],
)
def test_a_header_that_cannot_be_is_an_error_with_the_offset(data: bytes, kind: type[DecodeError], text: str) -> None:
    frames = Frames(data, 0, 2**63 - 1)
    with pytest.raises(kind) as raised:
        list(frames)
    assert text in str(raised.value)


def test_the_last_offset_that_a_long_can_step_over_is_read() -> None:
    frames = Frames(batch(2**63 - 2), 0, 2**63 - 1)
    assert [frame.last_offset for frame in frames] == [2**63 - 2]
    assert frames.next_offset == 2**63 - 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (batch(3, 8) + batch(8), "the record batch at offset 8: the batch before it reaches to offset 8"),
        (WRAPPER + WRAPPER, "the message at offset 9: the one before it has offset 9"),
    ],
    ids=["batches", "wrappers"],
)
def test_frames_that_overlap_are_an_error(data: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        list(Frames(data, 3, END))


# -- checksums --------------------------------------------------------------------------------------------------------


def test_a_sound_batch_of_any_size_and_a_sound_wrapper_pass_the_check() -> None:
    large = encode_batch([Record(0, value=bytes(300_000))])
    frames = Frames(large + encode_wrapper([Message(1, b"x"), Message(2)], "gzip", 1), 0, END)
    for frame in frames:
        frames.verify(frame)
    assert [type(frame) for frame in frames.walked] == [Batch, Wrapper]


@pytest.mark.parametrize("index", [21, 22, 61, -1])
def test_a_byte_that_the_checksum_covers_shows_in_the_check(index: int) -> None:
    data = batch(10, 14)
    frames = Frames(flipped(data, index % len(data)), 0, END)
    (frame,) = frames
    with pytest.raises(ChecksumMismatch, match=r"offset 10: its CRC-32C is 0x\w{8}, its header says 0x\w{8}") as raised:
        frames.verify(frame)
    assert (raised.value.base_offset, raised.value.next_offset) == (10, 15)


def test_the_next_batch_tells_where_a_damaged_one_ends() -> None:
    damaged = seal(10, b"", attributes=0, last_offset_delta=4, count=0)
    damaged = flipped(damaged, 25)  # the last offset is 256 offsets too large
    frames = Frames(damaged + batch(13), 0, 11)
    with pytest.raises(ChecksumMismatch) as raised:
        frames.verify(frames.walked[0])
    assert raised.value.next_offset == 13


def test_damage_in_a_wrapper_shows_in_the_check_with_its_offsets() -> None:
    frames = Frames(flipped(WRAPPER, len(WRAPPER) - 1), 4, END)
    with pytest.raises(ChecksumMismatch) as raised:
        frames.verify(frames.walked[0])
    assert (raised.value.base_offset, raised.value.next_offset) == (4, 10)
