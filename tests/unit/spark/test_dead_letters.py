"""DeadLetters writes the dead letters of a batch, then its other rows. A fake stands for Spark's DataFrame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from streamgroup.errors import ConfigError, DeadLetterError, TransportError
from streamgroup.spark import dead_letters as module
from streamgroup.spark import parsed_rows
from streamgroup.spark.dead_letters import (
    RECORD,
    DeadLetterCounts,
    DeadLetters,
    PathTarget,
    TopicTarget,
    WriterSchemas,
    dead_letters,
)
from streamgroup.spark.parsed_rows import DAMAGE, NULL, with_parsed
from streamgroup.spark.parsing.limit import NO_DEAD_LETTERS, DeadLetterLimit, FirstDeadLetter
from streamgroup.spark.parsing.parser import ERROR, Parser
from streamgroup.spark.schema_registry import RegisteredSchema
from tests.fakes.columns import Column, Functions
from tests.fakes.columns import Frame as ColumnFrame
from tests.fakes.protobuf_files import ORDERS, ORDERS_TEXT, message_bytes
from tests.unit.spark.parsing.test_avro import record
from tests.unit.spark.parsing.test_avro import written as avro_value

PARSER = Parser("json", "id INT")
CONDITIONS = {f"{ERROR} IS NULL": lambda row: row is None, f"{ERROR} IS NOT NULL": lambda row: row is not None}


@dataclass
class Frame:
    """Parsed rows: only their errors, None for a row that was read."""

    errors: list[str | None]
    log: list[str]
    columns: list[str] = field(default_factory=lambda: [*RECORD])

    def persist(self, level: Any) -> Frame:
        self.log.append("persist")
        return self

    def unpersist(self) -> None:
        self.log.append("unpersist")

    def filter(self, condition: str) -> Frame:
        return Frame([error for error in self.errors if CONDITIONS[condition](error)], self.log)

    def drop(self, column: str) -> Frame:
        assert column == ERROR
        return self


class Target:
    """Keeps the dead letters, or fails."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.dead: list[str | None] = []

    def write(self, dead: Any, query_id: str, batch_id: int) -> None:
        self.log.append(f"dead letters of {query_id}, batch {batch_id}")
        self.dead += dead.errors

    def describe(self) -> str:
        return "path /dead"


class Batch:
    """One batch and all that it writes."""

    def __init__(self, errors: Iterable[str | None]) -> None:
        self.log: list[str] = []
        self.frame = Frame(list(errors), self.log)
        self.target = Target(self.log)
        self.good: list[str | None] = []
        self.letters: DeadLetters | None = None

    def write(self, rows: Any, batch: int) -> None:
        self.log.append(f"rows of batch {batch}")
        self.good += rows.errors

    def take(self, limit: DeadLetterLimit, *, has_target: bool = True) -> None:
        self.letters = DeadLetters(PARSER, self.write, self.target if has_target else None, limit)
        self.letters(self.frame, 4)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "with_parsed", lambda frame, parser, writers: frame)
    monkeypatch.setattr(module, "counts", lambda f: (len(f.errors), sum(e is not None for e in f.errors)))
    monkeypatch.setattr(module, "first_of_partitions", lambda f: [FirstDeadLetter("t", 0, len(f.errors), 7, "bad")])
    monkeypatch.setattr(module, "require_query_id", lambda: "q")
    monkeypatch.setattr(module, "groups_in_flight", lambda: ["etl"])
    monkeypatch.setattr(module, "query_in_flight", lambda: "orders")
    monkeypatch.setattr(module, "F", Functions)


MIXED = [None, "bad", None, None, "worse"]


def test_every_record_is_written_exactly_once_dead_letters_first(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(MIXED)
    batch.take(DeadLetterLimit(max_records=2))
    assert caplog.messages == [
        "query orders: batch 4: 2 of 5 records are dead letters in path /dead "
        "| event=dead_letters query=orders group=etl batch=4 count=2 of=5"
    ]
    assert (batch.good, batch.target.dead) == ([None] * 3, ["bad", "worse"])
    assert batch.log == ["persist", "dead letters of q, batch 4", "rows of batch 4", "unpersist"]


def test_a_batch_without_dead_letters_writes_none() -> None:
    batch = Batch([None, None])
    batch.take(DeadLetterLimit(max_records=0))
    assert batch.log == ["persist", "rows of batch 4", "unpersist"]


def test_above_the_limit_nothing_is_written() -> None:
    batch = Batch(MIXED)
    with pytest.raises(DeadLetterError, match=r"cannot parse 2 of 5 records in batch 4 of group 'etl'.* offset 7 "):
        batch.take(DeadLetterLimit(max_records=1))
    assert batch.log == ["persist", "unpersist"]
    assert batch.letters is not None
    assert isinstance(batch.letters.error, DeadLetterError)


def test_without_a_target_any_dead_letter_is_above_the_limit() -> None:
    batch = Batch(MIXED)
    with pytest.raises(DeadLetterError, match="set a topic or a path"):
        batch.take(NO_DEAD_LETTERS, has_target=False)
    assert batch.log == ["persist", "unpersist"]


def test_rows_are_not_written_where_dead_letters_could_not_be() -> None:
    batch = Batch(MIXED)
    batch.target.write = Mock(side_effect=RuntimeError("the target is down"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        batch.take(DeadLetterLimit(max_records=2))
    assert batch.log == ["persist", "unpersist"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "t", "path": "/p"}, "to both topic and path"),
        ({"path": "/p", "options": {"a": "b"}}, "cannot use options of dead letters without a topic"),
        ({"max_records": 3}, "without a topic or path"),
        ({"topic": "t"}, "kafka.bootstrap.servers"),
        ({"path": "/p", "max_share": 2}, "invalid value 2 for max_share"),
    ],
)
def test_arguments_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        dead_letters(PARSER, lambda rows, batch: None, **given)


LETTER: dict[str, Any] = {
    "topic": "orders",
    "partition": 3,
    "offset": 1_000,
    "timestamp": datetime(2024, 3, 2, 1, 2, 3, 456_000, UTC),
    "key": b"k",
    "value": b'{"id"',
    "error": "the value is not valid JSON",
}
HEADERS = [
    ("dead_letter.topic", b"orders"),
    ("dead_letter.partition", b"3"),
    ("dead_letter.offset", b"1000"),
    ("dead_letter.timestamp", b"1709341323456"),
    ("dead_letter.error", b"the value is not valid JSON"),
]
OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}


def rows(*given: dict[str, Any]) -> ColumnFrame:
    """Return rows as a query has them: with a column that belongs to no record, since Spark adds some."""
    return ColumnFrame([{**row, "timestampType": 0} for row in given], [*given[0], "timestampType"])


def written(target: PathTarget | TopicTarget, frame: ColumnFrame) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return where the target has written the dead letters, and what."""
    target.write(frame, "q-1", 7)  # type: ignore[arg-type]
    ((where, what),) = frame.writes
    return where, what


def headers_of(letter: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(header["key"], header["value"]) for header in letter["headers"]]


def test_each_batch_of_a_query_has_a_directory_that_its_replay_overwrites() -> None:
    where, what = written(PathTarget("/dead"), rows(LETTER))
    assert where == {"mode": "overwrite", "format": "parquet", "path": "/dead/query=q-1/batch=7"}
    assert what == [LETTER]


@pytest.mark.parametrize("more", [{}, {"inner": 2}, {"headers": []}, {"inner": None, "headers": None}])
def test_a_file_has_the_columns_of_a_record_those_of_its_read_and_the_error(more: dict[str, Any]) -> None:
    _, (letter,) = written(PathTarget("/dead"), rows({**LETTER, **more}))
    assert list(letter) == [*RECORD, *more, "error"]


# -- a topic ----------------------------------------------------------------------------------------------------------


def test_a_topic_gets_the_record_as_it_is_and_its_place_in_headers() -> None:
    where, (letter,) = written(TopicTarget("dead", OPTIONS), rows(LETTER))
    assert where == {"format": "streamgroup", "mode": "append", "options": {**OPTIONS, "topic": "dead"}}
    assert (letter["key"], letter["value"]) == (b"k", b'{"id"')
    assert headers_of(letter) == HEADERS
    assert list(letter) == ["key", "value", "headers"]


def test_the_topic_of_dead_letters_takes_the_place_of_one_in_the_options() -> None:
    where, _ = written(TopicTarget("dead", {**OPTIONS, "topic": "orders"}), rows(LETTER))
    assert where["options"]["topic"] == "dead"


def test_the_headers_of_the_record_come_first() -> None:
    own = [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}]
    _, letters = written(TopicTarget("dead", OPTIONS), rows({**LETTER, "headers": own}, {**LETTER, "headers": None}))
    assert [headers_of(letter) for letter in letters] == [[("trace", b"1"), ("empty", None), *HEADERS], HEADERS]


def test_a_record_without_a_timestamp_has_no_header_of_it() -> None:
    _, (letter,) = written(TopicTarget("dead", OPTIONS), rows({**LETTER, "timestamp": None}))
    assert headers_of(letter) == [header for header in HEADERS if header[0] != "dead_letter.timestamp"]


@pytest.mark.parametrize(("inner", "header"), [(2, [("dead_letter.inner", b"2")]), (None, [])])
def test_a_message_of_a_compressed_set_is_named_by_its_index_too(
    inner: int | None, header: list[tuple[str, bytes]]
) -> None:
    _, (letter,) = written(TopicTarget("dead", OPTIONS), rows({**LETTER, "inner": inner}))
    assert headers_of(letter) == [*HEADERS[:3], *header, *HEADERS[3:]]


def test_people_read_which_topic_or_path_it_is() -> None:
    assert TopicTarget("dead", {**OPTIONS, "kafka.sasl.password": "secret"}).describe() == "topic dead"
    assert PathTarget("s3://bucket/dead").describe() == "path s3://bucket/dead"


class Registry:
    def __init__(self, registered: dict[int, RegisteredSchema], *, is_down: bool = False) -> None:
        self.registered, self.is_down, self.asked = registered, is_down, list[int]()

    def schemas(self, ids: Iterable[int]) -> dict[int, RegisteredSchema]:
        if self.is_down:
            raise TransportError("down")
        asked = list(ids)
        self.asked += asked
        return {one: self.registered[one] for one in asked if one in self.registered}


AVRO = RegisteredSchema('"int"', "AVRO", False)


def test_each_schema_is_asked_for_once_and_an_unknown_id_again() -> None:
    registry = Registry({1: AVRO, 2: AVRO})
    schemas = WriterSchemas(registry, "avro")
    assert schemas.learn([1, 2, 1])
    assert not schemas.learn([1, 9])
    assert not schemas.learn([9])
    assert not schemas.learn([2])
    assert registry.asked == [1, 2, 9, 9]
    assert schemas.known == {1: '"int"', 2: '"int"'}


def test_what_is_not_avro_is_unknown() -> None:
    registry = Registry({1: RegisteredSchema("x", "JSON", False), 2: RegisteredSchema("{", "AVRO", False)})
    schemas = WriterSchemas(registry, "avro")
    assert not schemas.learn([1, 2])
    assert schemas.known == {}


def test_a_schema_that_refers_to_others_stops_the_query_and_a_registry_that_is_down_makes_no_id_unknown() -> None:
    with pytest.raises(ConfigError, match="schema 1 of the registry: it refers to other schemas"):
        WriterSchemas(Registry({1: RegisteredSchema('"int"', "AVRO", True)}), "avro").learn([1])
    with pytest.raises(TransportError):
        WriterSchemas(Registry({}, is_down=True), "avro").learn([1])


def test_protobuf_is_known_by_its_text_alone_whatever_it_imports() -> None:
    text = 'import "other.proto"; message A { Other o = 1; }'
    without_message = RegisteredSchema("enum E { A = 0; }", "PROTOBUF", False)
    registry = Registry({1: RegisteredSchema(text, "PROTOBUF", True), 2: AVRO, 3: without_message})
    schemas = WriterSchemas(registry, "protobuf")
    assert schemas.learn([1, 2, 3])
    assert schemas.known == {1: text}


@pytest.mark.parametrize(
    ("added", "counts"),
    [
        ([], {"q-1": None, "q-2": None}),
        ([("q-1", 3)], {"q-1": 3, "q-2": None}),
        ([("q-1", 3), ("q-2", 1), ("q-1", 3)], {"q-1": 6, "q-2": 1}),
    ],
    ids=["no query", "one batch", "a batch that ran again, beside another query"],
)
def test_each_query_has_the_records_of_all_its_batches(
    added: list[tuple[str, int]], counts: dict[str, int | None]
) -> None:
    counted = DeadLetterCounts()
    for query, records in added:
        counted.add(query, records)
    assert {query: counted.of(query) for query in counts} == counts


# Spark's own parsers read JSON and CSV, so tests/spark/test_parsed_rows.py has those.
ORDER = record(("id", "long"), ("name", "string"))
WHOLE = avro_value(ORDER, {"id": 1, "name": "a"})
AVRO_PARSER = Parser("avro", ORDER)
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
def _parsed_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed_rows, "F", Functions)
    monkeypatch.setattr(parsed_rows, "arrow_udf", udf)


def parsed(parser: Parser, *values: bytes | None, writers: dict[int, str] | None = None, **more: Any) -> ColumnFrame:
    """Return rows of these values, parsed. `more` are the values of other columns, the same in each row."""
    rows = [{"offset": n, "value": value, **more} for n, value in enumerate(values)]
    frame: Any = ColumnFrame(rows, ["offset", "value", *more])
    found: Any = with_parsed(frame, parser, writers)
    return found  # type: ignore[no-any-return]


def results(frame: ColumnFrame) -> list[tuple[Any, str | None]]:
    return [(row["parsed"], row["error"]) for row in frame.rows]


def test_a_row_keeps_its_columns_and_gets_its_fields() -> None:
    frame = parsed(AVRO_PARSER, WHOLE, key=b"k")
    assert frame.columns == ["offset", "value", "key", "parsed", "error"]
    assert frame.rows == [{"offset": 0, "value": WHOLE, "key": b"k", "parsed": FIELDS, "error": None}]


@pytest.mark.parametrize("damage", [{}, {DAMAGE: None}], ids=["by default", "damage is asked for"])
def test_a_value_that_is_cut_off_is_a_reason_and_the_rows_beside_it_are_read(damage: dict[str, None]) -> None:
    frame = parsed(AVRO_PARSER, WHOLE, WHOLE[:-1], WHOLE, **damage)
    assert DAMAGE not in frame.columns
    first, bad, last = results(frame)
    assert first == last == (FIELDS, None)
    assert bad[0] is None
    assert str(bad[1]).startswith("the value is not Avro of its schema: ")


@pytest.mark.parametrize(("null_values", "error"), [("keep", None), ("dead_letter", NULL)])
def test_a_null_value_goes_on_without_fields_or_is_a_dead_letter_by_choice(null_values: str, error: str | None) -> None:
    parser = Parser("avro", ORDER, null_values=null_values)
    assert results(parsed(parser, None, WHOLE)) == [(None, error), (FIELDS, None)]


@pytest.mark.parametrize("value", [WHOLE, b"\xff", None], ids=["readable", "garbage", "null"])
def test_a_row_of_a_damaged_batch_has_the_damage_for_a_reason_whatever_its_value_is(value: bytes | None) -> None:
    frame = parsed(AVRO_PARSER, value, **{DAMAGE: "the batch's checksum does not fit"})
    assert frame.columns == ["offset", "value", "parsed", "error"]
    assert results(frame) == [(None, "the batch's checksum does not fit")]


def test_a_value_with_a_schema_id_is_read_by_the_schema_of_its_writer() -> None:
    older = record(("id", "long"), ("name", "string"), ("gone", "int"))
    value = avro_value(older, {**FIELDS, "gone": 5}, 7)
    parser = Parser("avro", ORDER, framing="schema_id")
    assert results(parsed(parser, value, writers={7: older})) == [(FIELDS, None)]
    assert results(parsed(parser, value, writers={8: older})) == [(None, "the registry has no Avro schema with id 7")]


@pytest.mark.parametrize(
    ("index", "error"),
    [(b"\1\2\2", None), (b"\1\0", "the message index [0] in schema 1 is shop.Refund, not shop.Order")],
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
@pytest.mark.parametrize("parser", [AVRO_PARSER, Parser("json", "id INT")], ids=["avro", "json"])
def test_a_column_that_the_parser_would_replace_is_refused(parser: Parser, columns: list[str], said: str) -> None:
    frame: Any = ColumnFrame([], columns)
    with pytest.raises(ConfigError, match=f"^{said}$"):
        with_parsed(frame, parser)
