"""The rows' schema: that of Spark's own Kafka source, name by name."""

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


def row_schema(include_headers: bool) -> StructType:
    """The schema of `spark.read.format("kafka")`; `headers` is null for a record that has none."""
    return StructType([*_FIELDS, _HEADERS] if include_headers else list(_FIELDS))
