from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import streamgroup
import streamgroup.cli
from streamgroup.cli._click import Column
from streamgroup.cli.main import CommandsByFile, main
from streamgroup.errors import StreamGroupError
from tests.unit.cli.shown import commands


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"streamgroup, version {streamgroup.__version__}\n")


def test_commands_are_found_by_their_files() -> None:
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


PAGE = Path(__file__).parents[3] / "docs" / "cli-screens.md"


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
def test_the_script_of_each_shell_asks_streamgroup(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_STREAMGROUP_COMPLETE={shell}_complete" in result.output


def test_another_shell_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["completion", "csh"]).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [("streamgroup la", ["lag"]), ("streamgroup lag --wa", ["--watch"])],
    ids=["command", "option"],
)
def test_commands_and_options_are_completed(words: str, completed: list[str]) -> None:
    number = str(len(words.split()) - 1)
    asked = {"_STREAMGROUP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": number}
    program = Path(sys.executable).with_name("streamgroup")
    done = subprocess.run(
        [program], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=True
    )
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == completed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [(("streamgroup", "la"), ["lag"]), (("streamgroup", "topics", "--cr"), ["--create"])],
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
