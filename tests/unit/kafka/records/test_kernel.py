"""The two kernels: which is used, that they are equal, and that the compiled one trusts no caller."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.records import kernel, scan
from streamgroup.kafka.records.fields import BLOCK, FaultCode, Fields, RecordFault, Regions
from tests.unit.kafka.records.encoder import Record, encode_record

compiled = pytest.importorskip("streamgroup.kafka.records._kernel", reason="the compiled kernel has not been built")


pytestmark = pytest.mark.usefixtures("kernel_as_before")


def regions(begin: int, end: int, count: int, delta: int = 100) -> Regions:
    """One batch."""
    one = [np.array([value], np.int64) for value in (begin, end, count, 0, delta, 0)]
    return Regions(*one, append_time=np.zeros(1, np.bool_))


def found(buffer: bytes, where: Regions) -> list[list[int]] | RecordFault:
    """The result of the kernel in use."""
    try:
        fields = kernel.current().scan(np.frombuffer(buffer, np.uint8), where)
    except RecordFault as fault:
        return fault
    return [array.tolist() for array in fields.arrays()]


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


def test_without_the_extension_numpy_is_used_and_asking_for_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamgroup.kafka.records._kernel", None)
    assert kernel._load(None).name == "python"
    with pytest.raises(ConfigError, match="C compiler"):
        kernel.use("compiled")


def test_both_know_the_same_faults() -> None:
    source = importlib.resources.files("streamgroup.kafka.records").joinpath("_kernel.c").read_text()
    for fault in FaultCode:
        assert fault.text
        assert fault is FaultCode.RECORD_COUNT or f"{fault.name} = {fault.value}," in source


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
        where = regions(0, len(body), len(records))
        kernel.use("python")
        slow = found(bytes(body), where)
        kernel.use("compiled")
        fast = found(bytes(body), where)
        if isinstance(slow, RecordFault):
            assert isinstance(fast, RecordFault)
        else:
            assert fast == slow
            agreed += 1
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
        kernel.use("python")
        slow = found(bytes(buffer), where)
        kernel.use("compiled")
        fast = found(bytes(buffer), where)
        assert isinstance(slow, RecordFault) == isinstance(fast, RecordFault)
        assert isinstance(slow, RecordFault) or slow == fast
        assert damage or not isinstance(slow, RecordFault)


def test_no_byte_behind_a_batch_is_read_as_its_own() -> None:
    body = encode_record(Record(0, value=b"v" * 20), 0, 0)
    buffer = np.frombuffer(body * 2, np.uint8)
    for size in range(len(body)):
        for name in ("python", "compiled"):
            kernel.use(name)
            with pytest.raises(RecordFault):
                kernel.current().scan(buffer, regions(0, size, 1))
            with pytest.raises(RecordFault):
                kernel.current().scan(buffer[:size].copy(), regions(0, size, 1))


def out_of_bounds() -> list[tuple[Regions, Fields]]:
    return [
        (regions(-1, 5, 0), Fields.empty(0)),
        (regions(3, 2, 0), Fields.empty(0)),
        (regions(0, 11, 0), Fields.empty(0)),
        (regions(2**62, 2**62, 0), Fields.empty(0)),
        (regions(0, 10, 1), Fields.empty(0)),
        (regions(0, 10, -1), Fields.empty(0)),
        (regions(0, 10, 2**40), Fields.empty(0)),
    ]


@pytest.mark.parametrize(("where", "fields"), out_of_bounds())
def test_a_scan_checks_its_callers_bounds(where: Regions, fields: Fields) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        compiled.scan(np.zeros(10, np.uint8), *where.arrays(), *fields.arrays())


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
