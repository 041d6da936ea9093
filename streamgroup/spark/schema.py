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
_INNER = StructField("inner", IntegerType())


def row_schema(include_headers: bool, include_inner_index: bool = False) -> StructType:
    """The schema of `spark.read.format("kafka")`; `headers` is null for a record that has none.

    `inner` is ours: it tells apart the messages of a compressed set of Kafka 0.7, which share its offset.
    """
    return StructType([*_FIELDS, *([_HEADERS] if include_headers else []), *([_INNER] if include_inner_index else [])])
