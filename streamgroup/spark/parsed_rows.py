"""Adds the columns `parsed` and `error` to a query's rows: the fields of the value, or why it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructType

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.avro import AvroReader
from streamgroup.spark.parsing.framing import SCHEMA_ID
from streamgroup.spark.parsing.parser import BINARY, DEAD_LETTER, ERROR, PARSED, PROTOBUF, Parser, ValueReader
from streamgroup.spark.parsing.protobuf import ProtobufReader

_CORRUPT = "_streamgroup_corrupt_record"
_RAW = "_streamgroup_raw"
DAMAGE = "damage"
"""The column of the source with `includeDamagedBatches`."""
_RELAXED = "allow"
"""The beginning of the JSON options that accept more than JSON."""

NULL = "the value is null"
NOT_UTF8 = "the value is not valid UTF-8"
EMPTY = "the value is empty"
NOT_JSON = "the value is not valid JSON"
NOT_AN_OBJECT = "the JSON value is not an object"
SECOND_VALUE = "something follows the JSON value"
NO_FIT = "a field does not fit the schema"
LINE_NO_FIT = "the line does not fit the schema"


def with_parsed(frame: DataFrame, parser: Parser, writers: Mapping[int, str] | None = None) -> DataFrame:
    """Return `frame` with the columns `parsed` and `error`; `error` is null for a record that was read.

    `writers` are the schemas of a registry by id, if the parser has one. For a row of a damaged batch, the column
    `damage` is removed and becomes the error.

    Raises ConfigError for a schema that Spark cannot read, and for a frame that already has one of the columns.
    """
    if taken := sorted({PARSED, ERROR} & set(frame.columns)):
        raise ConfigError(f"cannot parse rows with a column {' and '.join(taken)}: rename it before")
    if DAMAGE in frame.columns:
        parsed = _with_parsed(frame, parser, writers).withColumn(ERROR, F.coalesce(F.col(DAMAGE), F.col(ERROR)))
        return parsed.withColumn(PARSED, F.when(F.col(DAMAGE).isNull(), F.col(PARSED))).drop(DAMAGE)
    return _with_parsed(frame, parser, writers)


def _with_parsed(frame: DataFrame, parser: Parser, writers: Mapping[int, str] | None) -> DataFrame:
    of_null = F.lit(NULL) if parser.null_values == DEAD_LETTER else F.lit(None).cast("string")
    if parser.format in BINARY:
        return _with_reader(frame, _reader(parser, writers), of_null)
    schema = struct_of(parser.schema)
    text = F.col("value").cast("string")
    read = F.from_json if parser.format == "json" else F.from_csv
    options = {**parser.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    columns = StructType([*schema.fields]).add(_CORRUPT, StringType()).toDDL()
    raw = frame.withColumn(_RAW, read(text, columns, options))
    names = [one.name for one in schema.fields]
    error = _json_error(text, names, parser) if parser.format == "json" else _csv_error(text, names)
    return (
        raw.withColumn(ERROR, F.when(F.col("value").isNull(), of_null).otherwise(error))
        .withColumn(PARSED, F.col(_RAW).dropFields(_CORRUPT))
        .select(*frame.columns, PARSED, ERROR)
    )


def _reader(parser: Parser, writers: Mapping[int, str] | None) -> ValueReader:
    schema_ids = parser.framing == SCHEMA_ID
    if parser.format == PROTOBUF:
        return ProtobufReader(parser.descriptor, parser.message, schema_ids=schema_ids, writers=writers)
    return AvroReader(parser.schema, schema_ids=schema_ids, writers=writers)


def _with_reader(frame: DataFrame, reader: ValueReader, of_null: Column) -> DataFrame:
    fields = from_arrow_type(reader.type)
    result = StructType().add(PARSED, fields).add(ERROR, StringType())

    def read(values: Any) -> Any:
        parsed, errors = reader.columns(values.to_pylist())
        return pa.StructArray.from_arrays([parsed, pa.array(errors, pa.string())], [PARSED, ERROR])

    # An Arrow UDF: mapInArrow and pandas UDFs require pandas, which nothing else in this package needs.
    read.__annotations__ = {"values": pa.Array, "return": pa.Array}
    make_udf: Any = arrow_udf  # its stubs leave structs out
    as_column = make_udf(read, result)
    raw = F.col(_RAW)
    error = F.when(F.col("value").isNull(), of_null).otherwise(raw.getField(ERROR))
    read_rows = frame.withColumn(_RAW, as_column("value"))
    return read_rows.select(*frame.columns, raw.getField(PARSED).alias(PARSED), error.alias(ERROR))


def struct_of(ddl: str) -> StructType:
    """Return the columns of a schema in Spark's DDL. Raises ConfigError if it is invalid."""
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        cause = str(error).splitlines()[0]
        raise ConfigError(f"cannot read the schema of the parser, {ddl!r}: {cause}. Write it as Spark's DDL") from None
    if not isinstance(schema, StructType):
        raise ConfigError(
            f"invalid schema {ddl!r} of the parser: expected columns, for example 'id BIGINT, name STRING'"
        )
    return schema


def _json_error(text: Column, names: list[str], parser: Parser) -> Column:
    """Return why Spark's JSON reader did not read a text; null if it did.

    Spark reads the first value of a text and ignores the rest: `{"id":1}{"id":2}` would lose a record. As the element
    of an array such a text is not one value. NaN and Infinity, which Spark reads, are not JSON to that check.
    """
    raw = F.col(_RAW)
    elements = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    unread = (
        F.when(~F.ltrim(text).startswith("{"), F.when(elements == 1, NOT_AN_OBJECT).otherwise(NOT_JSON))
        .when(elements.isNull(), NOT_JSON)
        .otherwise(_with_names(NO_FIT, [_unfit(text, name) for name in names if "'" not in name]))
    )
    error = F.when(~F.is_valid_utf8(text), NOT_UTF8).when(raw.isNull(), EMPTY).when(raw[_CORRUPT].isNotNull(), unread)
    if any(name.lower().startswith(_RELAXED) for name in parser.options):
        return error
    is_one = elements.eqNullSafe(F.lit(1)) | text.rlike("NaN|INF|Infinity")
    return error.when(~is_one, SECOND_VALUE)


def _unfit(text: Column, name: str) -> Column:
    """Return the name of a field that the text has and Spark has not read."""
    has = F.get_json_object(text, f"$['{name}']").isNotNull()
    return F.when(F.col(_RAW).getField(name).isNull() & has, F.lit(name))


def _csv_error(text: Column, names: list[str]) -> Column:
    raw = F.col(_RAW)
    nulls = [F.when(raw.getField(name).isNull(), F.lit(name)) for name in names]
    return (
        F.when(~F.is_valid_utf8(text), NOT_UTF8)
        .when(raw.isNull() | (F.length(text) == 0), EMPTY)
        .when(raw[_CORRUPT].isNotNull(), _with_names(f"{LINE_NO_FIT}; read as null", nulls, LINE_NO_FIT))
    )


def _with_names(said: str, names: list[Column], without: str = "") -> Column:
    listed = F.concat_ws(", ", *names)
    return F.when(listed == "", without or said).otherwise(F.concat(F.lit(f"{said}: "), listed))
