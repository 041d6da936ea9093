"""A dead letter goes to a topic or into files, with its record and the reason why that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streamgroup.spark import letter_targets
from streamgroup.spark.letter_targets import RECORD, PathTarget, TopicTarget
from tests.fakes.columns import Frame, Functions

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


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_targets, "F", Functions)


def rows(*given: dict[str, Any]) -> Frame:
    """Return rows as a query has them: with a column that belongs to no record, since Spark adds some."""
    return Frame([{**row, "timestampType": 0} for row in given], [*given[0], "timestampType"])


def written(target: PathTarget | TopicTarget, frame: Frame) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return where the target has written the dead letters, and what."""
    target.write(frame, "q-1", 7)  # type: ignore[arg-type]
    ((where, what),) = frame.writes
    return where, what


def headers_of(letter: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(header["key"], header["value"]) for header in letter["headers"]]


# -- files ------------------------------------------------------------------------------------------------------------


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
    assert [headers_of(letter) for letter in letters] == [
        [("trace", b"1"), ("empty", None), *HEADERS],
        HEADERS,
    ]


def test_a_record_without_a_timestamp_has_no_header_of_it() -> None:
    _, (letter,) = written(TopicTarget("dead", OPTIONS), rows({**LETTER, "timestamp": None}))
    assert headers_of(letter) == [header for header in HEADERS if header[0] != "dead_letter.timestamp"]


@pytest.mark.parametrize(("inner", "header"), [(2, [("dead_letter.inner", b"2")]), (None, [])])
def test_a_message_of_a_compressed_set_is_named_by_its_index_too(
    inner: int | None, header: list[tuple[str, bytes]]
) -> None:
    _, (letter,) = written(TopicTarget("dead", OPTIONS), rows({**LETTER, "inner": inner}))
    assert headers_of(letter) == [*HEADERS[:3], *header, *HEADERS[3:]]


def test_a_record_without_key_and_value_is_a_letter_without_them() -> None:
    _, (letter,) = written(TopicTarget("dead", OPTIONS), rows({**LETTER, "key": None, "value": None}))
    assert (letter["key"], letter["value"]) == (None, None)


def test_people_read_which_topic_or_path_it_is() -> None:
    assert TopicTarget("dead", {**OPTIONS, "kafka.sasl.password": "secret"}).describe() == "topic dead"
    assert PathTarget("s3://bucket/dead").describe() == "path s3://bucket/dead"
