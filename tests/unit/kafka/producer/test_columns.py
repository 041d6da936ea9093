from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.errors import ConfigError, EncodeError
from streamgroup.kafka.producer.columns import HEADERS_TYPE, SinkColumns, check_columns, read_columns

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = {"key": "binary", "value": "string", "topic": "string", "partition": "int", "headers": HEADERS_TYPE}


def checked(*, include_timestamp: bool = False, **changes: str | None) -> None:
    columns = {name: kind for name, kind in {**SCHEMA, **changes}.items() if kind is not None}
    check_columns(columns.items(), None, include_timestamp=include_timestamp)


# -- the schema --------------------------------------------------------------------------------------------------------


def test_the_columns_of_sparks_sink_are_accepted_of_which_a_value_and_a_topic_are_needed() -> None:
    checked()
    checked(key="string", value="binary", headers=HEADERS_TYPE.replace("key", "KEY"))
    checked(Key="int", PARTITION="string", offset="bigint", timestamp="string")  # other names are ignored
    check_columns([("value", "string"), ("topic", "string")], None)
    check_columns([("value", "string")], "orders")
    check_columns([("value", "string"), ("topic", "int")], "orders")  # the option wins


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topic": None}, "the option 'topic' is required when the query has no column 'topic'. Add option('topic'"),
        ({"topic": None, "Topic": "string"}, "(it has 'Topic', and names are case-sensitive)"),
        ({"value": None}, "the required column 'value' is missing. Add it with the type string or binary"),
        ({"value": None, "VALUE": "string"}, "(it has 'VALUE', and names are case-sensitive)"),
        ({"key": "int"}, "column 'key' has the unsupported type int. It must be string or binary. Cast it"),
        ({"value": "void"}, "column 'value' has the unsupported type void. It must be string or binary"),
        ({"topic": "binary"}, "column 'topic' has the unsupported type binary. It must be string."),
        ({"partition": "bigint"}, "column 'partition' has the unsupported type bigint. It must be int."),
        ({"headers": "map<string,binary>"}, "column 'headers' has the unsupported type map<string,binary>"),
        ({"headers": "array<struct<key:string,value:string>>"}, f"It must be {HEADERS_TYPE}."),
        ({"key": "string collate UTF8_LCASE"}, "has the unsupported type string collate UTF8_LCASE"),
    ],
)
def test_a_missing_column_or_a_wrong_type_fails_before_the_write(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        checked(**changes)
    assert str(raised.value).startswith("cannot write: ")
    assert text in str(raised.value)


def test_the_first_of_two_columns_with_one_name_counts() -> None:
    check_columns([("value", "string"), ("value", "int")], "orders")
    with pytest.raises(ConfigError, match="unsupported type int"):
        check_columns([("value", "int"), ("value", "string")], "orders")


def test_the_type_of_timestamps_matters_only_with_their_option() -> None:
    checked(timestamp="string")
    checked(timestamp="timestamp", include_timestamp=True)
    checked(include_timestamp=True)
    with pytest.raises(ConfigError, match="column 'timestamp' has the unsupported type string"):
        checked(timestamp="string", include_timestamp=True)


# -- a batch -----------------------------------------------------------------------------------------------------------


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": ["a", "b", "c"], **columns})


def read(topic: str | None = "orders", first_row: int = 0, include_timestamp: bool = False, **columns: Any) -> Any:
    return read_columns(
        batch(**columns), topic=topic, now_ms=NOW, first_row=first_row, include_timestamp=include_timestamp
    )


def test_strings_become_bytes_in_the_same_buffers() -> None:
    source = batch(key=["ä", None, ""])
    columns = read_columns(source, topic="orders", now_ms=NOW)
    assert columns.key.to_pylist() == ["ä".encode(), None, b""]
    assert columns.value.to_pylist() == [b"a", b"b", b"c"]
    for name in ("key", "value"):
        ours, theirs = getattr(columns, name).buffers(), source.column(name).buffers()
        assert [b and b.address for b in ours] == [b and b.address for b in theirs]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
def test_every_type_that_spark_hands_out(kind: pa.DataType) -> None:
    values = pa.array([b"x", None, b"yz"], pa.binary()).cast(kind)
    columns = read(key=values, value=values)
    assert columns.key.type in (pa.binary(), pa.large_binary())
    assert columns.key.to_pylist() == columns.value.to_pylist() == [b"x", None, b"yz"]


def test_absent_columns() -> None:
    columns = read()
    assert len(columns) == 3
    assert (columns.key, columns.headers, columns.partition, columns.topic) == (None, None, None, "orders")
    assert columns.timestamp_ms.tolist() == [NOW] * 3


def test_the_option_wins_over_the_column_topic() -> None:
    assert read_columns(batch(topic=["x"] * 3), topic="option", now_ms=NOW).topic == "option"
    source = pa.RecordBatch.from_pydict({"value": ["a"], "topic": pa.array([None], pa.string())})
    assert read_columns(source, topic="option", now_ms=NOW).topic == "option"


@pytest.mark.parametrize(
    ("topic", "says"), [("", r"its topic is empty\. Correct"), (None, r"null topic present in the data\. Use")]
)
def test_a_row_without_a_topic_fails_and_is_named(topic: str | None, says: str) -> None:
    source = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["orders", topic]})
    with pytest.raises(EncodeError, match=f"cannot write row 10001 of the task: {says}"):
        read_columns(source, topic=None, now_ms=NOW, first_row=10_000)


def test_rows_by_topic() -> None:
    source = pa.RecordBatch.from_pydict({"value": list("abcde"), "topic": ["y", "x", "y", "z", "x"]})
    columns = read_columns(source, topic=None, now_ms=NOW)
    rows = [(name, rows.tolist()) for name, rows in columns.rows_by_topic()]
    assert rows == [("y", [0, 2]), ("x", [1, 4]), ("z", [3])]
    assert read().rows_by_topic() == [("orders", None)]
    alike = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["x", "x"]})
    assert read_columns(alike, topic=None, now_ms=NOW).rows_by_topic() == [("x", None)]


def test_an_empty_batch() -> None:
    empty = batch(topic=["x"] * 3, key=["k"] * 3, headers=pa.nulls(3, HEADERS)).slice(0, 0)
    for topic in ("orders", None):
        columns = read_columns(empty, topic=topic, now_ms=NOW)
        assert len(columns) == 0
        assert columns.rows_by_topic() == []


def test_headers_are_taken_as_they_are() -> None:
    rows = [[{"key": "a", "value": b"1"}, {"key": "", "value": None}], None, []]
    assert read(headers=pa.array(rows, HEADERS)).headers.to_pylist() == rows
    for none in (pa.nulls(3, HEADERS), pa.array([[], None, []], HEADERS)):
        assert read(headers=none).headers is None


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_the_fields_of_headers_may_have_any_case_as_spark_compares_types(kind: Any) -> None:
    struct = pa.struct([("KEY", pa.string()), ("Value", pa.binary())])
    rows = [[{"KEY": "a", "Value": b"1"}], None, [{"KEY": "b", "Value": None}]]
    columns = read_columns(batch(headers=pa.array(rows, kind(struct))).slice(1, 2), topic="orders", now_ms=NOW)
    assert columns.headers.to_pylist() == [None, [{"key": "b", "value": None}]]


@pytest.mark.parametrize("header", [{"key": None, "value": b"1"}, None], ids=["no key", "no header"])
def test_a_header_without_a_key_fails_and_its_row_is_named(header: Any) -> None:
    rows = [[{"key": "a", "value": b"1"}] * 3, None, [{"key": "a", "value": b""}, header]]
    source = batch(headers=pa.array(rows, HEADERS))
    for start in range(3):
        with pytest.raises(EncodeError, match="cannot write row 7 of the task: null header keys are not permitted"):
            read_columns(source.slice(start), topic="orders", now_ms=NOW, first_row=5 + start)


def test_timestamps_are_rounded_down_to_milliseconds() -> None:
    times = pa.array([1_500, None, 1_700_000_000_123_999], pa.timestamp("us", "UTC"))
    assert read(timestamp=times, include_timestamp=True).timestamp_ms.tolist() == [1, NOW, 1_700_000_000_123]
    assert read(timestamp=times).timestamp_ms.tolist() == [NOW] * 3
    assert read(include_timestamp=True).timestamp_ms.tolist() == [NOW] * 3


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [(-5_000_000, -5000), (-1_001, -2), (-1_000, -1), (-999, -1), (-1, -1), (-(2**63), -9223372036854776)],
)
def test_a_timestamp_before_1970_fails_and_its_row_is_named(microseconds: int, shown: int) -> None:
    times = pa.array([None, microseconds, 0], pa.timestamp("us", "UTC"))
    with pytest.raises(EncodeError, match=f"cannot write row 1 of the task: its timestamp is {shown} ms"):
        read(timestamp=times, include_timestamp=True)


def test_a_slice_of_a_batch_reads_as_itself() -> None:
    source = batch(key=["k1", "k2", "k3"], topic=["x", "y", "z"], partition=pa.array([1, None, 3], pa.int32()))
    columns: SinkColumns = read_columns(source.slice(1), topic=None, now_ms=NOW)
    assert columns.key is not None
    assert columns.key.to_pylist() == [b"k2", b"k3"]
    assert [name for name, _ in columns.rows_by_topic()] == ["y", "z"]
    assert columns.partition is not None
    assert columns.partition.to_pylist() == [None, 3]
    assert columns.timestamp_ms.dtype == np.int64
