"""From a value to a row or a dead letter: parsers, the prefix of a schema registry, the limit of dead letters."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.framing import (
    SchemaRegistry,
    UnreadableError,
    id_in_error,
    split_message_index,
    split_schema_id,
    unknown_id_error,
)
from streamgroup.spark.parsing.limit import NO_DEAD_LETTERS, DeadLetterLimit, FirstDeadLetter, text_above_limit
from streamgroup.spark.parsing.parser import Parser, ValueReader

JSON = {"format": "json", "schema": "a INT"}
PROTOBUF = {"format": "protobuf", "message": "a.B", "descriptor": b"x"}
CORRUPT = "columnNameOfCorruptRecord"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"format": "xml"}, "unknown format 'xml' of a parser: expected one of json, csv, avro, protobuf"),
        ({"format": "json"}, "format json requires a schema"),
        ({"format": "csv", "schema": " "}, "format csv requires a schema"),
        ({**JSON, "null_values": "drop"}, "null_values: expected keep or dead_letter"),
        ({**JSON, "options": {"Mode": "FAILFAST"}}, "cannot set option Mode of a parser"),
        (
            {**JSON, "options": {CORRUPT: "c"}},
            f"cannot set option {CORRUPT} of a parser: a dead letter has the value itself",
        ),
        ({"format": "protobuf", "message": "a.B"}, "format protobuf requires message and descriptor"),
        ({"format": "protobuf", "descriptor": b"x"}, "format protobuf requires message and descriptor"),
        ({**PROTOBUF, "schema": "a INT"}, "cannot set a schema with format protobuf: the descriptor has it"),
        ({**PROTOBUF, "options": {"a": "b"}}, "cannot set options with format protobuf"),
        ({**JSON, "framing": "schema_id"}, "cannot use framing or a registry with format"),
        ({"format": "avro", "schema": "{}", "framing": "x"}, "unknown value 'x' for framing"),
        ({"format": "avro", "schema": "{}", "message": "a.B"}, "cannot use message or descriptor with format avro"),
        ({**JSON, "descriptor": b"x"}, "cannot use message or descriptor with format js"),
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


def test_values_become_rows_in_their_order_null_without_an_error_and_garbage_with_one() -> None:
    found, errors = Words().columns([b"a=1", None, b"b=2", b"b", b""])
    assert found.type == Words.type
    assert found.to_pylist() == [row("a", 1), None, row("b", 2), None, None]
    assert errors == [None, None, None, "b'b' has no number", "b'' has no number"]


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


@pytest.mark.parametrize(
    ("limit", "records", "allowed"),
    [
        (DeadLetterLimit(max_records=5), 1_000, 5),
        (DeadLetterLimit(max_records=5), 3, 3),
        (DeadLetterLimit(max_records=0), 1_000, 0),
        (DeadLetterLimit(max_share=0.01), 1_000, 10),
        (DeadLetterLimit(max_share=0.01), 1_001, 11),
        (DeadLetterLimit(max_share=0.01), 7, 1),
        (DeadLetterLimit(max_share=0.07), 100, 7),
        (DeadLetterLimit(max_share=0), 7, 0),
        (DeadLetterLimit(max_share=0.0), 1_000, 0),
        (DeadLetterLimit(max_share=1), 7, 7),
        (DeadLetterLimit(max_records=3, max_share=0.5), 100, 3),
        (DeadLetterLimit(max_records=300, max_share=0.5), 100, 50),
        (DeadLetterLimit(), 1_000, 100),
        (DeadLetterLimit(), 0, 0),
    ],
)
def test_both_limits_hold_and_a_share_is_rounded_up_to_records(
    limit: DeadLetterLimit, records: int, allowed: int
) -> None:
    assert limit.allowed(records) == allowed


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0, 1))
def test_a_limit_never_allows_more_than_either_setting(records: int, most: int, share: float) -> None:
    allowed = DeadLetterLimit(most, share).allowed(records)
    assert 0 <= allowed <= min(most, records)
    assert allowed <= DeadLetterLimit(max_share=share).allowed(records)


@pytest.mark.parametrize(
    "limit", [{"max_records": -1}, {"max_share": -0.1}, {"max_share": 1.01}, {"max_share": float("nan")}]
)
def test_a_limit_that_means_nothing_is_refused(limit: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="invalid value"):
        DeadLetterLimit(**limit)  # type: ignore[arg-type]


FIRST = FirstDeadLetter("orders", 3, 2, 120, "the value is not valid JSON")


def test_the_error_names_group_partitions_offsets_and_what_to_do() -> None:
    text = text_above_limit(7, ["etl"], dead=2, records=100, limit=DeadLetterLimit(max_records=1), first=[FIRST])
    assert text == (
        "cannot parse 2 of 100 records in batch 7 of group 'etl', more than the 1 (max_records = 1) that may be dead "
        "letters: orders-3: 2 records, the first at offset 120 (the value is not valid JSON). The query has written no "
        "row and no dead letter of this batch, and has not committed it. Correct the parser, or raise the limit; the "
        "next start reads the batch again"
    )


def test_the_error_without_a_target_says_that_dead_letters_need_one() -> None:
    text = text_above_limit(0, [], dead=1, records=1, limit=NO_DEAD_LETTERS, first=[FIRST])
    assert text.startswith("cannot parse 1 of 1 record in batch 0: orders-3: ")
    assert "set a topic or a path for dead letters" in text
    assert "limit" not in text


def test_the_error_of_many_partitions_stays_readable() -> None:
    first = [FirstDeadLetter("orders", p, 1, 5, "x") for p in range(12)]
    text = text_above_limit(0, ["g"], dead=12, records=12, limit=DeadLetterLimit(), first=first)
    assert "orders-9: " in text
    assert "orders-10: " not in text
    assert "; and 2 more partitions. The query has written no row" in text
    assert "max_share = 0.1, the default" in text


@given(st.integers(-(2**31), 2**31 - 1), st.binary())
def test_a_prefix_is_split_off(schema_id: int, payload: bytes) -> None:
    assert split_schema_id(b"\0" + schema_id.to_bytes(4, "big", signed=True) + payload) == (schema_id, payload)
    assert id_in_error(unknown_id_error("Avro", schema_id)) == schema_id


@pytest.mark.parametrize(
    ("value", "said"), [(b"", "has 0 bytes"), (b"\0\0\0\1", "has 4 bytes"), (b'{"id":1}', "begins with byte 123")]
)
def test_a_value_without_a_prefix_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said) as unreadable:
        split_schema_id(value)
    assert id_in_error(str(unreadable.value)) is None


def zigzag(number: int) -> bytes:
    """Write a varint by itself, as Confluent's serializers do."""
    left, out = (number << 1) ^ (number >> 31), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary())
def test_a_message_index_is_split_off(index: list[int], payload: bytes) -> None:
    prefix = b"".join(zigzag(n) for n in (len(index), *index))
    assert split_message_index(prefix + payload) == (tuple(index), payload)
    assert split_message_index(b"\0" + payload) == ((0,), payload), "the short form of [0]"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "is not a list of varints"),
        (b"\x80", "is not a list of varints"),
        (b"\xff\xff\xff\xff\xff", "is not a list of varints"),
        (b"\xff\xff\xff\xff\x1f", "is not a list of varints"),
        (b"\2", "has 1 positions, and 0 bytes follow"),
        (b"\1\0", "has -1 positions"),
        (b"\2\1", "has the position -1"),
        (zigzag(2**31 - 1) + b"abc", "has 2147483647 positions, and 3 bytes follow"),
        (b"\4\0\x80", "is not a list of varints"),
    ],
)
def test_a_value_without_a_message_index_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        split_message_index(value)


INVALID = "invalid URL of the schema registry: expected, for example, https://registry:8081"
CREDENTIALS = "cannot use credentials in the URL of the schema registry. Set user and password instead"
ONE_OF_TWO = "cannot use a schema registry with only a user or only a password. Set both or none"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(
            (url, INVALID)
            for url in ("", "registry:8081", "http://", "http://[", "HTTP://registry", "https:///subjects")
        ),
        *((f"https://registry:{port}", INVALID) for port in ("0", "65536", "-1", "80a", "port")),
        *((url, INVALID) for url in ("https://one,http://two", "https://one,http://u:p@two", "https://r?a=true")),
        *((f"https://{user}@registry", CREDENTIALS) for user in ("etl:hunter2", ":hunter2", "etl")),
        (("http://registry", "etl"), ONE_OF_TWO),
        (("https://registry", None, "hunter2"), ONE_OF_TWO),
        (("http://registry", None, None, "/ca.pem"), "not https"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused_without_its_password(
    given: str | tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        SchemaRegistry(*([given] if isinstance(given, str) else given))
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        ("http://registry",),
        ("http://registry:8081/schemas",),
        ("https://[::1]:8081",),
        ("https://registry:65535", "etl", "env:PASSWORD"),
        ("https://registry", None, None, "/ca.pem"),
        # Only None means that there is no user: an empty password is one.
        ("https://registry", "etl", ""),
    ],
)
def test_a_registry_that_can_be_asked_keeps_its_parts_as_given(given: tuple[str, ...]) -> None:
    registry = SchemaRegistry(*given)
    parts = (registry.url, registry.user, registry.password, registry.ca)
    assert parts == (*given, None, None, None)[:4]
