"""The two kernels: which is used, that they are equal, and that the compiled one trusts no caller."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import types
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.errors import ConfigError, EncodeError
from streamgroup.kafka.records import kernel, message_sets, scan
from streamgroup.kafka.records.encode import Encoder, RecordColumns, RecordFormat
from streamgroup.kafka.records.fields import BLOCK, Bytes, FaultCode, Fields, RecordFault, Regions
from streamgroup.kafka.records.message_sets import OWN, MessageFaultKind, MessageFields, MessageSets, MessageSets07
from tests.unit.kafka.records import encoder_sets
from tests.unit.kafka.records.encode_rows import Sent, Shape, columns_of
from tests.unit.kafka.records.encoder import Record, encode_record
from tests.unit.kafka.records.encoder_sets import Message, encode_message, encode_set, message07, wrapper07

compiled = pytest.importorskip("streamgroup.kafka.records._kernel", reason="the compiled kernel has not been built")

pytestmark = pytest.mark.usefixtures("kernel_as_before")


def regions(begin: int, end: int, count: int, delta: int = 100) -> Regions:
    """One batch."""
    one = [np.array([value], np.int64) for value in (begin, end, count, 0, delta, 0)]
    return Regions(*one, append_time=np.zeros(1, np.bool_))


def both(scan: str, *arguments: Any) -> list[Any]:
    """The result of each kernel: all its arrays, that it refuses records, or the fault and place of a message."""
    answers: list[Any] = []
    for name in ("python", "compiled"):
        kernel.use(name)
        try:
            found = getattr(kernel.current(), scan)(*arguments)
            answers.append([column.tolist() for column in found.arrays()] if hasattr(found, "arrays") else found)
        except RecordFault:
            answers.append("refused")
        except message_sets.MessageSetFault as error:
            answers.append((error.index, error.position, error.fault))
    return answers


@pytest.mark.slow
def test_the_compiled_kernel_is_the_default_where_it_is_built() -> None:
    environment = {name: value for name, value in os.environ.items() if name != kernel.VARIABLE}
    code = "from streamgroup.kafka.records import kernel; print(kernel.name())"
    for wanted, name in ((None, b"compiled"), ("python", b"python"), ("compiled", b"compiled")):
        extra = {} if wanted is None else {kernel.VARIABLE: wanted}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment | extra, capture_output=True, check=True, timeout=60
        )
        assert done.stdout.strip() == name


def test_kernels_are_chosen_by_name() -> None:
    kernel.use("python")
    assert kernel.name() == "python"
    kernel.use("compiled")
    assert kernel.name() == "compiled"
    with pytest.raises(ConfigError, match="python"):
        kernel.use("fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("extension", [None, types.ModuleType("_kernel")], ids=["none", "of older sources"])
def test_without_the_extension_numpy_is_used_and_asking_for_it_says_what_to_do(
    extension: types.ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "streamgroup.kafka.records._kernel", extension)
    assert kernel._load(None).name == "python"
    with pytest.raises(ConfigError, match="C compiler"):
        kernel.use("compiled")


def test_both_know_the_same_faults() -> None:
    sources = importlib.resources.files("streamgroup.kafka.records")
    for faults, name in ((FaultCode, "_kernel.c"), (MessageFaultKind, "_messages.h")):
        source = sources.joinpath(name).read_text()
        for fault in faults:
            assert fault is FaultCode.RECORD_COUNT or f"{fault.name} = {fault.value}," in source
        assert len({fault.text for fault in faults}) == len(faults)
    assert 0 not in {int(fault) for fault in MessageFaultKind}, "0 is a message without a fault"


@pytest.mark.slow
@pytest.mark.parametrize("block", [2, BLOCK])
def test_random_records_and_random_damage_are_the_same_to_both(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    chance = random.Random(11)
    agreed = 0
    for _ in range(700):
        records = [
            Record(i, chance.randrange(-1, 3_000), chance.randbytes(chance.randrange(4)), b"v" * chance.randrange(90))
            for i in range(chance.randrange(1, 5))
        ]
        body = bytearray(b"".join(encode_record(record, 0, 0) for record in records))
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        slow, fast = both("scan", np.frombuffer(body, np.uint8), regions(0, len(body), len(records)))
        assert slow == fast
        agreed += isinstance(fast, list)
    assert agreed > 150


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_batches_and_blocks_of_the_scan_in_numpy_end_anywhere(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    chance = random.Random(block)
    for damage in (0, 0, 0, *range(1, 200)):
        counts = np.array([chance.choice([0, 1, 2, 3, 4, 6, 7, 9]) for _ in range(5)], np.int64)
        batches = [
            b"".join(encode_record(Record(i, 3, None, chance.randbytes(i)), 0, 0) for i in range(count))
            for count in counts.tolist()
        ]
        ends = np.cumsum([len(body) for body in batches])
        buffer = bytearray(b"".join(batches) or b"\0")
        if damage:
            buffer[chance.randrange(len(buffer))] = chance.choice([0, 1, 2, 4, 0x7F, 0x80])
        zeros = np.zeros(5, np.int64)
        where = Regions(ends - [len(b) for b in batches], ends, counts, zeros, zeros + 8, zeros, zeros.astype(np.bool_))
        slow, fast = both("scan", np.frombuffer(buffer, np.uint8), where)
        assert slow == fast
        assert damage or slow != "refused"


def test_no_byte_behind_a_batch_is_read_as_its_own() -> None:
    body = encode_record(Record(0, value=b"v" * 20), 0, 0)
    buffer = np.frombuffer(body * 2, np.uint8)
    for size in range(len(body)):
        for cut in (buffer, buffer[:size].copy()):
            assert both("scan", cut, regions(0, size, 1)) == ["refused"] * 2


@pytest.mark.parametrize(
    ("begin", "end", "count"),
    [(-1, 5, 0), (3, 2, 0), (0, 11, 0), (2**62, 2**62, 0), (0, 10, 1), (0, 10, -1), (0, 10, 2**40)],
)
def test_a_scan_checks_its_callers_bounds(begin: int, end: int, count: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        compiled.scan(np.zeros(10, np.uint8), *regions(begin, end, count).arrays(), *Fields.empty(0).arrays())


def test_a_scan_does_not_write_to_readonly_arrays() -> None:
    fields = Fields.empty(1)
    fields.offset.flags.writeable = False
    with pytest.raises((BufferError, TypeError)):
        compiled.scan(np.zeros(10, np.uint8), *regions(0, 10, 1).arrays(), *fields.arrays())


@pytest.mark.parametrize(
    ("start", "length", "size"),
    [([-1], [1], 1), ([8], [3], 3), ([11], [0], 0), ([0], [2**31 - 1], 10), ([0, 2], [2, 2], 3), ([0], [2], 5)],
)
def test_a_gather_checks_its_callers_bounds(start: list[int], length: list[int], size: int) -> None:
    pieces = np.array(start, np.int32), np.array(length, np.int32)
    with pytest.raises(ValueError, match="fit"):
        compiled.gather(np.zeros(10, np.uint8), *pieces, np.empty(len(start) + 1, np.int32), np.empty(size, np.uint8))


def test_headers_are_not_read_beyond_the_buffer_nor_written_beyond_the_room() -> None:
    buffer = np.array([2, 65, 2, 66, 2, 67], np.uint8)
    one = np.array([1], np.int32)
    for start, count, room in ((4, 1, 1), (7, 1, 1), (-1, 1, 1), (0, 1, 0), (0, 1, 2), (0, 2, 2)):
        out = [np.empty(room, np.int32) for _ in range(4)]
        assert compiled.headers(buffer, one * start, one * count, *out) is False
    out = [np.empty(1, np.int32) for _ in range(4)]
    assert compiled.headers(buffer, one * 0, one, *out) is True
    assert [array.tolist() for array in out] == [[1], [1], [3], [1]]


def test_pieces_are_gathered_alike() -> None:
    chance = random.Random(3)
    buffer = np.frombuffer(chance.randbytes(5_000), np.uint8)
    for rows in (0, 1, 2, 300):
        marks = sorted(chance.randrange(5_000) for _ in range(2 * rows))
        start = np.array(marks[0::2], np.int32)
        length = np.array(marks[1::2], np.int32) - start
        length[chance.sample(range(rows), rows // 3)] = -1
        kernel.use("compiled")
        offsets, data = kernel.current().gather(buffer, start, length)
        slow_offsets, slow_data = scan.gather(buffer, start, length)
        assert offsets.to_pybytes() == slow_offsets.to_pybytes()[: 4 * (rows + 1)]
        assert data.to_pybytes() == slow_data.to_pybytes()


# -- the encoders -----------------------------------------------------------------------------------------------------

NULLS = (None, None, None, 0, 0)


def random_bytes(chance: random.Random) -> bytes | None:
    size = chance.choice([0, 1, 5, 62, 63, 64, 65, 200, 8_191, 8_192])
    return chance.choice([None, chance.randbytes(size), chance.randbytes(size % 100)])


def random_rows(chance: random.Random, headers: bool) -> list[Sent]:
    step = chance.choice([0, 1, 40, 10_000, 2**33, 2**62])
    return [
        Sent(
            random_bytes(chance),
            random_bytes(chance),
            chance.choice([1, 1, -1]) * step * chance.randrange(2),
            tuple(("h" * chance.choice([0, 1, 64]), random_bytes(chance)) for _ in range(chance.choice([0, 1, 3, 65])))
            if headers and chance.random() < 0.5
            else None,
        )
        for _ in range(chance.choice([1, 2, 9, 63, 64, 65, 130]))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("record_format", RecordFormat)
def test_random_columns_are_the_same_bytes_and_sizes_to_both(record_format: RecordFormat) -> None:
    chance = random.Random(record_format.value)
    encoder = Encoder(record_format)
    for _ in range(120):
        rows = random_rows(chance, headers=record_format is RecordFormat.V2)
        if record_format.is_kafka07:
            rows = [Sent(row.value or b"") for row in rows]
        shape = Shape(chance.random() < 0.3, False, chance.randrange(10), chance.randrange(3), chance.random() < 0.5)
        columns = columns_of(rows, shape)
        start, stop = sorted(chance.choices(range(len(rows) + 1), k=2))
        answers = []
        for name in ("python", "compiled"):
            kernel.use(name)
            encoded = encoder.encode(columns, start, stop)
            answers.append((bytes(encoded.sealed()), encoded.uncompressed_size, encoder.sizes(columns).tolist()))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["python", "compiled"])
@pytest.mark.parametrize("record_format", RecordFormat)
def test_what_is_longer_than_a_length_can_say_is_refused_before_it_is_copied(
    record_format: RecordFormat, name: kernel.Name
) -> None:
    kernel.use(name)
    zeros = pa.py_buffer(np.zeros(3 << 30, np.uint8))  # the system gives it no pages: nobody reads or writes them
    stamps = np.zeros(2, np.int64)
    for marks, is_record_too_long in (([0, 3 << 30, 3 << 30], True), ([0, 3 << 29, 3 << 30], False)):
        offsets = pa.py_buffer(np.array(marks, np.int64))
        value = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, zeros])
        columns = RecordColumns(None, value, stamps)
        encoder = Encoder(record_format)
        with pytest.raises(EncodeError, match="takes more than 2147483647 bytes"):
            encoder.encode(columns, 0, 2)
        if is_record_too_long:
            with pytest.raises(EncodeError, match="takes more than 2147483647 bytes"):
                encoder.sizes(columns)
        else:
            assert encoder.sizes(columns).min() > 3 << 29


def column(offsets: Any, data: bytes, *, validity: bytes | None = None, first: int = 0, width: int = 4) -> Any:
    """A column as the compiled kernel takes it, of buffers as they are given."""
    marks = np.array(offsets, np.int32 if width == 4 else np.int64)
    return validity, marks, data, first, width


def longs(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


STAMPS = longs(1, 2)
SOUND = column([0, 1, 2], b"ab")

BROKEN = {
    "offsets beyond the data": column([0, 1, 3], b"ab"),
    "offsets that descend": column([2, 1, 2], b"ab"),
    "a negative offset": column([-1, 1, 2], b"ab"),
    "long offsets beyond the data": column([0, 1, 2**62], b"ab", width=8),
    "too few offsets": column([0, 1], b"ab"),
    "no offsets": column([], b"ab"),
    "a bitmap that is too short": column([0, 1, 2], b"ab", validity=b"", first=0),
    "a first element beyond the offsets": column([0, 1, 2], b"ab", first=1),
    "a huge first element": column([0, 1, 2], b"ab", first=2**63 - 1),
    "a negative first element": column([0, 1, 2], b"ab", first=-1),
    "offsets of another width": (None, np.zeros(9, np.int8), b"ab", 0, 3),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_columns_whose_offsets_do_not_fit_are_refused(broken: Any) -> None:
    sizes = longs(0, 0)
    for ask in (
        lambda: compiled.encode_records(STAMPS, *broken, *NULLS, None, *NULLS, *NULLS, 0, 2, 0),
        lambda: compiled.encode_records(STAMPS, *NULLS, *broken, None, *NULLS, *NULLS, 0, 2, 0),
        lambda: compiled.encode_records(STAMPS, *NULLS, *NULLS, longs(0, 1, 2), *broken, *NULLS, 0, 2, 0),
        lambda: compiled.encode_records(STAMPS, *NULLS, *NULLS, longs(0, 1, 2), *SOUND, *broken, 0, 2, 0),
        lambda: compiled.record_sizes(STAMPS, *broken, *NULLS, None, *NULLS, *NULLS, 2, sizes),
        lambda: compiled.message_sizes(*broken, *NULLS, 26, sizes),
        lambda: compiled.encode_messages(STAMPS, *SOUND, *broken, 1, 0, 2, 0),
        lambda: compiled.encode_messages07(*broken, 1, 0, 2, 0),
    ):
        with pytest.raises(ValueError, match=r"offsets of a column|do not have these rows"):
            ask()


@pytest.mark.parametrize("marks", [(0, 1, 3), (-1, 0, 1), (1, 0, 1), (0, 1), (0, 1, 2**62)])
def test_headers_outside_of_their_columns_are_refused(marks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"offsets of a column|do not have these rows"):
        compiled.encode_records(STAMPS, *NULLS, *NULLS, longs(*marks), *SOUND, *NULLS, 0, 2, 0)


@pytest.mark.parametrize(("start", "stop", "reserve"), [(-1, 1, 0), (1, 0, 0), (0, 3, 0), (0, 2, -1), (0, 2, 2**62)])
def test_rows_and_room_that_there_are_not_are_refused(start: int, stop: int, reserve: int) -> None:
    for ask in (
        lambda: compiled.encode_records(STAMPS, *SOUND, *SOUND, None, *NULLS, *NULLS, start, stop, reserve),
        lambda: compiled.encode_messages(STAMPS, *SOUND, *SOUND, 0, start, stop, reserve),
        lambda: compiled.encode_messages07(*SOUND, 0, start, stop, reserve),
    ):
        with pytest.raises((ValueError, OverflowError)):
            ask()


def test_magics_deltas_and_arrays_that_there_are_not_are_refused() -> None:
    sizes = longs(0, 0)
    for ask in (
        lambda: compiled.encode_messages(STAMPS, *SOUND, *SOUND, 2, 0, 2, 0),
        lambda: compiled.encode_messages07(*SOUND, -1, 0, 2, 0),
        lambda: compiled.encode_messages(STAMPS[:1], *SOUND, *SOUND, 1, 0, 2, 0),
        lambda: compiled.record_sizes(STAMPS, *SOUND, *SOUND, None, *NULLS, *NULLS, 16, sizes),
        lambda: compiled.record_sizes(STAMPS, *SOUND, *SOUND, None, *NULLS, *NULLS, 2, sizes[:1]),
        lambda: compiled.message_sizes(*SOUND, *SOUND, 35, sizes),
        lambda: compiled.message_sizes(*SOUND, *SOUND, 26, longs(0, 0, 0)),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - any of them
            ask()


@pytest.mark.slow
def test_random_buffers_never_crash_the_compiled_encoders() -> None:
    chance = random.Random(12)

    def number(limit: int) -> int:
        return chance.choice([chance.randrange(-1, limit + 2), chance.randrange(limit + 1), 0, -1, 2**31 - 1])

    def anything() -> Any:
        if chance.random() < 0.1:
            return NULLS
        data = chance.randbytes(chance.choice([0, 3, 40]))
        marks = [number(len(data)) for _ in range(chance.randrange(8))]
        if chance.random() < 0.7:
            marks = sorted(max(0, min(mark, len(data))) for mark in marks)
        width = chance.choice([4, 8])
        validity = chance.choice([None, chance.randbytes(chance.randrange(3))])
        return column(marks, data, validity=validity, first=chance.choice([0, 0, 0, 1, number(8)]), width=width)

    written = 0
    for _ in range(1_200):
        stamps = longs(*(chance.choice([0, 5, -(2**63), 2**63 - 1]) for _ in range(chance.randrange(6))))
        lists = chance.choice([None, longs(*sorted(chance.randrange(6) for _ in range(chance.randrange(8))))])
        start, stop = sorted((number(5), number(5))) if chance.random() < 0.5 else (0, chance.randrange(3))
        rows = max(0, min(stop, 100))
        one, other, names, values = (anything() for _ in range(4))
        for ask in (
            lambda: compiled.encode_records(stamps, *one, *other, lists, *names, *values, start, stop, 61),  # noqa: B023
            lambda: compiled.record_sizes(stamps, *one, *other, lists, *names, *values, 4, np.empty_like(stamps)),  # noqa: B023
            lambda: compiled.encode_messages(stamps, *one, *other, chance.randrange(2), start, stop, 0),  # noqa: B023
            lambda: compiled.encode_messages07(*one, chance.randrange(2), start, stop, 0),  # noqa: B023
            lambda: compiled.message_sizes(*one, *other, 34, np.empty(rows, np.int64)),  # noqa: B023
        ):
            try:
                ask()
                written += 1
            except (ValueError, OverflowError):
                pass
    assert written > 600


# -- the scans of message sets ----------------------------------------------------------------------------------------

EXTREMES = (0, 1, 2, 7, 8, 14, 22, 0x7F, 0x80, 0xFF)


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(3)):
        out[chance.randrange(len(out))] = chance.choice([*EXTREMES, chance.randrange(256)])
    return bytes(out)


def messages(chance: random.Random, first: int) -> list[Message]:
    return [
        Message(
            first + index * chance.choice([1, 1, 2]) if chance.random() < 0.1 else first + index,
            chance.choice([None, chance.randbytes(chance.randrange(40))]),
            chance.choice([None, b"key"]),
            chance.choice([-1, 0, 10**12, 2**63 - 1]) if chance.random() < 0.05 else 10**12,
        )
        for index in range(chance.randrange(1, 5))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 3, BLOCK])
def test_random_sets_and_random_damage_are_the_same_to_both(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    chance = random.Random(5)
    agreed, faults = 0, set()
    for _ in range(750):
        parts, rows = [], []
        for _ in range(chance.randrange(1, 4)):
            magic, first = chance.randrange(2), chance.randrange(5)
            found = messages(chance, first)
            parts.append(encode_set(found, magic))
            last = found[-1].offset if chance.random() < 0.9 else 3
            rows.append((first, last, chance.random() < 0.5, 77, chance.choice([OWN, -1, 0, 1])))
        ends = np.cumsum([len(part) for part in parts])
        data = np.frombuffer(damaged(b"".join(parts), chance), np.uint8)
        least, last, relative, stamp, kind = (longs(*column) for column in zip(*rows, strict=True))
        least = np.minimum(least, last)
        sets = MessageSets(ends - [len(p) for p in parts], ends, least, last, relative.astype(np.bool_), stamp, kind)
        checked = chance.random() < 0.3
        slow, fast = both("messages", data, sets, checked)
        assert slow == fast
        agreed += isinstance(fast, list)
        faults |= {fast[2]} if isinstance(fast, tuple) else set()
    assert agreed > 150
    assert faults == set(MessageFaultKind)


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 4, BLOCK])
def test_random_sets_of_kafka_07_are_the_same_to_both(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    chance = random.Random(6)
    agreed, faults = 0, set()
    for _ in range(1_000):
        parts = [
            b"".join(message07(chance.randbytes(chance.randrange(20)), chance.randrange(2)) for _ in range(3))
            for _ in range(3)
        ]
        ends = np.cumsum([len(part) for part in parts])
        data = np.frombuffer(damaged(b"".join(parts), chance), np.uint8)
        wrapped = np.array([chance.random() < 0.5 for _ in parts])
        sets = MessageSets07(ends - [len(p) for p in parts], ends, longs(5, 1_000, 2_000), wrapped)
        checked = chance.random() < 0.5
        slow, fast = both("messages07", data, sets, checked)
        assert slow == fast
        agreed += isinstance(fast, list)
        faults |= {fast[2]} if isinstance(fast, tuple) else set()
    assert agreed > 200
    kinds = MessageFaultKind
    assert faults == {kinds.FRAME, kinds.MAGIC, kinds.NESTED, kinds.CHECKSUM}


def test_the_look_ahead_is_the_same_to_both() -> None:
    chance = random.Random(7)
    steps = 0
    for _ in range(600):
        data = encode_set(messages(chance, 3), 0) + encode_set(messages(chance, 9), 1)
        data += encoder_sets.encode_wrapper([Message(20)], "gzip", 1) + encode_message(Message(21), 0)
        view = memoryview(damaged(data, chance)[: len(data) - chance.choice([0, 0, 5])])
        least, until = chance.choice([0, 4, 9]), chance.choice([5, 11, 2**62])
        slow, fast = both("walk", view, 0, least, until)
        assert slow == fast
        steps += fast.messages
        old = message07(b"a") + message07(b"bb", 0) + wrapper07(message07(b"c"), "gzip") + message07(b"d")
        view = memoryview(damaged(old, chance)[: len(old) - chance.choice([0, 0, 5])])
        position = chance.choice([0, 0, 11, 80])
        slow, fast = both("walk07", view, min(position, len(view)), len(view))
        assert slow == fast
        steps += fast.messages
    assert steps > 1_000


def test_the_checksum_is_zlibs_by_either_way_and_at_any_alignment() -> None:
    chance = random.Random(8)
    data = memoryview(chance.randbytes(1_200))
    for size in [*range(300), 511, 512, 1_000]:
        piece = data[size % 17 : size % 17 + size]
        assert compiled.crc32(piece, False) == compiled.crc32(piece, True) == zlib.crc32(piece)
    kernel.use("python")
    assert kernel.current().crc32(data) == compiled.crc32(data, False)


def test_no_byte_behind_a_set_is_read_as_its_own() -> None:
    for data, count, name in (
        (encode_message(Message(0, b"v" * 20, b"k"), 1), compiled.count, "messages"),
        (message07(b"v" * 20), compiled.count07, "messages07"),
    ):
        buffer = np.frombuffer(data * 2, np.uint8)
        for size in range(1, len(data)):
            assert count(buffer, longs(0), longs(size)) == (0, 0, MessageFaultKind.FRAME)
            sets = one_set(0, size) if name == "messages" else one_set07(0, size)
            for cut in (buffer, buffer[:size].copy()):
                answers = both(name, cut, sets, False)
                assert answers == [(0, 0, MessageFaultKind.FRAME)] * 2


def one_set(begin: int, end: int) -> MessageSets:
    return MessageSets(longs(begin), longs(end), longs(0), longs(0), np.array([False]), longs(0), longs(OWN))


def one_set07(begin: int, end: int) -> MessageSets07:
    return MessageSets07(longs(begin), longs(end), longs(0), np.array([False]))


BUFFER: Bytes = np.frombuffer(encode_message(Message(0), 0), np.uint8)


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (3, 2), (0, 27), (2**62, 2**62)])
def test_sets_outside_of_the_buffer_are_refused(begin: int, end: int) -> None:
    for ask in (
        lambda: compiled.count(BUFFER, longs(begin), longs(end)),
        lambda: compiled.count07(BUFFER, longs(begin), longs(end)),
        lambda: compiled.messages(BUFFER, *one_set(begin, end).arrays(), True, *MessageFields.empty(0).arrays()),
        lambda: compiled.messages07(
            BUFFER, *one_set07(begin, end).arrays(), True, *message_sets.MessageFields07.empty(0).arrays()
        ),
    ):
        with pytest.raises(ValueError, match="outside of the buffer"):
            ask()


@pytest.mark.parametrize("rows", [0, 2])
def test_as_many_messages_as_there_is_room_for_and_no_more(rows: int) -> None:
    with pytest.raises(ValueError, match="not as many as have been counted"):
        compiled.messages(BUFFER, *one_set(0, 26).arrays(), True, *MessageFields.empty(rows).arrays())
    old = np.frombuffer(message07(b"x"), np.uint8)
    with pytest.raises(ValueError, match="not as many as have been counted"):
        compiled.messages07(
            old, *one_set07(0, len(old)).arrays(), True, *message_sets.MessageFields07.empty(rows).arrays()
        )


def test_arrays_of_other_sizes_are_refused() -> None:
    wrong = list(one_set(0, 26).arrays())
    wrong[3] = longs(0, 0)
    with pytest.raises(ValueError, match="an array of sets"):
        compiled.messages(BUFFER, *wrong, True, *MessageFields.empty(1).arrays())
    out = list(MessageFields.empty(1).arrays())
    out[4] = np.empty(0, np.int32)
    with pytest.raises(ValueError, match="an array of messages"):
        compiled.messages(BUFFER, *one_set(0, 26).arrays(), True, *out)
    with pytest.raises(ValueError, match="end has"):
        compiled.count(BUFFER, longs(0), longs(0, 1))


@pytest.mark.parametrize("position", [-1, 27])
def test_a_walk_does_not_begin_outside_of_the_data(position: int) -> None:
    for ask in (
        lambda: compiled.walk(memoryview(BUFFER), position, 0, 1),
        lambda: compiled.walk07(memoryview(BUFFER), position, 1),
        lambda: compiled.walk07(memoryview(BUFFER), 0, position),
    ):
        with pytest.raises(ValueError, match="outside of the data"):
            ask()
