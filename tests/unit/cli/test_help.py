"""What `--help` shows: sections in the order of their use, a metavariable for each value, examples that work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamgroup.cli._help import SectionedCommand
from streamgroup.cli.main import main
from tests.unit.cli.commands import commands

ALL = dict(commands(main))


@pytest.fixture(autouse=True)
def files_of_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def help_of(name: str) -> list[str]:
    result = CliRunner().invoke(main, [*name.split(), "--help"], terminal_width=120)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_what_a_command_does_comes_before_how_it_connects() -> None:
    titles = [line for line in help_of("groups") if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Actions (give one):",
        "Which groups:",
        "With --describe (give one):",
        "Which partitions, for --reset-offsets, --delete-offsets and --export:",
        "New offsets, for --reset-offsets (give one):",
        "Further options of --reset-offsets and --export:",
        "Output:",
        "Connection:",
        "Other options:",
        "Examples:",
    ]


def test_a_required_setting_is_said_to_be_required() -> None:
    shown = " ".join(" ".join(help_of("topics")).split())
    assert "--partitions N Number of partitions. Required by --create and --alter" in shown
    assert "Only --describe has a default: all topics." in shown


def test_a_limit_that_goes_without_saying_is_left_out() -> None:
    shown = " ".join(" ".join(help_of("topics")).split())
    assert "x>=" not in shown
    assert "1<=x<=32767" in shown


@pytest.mark.parametrize("name", ALL)
def test_every_option_has_a_description_and_a_name_for_its_value(name: str) -> None:
    for option in ALL[name].params:
        if not isinstance(option, click.Option):
            continue
        assert (option.help or "").endswith((".", "]", ")")), option.name
        has_names = isinstance(option.type, click.Choice) or option.is_flag or option.count or option.flag_value
        assert option.metavar or has_names, f"{option.name} would be shown as {option.type.name.upper()}"


@pytest.mark.parametrize("name", ALL)
def test_the_list_of_commands_has_whole_descriptions(name: str) -> None:
    assert not ALL[name].get_short_help_str(limit=100).endswith("...")


SCREENS = re.findall(
    r"^    \$ (streamgroup .*)$", (Path(__file__).parents[3] / "docs" / "cli-screens.md").read_text(), re.MULTILINE
)
EXAMPLES = [line for command in ALL.values() if isinstance(command, SectionedCommand) for line in command.examples]


@pytest.mark.parametrize("line", [*EXAMPLES, *SCREENS])
def test_the_examples_of_help_and_pages_are_valid_command_lines(line: str) -> None:
    words = shlex.split(line.rpartition("| ")[2])
    name = next(name for name in sorted(ALL, key=len, reverse=True) if words[1:][: len(name.split())] == name.split())
    ALL[name].make_context(name, words[1 + len(name.split()) :])


def test_every_command_with_options_of_its_own_has_examples() -> None:
    without = {name for name, command in ALL.items() if not getattr(command, "examples", None)}
    assert without == {"kafka down", "kafka status", "demo", "completion"}
