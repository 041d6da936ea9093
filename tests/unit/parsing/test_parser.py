from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.parsing.parser import Parser


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
        ({"format": "avro", "schema": "{}", "message": "a.B"}, "cannot use message or descriptor with format avro"),
        ({"format": "json", "schema": "a INT", "descriptor": b"x"}, "cannot use message or descriptor with format js"),
    ],
)
def test_a_parser_that_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Parser(**given)
    assert said in str(raised.value)


def test_all_problems_are_named_together() -> None:
    with pytest.raises(ConfigError, match=r"requires a schema.*; unknown value 'x' for null_values"):
        Parser("json", null_values="x")
