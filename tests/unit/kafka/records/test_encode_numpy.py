"""Without a C compiler, a producer encodes with numpy: the bytes of a reference that goes record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import EncodeError
from streamgroup.kafka.records import encode_numpy
from streamgroup.kafka.records.encode import RecordFormat
from streamgroup.kafka.records.record_columns import BinaryColumn, ColumnBuffers
from tests.unit.kafka.records.encode_rows import Sent, Shape, columns_of, reference_records, reference_set
from tests.unit.kafka.records.encoder import Record, encode_record
from tests.unit.kafka.records.encoder_sets import Message, encode_message, message07

LONGEST = 2**31 - 1
VARINT_EDGES = [0, 1, 63, 64, 8_191, 8_192]
"""Lengths around those where a zigzag varint takes another byte."""

ROWS = [
    Sent(b"value", b"key", 5, (("h", b"1"), ("i", None))),
    Sent(None, None, 3, None),
    Sent(b"", b"", 5 + 2**40, ()),
    Sent(b"v" * 64, b"k" * 63, -(2**40), (("h" * 64, b""),)),
]
PLAIN = [Sent(row.value, row.key, row.timestamp) for row in ROWS]

payloads = st.none() | st.binary(max_size=70)
rows_of_any_kind = st.lists(
    st.builds(
        Sent,
        payloads,
        payloads,
        st.integers(-(2**52), 2**52),
        st.none() | st.lists(st.tuples(st.sampled_from(["", "h", "wörter"]), payloads), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def buffers(rows: Sequence[Sent], shape: Shape | None = None) -> ColumnBuffers:
    return columns_of(rows, shape or Shape()).buffers


# -- records of batches -----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(rows_of_any_kind, st.booleans(), st.integers(0, 3))
def test_records_are_those_of_the_reference_behind_zeros(rows: list[Sent], hidden: bool, reserve: int) -> None:
    columns = buffers(rows, Shape(hidden=hidden, before=1))
    data, latest = encode_numpy.encode_records(columns, 0, len(rows), reserve)
    assert bytes(data) == bytes(reserve) + reference_records(rows)
    assert latest == max(row.timestamp for row in rows)


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (3, 4), (1, 2)])
def test_deltas_count_from_the_first_record_of_the_range(start: int, stop: int) -> None:
    data, latest = encode_numpy.encode_records(buffers(ROWS), start, stop, 0)
    assert bytes(data) == reference_records(ROWS[start:stop])
    assert latest == max(row.timestamp for row in ROWS[start:stop])


def test_lengths_around_each_size_of_a_varint_are_those_of_the_reference() -> None:
    rows = [Sent(bytes(size), bytes(size), size, (("h", bytes(size)),)) for size in VARINT_EDGES]
    assert bytes(encode_numpy.encode_records(buffers(rows), 0, len(rows), 0)[0]) == reference_records(rows)
    sizes = encode_numpy.record_sizes(buffers(rows), 2).tolist()
    assert sizes == [len(reference_records([row])) for row in rows]


def test_more_headers_than_a_byte_counts_take_a_longer_count() -> None:
    rows = [Sent(headers=(("h", None),) * count) for count in (0, 1, 63, 64)]
    assert bytes(encode_numpy.encode_records(buffers(rows), 0, 4, 0)[0]) == reference_records(rows)


@pytest.mark.parametrize("deltas", [2, 11])
def test_the_size_of_a_record_counts_the_given_bytes_of_its_deltas(deltas: int) -> None:
    """The smallest deltas take a byte each; a record's own length, which counts them, may take one more."""
    for size in (0, 50, 55, 63, 64):
        (found,) = encode_numpy.record_sizes(buffers([Sent(bytes(size))]), deltas).tolist()
        smallest = encode_record(Record(0, value=bytes(size)), 0, 0)
        length_bytes = 1 if smallest[0] < 0x80 else 2
        body = len(smallest) - length_bytes + deltas - 2
        assert found == body + (1 if body < 64 else 2)


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record_format", [RecordFormat.V0, RecordFormat.V1], ids=lambda each: each.name)
@pytest.mark.parametrize(("start", "stop", "reserve"), [(0, 4, 0), (1, 3, 5), (2, 2, 3)])
def test_messages_are_those_of_the_reference_with_offsets_from_0(
    record_format: RecordFormat, start: int, stop: int, reserve: int
) -> None:
    data = encode_numpy.encode_messages(buffers(PLAIN), record_format.magic, start, stop, reserve)
    assert bytes(data) == bytes(reserve) + reference_set(PLAIN[start:stop], record_format)


@pytest.mark.parametrize("record_format", [RecordFormat.V07_0, RecordFormat.V07_1], ids=lambda each: each.name)
@pytest.mark.parametrize(("start", "stop", "reserve"), [(0, 3, 0), (1, 2, 5), (2, 2, 3)])
def test_messages_of_kafka_07_are_payloads_with_a_head(
    record_format: RecordFormat, start: int, stop: int, reserve: int
) -> None:
    rows = [Sent(b"one"), Sent(b""), Sent(b"v" * 300)]
    value = buffers(rows, Shape(before=2)).value
    data = encode_numpy.encode_messages07(value, record_format.magic, start, stop, reserve)
    assert bytes(data) == bytes(reserve) + reference_set(rows[start:stop], record_format)


def test_the_size_of_a_message_is_its_head_and_what_of_key_and_value_is_not_null() -> None:
    columns, no_keys = buffers(PLAIN), BinaryColumn.of(None, "key")
    for magic, head in ((0, 26), (1, 34)):
        sizes = encode_numpy.message_sizes(columns.key, columns.value, 4, head).tolist()
        assert sizes == [len(encode_message(Message(0, row.value, row.key), magic)) for row in PLAIN]
    for magic, head in ((0, 9), (1, 10)):
        sizes = encode_numpy.message_sizes(no_keys, columns.value, 4, head).tolist()
        assert sizes == [len(message07(row.value or b"", magic)) for row in PLAIN]


# -- what does not fit ------------------------------------------------------------------------------------------------

ENCODERS: dict[str, Callable[[ColumnBuffers, int], Any]] = {
    "records": lambda columns, reserve: encode_numpy.encode_records(columns, 0, 1, reserve),
    "messages": lambda columns, reserve: encode_numpy.encode_messages(columns, 1, 0, 1, reserve),
    "messages of 0.7": lambda columns, reserve: encode_numpy.encode_messages07(columns.value, 1, 0, 1, reserve),
}


@pytest.mark.parametrize("encode", ENCODERS.values(), ids=ENCODERS)
def test_more_than_a_length_can_say_is_refused_with_the_limit(encode: Callable[[ColumnBuffers, int], Any]) -> None:
    with pytest.raises(EncodeError, match=f"takes more than {LONGEST} bytes"):
        encode(buffers([Sent(b"value")]), LONGEST)


def test_a_head_that_brings_a_message_beyond_the_limit_is_counted() -> None:
    columns = buffers([Sent(b"value")])
    assert encode_numpy.message_sizes(columns.key, columns.value, 1, LONGEST - 5).tolist() == [LONGEST]
    with pytest.raises(EncodeError, match=f"takes more than {LONGEST} bytes"):
        encode_numpy.message_sizes(columns.key, columns.value, 1, LONGEST - 4)


def test_no_records_have_no_sizes() -> None:
    nothing = columns_of(ROWS).slice(1, 0).buffers
    assert encode_numpy.record_sizes(nothing, 2).tolist() == []
    assert encode_numpy.message_sizes(nothing.key, nothing.value, 0, 26).tolist() == []
