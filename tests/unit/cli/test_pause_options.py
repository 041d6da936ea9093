"""`pause` and `resume` get the query and the partitions of their command line as one request."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._pause_options import PauseRequest, pause_options
from streamgroup.model import TopicPartition


def request_of(*arguments: str) -> PauseRequest:
    taken: list[PauseRequest] = []

    @click.command
    @pause_options("Partitions of the test.")
    def command(request: PauseRequest) -> None:
        taken.append(request)

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (request,) = taken
    return request


def refused(*arguments: str) -> Result:
    @click.command
    @pause_options("Partitions of the test.")
    def command(request: PauseRequest) -> None:
        pytest.fail(f"the command was called with {request}")

    return CliRunner().invoke(command, arguments)


def test_without_options_the_request_is_for_the_whole_of_the_only_query() -> None:
    assert request_of() == PauseRequest((), None, None, lists=False, partitions=(), as_json=False)


def test_each_option_is_in_the_request() -> None:
    queries = ("--group", "a", "--group", "b", "--member", "m", "--pid", "17", "--list", "--json")
    request = request_of(*queries, "--topic-partition", "t-1", "--topic-partition", "t-0")
    assert request == PauseRequest(
        ("a", "b"), "m", 17, lists=True, partitions=(TopicPartition("t", 1), TopicPartition("t", 0)), as_json=True
    )


@pytest.mark.parametrize(
    ("arguments", "named"), [(("--pid", "x"), "--pid"), (("--topic-partition", "t"), "--topic-partition")]
)
def test_a_value_of_the_wrong_kind_does_not_reach_the_command(arguments: tuple[str, str], named: str) -> None:
    result = refused(*arguments)
    assert result.exit_code == 2
    assert f"Invalid value for '{named}'" in result.stderr


def test_help_has_the_text_for_the_partitions() -> None:
    assert "Partitions of the test." in refused("--help").stdout
