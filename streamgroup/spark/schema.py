"""The schema of the rows: the columns of Spark's own Kafka source."""

from __future__ import annotations

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

_FIELDS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)
_INNER = StructField("inner", IntegerType())


def row_schema(include_headers: bool, include_inner_index: bool = False) -> StructType:
    """Return the schema of `spark.read.format("kafka")`. `headers` is null for a record without headers.

    streamgroup adds `inner`, the index of a message within a compressed set of Kafka 0.7, whose messages share one
    offset.
    """
    return StructType([*_FIELDS, *([_HEADERS] if include_headers else []), *([_INNER] if include_inner_index else [])])
