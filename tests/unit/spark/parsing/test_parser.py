from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.framing import UnreadableError
from streamgroup.spark.parsing.parser import Parser, ValueReader


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"format": "xml"}, "unknown format 'xml' of a parser: expected one of json, csv, avro, protobuf"),
        ({"format": "json"}, "format json requires a schema"),
        ({"format": "csv", "schema": " "}, "format csv requires a schema"),
        ({"format": "json", "schema": "a INT", "null_values": "drop"}, "null_values: expected keep or dead_letter"),
        ({"format": "json", "schema": "a INT", "options": {"Mode": "FAILFAST"}}, "cannot set option Mode of a parser"),
        (
            {"format": "csv", "schema": "a INT", "options": {"columnNameOfCorruptRecord": "c"}},
            "cannot set option columnNameOfCorruptRecord of a parser: a dead letter has the value itself",
        ),
        ({"format": "protobuf", "message": "a.B"}, "format protobuf requires message and descriptor"),
        ({"format": "protobuf", "descriptor": b"x"}, "format protobuf requires message and descriptor"),
        (
            {"format": "protobuf", "message": "a.B", "descriptor": b"x", "schema": "a INT"},
            "cannot set a schema with format protobuf: the descriptor has it",
        ),
        (
            {"format": "protobuf", "message": "a.B", "descriptor": b"x", "options": {"a": "b"}},
            "cannot set options with format protobuf",
        ),
        ({"format": "json", "schema": "a INT", "framing": "schema_id"}, "cannot use framing or a registry with format"),
        ({"format": "avro", "schema": "{}", "framing": "x"}, "unknown value 'x' for framing"),
        ({"format": "avro", "schema": "{}", "message": "a.B"}, "cannot use message or descriptor with format avro"),
        ({"format": "json", "schema": "a INT", "descriptor": b"x"}, "cannot use message or descriptor with format js"),
    ],
)
def test_a_parser_that_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        Parser(**given)


def test_all_problems_are_named_together() -> None:
    with pytest.raises(ConfigError, match=r"requires a schema.*; unknown value 'x' for null_values"):
        Parser("json", null_values="x")


class Words(ValueReader):
    """Reads `name=number` as the columns `name` and `number`, an int of 8 bits."""

    type = pa.struct([("name", pa.string()), ("number", pa.int8())])

    def read(self, value: bytes) -> Any:
        name, _, number = value.partition(b"=")
        if not number:
            raise UnreadableError(f"{value!r} has no number")
        return {"name": name.decode(), "number": int(number) if number.isdigit() else number.decode()}


def row(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "number": number}


def test_values_become_rows_in_their_order_and_null_stays_null_without_an_error() -> None:
    found, errors = Words().columns([b"a=1", None, b"b=2"])
    assert found.type == Words.type
    assert found.to_pylist() == [row("a", 1), None, row("b", 2)]
    assert errors == [None, None, None]


def test_a_value_that_cannot_be_read_is_null_and_has_the_reason() -> None:
    found, errors = Words().columns([b"a=1", b"b", b""])
    assert found.to_pylist() == [row("a", 1), None, None]
    assert errors == [None, "b'b' has no number", "b'' has no number"]


@pytest.mark.parametrize("value", [b"b=128", b"b=two", b"b=" + b"9" * 30])
def test_a_field_that_does_not_fit_its_column_costs_its_row_alone(value: bytes) -> None:
    found, errors = Words().columns([b"a=127", value, b"c", None, b"d=4"])
    assert found.type == Words.type
    assert found.to_pylist() == [row("a", 127), None, None, None, row("d", 4)]
    assert errors[1] is not None
    assert errors[1].startswith("a field does not fit its column: ")
    assert errors[:1] + errors[2:] == [None, "b'c' has no number", None, None]


def test_a_timestamp_before_the_first_that_arrow_can_hold_has_a_reason() -> None:
    class Times(ValueReader):
        type = pa.struct([("at", pa.timestamp("ns", tz="UTC"))])

        def read(self, value: bytes) -> Any:
            return {"at": datetime(int(value), 1, 1, tzinfo=UTC)}

    found, errors = Times().columns([b"2020", b"1"])
    assert found.is_null().to_pylist() == [False, True]
    assert errors[0] is None
    assert str(errors[1]).startswith("a field does not fit its column: ")


def test_an_error_that_is_not_about_the_value_is_raised() -> None:
    class Broken(Words):
        def read(self, value: bytes) -> Any:
            raise KeyError("a defect of the reader")

    with pytest.raises(KeyError, match="a defect of the reader"):
        Broken().columns([b"a=1"])
