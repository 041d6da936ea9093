"""A decoder refuses counts that the bytes cannot hold, and selects the records whose offsets a task wants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.kafka.records.fields import (
    LEAST_RECORD,
    MAX_MILLISECONDS,
    FaultCode,
    Fields,
    HeaderFields,
    RecordFault,
    Regions,
)
from tests.unit.kafka.records.encoder import Record, encode_record


def longs(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def regions(*batches: tuple[int, int, int]) -> Regions:
    """Batches of these begins, ends and counts."""
    begin, end, count = (longs(*column) for column in zip(*batches, strict=True)) if batches else (longs(),) * 3
    zeros = np.zeros(len(batches), np.int64)
    return Regions(begin, end, count, zeros, zeros, zeros, zeros.astype(np.bool_))


def fields_at(*offsets: int) -> Fields:
    """Records at these offsets; every other field is the index of its record."""
    index = np.arange(len(offsets), dtype=np.int32)
    return Fields(longs(*offsets), index.astype(np.int64), *(index for _ in range(6)))


# -- batches ----------------------------------------------------------------------------------------------------------


def test_the_smallest_record_of_the_format_has_the_bytes_that_bound_a_count() -> None:
    assert len(encode_record(Record(0), 0, 0)) == LEAST_RECORD


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 0), (7, 1), (13, 1), (14, 2), (700, 100)])
def test_a_count_that_the_bytes_can_hold_is_accepted(size: int, count: int) -> None:
    regions((50, 50 + size, count)).check_counts()


@pytest.mark.parametrize(("size", "count"), [(0, 1), (6, 1), (13, 2), (699, 100), (2**20, 2**31 - 1)])
def test_a_count_beyond_the_bytes_is_refused_and_the_fault_names_its_batch(size: int, count: int) -> None:
    with pytest.raises(RecordFault) as caught:
        regions((0, 70, 10), (70, 70 + size, count), (70 + size, 70 + size, 9)).check_counts()
    assert (caught.value.batch, caught.value.fault) == (1, FaultCode.RECORD_COUNT)


def test_the_rows_of_batches_are_what_they_declare_together() -> None:
    declared = regions((0, 70, 10), (70, 70, 0), (70, 100, 2))
    assert (len(declared), declared.rows) == (3, 12)
    assert (len(regions()), regions().rows) == (0, 0)
    regions().check_counts()


def test_each_fault_says_something_else() -> None:
    texts = {fault.text for fault in FaultCode}
    assert len(texts) == len(FaultCode)


def test_the_largest_timestamp_in_milliseconds_is_the_last_whose_microseconds_fit_a_long() -> None:
    assert MAX_MILLISECONDS * 1000 < 2**63 <= (MAX_MILLISECONDS + 1) * 1000


# -- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "until", "rows"),
    [
        (0, 100, slice(0, 4)),
        (10, 20, slice(0, 3)),
        (11, 12, slice(1, 2)),
        (13, 19, slice(3, 3)),
        (12, 20, slice(2, 3)),
        (0, 10, slice(0, 0)),
        (21, 100, slice(4, 4)),
        (20, 21, slice(3, 4)),
    ],
)
def test_records_between_two_offsets_are_one_slice(start: int, until: int, rows: slice) -> None:
    assert fields_at(10, 11, 12, 20).between(start, until) == rows


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 30), max_size=12), st.integers(0, 31), st.integers(0, 31))
def test_the_fields_of_a_range_are_those_of_its_offsets_alone(offsets: set[int], start: int, until: int) -> None:
    start, until = sorted((start, until))
    fields = fields_at(*sorted(offsets))
    part = fields.of(fields.between(start, until))
    assert part.offset.tolist() == [offset for offset in sorted(offsets) if start <= offset < until]
    assert all(array.tolist() == part.timestamp.tolist() for array in part.arrays()[1:])


def test_the_fields_of_all_records_are_not_copied() -> None:
    fields = fields_at(10, 11)
    assert fields.of(slice(0, 2)) is fields
    assert fields.of(slice(0, 1)) is not fields


def test_the_arrays_have_one_element_for_each_row_in_the_width_that_the_compiled_scan_writes() -> None:
    fields, headers = Fields.empty(3), HeaderFields.empty(2)
    assert len(fields) == 3
    assert [(len(array), array.dtype.itemsize) for array in fields.arrays()] == [(3, 8)] * 2 + [(3, 4)] * 6
    assert [(len(array), array.dtype.itemsize) for array in headers.arrays()] == [(2, 4)] * 4
    assert len({array.ctypes.data for array in (*fields.arrays(), *headers.arrays())}) == 12, "none shares its memory"
