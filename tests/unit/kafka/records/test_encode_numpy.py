"""Without a C compiler, a producer encodes with numpy: the bytes of a reference that goes record by record."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamgroup.errors import EncodeError
from streamgroup.kafka.records import encode_numpy
from streamgroup.kafka.records.record_columns import ColumnBuffers
from tests.unit.kafka.records.encode_rows import Sent, Shape, columns_of, reference_records

LONGEST = 2**31 - 1

ROWS = [
    Sent(b"value", b"key", 5, (("h", b"1"), ("i", None))),
    Sent(None, None, 3, None),
    Sent(b"", b"", 5 + 2**40, ()),
    Sent(b"v" * 64, b"k" * 63, -(2**40), (("h" * 64, b""),)),
]


def buffers(rows: Sequence[Sent], shape: Shape | None = None) -> ColumnBuffers:
    return columns_of(rows, shape or Shape()).buffers


# -- records of batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (3, 4), (1, 2)])
def test_deltas_count_from_the_first_record_of_the_range(start: int, stop: int) -> None:
    data, latest = encode_numpy.encode_records(buffers(ROWS), start, stop, 0)
    assert bytes(data) == reference_records(ROWS[start:stop])
    assert latest == max(row.timestamp for row in ROWS[start:stop])


# -- messages ---------------------------------------------------------------------------------------------------------


# -- what does not fit ------------------------------------------------------------------------------------------------


def test_a_head_that_brings_a_message_beyond_the_limit_is_counted() -> None:
    columns = buffers([Sent(b"value")])
    assert encode_numpy.message_sizes(columns.key, columns.value, 1, LONGEST - 5).tolist() == [LONGEST]
    with pytest.raises(EncodeError, match=f"takes more than {LONGEST} bytes"):
        encode_numpy.message_sizes(columns.key, columns.value, 1, LONGEST - 4)


def test_no_records_have_no_sizes() -> None:
    nothing = columns_of(ROWS).slice(1, 0).buffers
    assert encode_numpy.record_sizes(nothing, 2).tolist() == []
    assert encode_numpy.message_sizes(nothing.key, nothing.value, 0, 26).tolist() == []
