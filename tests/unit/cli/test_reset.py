from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroup.cli._reset import (
    CannotResetError,
    LogOffsets,
    Reset,
    TopicScope,
    Way,
    new_offsets,
    parse_datetime,
    parse_duration,
    parse_topic,
)
from streamgroup.kafka.cluster.requests import NO_OFFSET
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import CommittedOffset, TopicPartition

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOGS = LogOffsets(earliest={ZERO: 10, ONE: 20}, latest={ZERO: 100, ONE: 200}, at_time={ZERO: 42, ONE: NO_OFFSET})
COMMITTED = {ZERO: CommittedOffset(50)}


def reset(way: Way, value: int = 0, *partitions: TopicPartition) -> tuple[dict[int, int], list[str]]:
    chosen = partitions or (ZERO, ONE)
    found, warnings = new_offsets(Reset(way, value), chosen, COMMITTED, LOGS, {ZERO: 11, ONE: 900})
    return {tp.partition: offset for tp, offset in found.items()}, warnings


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Way.EARLIEST, {0: 10, 1: 20}),
        (Way.LATEST, {0: 100, 1: 200}),
        (Way.CURRENT, {0: 50, 1: 200}),  # without a commit the end of the log, as Kafka's tool
    ],
)
def test_ends_of_logs_and_commits_are_taken_as_they_are(way: Way, expected: dict[int, int]) -> None:
    assert reset(way) == (expected, [])


def test_an_offset_beyond_an_end_of_the_log_becomes_that_end_with_a_warning() -> None:
    assert reset(Way.OFFSET, 100, ZERO) == ({0: 100}, [])
    high, (warning,) = reset(Way.OFFSET, 150)
    assert high == {0: 100, 1: 150}
    assert warning == "new offset 150 of orders-0 is higher than the latest one: it is set to 100"
    low, warnings = reset(Way.OFFSET, 15)
    assert low == {0: 15, 1: 20}
    assert warnings == ["new offset 15 of orders-1 is lower than the earliest one: it is set to 20"]


@pytest.mark.parametrize(("by", "offset", "count"), [(7, 57, 0), (-7, 43, 0), (-41, 10, 1), (51, 100, 1)])
def test_a_shift_goes_from_the_commit_and_stays_within_the_log(by: int, offset: int, count: int) -> None:
    found, warnings = reset(Way.SHIFT, by, ZERO)
    assert (found, len(warnings)) == ({0: offset}, count)


def test_a_shift_needs_a_commit_of_each_partition() -> None:
    with pytest.raises(CannotResetError, match="cannot shift the offsets of orders-1: the group has no committed"):
        reset(Way.SHIFT, 1)


def test_a_time_after_all_records_is_the_end_of_the_log_with_a_warning() -> None:
    found, (warning,) = reset(Way.DATETIME, 1)
    assert found == {0: 42, 1: 200}
    assert "orders-1 has no record of this time or later" in warning


def test_offsets_of_a_file_are_held_within_the_log() -> None:
    found, warnings = reset(Way.FILE)
    assert (found, len(warnings)) == ({0: 11, 1: 200}, 1)


def test_positions_of_kafka_07_are_named_as_its_tools_do() -> None:
    tp = TopicPartition("events", 10002)
    logs = LogOffsets({tp: 0}, {tp: 30}, log_format=KAFKA07_LOG)
    _, (warning,) = new_offsets(Reset(Way.OFFSET, 31), [tp], {}, logs)
    assert warning == "new position 31 of events 1-2 is higher than the latest one: it is set to 30"


# -- values of options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T02:00:00.001+02:00", 1),
        ("1970-01-01T00:00:00Z", 0),
        ("2017-08-04T12:00:00.000", 1_501_848_000_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, milliseconds: int) -> None:
    assert parse_datetime(text) == milliseconds


TIMES = ["", "2017-08-04", "2017-08-04 12:00:00", "yesterday", "2017-13-04T12:00:00.000", "T"]
REFUSED: list[tuple[Callable[[str], object], list[str], str]] = [
    (parse_datetime, TIMES, "invalid time"),
    (parse_duration, ["", "P", "PT", "P1DT", "1D", "P1M", "P1W", "PT1H ", "PT٣H"], "invalid duration"),
    (parse_topic, ["", ":0", "orders:", "orders:0,", "orders:,1"], "invalid topic"),
]


@pytest.mark.parametrize(
    ("parse", "text", "said"), [(parse, text, said) for parse, texts, said in REFUSED for text in texts]
)
def test_an_invalid_value_is_refused(parse: Callable[[str], object], text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("P1D", 86_400), ("PT2H30M", 9_000), ("P1DT1S", 86_401), ("PT0.25S", 0.25), ("-PT1M", -60), ("pt5m", 300)],
)
def test_durations_are_those_of_java(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * 1000


def test_a_topic_may_name_some_of_its_partitions() -> None:
    assert parse_topic("orders") == TopicScope("orders")
    assert parse_topic("orders:0,1-2") == TopicScope("orders", ("0", "1-2"))
