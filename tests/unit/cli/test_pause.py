"""`streamgroup pause`, with coordinators behind real control channels."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli.main import main
from streamgroup.driver.application import control
from streamgroup.errors import StreamGroupError, TransportError
from tests.unit.driver.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def holding(serve: Serve, *names: str, run: str = "r1") -> FakeCoordinator:
    coordinator = serve(run, f"lineage of {run}")
    coordinator.positions = dict.fromkeys(names, 0)
    return coordinator


def test_named_partitions_are_paused_and_shown(serve: Serve) -> None:
    coordinator = holding(serve, "big-orders-0", "big-orders-1", "big-orders-2")
    result = run("pause", "--topic-partition", "big-orders-1", "--topic-partition", "big-orders-2", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["pid"], row["paused"]) == (JVM, "big-orders-1, big-orders-2")
    assert coordinator.paused == {"big-orders-1", "big-orders-2"}


def test_without_partitions_the_whole_query_is_paused(serve: Serve) -> None:
    coordinator = holding(serve)
    assert run("pause").stdout.splitlines()[-1].endswith(" all")
    assert coordinator.is_whole


def test_a_list_pauses_nothing(serve: Serve) -> None:
    coordinator = holding(serve, "t-0")
    run("pause", "--topic-partition", "t-0")
    (row,) = json.loads(run("pause", "--list", "--json").stdout)
    assert row["paused"] == "t-0"
    assert (coordinator.paused, coordinator.is_whole) == ({"t-0"}, False)


def test_each_source_of_a_query_gets_its_own_partitions(serve: Serve) -> None:
    one, two = holding(serve, "t-0"), holding(serve, "u-0", run="r2")
    one.query = two.query = {"id": "q", "name": ""}
    result = run("pause", "--topic-partition", "u-0")
    assert result.exit_code == 0, result.output
    assert (one.paused, two.paused) == (set(), {"u-0"})


def test_a_partition_that_is_not_held_is_an_error_and_pauses_nothing(serve: Serve) -> None:
    coordinator = holding(serve, "t-0")
    result = run("pause", "--topic-partition", "t-0", "--topic-partition", "t-5")
    assert result.exit_code == 1
    assert "does not hold t-5 now. It holds t-0" in result.output
    assert coordinator.paused == set()


def test_a_refusal_of_the_coordinator_is_shown(serve: Serve) -> None:
    holding(serve, "t-0").refusal = TransportError("no")
    result = run("pause")
    assert (result.exit_code, result.stderr) == (1, "Error: no\n")


def test_several_queries_are_listed_and_none_is_paused(serve: Serve) -> None:
    one, two = holding(serve, "t-0"), holding(serve, "t-1", run="r2")
    result = run("pause")
    assert result.exit_code == 1
    assert "2 queries match the options" in result.output
    assert not one.is_whole
    assert not two.is_whole


@pytest.mark.parametrize("name", ["t", "-1", "t-", "t-x", "t-99999999999", "t-\u0663"])
def test_what_is_not_a_partition_is_refused_by_the_command_and_by_the_channel(serve: Serve, name: str) -> None:
    holding(serve, "t-0")
    result = run("pause", f"--topic-partition={name}")
    assert result.exit_code == 2
    assert "invalid topic-partition" in result.output
    with pytest.raises(StreamGroupError, match="invalid topic-partition"):
        control.ask(JVM, "r1", "pause", partitions=[name], paused=True)
