"""The decoders of `kafka/records/`: batches, message sets and their nesting, messages of 0.7, codecs, encoders in C."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from streamgroup.errors import DecodeError
from streamgroup.kafka.records import codecs as compression
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.decode import Aborted, Decoded, DecodeOptions, record_batches
from streamgroup.kafka.records.messages07 import walk07
from tests.fuzz.decoder import Decoder, Sample
from tests.fuzz.mutations import mutated_bytes
from tests.unit.kafka.records import encoder
from tests.unit.kafka.records.encoder import Record, encode_batch, seal
from tests.unit.kafka.records.encoder_sets import (
    COMPRESS,
    Message,
    encode_message,
    encode_set,
    encode_wrapper,
    message07,
    wrapper07,
)
from tests.unit.kafka.records.encoder_sets import reseal as reseal_message
from tests.unit.kafka.records.rows import decode, decode07
from tests.unit.kafka.records.test_messages07 import CAPTURED

VECTORS = Path(__file__).parents[1] / "vectors"
END = 2**62
CAP = 1 << 20
_BATCH_HEAD = 61
_ABORTED = [Aborted(7, 0)]
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy-raw": 2, "lz4": 3, "zstd": 4}
_CODECS07 = ("gzip", "snappy", "snappy-raw")


def _options(data: bytes, *, check_crcs: bool) -> DecodeOptions:
    """Return options that follow from the bytes, so that a case is the same at a replay."""
    bits = data[-1] if data else 0
    return DecodeOptions(
        check_crcs=check_crcs,
        include_headers=bool(bits & 1),
        include_inner_index=bool(bits & 2),
        read_committed=bool(bits & 4),
        max_decompressed_bytes=CAP,
    )


def _taken(decoded: Decoded) -> Decoded:
    """Hold the columns against what Arrow and Spark's schema demand of them."""
    for batch in record_batches(decoded, "t", 0):
        batch.validate(full=True)
    return decoded


# -- record batches ----------------------------------------------------------------------------------------------------


def _batches() -> list[Sample]:
    found = [path.read_bytes() for path in sorted((VECTORS / "records").glob("*.bin"))]
    records = [
        Record(10, 1_000, b"k", b"v" * 5, (("h", b"1"), ("g", None))),
        Record(11, 999, None, b""),
        Record(15, 2**40, b"", None, (("é", b""),)),
        Record(16, 1_700_000_000_123_456_789, None, b"a timestamp in ns"),
    ]
    found += [encode_batch(records, codec=codec) for codec in _CODECS]
    found.append(
        encode_batch(records, log_append_time=5) + encode_batch([Record(30)], producer_id=7, transactional=True)
    )
    found.append(encoder.end_marker(0, 7, encoder.ABORT) + encode_batch(records, codec="lz4"))
    for magic in (0, 1):  # a topic that has changed its format
        old = encode_set([Message(1, b"v", b"k", 5), Message(2, None, None, 6)], magic)
        found.append(old + encode_batch(records) + encode_set([Message(40, b"v")], magic))
    return [Sample("batch", data, (8, 23, 57, *(_BATCH_HEAD + at for at in range(9)))) for data in found]


def _mend_batch(_: str, data: bytes, chance: Random) -> bytes:
    """Most cases get a right checksum; half of them get mutated records, compressed anew."""
    if len(data) <= _BATCH_HEAD or chance.random() < 0.2:
        return data
    if chance.random() < 0.5:
        size = struct.pack(">i", len(data) - 12) if chance.random() < 0.5 else data[8:12]
        data = data[:8] + size + data[12:]
        end = min(max(_BATCH_HEAD, 12 + int.from_bytes(data[8:12], "big")), len(data))
        return encoder.reseal(data[:end]) + data[end:]
    return _sealed_anew(data, chance)


def _sealed_anew(data: bytes, chance: Random) -> bytes:
    """Mutate the records inside of the first batch, and write them by any codec behind the header."""
    base, size = struct.unpack_from(">qi", data)
    attributes, last = struct.unpack_from(">hi", data, 21)
    (count,) = struct.unpack_from(">i", data, 57)
    body = data[_BATCH_HEAD : 12 + size]
    if attributes & 7:
        try:
            body = bytes(compression.inflated(attributes & 7, memoryview(body), CAP))
        except DecodeError:
            body = data[_BATCH_HEAD:]
    body = mutated_bytes(body, range(min(9, len(body))), (body,), chance)
    codec = chance.choice((*_CODECS, "none", "none"))
    packed = bytes(encoder.compress(codec, body))
    if chance.random() < 0.2:
        packed = mutated_bytes(packed, range(min(20, len(packed))), (packed,), chance)
    count = count if chance.random() < 0.8 else chance.choice([0, 1, -1, 2**31 - 1, 2**20, len(body)])
    last = last if chance.random() < 0.8 else chance.choice([2**31 - 1, max(count - 1, -(2**31)), -1, 2**20])
    return seal(base, packed, attributes=attributes & 0xF8 | _CODECS[codec], last_offset_delta=last, count=count)


# -- message sets of magic 0 and 1 -------------------------------------------------------------------------------------


def _sets() -> list[Sample]:
    found = [path.read_bytes() for path in sorted((VECTORS / "message_sets").glob("*.bin"))]
    rows = [Message(3, b"value", b"k", 5), Message(4, None, None, 2**62), Message(9, b"", b"", 7)]
    for magic in (0, 1):
        found += [encode_wrapper(rows, codec, magic) for codec in COMPRESS if codec != "none"]
        found.append(_nested(encode_wrapper(rows, "gzip", magic), ("snappy", "gzip"), magic))
    return [Sample("set", data, (8, 18, 26, *range(4))) for data in found]


def _nested(data: bytes, codecs: Sequence[str], magic: int) -> bytes:
    """Return `data` in as many wrappers as there are codecs, the first one innermost."""
    for codec in codecs:
        attributes = {"none": 0, "gzip": 1, "snappy": 2, "snappy-raw": 2, "lz4": 3, "lz4-broken": 3}[codec]
        data = encode_message(Message(9, COMPRESS[codec](data)), magic, attributes)
    return data


def _mend_set(_: str, data: bytes, chance: Random) -> bytes:
    """Recompute the checksum of the first message, or put the damage into wrappers with right ones."""
    magic = chance.randrange(2)
    match int(chance.random() * 4):
        case 0:
            return data
        case 1 if len(data) > 16:
            end = min(max(16, 12 + int.from_bytes(data[8:12], "big")), len(data))
            return reseal_message(data[:end]) + data[end:]
        case 2:
            wrappers = chance.choice([1, 1, 2, 3, 12])
            return _nested(data[:2_000], [chance.choice(list(COMPRESS)) for _ in range(wrappers)], magic)
    inner = encode_set([Message(chance.choice([0, 1, 9, -1, 2**63 - 1]), data[:99], None, 5) for _ in range(3)], magic)
    inner = mutated_bytes(inner, (8, 14, 18, 26), (inner,), chance)
    return _nested(inner, [chance.choice(list(COMPRESS))], magic)


# -- messages of Kafka 0.7 ---------------------------------------------------------------------------------------------


def _messages07() -> list[Sample]:
    found = [data for data in CAPTURED.values() if data]
    plain = message07(b"a") + message07(b"", 0) + message07(b"longer than the others")
    found += [wrapper07(plain, codec) for codec in _CODECS07]
    found.append(wrapper07(wrapper07(plain, "gzip") + message07(b"x"), "snappy"))
    return [Sample(kind, data, (0, 5, 10, *range(3))) for data in found for kind in ("decode", "walk")]


def _mend07(_: str, data: bytes, chance: Random) -> bytes:
    """Put the damage behind right checksums, in none to twelve wrappers."""
    match int(chance.random() * 4):
        case 0:
            return data
        case 1:
            return message07(data[10:], chance.randrange(2), chance.randrange(4))
        case 2:
            for _ in range(chance.choice([1, 1, 1, 2, 8, 9, 12])):
                data = wrapper07(data[:2_000], chance.choice(_CODECS07))
            return data
    return message07(
        mutated_bytes(COMPRESS[chance.choice(_CODECS07)](data), range(20), (data,), chance), 1, chance.randrange(4)
    )


def _read07(kind: str, data: bytes, *, check_crcs: bool) -> object:
    if kind == "walk":
        return walk07(data, 0, check_crcs=check_crcs)
    return _taken(decode07(data, 0, END, _options(data, check_crcs=check_crcs)))


# -- codecs ------------------------------------------------------------------------------------------------------------


def _packed() -> list[Sample]:
    texts = [b"", b"a", b"words " * 60, Random(3).randbytes(300)]
    found = [
        Sample(str(_CODECS[codec]), encoder.compress(codec, text), tuple(range(16)))
        for codec in _CODECS
        for text in texts
    ]
    return [*found, *(Sample("mend lz4", COMPRESS["lz4-broken"](text), tuple(range(8))) for text in texts)]


def _inflate(kind: str, data: bytes) -> object:
    if kind == "mend lz4":
        return compression.inflated(compression.LZ4, compression.fix_lz4_checksum(memoryview(data)), CAP)
    return compression.inflated(int(kind), memoryview(data), CAP)


# -- the kernel in C beside the one in Python --------------------------------------------------------------------------


def _both(read: Callable[[], object]) -> object:
    """Read by both kernels. They must accept the same bytes, with the same rows, and refuse the same."""
    refused: list[type[DecodeError] | None] = []
    rows: list[object] = []
    text = ""
    before = kernel.name()
    try:
        for name in KERNELS:
            kernel.use(name)
            try:
                rows.append(read())
                refused.append(None)
            except DecodeError as error:
                refused.append(type(error))
                text = str(error)  # the error itself would keep the buffers of the case until the next collection
    finally:
        kernel.use(before)
    kind, other = refused[0], refused[-1]
    assert kind is other, f"{kind} by one kernel, {other} by the other: {text}"
    if kind is not None:
        raise kind(text)
    assert _same(rows[0], rows[-1]), "the kernels read different rows"
    return rows[0]


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, Decoded):
        return bool(np.array_equal(one.starts, other.starts) and one.next_offset == other.next_offset)
    columns = ("key", "value", "offset", "timestamp", "timestamp_type", "headers", "inner")
    return one.next_offset == other.next_offset and all(_equal(getattr(one, c), getattr(other, c)) for c in columns)


def _equal(one: Any, other: Any) -> bool:
    return (one is None and other is None) or bool(one.equals(other))


KERNELS: tuple[kernel.Name, ...] = ("compiled", "python")
"""The kernels that read each case."""

# -- encoders ----------------------------------------------------------------------------------------------------------

_ENCODERS = ("encode_records", "record_sizes", "encode_messages", "encode_messages07", "message_sizes")


def _columns() -> list[Sample]:
    """Return bytes of which `_Buffers` makes columns that the encoders accept, six of each."""
    chance, found = Random("columns"), []
    for name in _ENCODERS:
        left = 6
        while left:
            data = chance.randbytes(60 + 20 * left)
            try:
                _encode(name, data)
            except (ValueError, OverflowError):
                continue
            found.append(Sample(name, data))
            left -= 1
    return found


class _Buffers:
    """Buffers cut from the bytes of a case, as the compiled encoders take them from Arrow, and others."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at % len(self._data)] if self._data else 0

    def take(self, count: int) -> bytes:
        begin, self._at = self._at, self._at + count
        return self._data[begin : self._at]

    def number(self, limit: int) -> int:
        byte = self.byte()
        extremes = (-1, limit + 1, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, 0)
        return byte % (limit + 1) if byte < 236 else extremes[byte % 8]

    def room(self) -> int:
        """Return the bytes to reserve before the records. They are allocated, so no number between is tried."""
        byte = self.byte()
        return byte if byte < 240 else (-1, 2**62, 2**63 - 1, -(2**63))[byte % 4]

    def column(self) -> tuple[Any, ...]:
        """Return validity, offsets, data, first element and width of offsets. Most fit together."""
        shape = self.byte()
        if shape < 24:
            return None, None, None, 0, 4
        data = self.take(self.byte() % 40)
        wide = bool(shape & 1)
        marks = [self.number(len(data)) for _ in range(self.byte() % 8)]
        if shape & 6:
            marks = sorted(max(0, min(mark, len(data))) for mark in marks)
        if marks and self.byte() < 24:
            # One element reaches beyond the data, far enough for a sanitizer to see it; those behind it are empty.
            beyond = self.byte() % len(marks)
            marks[beyond:] = [len(data) + 40] * (len(marks) - beyond)
        kind = np.int64 if wide else np.int32
        limits = np.iinfo(kind)
        offsets = np.array([max(limits.min, min(mark, limits.max)) for mark in marks], kind)
        validity = self.take(self.byte() % 3) if shape & 8 else None
        first = 0 if shape & 0x70 else self.number(8)
        return validity, offsets, data, first, 8 if wide else 4 if shape & 0x80 else 4 - (shape == 255)

    def longs(self, most: int) -> Any:
        return np.array([self.number(5) for _ in range(self.byte() % most)], np.int64)


def _encode(kind: str, data: bytes) -> object:
    from streamgroup.kafka.records import _kernel as compiled  # noqa: PLC0415 - only where it is built

    cut = _Buffers(data)
    stamps, one, other = cut.longs(6), cut.column(), cut.column()
    start, stop = (0, cut.byte() % 4) if cut.byte() < 160 else (cut.number(5), cut.number(5))
    if kind in ("encode_records", "record_sizes"):
        lists = None if cut.byte() < 128 else np.sort(cut.longs(8)) if cut.byte() < 200 else cut.longs(8)
        columns = (stamps, *one, *other, lists, *cut.column(), *cut.column())
        if kind == "encode_records":
            return compiled.encode_records(*columns, start, stop, cut.room())
        return compiled.record_sizes(*columns, cut.number(12), np.empty_like(stamps))
    if kind == "encode_messages":
        return compiled.encode_messages(stamps, *one, *other, cut.byte() % 3, start, stop, cut.room())
    if kind == "encode_messages07":
        return compiled.encode_messages07(*one, cut.byte() % 3, start, stop, cut.room())
    return compiled.message_sizes(*one, *other, cut.number(34), np.empty(cut.byte() % 6, np.int64))


def decoders() -> Iterable[Decoder]:
    """Return the decoders of `kafka/records/`, and the encoders of the compiled kernel."""
    for checked in (True, False):
        suffix = "" if checked else "-unchecked"
        for name, samples, read, mend, enough in (
            ("batches", _batches, _read, _mend_batch, 1_000 if checked else 500),
            ("sets", _sets, _read, _mend_set, 6_000 if checked else 1_500),
            ("messages07", _messages07, _both07, _mend07, 1_000 if checked else 500),
        ):
            decode = functools.partial(read, checked)
            # The compiled kernel and the one in numpy hold their columns at the same time; numpy adds temporary arrays.
            yield Decoder(f"records/{name}{suffix}", samples, decode, mend=mend, cap=8 * CAP, enough=enough)
    yield Decoder("records/codecs", _packed, _inflate, cap=2 * CAP)
    yield Decoder("records/encoders", _columns, _encode, (ValueError, OverflowError), cap=CAP)


def _read(check_crcs: bool, _: str, data: bytes) -> object:
    options = _options(data, check_crcs=check_crcs)
    return _both(lambda: _taken(decode(data, 0, END, options, _ABORTED)))


def _both07(check_crcs: bool, kind: str, data: bytes) -> object:
    return _both(lambda: _read07(kind, data, check_crcs=check_crcs))
