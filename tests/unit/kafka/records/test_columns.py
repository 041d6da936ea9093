"""The schema is the one that Spark compares with."""

from __future__ import annotations

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

from streamgroup.kafka.records.columns import schema

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
