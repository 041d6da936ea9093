"""The options of `streamgroup groups` that change offsets are one consistent request, and a reset has new offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _change_options as module
from streamgroup.cli._change_options import SPARK, ChangeOptions, action_options, change_options
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
from streamgroup.errors import ConfigError
from streamgroup.kafka.cluster.requests import NO_OFFSET
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import CommittedOffset, TopicPartition

NOW_MS = 1_800_000_000_000
RESET = ("--reset-offsets", "--all-topics")


def invoked(*arguments: str) -> tuple[Result, list[ChangeOptions]]:
    taken: list[ChangeOptions] = []

    @click.command
    @action_options
    @change_options
    def command(changes: ChangeOptions) -> None:
        taken.append(changes)

    return CliRunner().invoke(command, arguments), taken


def changes(*arguments: str) -> ChangeOptions:
    result, taken = invoked(*arguments)
    assert result.exit_code == 0, result.output
    (found,) = taken
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--delete",), {"deletes": True}),
        (("--export",), {"exports": True}),
        (("--export", "--format", "spark", "--topic", "t"), {"exports": True, "format": SPARK, "topics": ("t",)}),
        (("--delete-offsets", "--all-topics"), {"deletes_offsets": True, "all_topics": True}),
    ],
)
def test_an_action_gets_the_partitions_and_the_format_of_the_command_line(
    arguments: tuple[str, ...], expected: dict[str, Any]
) -> None:
    assert (changes(), changes().has_action) == (ChangeOptions(), False)
    topics = tuple(TopicScope(topic) for topic in expected.pop("topics", ()))
    found = changes(*arguments)
    assert found == ChangeOptions(topics=topics, **expected)
    assert found.has_action


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (("--to-earliest",), Reset(Way.EARLIEST)),
        (("--to-latest",), Reset(Way.LATEST)),
        (("--to-current",), Reset(Way.CURRENT)),
        (("--to-offset", "0"), Reset(Way.OFFSET, 0)),
        (("--shift-by", "-7"), Reset(Way.SHIFT, -7)),
        (("--shift-by", "0"), Reset(Way.SHIFT, 0)),
        (("--to-datetime", "1970-01-01T00:00:01.500"), Reset(Way.DATETIME, 1500)),
        (("--by-duration", "PT1M"), Reset(Way.DURATION, NOW_MS - 60_000)),
        (("--by-duration", "-PT1M"), Reset(Way.DURATION, NOW_MS + 60_000)),
    ],
)
def test_each_way_to_reset_has_its_value(
    way: tuple[str, ...], expected: Reset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW_MS / 1000))
    found = changes(*RESET, *way)
    assert (found.resets, found.reset, found.executes) == (True, expected, False)


def test_a_file_of_offsets_is_read_and_says_which_partitions(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("orders,0,5\n")
    found = changes("--reset-offsets", "--from-file", str(file), "--execute")
    assert found == ChangeOptions(resets=True, reset=Reset(Way.FILE), file="orders,0,5\n", executes=True)


def test_a_file_of_offsets_that_is_not_text_is_an_error_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"\xff")
    result, taken = invoked("--reset-offsets", "--from-file", str(file))
    assert isinstance(result.exception, ConfigError)
    assert f"cannot read the file of --from-file, {file}: " in str(result.exception)
    assert taken == []


def test_topics_may_be_repeated_and_name_some_of_their_partitions() -> None:
    found = changes("--export", "--topic", "orders:0,2", "--topic", "payments")
    assert found.topics == (TopicScope("orders", ("0", "2")), TopicScope("payments"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--delete", "--delete-offsets"), "choose one of --reset-offsets, --delete and --delete-offsets"),
        (("--export", "--delete"), "choose one of --reset-offsets, --delete and --delete-offsets"),
        (("--delete", "--execute"), "--execute requires --reset-offsets"),
        ((*RESET, "--to-latest", "--execute", "--dry-run"), "choose one of --execute and --dry-run"),
        (RESET, "--reset-offsets requires one of the ways --to-earliest,"),
        (("--export", "--to-latest"), "--reset-offsets requires one of the ways"),
        ((*RESET, "--to-offset", "0", "--shift-by", "0"), "choose one of --to-offset and --shift-by"),
        (("--format", "spark"), "--format requires --export"),
        (("--export", "--topic", "t", "--all-topics"), "choose one of --topic and --all-topics"),
        (("--delete", "--topic", "t"), "--delete deletes whole groups: --delete-offsets takes --topic"),
        ((*RESET, "--from-file", __file__), "--from-file lists the partitions"),
        (("--reset-offsets", "--to-latest"), "choose the partitions by --topic or --all-topics"),
        (("--delete-offsets",), "choose the partitions by --topic or --all-topics"),
        (("--topic", "t"), "--topic and --all-topics require --reset-offsets, --delete-offsets or --export"),
        (("--export", "--topic", "t:"), "invalid topic 't:': expected TOPIC or TOPIC:PARTITION"),
        ((*RESET, "--to-datetime", "yesterday"), "invalid time 'yesterday'"),
        ((*RESET, "--by-duration", "1h"), "invalid duration '1h'"),
        ((*RESET, "--by-duration", "P9999999999D"), "invalid duration 'P9999999999D': it is longer than any log"),
        ((*RESET, "--by-duration", f"PT{'9' * 400}S"), "it is longer than any log"),
        ((*RESET, "--to-datetime", "1969-12-31T23:59:59.999"), "value of --to-datetime: its time is before 1970"),
        ((*RESET, "--by-duration", "P300000D"), "and no record has such a time. Use --to-earliest"),
        ((*RESET, "--to-offset", "-1"), "'--to-offset'"),
        ((*RESET, "--from-file", "/no/such/file"), "'--from-file'"),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error_with_the_reason(
    arguments: tuple[str, ...], reason: str
) -> None:
    result, taken = invoked(*arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert taken == []


# -- the new offsets of a reset ----------------------------------------------------------------------------------------

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOGS = LogOffsets(earliest={ZERO: 10, ONE: 20}, latest={ZERO: 100, ONE: 200}, at_time={ZERO: 42, ONE: NO_OFFSET})
COMMITTED = {ZERO: CommittedOffset(50)}


def reset(way: Way, value: int = 0, *partitions: TopicPartition) -> tuple[dict[int, int], list[str]]:
    chosen = partitions or (ZERO, ONE)
    found, warnings = new_offsets(Reset(way, value), chosen, COMMITTED, LOGS, {ZERO: 11, ONE: 900})
    return {tp.partition: offset for tp, offset in found.items()}, warnings


def test_ends_of_logs_and_commits_are_taken_as_they_are() -> None:
    assert reset(Way.EARLIEST) == ({0: 10, 1: 20}, [])
    assert reset(Way.LATEST) == ({0: 100, 1: 200}, [])
    assert reset(Way.CURRENT) == ({0: 50, 1: 200}, []), "without a commit the end of the log, as Kafka's tool"


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
    with pytest.raises(CannotResetError, match="cannot shift the offsets of orders-1: the group has no committed"):
        reset(Way.SHIFT, by)


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
