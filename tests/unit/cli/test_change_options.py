"""The options of `streamgroup groups` that change offsets are one consistent request, or a usage error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _change_options as module
from streamgroup.cli._change_options import SPARK, ChangeOptions, action_options, change_options
from streamgroup.cli._reset import Reset, TopicScope, Way
from streamgroup.errors import ConfigError

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


def test_without_options_there_is_no_action() -> None:
    assert changes() == ChangeOptions()
    assert not changes().has_action


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
        ((*RESET, "--from-file", __file__), "--from-file says which partitions"),
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
