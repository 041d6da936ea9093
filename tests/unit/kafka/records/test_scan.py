"""The scans: invalid records and messages, one kind of damage each, under a correct checksum."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamgroup.errors import DecodeError
from streamgroup.kafka.records import scan
from streamgroup.kafka.records.codecs import CODECS
from streamgroup.kafka.records.decode import DecodeOptions
from streamgroup.kafka.records.encode import RecordFormat
from streamgroup.kafka.records.fields import LEAST_RECORD, MAX_MILLISECONDS, Bytes
from streamgroup.kafka.records.kernel import VARIABLE
from streamgroup.kafka.records.message_sets import (
    CODEC_BITS,
    CODEC_BITS_07,
    FRAME_SIZE,
    LEAST_SIZES,
    LEAST_SIZES_07,
    LOG_APPEND_TIME_BIT,
    OWN,
    MessageFaultKind,
    MessageSetFault,
    MessageSets,
    Walk,
)
from tests.unit.kafka.records import reference
from tests.unit.kafka.records.encoder import Record, compress, encode_batch, encode_record, seal, varint
from tests.unit.kafka.records.encoder_sets import (
    Message,
    encode_message,
    encode_set,
    encode_wrapper,
    message07,
    sized,
    wrapper07,
)
from tests.unit.kafka.records.encoder_sets import seal as seal_messages
from tests.unit.kafka.records.rows import decode

END = 2**62


def body(record: bytes) -> bytes:
    """A batch with this one record."""
    return seal(8, record, attributes=0, last_offset_delta=5, count=1)


DAMAGED = {
    "length beyond the batch": body(varint(50) + bytes(10)),
    "length negative": body(varint(-5) + bytes(10)),
    "length over-long": body(b"\xff" * 11),
    "length of 33 bits": body(b"\x80\x80\x80\x80\x10" + bytes(10)),
    "key beyond the record": body(varint(10) + bytes(3) + varint(60) + bytes(6)),
    "key length -2": body(varint(6) + bytes(3) + varint(-2) + bytes(2)),
    "value length -9": body(varint(6) + bytes(4) + varint(-9) + bytes(1)),
    "header count negative": body(varint(6) + bytes(3) + b"\1\1" + varint(-1)),
    "header count beyond the record": body(varint(8) + bytes(3) + b"\1\1" + varint(2**31 - 1)[:3]),
    "header key null": body(varint(8) + bytes(3) + b"\1\1" + varint(1) + b"\1\1"),
    "header value beyond the record": body(varint(8) + bytes(3) + b"\1\1" + varint(1) + b"\0\2"),
    "offset beyond the batch's last": body(varint(6) + bytes(2) + varint(6) + b"\1\1\0"),
    "offset negative": body(varint(6) + bytes(2) + varint(-1) + b"\1\1\0"),
    "bytes behind the headers": body(varint(7) + bytes(3) + b"\1\1\0\0"),
    "bytes behind the last record": body(encode_record(Record(8), 8, 0) + b"\0"),
    "record of no bytes": body(b"\0" * 7),
    "timestamp over-long": body(varint(20) + b"\0" + b"\x80" * 10 + bytes(9)),
    "more records than bytes": seal(8, bytes(20), attributes=0, last_offset_delta=2**31 - 2, count=2**31 - 1),
    "same offset twice": seal(8, encode_record(Record(8), 8, 0) * 2, attributes=0, last_offset_delta=5, count=2),
    "more records than offsets": seal(8, b"", attributes=0, last_offset_delta=0, count=2),
    "a negative count": seal(8, b"", attributes=0, last_offset_delta=0, count=-1),
}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_records_that_cannot_be(data: bytes) -> None:
    with pytest.raises(DecodeError, match="offset 8: ") as caught:
        decode(data, 0, END, DecodeOptions())
    assert caught.value.base_offset == 8
    assert caught.value.next_offset is not None
    assert caught.value.next_offset > 8
    with pytest.raises(reference.Refused):
        reference.decode(data, 0, END)


MANY = 3_000_000
INFLATED = 7 * MANY
"""As many bytes as so many records take at least: the count that a batch declares can be true."""
BOMBS = {
    "zeros": bytes(INFLATED),
    "the same record again and again": encode_record(Record(0), 0, 0) * MANY,
}
SET_BOMBS = {
    "messages of the same offset": encode_wrapper(
        [], "gzip", 0, offset=9, inner=encode_message(Message(9), 0) * (INFLATED // 26)
    ),
    "messages of which the first is damaged": encode_wrapper(
        [], "gzip", 0, offset=9, inner=(encode_message(Message(9), 0)[:-1] + b"\0") * (INFLATED // 26)
    ),
}
DECODE_AND_MEASURE = """
import sys
from streamgroup.errors import DecodeError
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import DecodeOptions, decode

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

sound, *bombs = (open(name, "rb").read() for name in sys.argv[1:])
assert decode(Frames(sound, 0, 2**62), 0, DecodeOptions()).num_rows
before = resident()
for bomb in bombs:
    try:
        print(decode(Frames(bomb, 0, 2**62), 0, DecodeOptions()).num_rows)
    except DecodeError:
        print(1024 * (resident() - before))
"""


@pytest.mark.slow
def test_a_count_that_may_be_true_takes_no_memory_before_a_record_is_looked_at(kernel: str, tmp_path: Path) -> None:
    """In a process of its own, by its resident memory: arrays whose pages nobody touches cost nothing."""
    batches = [
        seal(9, compress("zstd", body), attributes=4, last_offset_delta=MANY - 1, count=MANY) for body in BOMBS.values()
    ]
    names = []
    for data in (encode_batch([Record(1)], codec="zstd"), *batches, *SET_BOMBS.values()):
        assert len(data) < 64 << 10
        names.append(tmp_path / str(len(names)))
        names[-1].write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", DECODE_AND_MEASURE, *names],
        # A fixed threshold, so that glibc returns the arrays of one decode before the next one.
        env=os.environ | {VARIABLE: kernel, "MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    grown = dict(zip((*BOMBS, *SET_BOMBS), map(int, done.stdout.split()), strict=True))
    assert max(grown.values()) < 2 * INFLATED, str(grown)
    assert min(grown.values()) > 0, "nothing was inflated"


BEYOND = 2**62


def buffer_of(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def sets_of(*parts: bytes, least: int = 0, last: int, relative: bool = False, stamp: int = 0, kind: int = OWN) -> Any:
    """The sets `parts`, one behind the other, which all have these fields."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    same = [np.full(len(parts), value, np.int64) for value in (least, last, relative, stamp, kind)]
    begin = ends - [len(part) for part in parts]
    return MessageSets(begin, ends, same[0], same[1], same[2].astype(np.bool_), *same[3:])


# -- walks ------------------------------------------------------------------------------------------------------------

PLAIN = encode_set([Message(3, b"a"), Message(4, b"b")], 0) + encode_set([Message(7, b"c")], 1)
MESSAGES_END = len(PLAIN)


@pytest.mark.parametrize(
    ("data", "least", "until", "walk"),
    [
        (b"", 0, BEYOND, Walk(0, 0, -1)),
        (PLAIN, 0, BEYOND, Walk(MESSAGES_END, 3, 7)),
        (PLAIN + encode_wrapper([Message(8)], "gzip", 1) + PLAIN, 0, BEYOND, Walk(MESSAGES_END, 3, 7)),
        (PLAIN + encode_message(Message(8), 2), 0, BEYOND, Walk(MESSAGES_END, 3, 7)),
        (PLAIN + encode_message(Message(7), 0), 0, BEYOND, Walk(MESSAGES_END, 3, 7)),
        (PLAIN + encode_message(Message(8), 0)[:-1], 0, BEYOND, Walk(MESSAGES_END, 3, 7)),
        (PLAIN + encode_message(Message(8), 0)[:11], 0, BEYOND, Walk(MESSAGES_END, 3, 7)),
        (PLAIN, 0, 7, Walk(MESSAGES_END - 35, 2, 4)),
        (PLAIN, 4, BEYOND, Walk(0, 0, 3)),
    ],
    ids=[
        "no bytes",
        "both magics",
        "a compressed message",
        "a record batch",
        "an offset twice",
        "a cut message",
        "a cut frame",
        "an offset at the end of the range",
        "an offset before the least one",
    ],
)
def test_a_walk_ends_at_the_first_frame_that_is_no_plain_message_of_the_range(
    data: bytes, least: int, until: int, walk: Walk
) -> None:
    assert scan.walk(memoryview(data), 0, least, until) == walk


PLAIN_07 = message07(b"one", 1) + message07(b"two", 0)


@pytest.mark.parametrize(
    ("behind", "stop", "walk"),
    [
        (b"", 99, Walk(25, 2, 13)),
        (b"", 13, Walk(13, 1, 0)),
        (b"", 0, Walk(0, 0, -1)),
        (wrapper07(message07(b"x"), "gzip"), 99, Walk(25, 2, 13)),
        (message07(b"x", 2), 99, Walk(25, 2, 13)),
        (message07(b"x")[:-1], 99, Walk(25, 2, 13)),
        (message07(b"x")[:4], 99, Walk(25, 2, 13)),
        (message07(b"", 0), 99, Walk(34, 3, 25)),
    ],
    ids=["all", "stop", "nothing", "a compressed message", "another magic", "a cut message", "a cut frame", "an empty"],
)
def test_a_walk_over_messages_of_kafka_07_tells_the_position_of_the_last_one(
    behind: bytes, stop: int, walk: Walk
) -> None:
    assert scan.walk07(memoryview(PLAIN_07 + behind), 0, stop) == walk


# -- messages of magic 0 and 1 ----------------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


HEAD_0 = bytes([0, 0])
FAULTS = {
    "a cut message": (encode_message(Message(1), 0)[:-1], MessageFaultKind.FRAME),
    "a size below the least": (struct.pack(">qi", 1, 13) + bytes(14), MessageFaultKind.FRAME),
    "a size beyond the set": (struct.pack(">qi", 1, 15) + bytes(14), MessageFaultKind.FRAME),
    "magic 2": (encode_message(Message(1), 2), MessageFaultKind.MAGIC),
    "a compressed message": (encode_message(Message(1, b"v"), 1, attributes=1), MessageFaultKind.NESTED),
    "a compressed message with a key of -2 bytes": (
        seal_messages(1, bytes([0, 1]) + struct.pack(">ii", -2, -1)),
        MessageFaultKind.NESTED,
    ),
    "a flipped bit": (flipped(encode_message(Message(1, b"v"), 0)), MessageFaultKind.CHECKSUM),
    "a key of -2 bytes": (seal_messages(1, HEAD_0 + struct.pack(">ii", -2, -1)), MessageFaultKind.LENGTH),
    "a value of -2 bytes": (seal_messages(1, HEAD_0 + struct.pack(">ii", -1, -2)), MessageFaultKind.LENGTH),
    "a key to beyond its message": (seal_messages(1, HEAD_0 + struct.pack(">ii", 1, -1)), MessageFaultKind.OVERRUN),
    "a value to beyond its message": (seal_messages(1, HEAD_0 + struct.pack(">ii", -1, 1)), MessageFaultKind.OVERRUN),
    "a byte behind the value": (
        seal_messages(1, HEAD_0 + sized(b"k") + sized(b"v") + b"\0"),
        MessageFaultKind.TRAILING,
    ),
    "the offset of the one before": (encode_message(Message(0), 0), MessageFaultKind.OFFSET),
    "a negative offset": (encode_message(Message(-1), 0), MessageFaultKind.OFFSET),
    "another offset than the last": (encode_message(Message(2), 0), MessageFaultKind.OFFSET),
}


@pytest.mark.parametrize("block", [1, scan.BLOCK])
@pytest.mark.parametrize(("data", "kind"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_the_first_invalid_message_by_set_and_position(
    data: bytes, kind: MessageFaultKind, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    sound = encode_message(Message(1), 0)
    first = encode_message(Message(0, b"v"), 0)
    parts = sound, first + data
    with pytest.raises(MessageSetFault) as caught:
        scan.messages(buffer_of(b"".join(parts)), sets_of(*parts, last=1), True)
    assert (caught.value.index, caught.value.position) == (1, len(sound + first))
    assert caught.value.fault is kind


@pytest.mark.parametrize("block", [1, 2, scan.BLOCK])
@pytest.mark.parametrize("offsets", [(0, 2, 1, 3), (0, 1, 1, 3), (2, 1, 2, 3)], ids=str)
def test_offsets_that_do_not_ascend_within_a_set_are_a_fault(
    offsets: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    data = encode_set([Message(offset) for offset in offsets], 0)
    wrong = next(index for index in range(1, 4) if offsets[index] <= offsets[index - 1])
    with pytest.raises(MessageSetFault) as caught:
        scan.messages(buffer_of(data), sets_of(data, last=3), True)
    assert (caught.value.position, caught.value.fault) == (wrong * 26, MessageFaultKind.OFFSET)


# -- limits of the formats --------------------------------------------------------------------------------------------


def test_the_limits_of_records_are_those_of_the_format() -> None:
    assert len(encode_record(Record(0), 0, 0)) == LEAST_RECORD
    assert MAX_MILLISECONDS * 1000 < 2**63 <= (MAX_MILLISECONDS + 1) * 1000


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_message_of_each_magic_has_the_least_size(magic: int) -> None:
    """The size field counts neither itself nor the offset before it; the length of Kafka 0.7 does not count itself."""
    assert len(encode_message(Message(0), magic)) - FRAME_SIZE == LEAST_SIZES[magic]
    assert len(message07(b"", magic)) - 4 == LEAST_SIZES_07[magic]


@pytest.mark.parametrize(
    ("bits", "formats"),
    [(CODEC_BITS, [RecordFormat.V0, RecordFormat.V1]), (CODEC_BITS_07, [RecordFormat.V07_1])],
    ids=["Kafka 0.8 to 0.10", "Kafka 0.7"],
)
def test_the_codec_bits_hold_the_number_of_every_codec_of_the_format(bits: int, formats: list[RecordFormat]) -> None:
    for record_format in formats:
        for codec in record_format.codecs:
            assert CODECS[codec] & bits == CODECS[codec]
            assert (CODECS[codec] | LOG_APPEND_TIME_BIT) & bits == CODECS[codec]
