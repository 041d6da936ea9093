from __future__ import annotations

import json
import pickle
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
from streamgroup.parsing.avro import AvroReader, is_schema


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
def test_no_bytes_break_a_batch(values: list[bytes]) -> None:
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
    assert one(reader, value) == (
        None,
        "schema 2 has an array whose items take no bytes. A few damaged bytes could announce any number of them",
    )
    assert one(reader, written(OLD, {"id": 5}, 1)) == ({"id": 5}, None)


def test_an_array_whose_items_take_bytes_is_read() -> None:
    schema = record(("a", {"type": "array", "items": ["null", "int"]}))
    assert one(AvroReader(schema), written(schema, {"a": [None, 1]})) == ({"a": [None, 1]}, None)


def test_a_value_without_room_in_its_column_is_unreadable_alone() -> None:
    schema = record(("price", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}))
    plain = record(("price", "bytes"))
    values = [written(plain, {"price": price}) for price in (b"\x01", b"\x7f\xff\xff", b"")]
    fields, errors = AvroReader(schema).columns(values)
    assert fields.to_pylist() == [{"price": Decimal("0.1")}, None, {"price": Decimal("0.0")}]
    assert errors[0] is errors[2] is None
    assert "a field does not fit its column" in str(errors[1])


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
    with pytest.raises(ConfigError) as raised:
        AvroReader(schema)
    assert said in str(raised.value)


def test_an_installation_without_fastavro_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"Install streamgroup\[avro\]"):
        AvroReader(OLD)


def test_texts_that_are_schemas() -> None:
    assert is_schema(OLD)
    assert not is_schema('syntax = "proto3";')
