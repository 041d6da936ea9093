"""The commands with kcat's options fail and speak as kcat does: exit code 1, `-q` and `-v`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._help import option
from streamgroup.cli._kcat import KcatCommand, notice_options, parsed
from streamgroup.cli._output import Notices


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


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize(
    ("arguments", "verbosity"),
    [((), 1), (("-v",), 2), (("-vv",), 3), (("-v", "--verbose"), 3), (("-q",), 0), (("--quiet", "-vv"), 0)],
)
def test_quiet_and_verbose_choose_the_notices(arguments: tuple[str, ...], verbosity: int) -> None:
    assert run(*arguments).stdout == f"0 {verbosity}\n"


@pytest.mark.parametrize("arguments", [("--absent",), ("--code", "x"), ("-n",), ("argument",)])
def test_a_command_line_that_click_refuses_has_exit_code_1(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: " in result.stderr


def test_a_value_that_the_command_refuses_has_exit_code_1_and_names_the_option_and_the_reason() -> None:
    result = run("-n", "many")
    assert result.exit_code == 1
    assert "Invalid value for -n: invalid literal for int() with base 10: 'many'" in result.stderr


@pytest.mark.parametrize("code", [0, 2, 3])
def test_an_exit_code_that_the_command_chooses_stays(code: int) -> None:
    result = run("-n", "5", "--code", str(code))
    assert (result.exit_code, result.stdout) == (code, "5 1\n")


def test_an_error_that_is_not_of_a_value_is_not_taken_for_a_wrong_usage() -> None:
    def fail() -> None:
        raise TypeError("a defect")

    with pytest.raises(TypeError, match="a defect"):
        parsed("-n", fail)
