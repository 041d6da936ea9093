from __future__ import annotations

import json
import pickle
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.avro import AvroReader, is_schema


def record(*fields: tuple[str, Any], **more: Any) -> str:
    named = [{"name": name, "type": of} for name, of in fields]
    return json.dumps({"type": "record", "name": "r", "fields": named, **more})


def written(schema: str, value: dict[str, Any], schema_id: int | None = None) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    prefix = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return prefix + out.getvalue()


def one(reader: AvroReader, value: bytes) -> tuple[Any, str | None]:
    fields, errors = reader.columns([value])
    return fields.to_pylist()[0], errors[0]


ALL = record(
    ("n", "long"),
    ("f", "float"),
    ("s", ["null", "string"]),
    ("b", "bytes"),
    ("e", {"type": "enum", "name": "e", "symbols": ["A", "B"]}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("us", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}),
    ("list", {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}),
    ("map", {"type": "map", "values": "int"}),
    ("inner", {"type": "record", "name": "i", "fields": [{"name": "k", "type": "int"}]}),
    ("again", ["null", "i"]),
)
T = datetime(2024, 3, 2, 1, 2, 3, 456_000, UTC)
VALUE = {
    "n": -5,
    "f": 0.5,
    "s": None,
    "b": b"\xff",
    "e": "B",
    "day": date(2024, 3, 2),
    "ms": T,
    "us": T,
    "price": Decimal("-12345678901234567890123456789012345.67"),
    "list": [T, T],
    "map": {"a": 1},
    "inner": {"k": 3},
    "again": {"k": 4},
}


def test_every_type_becomes_a_column() -> None:
    reader = AvroReader(ALL)
    found, error = one(reader, written(ALL, VALUE))
    assert error is None
    assert found == {**VALUE, "map": [("a", 1)]}
    assert reader.type.field("ms").type == pa.timestamp("us", "UTC")


def test_the_reader_goes_to_tasks() -> None:
    reader = pickle.loads(pickle.dumps(AvroReader(ALL, schema_ids=True, writers={7: ALL})))
    assert one(reader, written(ALL, VALUE, 7))[1] is None


OLD, NEW = record(("id", "int")), record(("id", "long"), ("name", {"type": "string"}))
WANTED = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
    }
)


def test_values_are_read_by_the_schema_of_their_id() -> None:
    reader = AvroReader(WANTED, schema_ids=True, writers={1: OLD, 2: NEW})
    values = [written(OLD, {"id": 5}, 1), written(NEW, {"id": 6, "name": "x"}, 2), None, written(OLD, {"id": 7}, 3)]
    fields, errors = reader.columns(values)
    assert fields.to_pylist() == [{"id": 5, "name": None}, {"id": 6, "name": "x"}, None, None]
    assert errors == [None, None, None, "the registry has no Avro schema with id 3"]


def test_without_a_registry_any_id_is_read_by_the_one_schema() -> None:
    assert one(AvroReader(OLD, schema_ids=True), written(OLD, {"id": 5}, 9)) == ({"id": 5}, None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "the value is not Avro of its schema: "),
        (written(NEW, {"id": 6, "name": "x"})[:-1], "the value is not Avro of its schema: "),
        (written(NEW, {"id": 6, "name": "x"}) + b"ab", "2 bytes follow the Avro value"),
        (b"\x02\x04\xff\xff", "the value is not Avro of its schema: UnicodeDecodeError"),
        (b"\x02" + b"\xff" * 9 + b"\x01", "the value is not Avro of its schema: "),
    ],
)
def test_garbage_has_a_reason(value: bytes, said: str) -> None:
    found, error = one(AvroReader(NEW), value)
    assert found is None
    assert error is not None
    assert error.startswith(said)


def test_equal_garbage_has_equal_reasons() -> None:
    schema = record(("f", "double"))
    _, reasons = AvroReader(schema).columns([b"a", b"b"])
    assert reasons == ["the value is not Avro of its schema: EOFError cannot read double"] * 2


@given(st.lists(st.binary(max_size=40)))
def test_no_bytes_break_a_batch_of_avro(values: list[bytes]) -> None:
    fields, errors = AvroReader(NEW).columns(values)
    assert len(fields) == len(errors) == len(values)
    assert all((found is None) == (error is not None) for found, error in zip(fields.to_pylist(), errors, strict=True))


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "fixed", "name": "f", "size": 0},
        {"type": "record", "name": "e", "fields": []},
    ],
)
def test_an_array_whose_items_take_no_bytes_is_refused(items: Any) -> None:
    """Two bytes announce a thousand of them here, ten would announce 2^62."""
    array = record(("a", {"type": "array", "items": items}))
    with pytest.raises(ConfigError, match=r"field a of the Avro schema: the items of its array take no bytes\. A few"):
        AvroReader(array)
    nested = record(("id", "int"), ("m", ["null", {"type": "map", "values": {"type": "array", "items": items}}]))
    reader = AvroReader(OLD, schema_ids=True, writers={1: OLD, 2: nested})
    value = b"\x00\x00\x00\x00\x02" + b"\x0a\x02\x02\x02a" + b"\xd0\x0f\x00\x00"
    said = "schema 2 has an array of items that take no bytes. A few damaged bytes could announce any number of them"
    assert one(reader, value) == (None, said)
    assert one(reader, written(OLD, {"id": 5}, 1)) == ({"id": 5}, None)


def test_an_array_whose_items_take_bytes_is_read() -> None:
    schema = record(("a", {"type": "array", "items": ["null", "int"]}))
    assert one(AvroReader(schema), written(schema, {"a": [None, 1]})) == ({"a": [None, 1]}, None)


def price(precision: int, scale: int) -> str:
    """Return the schema of a record with a decimal."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return record(("price", decimal))


def price_bytes(value: bytes) -> bytes:
    """Return such a record with any bytes for its decimal."""
    return written(record(("price", "bytes")), {"price": value})


def test_a_value_without_room_in_its_column_is_unreadable_alone() -> None:
    fields, errors = AvroReader(price(3, 1)).columns(
        [price_bytes(b"\x01"), price_bytes(b"\x7f\xff\xff"), price_bytes(b"")]
    )
    assert fields.to_pylist() == [{"price": Decimal("0.1")}, None, {"price": Decimal("0.0")}]
    assert errors[0] is errors[2] is None
    assert errors[1] == "a decimal has more than the 3 digits of its schema"


@pytest.mark.parametrize("size", [17, 1_800, 100_000])
def test_a_decimal_of_thousands_of_digits_is_unreadable(size: int) -> None:
    """Python writes no integer of more than 4,300 digits."""
    found = one(AvroReader(price(38, 2)), price_bytes(b"\x7f" * size))
    assert found == (None, "a decimal has more than the 38 digits of its schema")


def test_the_largest_decimals_of_a_schema_are_read() -> None:
    schema = price(3, 1)
    for text in ("99.9", "-99.9", "0.0"):
        assert one(AvroReader(schema), written(schema, {"price": Decimal(text)})) == ({"price": Decimal(text)}, None)
    for number in (1000, -1000):
        value = price_bytes(number.to_bytes(2, "big", signed=True))
        assert one(AvroReader(schema), value) == (None, "a decimal has more than the 3 digits of its schema")


BOOLEANS = record(
    ("a", "boolean"),
    ("b", {"type": "boolean"}),
    ("c", ["null", "boolean"]),
    ("d", {"type": "array", "items": "boolean"}),
    ("e", {"type": "map", "values": {"type": "boolean"}}),
    ("f", {"type": "record", "name": "inner", "fields": [{"name": "a", "type": "boolean"}]}),
)


@pytest.mark.parametrize("given", [True, False])
def test_booleans_are_read_wherever_they_are(given: bool) -> None:
    value = {"a": given, "b": not given, "c": given, "d": [True, False], "e": {"k": given}, "f": {"a": given}}
    read = {**value, "e": [("k", given)]}
    assert one(AvroReader(BOOLEANS), written(BOOLEANS, value)) == (read, None)
    without_c = written(BOOLEANS, {**value, "c": None})
    assert one(AvroReader(BOOLEANS), without_c) == ({**read, "c": None}, None)
    fields = ({"name": name, "type": ["null", "boolean"], "default": None} for name in "ac")
    newer = json.dumps(
        {"type": "record", "name": "r", "fields": [*fields, {"name": "z", "type": "boolean", "default": given}]}
    )
    found = one(AvroReader(newer, schema_ids=True, writers={1: BOOLEANS}), written(BOOLEANS, value, 1))
    assert found == ({"a": given, "c": given, "z": given}, None)


@pytest.mark.parametrize("byte", [2, 0x7F, 0xFF])
def test_a_boolean_of_another_byte_than_0_and_1_is_damage(byte: int) -> None:
    reason = f"a boolean has the byte {byte}: expected 0 or 1"
    assert one(AvroReader(record(("a", "boolean"))), bytes([byte])) == (None, reason)
    array = AvroReader(record(("a", {"type": "array", "items": "boolean"})))
    assert one(array, bytes([4, 1, byte, 0])) == (None, reason)


def linked(field: Any = None) -> str:
    """Return the schema of a list, whose field `next` has the type `field`."""
    return record(("id", "int"), ("next", ["null", "r"] if field is None else field))


@pytest.mark.parametrize(
    ("field", "level"),
    [
        (["null", "r"], b"\x02\x02"),
        ({"type": "array", "items": "r"}, b"\x02\x02"),
        ({"type": "map", "values": "r"}, b"\x02\x00\x02"),
        (["null", {"type": "record", "name": "other", "fields": [{"name": "r", "type": "r"}]}], b"\x02\x02"),
        ("r", b"\x02"),
    ],
    ids=["union", "array", "map", "two types", "without an end"],
)
def test_a_value_of_any_depth_is_unreadable_and_does_not_end_the_process(field: Any, level: bytes) -> None:
    """The compiled code of fastavro skips such a field by recursion, until the stack of the process is full."""
    reader = AvroReader(OLD, schema_ids=True, writers={7: linked(field)})
    value = b"\0\0\0\0\7\x0a" + level * 100_000 + b"\0\0"
    found, error = one(reader, value)
    assert found is None
    assert error == "the value, or its schema in the registry, nests too deep"


def test_a_number_of_many_bytes_is_unreadable_at_once() -> None:
    """fastavro's code in Python would collect its bits, in a time that grows with the square of the bytes."""
    reader = AvroReader(OLD, schema_ids=True, writers={7: linked()})
    error = str(one(reader, b"\0\0\0\0\7" + b"\xff" * 20 + b"\0")[1])
    assert error.endswith("a number has more than 10 bytes")
    value = written(linked(), {"id": -(2**31), "next": {"id": 2**31 - 1, "next": None}}, 7)
    assert one(reader, value) == ({"id": -(2**31)}, None)


def test_a_field_that_contains_its_type_is_left_out_of_values_of_usual_depth() -> None:
    value: dict[str, Any] | None = None
    for depth in range(50):
        value = {"id": depth, "next": value}
    assert value is not None
    reader = AvroReader(OLD, schema_ids=True, writers={7: linked()})
    assert one(reader, written(linked(), value, 7)) == ({"id": 49}, None)


def test_an_array_of_empty_items_is_refused_in_a_schema_that_contains_itself() -> None:
    empty = {"type": "record", "name": "empty", "fields": [{"name": "n", "type": "null"}]}
    fields = [("id", "int"), ("next", ["null", "r"]), ("one", empty), ("many", {"type": "array", "items": "empty"})]
    reader = AvroReader(OLD, schema_ids=True, writers={7: record(*fields)})
    assert "array of items that take no bytes" in str(one(reader, b"\0\0\0\0\7\x0a\0\0\0")[1])


def test_a_schema_of_a_registry_is_not_expanded() -> None:
    """40 types that each have the next one twice would be a million million when expanded."""
    inner: Any = "int"
    for depth in range(40):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"t{depth - 1}" if depth else "int"}]
        inner = {"type": "record", "name": f"t{depth}", "fields": fields}
    reader = AvroReader(OLD, schema_ids=True, writers={7: record(("id", "int"), ("more", ["null", inner]))})
    assert one(reader, b"\0\0\0\0\7\x0a\0") == ({"id": 5}, None)


def test_a_schema_that_nests_too_deep_is_not_a_schema() -> None:
    text = '{"type":"array","items":' * 100_000
    deep = '{"type":"array","items":' * 800 + '"int"' + "}" * 800
    assert not is_schema(text)
    assert not is_schema('syntax = "proto3";')
    assert is_schema(OLD)
    reader = AvroReader(OLD, schema_ids=True, writers={7: record(("id", "int")).replace('"int"', deep)})
    assert one(reader, b"\0\0\0\0\7\x0a\0")[0] is None


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "invalid Avro schema"),
        ('"int"', "its root must be a record"),
        (record(("a", "nonsense")), "invalid Avro schema"),
        (record(("a", ["int", "string"])), "field a of the Avro schema: a union of several types"),
        (record(("a", ["null", "r"])), "field a of the Avro schema: its type r contains itself"),
        (
            record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
            "field a of the Avro schema: Spark's decimals have up to 38 digits, and this one 39",
        ),
    ],
)
def test_a_schema_without_columns_is_refused(schema: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        AvroReader(schema)


def test_an_installation_without_fastavro_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"Install streamgroup\[avro\]"):
        AvroReader(OLD)
