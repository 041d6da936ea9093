"""Records that wait for their batch, as slices of Arrow columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.executor.record_slices import RecordSlices
from streamgroup.records.encode import RecordColumns
from streamgroup.records.record_columns import concat
from tests.unit.executor.producing import ENCODER, columns, payload
from tests.unit.records import reference

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def values_of(slices: RecordSlices) -> list[bytes | None]:
    """The values, from the one record batch that `slices` becomes."""
    data = bytes(slices.encode(ENCODER).sealed(-1, -1, -1))
    ((header, batch),) = reference.split(data)
    return [row.value for row in reference.batch_rows(header, batch)]


def sliced(values: list[bytes | None], start: int, stop: int) -> RecordSlices:
    records = columns(values)
    return RecordSlices.of(records, start, stop, int(ENCODER.sizes(records)[start:stop].sum()))


def test_a_slice_is_encoded_without_its_neighbours() -> None:
    one = sliced([b"a", None, b"c", b"d"], 1, 3)
    assert values_of(one) == [None, b"c"]
    assert one.count == 2


def test_joined_slices_are_one_batch_in_their_order() -> None:
    parts = [sliced([b"a", b"b", b"c"], 1, 3), payload(b"d"), sliced([b"e", b"f"], 0, 1)]
    joined = RecordSlices.joined(parts)
    assert values_of(joined) == [b"b", b"c", b"d", b"e"]
    assert (joined.count, joined.size) == (4, sum(part.size for part in parts))


def test_one_payload_is_joined_to_itself() -> None:
    one = payload(b"a")
    assert RecordSlices.joined([one]) is one


@pytest.mark.parametrize("sizes", [(1, 1), (1, 100), (100, 1), (10, 10, 10, 10), (1, 1, 1, 1, 100)])
def test_halves_have_all_records_in_their_order(sizes: tuple[int, ...]) -> None:
    values = [b"%d" % n * size for n, size in enumerate(sizes)]
    whole = RecordSlices.joined([payload(value) for value in values])
    first, second = whole.halves(ENCODER)
    assert min(first.count, second.count) >= 1
    assert values_of(first) + values_of(second) == values
    again = int(ENCODER.sizes(concat([each.columns for each in whole.slices])).sum())
    assert first.size + second.size == again


def test_halves_are_of_about_the_same_size() -> None:
    first, second = payload(*(b"x" * 100 for _ in range(10))).halves(ENCODER)
    assert (first.count, second.count) == (5, 5)
    assert first.size == second.size


def test_columns_are_joined_with_nulls_where_a_part_has_none() -> None:
    header = [[{"key": "h", "value": b"1"}]]
    parts = [
        RecordColumns(None, pa.array([b"a"], pa.binary()), np.array([1])),
        RecordColumns(pa.array([b"k"], pa.binary()), None, np.array([2]), pa.array(header, HEADERS)),
    ]
    both = concat(parts)
    assert both.key.to_pylist() == [None, b"k"]
    assert both.value.to_pylist() == [b"a", None]
    assert both.timestamp_ms.tolist() == [1, 2]
    assert both.headers.to_pylist() == [None, [{"key": "h", "value": b"1"}]]
    assert concat([parts[0].slice(0, 1), parts[0]]).key is None


def test_slices_of_columns_are_joined_by_their_own_rows() -> None:
    records = columns([b"a", b"b", b"c", b"d"], [b"1", None, b"3", b"4"])
    joined = concat([records.slice(1, 2), records.slice(3, 1)])
    assert joined.value.to_pylist() == [b"b", b"c", b"d"]
    assert joined.key.to_pylist() == [None, b"3", b"4"]
    assert joined.timestamp_ms.tolist() == [1, 2, 3]
