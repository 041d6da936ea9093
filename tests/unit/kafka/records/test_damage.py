"""A damaged batch is set aside with its bytes only where it is certain at which offset the next one begins."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec, UnsupportedMagic
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.columns import schema
from streamgroup.kafka.records.damage import DamagedBatch, damaged_batch
from streamgroup.kafka.records.decode import Aborted, DecodeOptions, decode
from streamgroup.kafka.records.messages07 import Frames07
from tests.unit.kafka.records.encoder import Record, encode_batch
from tests.unit.kafka.records.encoder_sets import Message, encode_message, encode_set, encode_wrapper, message07

pytestmark = pytest.mark.usefixtures("kernel")

END = 2**62
PLAIN = DecodeOptions()
ABORTED = [Aborted(producer_id=9, first_offset=0)]


def batch(start: int, count: int = 5, last_offset: int | None = None) -> bytes:
    return encode_batch([Record(start + n, 0, None, b"v") for n in range(count)], last_offset=last_offset)


def message(offset: int, magic: int = 1) -> bytes:
    return encode_message(Message(offset, b"v"), magic)


def wrapper(*offsets: int, magic: int = 1) -> bytes:
    return encode_wrapper([Message(offset, b"v") for offset in offsets], "gzip", magic)


def damaged(sound: bytes) -> bytes:
    return sound[:-1] + bytes([sound[-1] ^ 1])


def failure(frames: Frames) -> DecodeError:
    """The error of a decoder about `frames`."""
    with pytest.raises(DecodeError) as caught:
        decode(frames, frames.start, PLAIN)
    return caught.value


def set_aside(
    data: bytes, start: int = 0, options: DecodeOptions = PLAIN, aborted: Sequence[Aborted] = ()
) -> DamagedBatch | None:
    """Decode `data`, which has a damaged piece, and return what the error is about."""
    frames = Frames(data, start, END)
    return damaged_batch(frames, failure(frames), options, aborted)


# -- where the next one begins ----------------------------------------------------------------------------------------

COMPACTED = batch(10, 3, last_offset=19)

CERTAIN = {
    "a batch before a sound one": (batch(5), damaged(batch(10)), batch(15), (10, 15, True)),
    "a compacted batch before a sound one": (batch(5), damaged(COMPACTED), batch(25), (10, 25, True)),
    "a batch at the end, whose header agrees": (batch(5), damaged(batch(10)), b"", (10, 15, False)),
    "a batch before a damaged one": (batch(5), damaged(batch(10)), damaged(batch(15)), (10, 15, False)),
    "a batch before a cut one": (batch(5), damaged(batch(10)), batch(15)[:-1], (10, 15, False)),
    "a message among others": (message(5), damaged(message(10)), message(12), (10, 12, True)),
    "a message of magic 0": (message(5, 0), damaged(message(6, 0)), message(7, 0), (6, 7, True)),
    "a message at the expected offset": (message(5), damaged(message(6)), b"", (6, 7, False)),
    "a message before a compressed one": (message(5), damaged(message(6)), wrapper(8, 9), (6, 8, True)),
    "a message before a batch": (message(5), damaged(message(10)), batch(12), (10, 12, True)),
    "a compressed message before another": (wrapper(4, 5), damaged(wrapper(6, 9)), wrapper(12, 13), (6, 12, True)),
    "a compressed message before a plain one": (wrapper(4, 5), damaged(wrapper(6, 9)), message(10), (6, 10, True)),
    "a compressed message before a sound one and a damaged one": (
        wrapper(4, 5),
        damaged(wrapper(6, 9)),
        message(10) + damaged(message(11)),
        (6, 10, True),
    ),
}


@pytest.mark.parametrize(("before", "bad", "behind", "found"), CERTAIN.values(), ids=CERTAIN)
def test_what_is_set_aside_is_the_damaged_piece_and_nothing_beside_it(
    before: bytes, bad: bytes, behind: bytes, found: tuple[int, int, bool]
) -> None:
    aside = set_aside(before + bad + behind)
    assert aside is not None
    assert (aside.base_offset, aside.next_offset, aside.is_followed) == found
    assert (aside.begin, aside.end) == (len(before), len(before + bad))


UNCERTAIN = {
    "a compacted batch at the end": (batch(5), damaged(COMPACTED), b""),
    "a compacted batch before a damaged one": (batch(5), damaged(COMPACTED), damaged(batch(20))),
    "a message behind a gap, at the end": (message(5), damaged(message(10)), b""),
    "a compressed message at the end": (wrapper(4, 5), damaged(wrapper(6, 9)), b""),
    "a compressed message before a damaged one": (wrapper(4, 5), damaged(wrapper(6, 9)), damaged(message(10))),
    "a batch before messages that begin before it": (batch(5), damaged(batch(10)), wrapper(8, 20, magic=0)),
}


@pytest.mark.parametrize(("before", "bad", "behind"), UNCERTAIN.values(), ids=UNCERTAIN)
def test_nothing_is_set_aside_where_records_behind_the_damage_might_be_skipped(
    before: bytes, bad: bytes, behind: bytes
) -> None:
    assert set_aside(before + bad + behind) is None


def test_a_first_message_is_at_the_expected_offset_where_the_range_begins_there() -> None:
    """Where the range begins earlier, its offset may be the damaged number."""
    aside = set_aside(damaged(message(6)), start=6)
    assert aside is not None
    assert aside.next_offset == 7
    assert set_aside(damaged(message(6)), start=4) is None


def test_a_sound_piece_is_checked_by_its_checksum_though_the_options_leave_checksums_out() -> None:
    frames = Frames(damaged(COMPACTED) + damaged(batch(20)), 0, END)
    assert damaged_batch(frames, failure(frames), DecodeOptions(check_crcs=False), ()) is None
    messages = Frames(damaged(wrapper(6, 9)) + damaged(message(12)), 0, END)
    assert damaged_batch(messages, failure(messages), DecodeOptions(check_crcs=False), ()) is None


# -- what is not set aside --------------------------------------------------------------------------------------------

DAMAGED = batch(5) + damaged(batch(10)) + batch(15)


@pytest.mark.parametrize("kind", [TooLarge, UnsupportedCodec, UnsupportedMagic])
def test_sound_bytes_that_another_option_or_release_can_read_are_not_set_aside(kind: type[DecodeError]) -> None:
    frames = Frames(DAMAGED, 0, END)
    error = kind("not readable now")
    error.base_offset, error.next_offset = 10, 15
    assert damaged_batch(frames, error, PLAIN, ()) is None


@pytest.mark.parametrize("offset", [None, 7, 11, 20])
def test_an_error_about_no_piece_of_the_fetch_sets_nothing_aside(offset: int | None) -> None:
    error = DecodeError("damaged")
    error.base_offset = offset
    assert damaged_batch(Frames(DAMAGED, 0, END), error, PLAIN, ()) is None


def test_messages_of_kafka_07_are_not_set_aside() -> None:
    data = damaged(message07(b"v"))
    error = DecodeError("damaged")
    error.base_offset = 0
    assert damaged_batch(Frames07(data, 0, END), error, PLAIN, ()) is None


def test_beside_aborted_transactions_nothing_is_set_aside_under_read_committed() -> None:
    """The damaged batch may be the ABORT: without it, later records of its producer would be hidden."""
    committed = DecodeOptions(read_committed=True)
    assert set_aside(DAMAGED, options=committed, aborted=ABORTED) is None
    assert set_aside(DAMAGED, options=committed) is not None
    assert set_aside(DAMAGED, aborted=ABORTED) is not None


# -- what is read beside it, and its row ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "before", "behind"),
    [
        (DAMAGED, [*range(5, 10)], [*range(15, 20)]),
        (encode_set([Message(5), Message(6)], 1) + damaged(message(7)) + message(9), [5, 6], [9]),
    ],
    ids=["batches", "messages"],
)
def test_the_records_before_and_behind_are_read_as_if_the_damage_were_not_there(
    data: bytes, before: list[int], behind: list[int]
) -> None:
    aside = set_aside(data)
    assert aside is not None
    assert decode(aside.before(0), 0, PLAIN).offset.to_pylist() == before
    assert decode(aside.before(before[1]), before[1], PLAIN).offset.to_pylist() == before[1:]
    assert decode(aside.behind(), aside.next_offset, PLAIN).offset.to_pylist() == behind


def test_the_frames_beside_it_end_where_the_range_does() -> None:
    frames = Frames(DAMAGED, 7, 17)
    aside = damaged_batch(frames, failure(frames), PLAIN, ())
    assert aside is not None
    assert decode(aside.before(7), 7, PLAIN).offset.to_pylist() == [7, 8, 9]
    assert decode(aside.behind(), 15, PLAIN).offset.to_pylist() == [15, 16]


@pytest.mark.parametrize("include_headers", [True, False])
@pytest.mark.parametrize(
    ("data", "bad", "says"),
    [
        (DAMAGED, damaged(batch(10)), "the record batch at offset 10: .*; the next batch begins at offset 15"),
        (damaged(message(6)) + message(8), damaged(message(6)), "the message at offset 6: .*; the next message .* 8"),
    ],
    ids=["batch", "message"],
)
def test_its_row_has_the_bytes_the_first_offset_and_the_reason(
    data: bytes, bad: bytes, says: str, include_headers: bool
) -> None:
    aside = set_aside(data)
    assert aside is not None
    row = aside.row("orders", 3, include_headers=include_headers)
    assert row.schema.equals(schema(include_headers, include_damaged_batches=True))
    (values,) = row.to_pylist()
    assert (values["value"], values["topic"], values["partition"]) == (bad, "orders", 3)
    assert (values["offset"], values["timestamp"], values["timestampType"]) == (aside.base_offset, None, -1)
    assert values["key"] is None
    assert re.fullmatch(says, values["damage"])
