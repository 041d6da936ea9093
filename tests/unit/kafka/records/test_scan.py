"""The scans: invalid records and messages, one kind of damage each, under a correct checksum."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamgroup.errors import DecodeError
from streamgroup.kafka.records import scan
from streamgroup.kafka.records.decode import DecodeOptions
from streamgroup.kafka.records.kernel import VARIABLE
from streamgroup.kafka.records.message_sets import OWN, MessageSetFault, MessageSets
from streamgroup.kafka.records.message_sets import MessageFaultKind as Kind
from tests.unit.kafka.records import reference
from tests.unit.kafka.records.encoder import Record, compress, encode_batch, encode_record, seal, varint
from tests.unit.kafka.records.encoder_sets import Message, encode_message, encode_wrapper, sized
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
BOMBS = {"zeros": bytes(INFLATED), "the same record again and again": encode_record(Record(0), 0, 0) * MANY}
SAME_OFFSET = encode_message(Message(9), 0)
SET_BOMBS = {
    "messages of the same offset": SAME_OFFSET * (INFLATED // 26),
    "messages of which the first is damaged": (SAME_OFFSET[:-1] + b"\0") * (INFLATED // 26),
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
    wrappers = [encode_wrapper([], "gzip", 0, offset=9, inner=inner) for inner in SET_BOMBS.values()]
    names = []
    for data in (encode_batch([Record(1)], codec="zstd"), *batches, *wrappers):
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


# -- messages of magic 0 and 1 ----------------------------------------------------------------------------------------

HEAD_0 = bytes([0, 0])
FAULTS = {
    "a cut message": (encode_message(Message(1), 0)[:-1], Kind.FRAME),
    "a size below the least": (struct.pack(">qi", 1, 13) + bytes(14), Kind.FRAME),
    "a size beyond the set": (struct.pack(">qi", 1, 15) + bytes(14), Kind.FRAME),
    "magic 2": (encode_message(Message(1), 2), Kind.MAGIC),
    "a compressed message": (encode_message(Message(1, b"v"), 1, attributes=1), Kind.NESTED),
    "a compressed message with a key of -2 bytes": (
        seal_messages(1, bytes([0, 1]) + struct.pack(">ii", -2, -1)),
        Kind.NESTED,
    ),
    "a flipped bit": (encode_message(Message(1, b"v"), 0)[:-1] + b"w", Kind.CHECKSUM),
    "a key of -2 bytes": (seal_messages(1, HEAD_0 + struct.pack(">ii", -2, -1)), Kind.LENGTH),
    "a value of -2 bytes": (seal_messages(1, HEAD_0 + struct.pack(">ii", -1, -2)), Kind.LENGTH),
    "a key to beyond its message": (seal_messages(1, HEAD_0 + struct.pack(">ii", 1, -1)), Kind.OVERRUN),
    "a value to beyond its message": (seal_messages(1, HEAD_0 + struct.pack(">ii", -1, 1)), Kind.OVERRUN),
    "a byte behind the value": (seal_messages(1, HEAD_0 + sized(b"k") + sized(b"v") + b"\0"), Kind.TRAILING),
    "the offset of the one before": (encode_message(Message(0), 0), Kind.OFFSET),
    "a negative offset": (encode_message(Message(-1), 0), Kind.OFFSET),
    "another offset than the last": (encode_message(Message(2), 0), Kind.OFFSET),
}


@pytest.mark.parametrize("block", [1, scan.BLOCK])
@pytest.mark.parametrize(("data", "kind"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_the_first_invalid_message_by_set_and_position(
    data: bytes, kind: Kind, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    sound, first = encode_message(Message(1), 0), encode_message(Message(0, b"v"), 0)
    buffer, zeros = np.frombuffer(sound + first + data, np.uint8), np.zeros(2, np.int64)
    begin, end = np.array([0, len(sound)]), np.array([len(sound), len(buffer)])
    sets = MessageSets(begin, end, zeros, zeros + 1, zeros.astype(np.bool_), zeros, zeros + OWN)
    with pytest.raises(MessageSetFault) as caught:
        scan.messages(buffer, sets, True)
    assert (caught.value.index, caught.value.position, caught.value.fault) == (1, len(sound + first), kind)
