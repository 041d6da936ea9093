"""Arrow columns: the schema that Spark compares with, and the rows to write, of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamgroup.errors import EncodeError
from streamgroup.kafka.records.columns import schema
from streamgroup.kafka.records.record_columns import BinaryColumn, RecordColumns, concat
from tests.unit.kafka.records.encode_rows import Sent, columns_of

KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.mark.parametrize("include_damaged_batches", [False, True])
@pytest.mark.parametrize("include_inner_index", [False, True])
@pytest.mark.parametrize("include_headers", [False, True])
def test_it_equals_what_pyspark_makes_of_sparks_kafka_schema(
    include_headers: bool, include_inner_index: bool, include_damaged_batches: bool
) -> None:
    fields = [*KAFKA.fields]
    if include_headers:
        fields.append(StructField("headers", ArrayType(HEADER)))
    if include_inner_index:
        fields.append(StructField("inner", IntegerType()))
    if include_damaged_batches:
        fields.append(StructField("damage", StringType()))
    theirs = to_arrow_schema(StructType(fields), timezone="UTC")
    ours = schema(include_headers, include_inner_index, include_damaged_batches)
    assert theirs.equals(ours, check_metadata=True)
    assert [field.nullable for field in theirs] == [field.nullable for field in ours]


HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROWS = [Sent(b"%d" % i, b"k", i, (("n", b"%d" % i),) if i % 3 else None) for i in range(8)]


def longs(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def listed(columns: RecordColumns) -> list[tuple[Any, ...]]:
    """The rows of `columns`: timestamp, key, value, headers."""
    arrays = (columns.key, columns.value, columns.headers)
    whole = [[None] * len(columns) if array is None else array.to_pylist() for array in arrays]
    return list(zip(columns.timestamp_ms.tolist(), *whole, strict=True))


# -- one binary column ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [None, pa.nulls(3)], ids=["left out", "of type null"])
def test_a_column_that_is_left_out_is_null_in_every_row(array: pa.Array | None) -> None:
    column = BinaryColumn.of(array, "key")
    assert column.lengths(0, 3).tolist() == [-1, -1, -1]
    assert column.nulls(1, 3).tolist() == [True, True]
    assert column.lengths(1, 1).tolist() == []


@pytest.mark.parametrize("array", [pa.array([1]), pa.chunked_array([[b"a"]])], ids=["numbers", "chunks"])
def test_a_column_of_another_type_is_refused_with_its_name(array: Any) -> None:
    with pytest.raises(TypeError, match=r"the column key is .*: expected binary, large_binary, string or large_string"):
        BinaryColumn.of(array, "key")


# -- all columns ------------------------------------------------------------------------------------------------------


def test_headers_without_a_key_are_refused() -> None:
    kind, stamps = pa.list_(HEADER_TYPE), np.zeros(1, np.int64)
    for headers in ([[{"key": None, "value": b"v"}]], [[None]]):
        with pytest.raises(EncodeError, match="null"):
            RecordColumns(None, None, stamps, pa.array(headers, kind))


def test_columns_of_other_types_and_lengths_are_refused() -> None:
    stamps = np.zeros(2, np.int64)
    with pytest.raises(TypeError, match="the column key is int64"):
        RecordColumns(pa.array([1, 2]), None, stamps)
    with pytest.raises(TypeError, match="headers"):
        RecordColumns(None, None, stamps, pa.array(["a", "b"]))
    for column in ("key", "value", "headers"):
        with pytest.raises(ValueError, match=f"{column} has 1 elements"):
            RecordColumns(**{"key": None, "value": None, "timestamp_ms": stamps, column: pa.nulls(1)})


# -- parts ------------------------------------------------------------------------------------------------------------


def test_taken_rows_are_in_the_order_of_the_indices_and_may_repeat() -> None:
    rows = listed(columns_of(ROWS))
    assert listed(columns_of(ROWS).take(longs(7, 0, 7))) == [rows[7], rows[0], rows[7]]
    assert listed(columns_of(ROWS).take(longs())) == []


def test_a_slice_shares_the_memory_and_a_copy_has_its_own() -> None:
    columns = columns_of(ROWS)
    sliced, copied = columns.slice(2, 3), columns.copy(2, 3)
    assert listed(sliced) == listed(copied) == listed(columns)[2:5]
    theirs, shared, own = (part.value.buffers()[2].address for part in (columns, sliced, copied) if part.value)
    assert shared == theirs != own
    assert np.shares_memory(sliced.timestamp_ms, columns.timestamp_ms)
    assert not np.shares_memory(copied.timestamp_ms, columns.timestamp_ms)


def test_parts_of_different_types_are_not_joined() -> None:
    narrow, wide = (RecordColumns(pa.array([b"k"], kind), None, longs(1)) for kind in (pa.binary(), pa.large_binary()))
    with pytest.raises(pa.ArrowInvalid):
        concat([narrow, wide])
