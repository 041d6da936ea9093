"""The command line as a whole: its commands, their help and pages, and the values that their options take."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import streamgroup
import streamgroup.cli
from streamgroup.cli import _click as tables
from streamgroup.cli._click import (
    Column,
    Duration,
    KcatCommand,
    PartitionName,
    SectionedCommand,
    notice_options,
    option,
    parsed,
    partitions_option,
)
from streamgroup.cli._output import Notices
from streamgroup.cli.main import CommandsByFile, main
from streamgroup.errors import StreamGroupError
from streamgroup.model import TopicPartition
from tests.unit.cli.shown import commands


def test_the_version_is_shown_and_commands_are_found_by_their_files() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"streamgroup, version {streamgroup.__version__}\n")
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "  kafka " in result.output
    assert "  main " not in result.output


def test_an_error_of_ours_is_its_message_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise StreamGroupError("group g: nobody is there; start somebody")

    monkeypatch.setattr(CommandsByFile, "get_command", lambda *_: failing)
    result = CliRunner().invoke(main, ["failing"])
    assert (result.exit_code, result.output) == (1, "Error: group g: nobody is there; start somebody\n")


DOCS = Path(__file__).parents[3] / "docs"
WITHOUT_JSON = {
    "completion": "prints a script for a shell",
    "demo": "shows a run to a person; its exit code is the result",
    "ui": "serves a page, whose views are JSON at /api/",
    "produce": "prints nothing on standard output; its --json reads JSON",
}
"""The commands whose results are not for programs to read as JSON, each with the reason (docs/cli.md)."""


def test_every_command_prints_json_or_is_listed_with_a_reason() -> None:
    without = set()
    for name, command in commands(main):
        options = [option for option in command.params if "--json" in option.opts]
        if not options or "Read JSON" in (getattr(options[0], "help", "") or ""):
            without.add(name)
    assert without == WITHOUT_JSON.keys()


def test_the_pages_have_the_exit_codes_of_every_command() -> None:
    _, _, section = (DOCS / "cli.md").read_text().partition("\n## Exit codes\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([a-z]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(main.list_commands(click.Context(main)))


def test_a_command_loads_no_other_commands_imports() -> None:
    code = (
        "import sys\n"
        "from streamgroup.cli.main import main\n"
        "main(['kafka', '--help'], standalone_mode=False)\n"
        "loaded = {m.split('.')[0] for m in sys.modules}\n"
        "assert not loaded & {'pyspark', 'numpy', 'pyarrow', 'confluent_kafka', 'rich', 'cryptography'}, loaded\n"
        "ours = {m for m in sys.modules if m.startswith('streamgroup.cli.')}\n"
        "commands = {m for m in ours if not m.startswith('streamgroup.cli._')}\n"
        "assert commands == {'streamgroup.cli.main', 'streamgroup.cli.kafka'}, commands\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


PAGE = DOCS / "cli-screens.md"


def titles() -> set[str]:
    """The titles of all columns of all commands."""
    found = set()
    for module in pkgutil.iter_modules(streamgroup.cli.__path__):
        for value in vars(importlib.import_module(f"streamgroup.cli.{module.name}")).values():
            columns = value if isinstance(value, tuple) else (value,)
            found |= {column.title for column in columns if isinstance(column, Column)}
    return found


def test_the_headings_of_the_screens_are_titles_of_columns() -> None:
    headings = re.findall(r"^    ([A-Z]+[A-Z-]*  +[A-Z#].*)$", PAGE.read_text(), re.MULTILINE)
    assert len(headings) >= 9
    known = titles()
    for heading in headings:
        assert set(re.split(r"  +", heading)) <= known, heading


def test_every_command_for_operators_has_a_screen() -> None:
    shown = set(re.findall(r"^    \$ streamgroup (\w+)", PAGE.read_text(), re.MULTILINE))
    names = set(main.list_commands(click.Context(main)))
    assert names - shown == {"produce", "kafka", "demo", "completion"}, "docs/cli.md and their own pages say enough"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_streamgroup_and_another_shell_is_wrong_usage(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_STREAMGROUP_COMPLETE={shell}_complete" in result.output
    assert CliRunner().invoke(main, ["completion", "csh"]).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [(("streamgroup", "la"), ["lag"]), (("streamgroup", "lag", "--wa"), ["--watch"])],
    ids=["command", "option"],
)
def test_bash_completes_by_the_script(words: tuple[str, ...], completed: list[str]) -> None:
    typed = " ".join(words)
    script = rf"""
        eval "$(streamgroup completion bash)" || exit 1
        [[ $(complete -p streamgroup) =~ -F\ ([^ ]+) ]] || exit 2
        COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}
        "${{BASH_REMATCH[1]}}" streamgroup
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    bash = ["bash", "--norc", "--noprofile", "-c", script]
    done = subprocess.run(
        bash, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, completed), done.stderr


# -- values, tables and help -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms", "seconds"),
    [
        ("5000", 5000, 5000),
        ("1500ms", 1500, 1.5),
        ("30s", 30_000, 30),
        ("0.5s", 500, 0.5),
        ("5m", 300_000, 300),
        ("1h", 3_600_000, 3600),
    ],
)
def test_a_number_counts_in_the_options_unit_unless_it_has_one(text: str, ms: int, seconds: float) -> None:
    assert Duration("ms", 1).convert(text, None, None) == ms
    assert Duration("s", 0).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 s", "1d", "1e3", "nan", "1s2", "٣"])
def test_another_text_is_an_error_that_names_the_units(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected milliseconds, or with a unit: 500ms, 30s, 5m"):
        Duration("ms", 1).convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "0.4ms", "2h"])
def test_a_duration_beyond_the_limits_is_an_error_that_names_them(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected 1 to 3600000 milliseconds"):
        Duration("ms", 1, 3_600_000).convert(text, None, None)


@click.command
@partitions_option("Which partition to look at.")
def look(partitions: tuple[TopicPartition, ...]) -> None:
    for tp in partitions:
        click.echo(f"{tp.topic} {tp.partition}")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(look, arguments)


@pytest.mark.parametrize(
    ("name", "topic", "number"),
    [
        ("orders-0", "orders", 0),
        ("big-orders-17", "big-orders", 17),
        ("orders--1", "orders-", 1),
        ("a.b_c-2147483647", "a.b_c", 2147483647),
        ("7-3", "7", 3),
    ],
)
def test_the_number_stands_behind_the_last_hyphen(name: str, topic: str, number: int) -> None:
    assert run("--topic-partition", name).stdout == f"{topic} {number}\n"


@pytest.mark.parametrize("name", ["", "orders", "orders-", "-0", "orders-x", "orders-1.5", "orders- 1"])
def test_another_text_is_a_wrong_usage_that_names_the_option_and_the_form(name: str) -> None:
    result = run(f"--topic-partition={name}")
    text = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert f"Invalid value for '--topic-partition': invalid topic-partition {name!r}" in text
    assert "such as orders-0" in text


def test_a_partition_is_taken_as_it_is() -> None:
    """Click converts a default that is a value already."""
    assert PartitionName().convert(TopicPartition("orders", 3), None, None) == TopicPartition("orders", 3)


def number_of(text: str) -> int:
    return int(text)


@click.command(cls=KcatCommand)
@option("Input", "-n", "--number", default="0")
@option("Input", "--code", type=int, default=0)
@notice_options
def command(notices: Notices, number: str, code: int) -> None:
    found = parsed("-n", lambda: number_of(number))
    click.echo(f"{found} {notices.verbosity}")
    click.get_current_context().exit(code)


def run_kcat(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize(
    ("arguments", "verbosity"),
    [((), 1), (("-v",), 2), (("-vv",), 3), (("-v", "--verbose"), 3), (("-q",), 0), (("--quiet", "-vv"), 0)],
)
def test_quiet_and_verbose_choose_the_notices(arguments: tuple[str, ...], verbosity: int) -> None:
    assert run_kcat(*arguments).stdout == f"0 {verbosity}\n"


@pytest.mark.parametrize("arguments", [("--absent",), ("--code", "x"), ("-n",), ("argument",)])
def test_a_command_line_that_click_refuses_has_exit_code_1(arguments: tuple[str, ...]) -> None:
    result = run_kcat(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: " in result.stderr


def test_a_value_that_the_command_refuses_has_exit_code_1_and_names_the_option_and_the_reason() -> None:
    result = run_kcat("-n", "many")
    assert result.exit_code == 1
    assert "Invalid value for -n: invalid literal for int() with base 10: 'many'" in result.stderr
    with pytest.raises(TypeError):  # a defect is not taken for a wrong usage
        parsed("-n", lambda: number_of(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [0, 2, 3])
def test_an_exit_code_that_the_command_chooses_stays(code: int) -> None:
    result = run_kcat("-n", "5", "--code", str(code))
    assert (result.exit_code, result.stdout) == (code, "5 1\n")


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    columns: tuple[Column[Any], ...] = (
        Column("A", "a", lambda row: row[0]),
        Column("LONG-TITLE", "b", lambda row: row[1]),
        Column("C", "c", lambda row: row[2]),
    )
    text = tables.table(columns, [("wide cell", 1, None), ("", 2, "x")])
    assert text == "A          LONG-TITLE  C\nwide cell  1           -\n-          2           x"


def test_a_table_that_is_too_wide_is_shortened_in_its_first_column() -> None:
    columns: tuple[Column[Any], ...] = (
        Column("ID", "id", lambda row: row),
        Column("OTHER", "other", lambda row: 1),
    )
    ids = ["streamgroup-0123456789", "short"]
    assert tables.table(columns, ids, width=22).splitlines()[1:] == ["streamgroup-01…  1", "short            1"]
    assert tables.table(columns, ids, width=5).splitlines()[1] == "streamgroup…  1", "never less than that"
    assert tables.table(columns, ids, width=100) == tables.table(columns, ids)


ALL = dict(commands(main))


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


def test_a_required_setting_is_said_to_be_required_and_a_limit_that_goes_without_saying_is_left_out() -> None:
    shown = " ".join(" ".join(help_of("topics")).split())
    assert "--partitions N Number of partitions. Required by --create and --alter" in shown
    assert "Only --describe and --open-transactions have a default: all topics." in shown
    assert "x>=" not in shown
    assert "1<=x<=32767" in shown


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_has_a_whole_description_and_each_value_a_name(name: str) -> None:
    assert not ALL[name].get_short_help_str(limit=100).endswith("...")
    for parameter in ALL[name].params:
        if not isinstance(parameter, click.Option):
            continue
        assert (parameter.help or "").endswith((".", "]", ")")), parameter.name
        has_names = (
            isinstance(parameter.type, click.Choice) or parameter.is_flag or parameter.count or parameter.flag_value
        )
        assert parameter.metavar or has_names, f"{parameter.name} would be shown as {parameter.type.name.upper()}"


SCREENS = re.findall(r"^    \$ (streamgroup .*)$", PAGE.read_text(), re.MULTILINE)
EXAMPLES = [line for command in ALL.values() if isinstance(command, SectionedCommand) for line in command.examples]


@pytest.mark.parametrize("line", [*EXAMPLES, *SCREENS])
def test_the_examples_of_help_and_pages_are_valid_command_lines(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line.rpartition("| ")[2])
    name = next(name for name in sorted(ALL, key=len, reverse=True) if words[1:][: len(name.split())] == name.split())
    ALL[name].make_context(name, words[1 + len(name.split()) :])


def test_every_command_with_options_of_its_own_has_examples() -> None:
    without = {name for name, command in ALL.items() if not getattr(command, "examples", None)}
    assert without == {"kafka down", "kafka status", "demo", "completion"}
