from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import streamgroup
from streamgroup.cli.main import CommandsByFile, main
from streamgroup.errors import StreamGroupError


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"streamgroup, version {streamgroup.__version__}\n")


def test_commands_are_found_by_their_files() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "  kafka " in result.output
    assert "  main " not in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["no-such-thing"])
    assert result.exit_code == 2
    assert "No such command" in result.output


def test_an_error_of_ours_is_its_message_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise StreamGroupError("group g: nobody is there; start somebody")

    monkeypatch.setattr(CommandsByFile, "get_command", lambda *_: failing)
    result = CliRunner().invoke(main, ["failing"])
    assert (result.exit_code, result.output) == (1, "Error: group g: nobody is there; start somebody\n")


def test_a_command_loads_no_other_commands_imports() -> None:
    code = (
        "import sys\n"
        "from streamgroup.cli.main import main\n"
        "main(['kafka', '--help'], standalone_mode=False)\n"
        "loaded = {m.split('.')[0] for m in sys.modules}\n"
        "assert not loaded & {'pyspark', 'numpy', 'pyarrow', 'confluent_kafka', 'rich', 'cryptography'}, loaded\n"
        "ours = {m for m in sys.modules if m.startswith('streamgroup.cli.')}\n"
        "assert ours == {'streamgroup.cli.main', 'streamgroup.cli.kafka'}, ours\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
