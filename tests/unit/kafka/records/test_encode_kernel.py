"""The encoders of the two kernels: equal bytes for any columns, and the compiled ones trust no caller."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.errors import EncodeError
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.encode import Encoder, RecordColumns, RecordFormat
from tests.unit.kafka.records.encode_rows import Sent, Shape, columns_of

compiled = pytest.importorskip("streamgroup.kafka.records._kernel", reason="the compiled kernel has not been built")

NULLS = (None, None, None, 0, 0)


pytestmark = pytest.mark.usefixtures("kernel_as_before")


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


@pytest.mark.parametrize("name", BROKEN)
def test_columns_whose_offsets_do_not_fit_are_refused(name: str) -> None:
    broken = BROKEN[name]
    sizes = longs(0, 0)
    asks: list[Callable[[], Any]] = [
        lambda: compiled.encode_records(STAMPS, *broken, *NULLS, None, *NULLS, *NULLS, 0, 2, 0),
        lambda: compiled.encode_records(STAMPS, *NULLS, *broken, None, *NULLS, *NULLS, 0, 2, 0),
        lambda: compiled.encode_records(STAMPS, *NULLS, *NULLS, longs(0, 1, 2), *broken, *NULLS, 0, 2, 0),
        lambda: compiled.encode_records(STAMPS, *NULLS, *NULLS, longs(0, 1, 2), *SOUND, *broken, 0, 2, 0),
        lambda: compiled.record_sizes(STAMPS, *broken, *NULLS, None, *NULLS, *NULLS, 2, sizes),
        lambda: compiled.message_sizes(*broken, *NULLS, 26, sizes),
        lambda: compiled.encode_messages(STAMPS, *SOUND, *broken, 1, 0, 2, 0),
        lambda: compiled.encode_messages07(*broken, 1, 0, 2, 0),
    ]
    for ask in asks:
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
