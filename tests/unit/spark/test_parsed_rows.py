"""Each row gets the fields of its value, or the reason why the value cannot be read; never both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from streamgroup.errors import ConfigError
from streamgroup.spark import parsed_rows
from streamgroup.spark.parsed_rows import DAMAGE, NULL, with_parsed
from streamgroup.spark.parsing.parser import Parser
from tests.fakes.columns import Column, Frame, Functions
from tests.fakes.protobuf_files import ORDERS, ORDERS_TEXT, message_bytes
from tests.unit.spark.parsing.test_avro import record, written

# Spark's own parsers read JSON and CSV, so tests/spark/test_parsed_rows.py has those.
ORDER = record(("id", "long"), ("name", "string"))
WHOLE = written(ORDER, {"id": 1, "name": "a"})
AVRO = Parser("avro", ORDER)
FIELDS = {"id": 1, "name": "a"}


def udf(read: Callable[[pa.Array], pa.Array], result: StructType) -> Callable[[str], Column]:
    """Make an Arrow UDF that gets one row at a time, and whose result has the type that it declares."""

    def as_column(name: str) -> Column:
        def compute(row: Any) -> Any:
            found = read(pa.array([row[name]], pa.binary()))
            assert [field.name for field in found.type] == result.names
            return found.to_pylist()[0]

        return Column(compute)

    return as_column


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed_rows, "F", Functions)
    monkeypatch.setattr(parsed_rows, "arrow_udf", udf)


def parsed(parser: Parser, *values: bytes | None, writers: dict[int, str] | None = None, **more: Any) -> Frame:
    """Return rows of these values, parsed. `more` are the values of other columns, the same in each row."""
    rows = [{"offset": n, "value": value, **more} for n, value in enumerate(values)]
    frame: Any = Frame(rows, ["offset", "value", *more])
    found: Any = with_parsed(frame, parser, writers)
    return found  # type: ignore[no-any-return]


def results(frame: Frame) -> list[tuple[Any, str | None]]:
    return [(row["parsed"], row["error"]) for row in frame.rows]


def test_a_row_keeps_its_columns_and_gets_its_fields() -> None:
    frame = parsed(AVRO, WHOLE, key=b"k")
    assert frame.columns == ["offset", "value", "key", "parsed", "error"]
    assert frame.rows == [{"offset": 0, "value": WHOLE, "key": b"k", "parsed": FIELDS, "error": None}]


def test_a_value_that_is_cut_off_is_a_reason_and_the_rows_beside_it_are_read() -> None:
    first, bad, last = results(parsed(AVRO, WHOLE, WHOLE[:-1], WHOLE))
    assert first == last == (FIELDS, None)
    assert bad[0] is None
    assert str(bad[1]).startswith("the value is not Avro of its schema: ")


@pytest.mark.parametrize(("null_values", "error"), [("keep", None), ("dead_letter", NULL)])
def test_a_null_value_goes_on_without_fields_or_is_a_dead_letter_by_choice(null_values: str, error: str | None) -> None:
    parser = Parser("avro", ORDER, null_values=null_values)
    assert results(parsed(parser, None, WHOLE)) == [(None, error), (FIELDS, None)]


@pytest.mark.parametrize("value", [WHOLE, b"\xff", None], ids=["readable", "garbage", "null"])
def test_a_row_of_a_damaged_batch_has_the_damage_for_a_reason_whatever_its_value_is(value: bytes | None) -> None:
    frame = parsed(AVRO, value, **{DAMAGE: "the batch's checksum does not fit"})
    assert frame.columns == ["offset", "value", "parsed", "error"]
    assert results(frame) == [(None, "the batch's checksum does not fit")]


def test_a_row_of_a_sound_batch_is_read_where_damage_is_asked_for() -> None:
    frame = parsed(AVRO, WHOLE, WHOLE[:-1], **{DAMAGE: None})
    assert DAMAGE not in frame.columns
    (fields, error), (none, reason) = results(frame)
    assert (fields, error, none) == (FIELDS, None, None)
    assert str(reason).startswith("the value is not Avro of its schema: ")


def test_a_value_with_a_schema_id_is_read_by_the_schema_of_its_writer() -> None:
    older = record(("id", "long"), ("name", "string"), ("gone", "int"))
    value = written(older, {**FIELDS, "gone": 5}, 7)
    parser = Parser("avro", ORDER, framing="schema_id")
    assert results(parsed(parser, value, writers={7: older})) == [(FIELDS, None)]
    assert results(parsed(parser, value, writers={8: older})) == [(None, "the registry has no Avro schema with id 7")]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (b"\1\2\2", None),
        (b"\1\0", "the message index [0] in schema 1 is shop.Refund, not shop.Order"),
    ],
    ids=["the message", "another message"],
)
def test_protobuf_is_read_by_the_message_index_in_its_prefix(index: bytes, error: str | None) -> None:
    parser = Parser("protobuf", message="shop.Order", descriptor=ORDERS, framing="schema_id")
    value = b"\0\0\0\0" + index + message_bytes(ORDERS, "shop.Order", string="x")
    ((fields, reason),) = results(parsed(parser, value, writers={1: ORDERS_TEXT}))
    assert reason == error
    assert (fields is None) == (error is not None)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["value", "error"], "cannot parse rows with a column error: rename it before"),
        (["parsed", "value"], "cannot parse rows with a column parsed: rename it before"),
        (["parsed", "value", "error", DAMAGE], "cannot parse rows with a column error and parsed: rename it before"),
    ],
)
@pytest.mark.parametrize("parser", [AVRO, Parser("json", "id INT")], ids=["avro", "json"])
def test_a_column_that_the_parser_would_replace_is_refused(parser: Parser, columns: list[str], said: str) -> None:
    frame: Any = Frame([], columns)
    with pytest.raises(ConfigError, match=f"^{said}$"):
        with_parsed(frame, parser)
