"""Values as Spark's parsers read them: the fields of a record, or the reason why it is a dead letter."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError
from streamgroup.spark import parsed_rows
from streamgroup.spark.parsed_rows import with_parsed
from streamgroup.spark.parsing.parser import Parser
from tests.fakes.protobuf_files import ORDERS, ORDERS_TEXT, message_bytes
from tests.unit.spark.parsing.test_avro import ALL, VALUE, written

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING, price DOUBLE, n STRUCT<k: INT>, `a b` ARRAY<INT>"
JSON: list[tuple[bytes | None, str | None]] = [
    (b'{"id": 1, "name": "a"}', None),
    (b' {"id": 1}\n', None),
    (b"{}", None),
    (b'{"id": null, "extra": 2}', None),
    (b"{'id': 1}", None),
    (b'{"id": 1, "price": NaN}', None),
    (b'{"id": 1, "name": "} {"}', None),
    (None, None),
    (b"", parsed_rows.EMPTY),
    (b"  ", parsed_rows.EMPTY),
    (b'{"id": 1', parsed_rows.NOT_JSON),
    (b'{\x00"id": 1}', parsed_rows.NOT_JSON),
    (b'\xef\xbb\xbf{"id": 1}', parsed_rows.NOT_JSON),
    (b"\x00\x00\x00\x00\x07\x02", parsed_rows.NOT_JSON),
    (b"\xff\xfe\x00", parsed_rows.NOT_UTF8),
    (b'{"id": 1, "name": "\xff"}', parsed_rows.NOT_UTF8),
    (b"null", parsed_rows.NOT_AN_OBJECT),
    (b"1", parsed_rows.NOT_AN_OBJECT),
    (b'[{"id": 1}, {"id": 2}]', parsed_rows.NOT_AN_OBJECT),
    (b'{"id": 1} tail', parsed_rows.SECOND_VALUE),
    (b'{"id": 1}{"id": 2}', parsed_rows.SECOND_VALUE),
    (b'{"id": 1}, {"id": 2}', parsed_rows.SECOND_VALUE),
    (b'{"id": "x", "price": "y"}', f"{parsed_rows.NO_FIT}: id, price"),
    (b'{"id": 1.5}', f"{parsed_rows.NO_FIT}: id"),
    (b'{"id": 99999999999999999999}', f"{parsed_rows.NO_FIT}: id"),
    (b'{"a b": ["x", 1]}', f"{parsed_rows.NO_FIT}: a b"),
    (b'{"n": {"k": "x"}}', parsed_rows.NO_FIT),
]
CSV: list[tuple[bytes | None, str | None]] = [
    (b"1,a", None),
    (b'1,"a\nb"', None),
    (b",", None),
    (None, None),
    (b"", parsed_rows.EMPTY),
    (b"1", f"{parsed_rows.LINE_NO_FIT}; read as null: name"),
    (b"x,a", f"{parsed_rows.LINE_NO_FIT}; read as null: id"),
    (b"1,a,b", parsed_rows.LINE_NO_FIT),
    (b"1,a\n2,b", parsed_rows.LINE_NO_FIT),
    (b"\xff,a", parsed_rows.NOT_UTF8),
]


def read(spark: SparkSession, parser: Parser, values: Iterable[bytes | None]) -> list[Any]:
    frame = spark.createDataFrame([(n, value) for n, value in enumerate(values)], "n INT, value BINARY")
    return with_parsed(frame, parser).orderBy("n").collect()


@pytest.mark.parametrize(
    ("parser", "cases"),
    [(Parser("json", SCHEMA), JSON), (Parser("csv", "id BIGINT, name STRING"), CSV)],
    ids=["json", "csv"],
)
def test_each_value_is_read_or_has_the_reason_why_not(
    spark: SparkSession, parser: Parser, cases: list[tuple[bytes | None, str | None]]
) -> None:
    rows = read(spark, parser, [value for value, _ in cases])
    assert [(None if row.value is None else bytes(row.value), row.error) for row in rows] == cases
    assert rows[0].parsed.asDict(recursive=True)["id"] == 1
    assert rows[0].parsed.__fields__ == [field.name for field in parsed_rows.struct_of(parser.schema)]


def test_options_of_sparks_parser_take_effect(spark: SparkSession) -> None:
    (row,) = read(spark, Parser("csv", "id INT, day DATE", {"sep": ";", "dateFormat": "dd.MM.yyyy"}), [b"1;02.03.2024"])
    assert (row.error, str(row.parsed.day)) == (None, "2024-03-02")
    (row,) = read(spark, Parser("json", "id INT", {"allowComments": "true"}), [b'/* c */ {"id": 1}'])
    assert (row.error, row.parsed.id) == (None, 1)


def test_a_null_value_goes_on_or_is_a_dead_letter_by_choice(spark: SparkSession) -> None:
    (kept,) = read(spark, Parser("json", "id INT"), [None])
    assert (kept.parsed, kept.error) == (None, None)
    (dead,) = read(spark, Parser("json", "id INT", null_values="dead_letter"), [None])
    assert (dead.parsed, dead.error) == (None, parsed_rows.NULL)


@pytest.mark.parametrize(
    ("schema", "said"), [("id BIGINTT", "cannot read the schema"), ("ARRAY<INT>", "expected columns")]
)
def test_a_schema_that_spark_cannot_read_is_refused(spark: SparkSession, schema: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(spark, Parser("json", schema), [])


def test_avro_is_read_into_the_same_fields_and_garbage_has_a_reason(spark: SparkSession) -> None:
    whole, cut = written(ALL, VALUE), written(ALL, VALUE)[:-1]
    good, bad, null = read(spark, Parser("avro", ALL), [whole, cut, None])
    assert (good.error, null.error, null.parsed, bad.parsed) == (None, None, None, None)
    assert bad.error.startswith("the value is not Avro of its schema: ")
    found = good.parsed.asDict(recursive=True)
    assert (found["n"], found["e"], bytes(found["b"]), found["price"]) == (-5, "B", b"\xff", VALUE["price"])
    assert (found["day"], found["map"], found["inner"], found["again"]) == (VALUE["day"], {"a": 1}, {"k": 3}, {"k": 4})
    assert good.parsed.ms == good.parsed.us == good.parsed.list[1]
    (row,) = spark.createDataFrame([(good.parsed.ms,)], "t TIMESTAMP").selectExpr("unix_millis(t) AS ms").collect()
    assert row.ms == int(VALUE["ms"].timestamp() * 1000)


def test_avro_of_a_registry_is_read_by_the_schemas_that_the_driver_sends(spark: SparkSession) -> None:
    parser = Parser("avro", ALL, framing="schema_id")
    frame = spark.createDataFrame([(n, written(ALL, VALUE, n)) for n in (1, 2)], "n INT, value BINARY")
    rows = with_parsed(frame, parser, {1: ALL}).orderBy("n").collect()
    assert [row.error for row in rows] == [None, "the registry has no Avro schema with id 2"]


@pytest.mark.parametrize("parser", [Parser("json", "id INT"), Parser("avro", ALL, framing="schema_id")])
def test_a_damaged_batch_has_its_damage_for_a_reason(spark: SparkSession, parser: Parser) -> None:
    values = [(0, b'{"id": 1}', "the bytes are damaged"), (1, None, None), (2, b"\0", None)]
    frame = spark.createDataFrame(values, "n INT, value BINARY, damage STRING")
    batch, null, garbage = with_parsed(frame, parser).orderBy("n").collect()
    assert (batch.parsed, batch.error, null.error) == (None, "the bytes are damaged", None)
    assert garbage.error
    assert batch.__fields__ == ["n", "value", "parsed", "error"]


PROTOBUF = Parser("protobuf", message="shop.Order", descriptor=ORDERS)
ORDER = {
    "uint64": str(2**64 - 1),
    "string": "ab",
    "bytes": "/w==",
    "state": "PAID",
    "at": "2024-03-02T01:02:03.456789Z",
    "lines": [{"cents": "5"}, {}],
    "counts": {"a": "7"},
}


def test_protobuf_is_read_into_fields_and_garbage_has_a_reason(spark: SparkSession) -> None:
    whole = message_bytes(ORDERS, "shop.Order", **ORDER)
    good, cut, empty, null = read(spark, PROTOBUF, [whole, whole[:-1], b"", None])
    assert (good.error, empty.error, null.error, null.parsed, cut.parsed) == (None, None, None, None, None)
    assert cut.error.startswith("the value is not a message shop.Order: ")
    found = good.parsed.asDict(recursive=True)
    assert (found["uint64"], found["string"], bytes(found["bytes"])) == (Decimal(2**64 - 1), "ab", b"\xff")
    assert (found["state"], found["lines"]) == ("PAID", [{"cents": 5}, {"cents": 0}])
    assert (found["counts"], found["line"], found["maybe"]) == ({"a": Decimal(7)}, None, None)
    assert (empty.parsed.int64, empty.parsed.state, empty.parsed.at, empty.parsed.lines) == (0, "NEW", None, [])
    (row,) = spark.createDataFrame([(found["at"],)], "t TIMESTAMP").selectExpr("unix_micros(t) AS us").collect()
    assert row.us == 1_709_341_323_456_789


def test_protobuf_of_a_registry_is_read_by_the_message_index(spark: SparkSession) -> None:
    parser = Parser("protobuf", message="shop.Order", descriptor=ORDERS, framing="schema_id")
    value = message_bytes(ORDERS, "shop.Order", string="x")
    values = [b"\0\0\0\0" + rest + value for rest in (b"\1\2\2", b"\1\0", b"\2\0")]
    frame = spark.createDataFrame([*enumerate(values)], "n INT, value BINARY")
    rows = with_parsed(frame, parser, {1: ORDERS_TEXT}).orderBy("n").collect()
    assert [row.error for row in rows] == [
        None,
        "the message index [0] in schema 1 is shop.Refund, not shop.Order",
        "the registry has no Protobuf schema with id 2",
    ]
    assert rows[0].parsed.string == "x"


@pytest.mark.parametrize(
    ("parser", "package"),
    [(Parser("avro", ALL), "fastavro"), (PROTOBUF, "google/protobuf")],
    ids=["avro", "protobuf"],
)
def test_an_executor_without_the_package_says_which_extra_to_install(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parser: Parser, package: str
) -> None:
    hidden = tmp_path / package / "__init__.py"
    hidden.parent.mkdir(parents=True)
    hidden.write_text("raise ImportError('hidden')")
    # Spark starts workers of their own for another environment, and their Python finds the directory first.
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
    steps = rf"Install streamgroup\[{parser.format}\] for the Python of the driver and of the executors"
    with pytest.raises(PythonException, match=steps):
        read(spark, parser, [b""])
