"""The rows' schema against that of Spark's own Kafka source."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructField, StructType

from streamgroup.errors import ConfigError
from streamgroup.spark.source import GroupBatchReader, StreamGroupDataSource, row_schema

GIVEN = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
KAFKAS = "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"


def test_the_schema_is_that_of_sparks_own_source() -> None:
    assert row_schema(False).simpleString() == KAFKAS + ">"
    assert row_schema(True).simpleString() == KAFKAS + ",headers:array<struct<key:string,value:binary>>>"
    assert all(field.nullable for field in row_schema(True).fields)


def test_the_error_for_another_schema_lists_the_columns() -> None:
    with pytest.raises(ConfigError, match=r"fixed schema.*key:binary,value:binary.*headers:array"):
        StreamGroupDataSource({**GIVEN, "includeHeaders": "true"}).reader(row_schema(False))


def test_the_nullability_of_columns_does_not_matter_for_the_schema() -> None:
    strict = StructType([StructField(f.name, f.dataType, nullable=False) for f in row_schema(False).fields])
    assert isinstance(StreamGroupDataSource(GIVEN).reader(strict), GroupBatchReader)
