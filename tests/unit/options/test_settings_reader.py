from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.options import settings_reader as module
from streamgroup.options.kinds import BOOLEAN, ValueKind, integer
from streamgroup.options.parse import OPTIONS, SINK_OPTIONS
from streamgroup.options.settings_reader import SettingsReader, mistakes, near_miss, suggestion, together


@dataclass(frozen=True)
class Field:
    name: str
    kind: ValueKind


class Reader(SettingsReader[Field]):
    def __init__(self) -> None:
        rows = (Field("size", integer(1)), Field("fast", BOOLEAN))
        super().__init__({row.name: row for row in rows}, [])

    def find(self, key: str) -> Field | None:
        return self.rows.get(key.lower())

    def label(self, row: Field) -> str:
        return f"field {row.name}"

    def unknown(self, key: str) -> str:
        return f"unknown field {key!r}{suggestion(key, self.rows)}"


def read(*entries: tuple[str, Any]) -> Reader:
    reader = Reader()
    for key, value in entries:
        reader.take(key, value)
    return reader


def test_valid_entries_become_values_by_the_name_of_their_row() -> None:
    reader = read(("SIZE", "5"), ("fast", "true"))
    assert (reader.values, reader.problems) == ({"size": 5, "fast": True}, [])
    invalid = read(("size", "x"))
    assert (invalid.given, invalid.values) == ({"size"}, {}), "it counts as given"


def test_all_problems_are_collected() -> None:
    reader = read(("size", "0"), ("speed", "1"), ("sise", "1"), ("Size", "7"))
    assert reader.problems == [
        "invalid value for field size: expected an integer from 1 to 2147483647",
        "unknown field 'speed'",
        "unknown field 'sise'. Did you mean 'size'?",
        "field size is set twice, in different spellings. Remove one of them",
    ]


def test_one_problem_stands_alone_and_several_are_a_list() -> None:
    assert together(["a is wrong"], "problems") == "a is wrong"
    assert together(["a is wrong", "b is wrong"], "problems") == "2 problems:\n  - a is wrong\n  - b is wrong"


NAMES = st.text(alphabet="abc", max_size=8)


@pytest.mark.parametrize(
    ("written", "meant", "count"),
    [
        ("assign", "assign", 0),
        ("asign", "assign", 1),
        ("asssign", "assign", 1),
        ("azsign", "assign", 1),
        ("asisgn", "assign", 1),
        ("topicsubscribe", "subscribe", 5),
        ("", "abc", 3),
        ("abc", "", 3),
    ],
)
def test_a_mistake_is_one_letter_or_two_neighbours_exchanged(written: str, meant: str, count: int) -> None:
    assert mistakes(written, meant) == count


@given(NAMES, NAMES)
def test_the_letters_alone_never_show_more_mistakes_than_there_are(one: str, other: str) -> None:
    assert module._fewest_mistakes(one, other) <= mistakes(one, other)


@given(NAMES, NAMES)
def test_mistakes_count_the_same_in_both_directions(one: str, other: str) -> None:
    count = mistakes(one, other)
    assert count == mistakes(other, one)
    assert abs(len(one) - len(other)) <= count <= max(len(one), len(other))
    assert (count == 0) == (one == other)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("asign", "assign"),
        ("subcribe", "subscribe"),
        ("subscribepatern", "subscribepattern"),
        ("subscribe.pattern", "subscribepattern"),
        ("starting_offsets", "startingoffsets"),
        ("startoffsets", "startingoffsets"),
        ("startingoffset", "startingoffsets"),
        ("maxoffsetpertrigger", "maxoffsetspertrigger"),
        ("failondatalos", "failondataloss"),
        ("minpartition", "minpartitions"),
        ("kafka_bootstrap_servers", "kafka.bootstrap.servers"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.securty.protocol", "kafka.security.protocol"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("kafka.ssl.endpoint.identification.algorithim", "kafka.ssl.endpoint.identification.algorithm"),
        ("group.jointimeouts", "group.jointimeout"),
        ("strct", "strict"),
    ],
)
def test_a_misspelled_option_is_found(name: str, meant: str) -> None:
    assert near_miss(name, OPTIONS) == meant


FOREIGN = """
    path paths mode topic topics inferSchema checkpointLocation queryName outputMode mergeSchema header sep delimiter
    multiLine encoding compression schema format table dbtable url user password host port numPartitions fetchsize
    maxFilesPerTrigger latestFirst cleanSource includeExistingFiles recursiveFileLookup
    pathGlobFilter rowsPerSecond startingVersion endingVersion startingPosition streamName ignoreChanges ignoreDeletes
    readChangeFeed maxRatePerPartition minRecordsPerTrigger useDeprecatedOffsetFetching serialization.format key value
    kafka.schema.registry.url kafka.ssl.ca.location kafka.message.max.bytes kafka.statistics.interval.ms
    kafka. kafka.foo
"""
"""Options of other sources and clients, and those that Spark itself or helper code may add."""


@pytest.mark.parametrize("name", FOREIGN.lower().split())
def test_an_option_of_another_source_is_not_a_misspelled_one(name: str) -> None:
    assert near_miss(name, OPTIONS) is None


@pytest.mark.parametrize(
    ("name", "meant"), [("partitoner", "partitioner"), ("topics", "topic"), ("kafka.ack", "kafka.acks"), ("path", None)]
)
def test_names_of_a_write(name: str, meant: str | None) -> None:
    assert near_miss(name, SINK_OPTIONS) == meant
