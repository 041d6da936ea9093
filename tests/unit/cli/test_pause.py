"""`streamgroup pause` and `resume`, with coordinators that have real control channels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._running import NotHeldError, PauseRequest
from streamgroup.cli._running import run as run_pausing
from streamgroup.cli.main import main
from streamgroup.coordinator.control import channel
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.model import TopicPartition
from tests.unit.cli.shown import cells
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]
Serve = Callable[..., FakeCoordinator]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def holding(serve: Serve, *names: str, run: str = "r1") -> FakeCoordinator:
    coordinator = serve(run, f"lineage of {run}")
    coordinator.positions = dict.fromkeys(names, 0)
    return coordinator


@pytest.mark.usefixtures("home")
def test_named_partitions_are_paused_and_shown(serve: Serve) -> None:
    coordinator = holding(serve, "big-orders-0", "big-orders-1", "big-orders-2")
    result = run("pause", "--topic-partition", "big-orders-1", "--topic-partition", "big-orders-2", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["pid"], row["paused"]) == (JVM, "big-orders-1, big-orders-2")
    assert coordinator.paused == {"big-orders-1", "big-orders-2"}


@pytest.mark.usefixtures("home")
def test_without_partitions_the_whole_query_is_paused(serve: Serve) -> None:
    coordinator = holding(serve)
    assert run("pause").stdout.splitlines()[-1].endswith(" all")
    assert coordinator.is_whole


@pytest.mark.usefixtures("home")
def test_a_list_pauses_nothing(serve: Serve) -> None:
    coordinator = holding(serve, "t-0")
    run("pause", "--topic-partition", "t-0")
    (row,) = json.loads(run("pause", "--list", "--json").stdout)
    assert row["paused"] == "t-0"
    assert (coordinator.paused, coordinator.is_whole) == ({"t-0"}, False)


@pytest.mark.usefixtures("home")
def test_a_partition_that_is_not_held_is_an_error_and_pauses_nothing(serve: Serve) -> None:
    coordinator = holding(serve, "t-0")
    result = run("pause", "--topic-partition", "t-0", "--topic-partition", "t-5")
    assert result.exit_code == 1
    assert "does not hold t-5 now. It holds t-0" in result.output
    assert coordinator.paused == set()


@pytest.mark.usefixtures("home")
def test_a_refusal_of_the_coordinator_is_shown(serve: Serve) -> None:
    holding(serve, "t-0").refusal = TransportError("no")
    result = run("pause")
    assert (result.exit_code, result.stderr) == (1, "Error: no\n")


@pytest.mark.usefixtures("home")
def test_several_queries_are_listed_and_none_is_paused(serve: Serve) -> None:
    one, two = holding(serve, "t-0"), holding(serve, "t-1", run="r2")
    result = run("pause")
    assert result.exit_code == 1
    assert "2 queries match the options" in result.output
    assert not one.is_whole
    assert not two.is_whole


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["t", "-1", "t-", "t-x", "t-99999999999", "t-\u0663"])
def test_what_is_not_a_partition_is_refused_by_the_command_and_by_the_channel(serve: Serve, name: str) -> None:
    holding(serve, "t-0")
    result = run("pause", f"--topic-partition={name}")
    assert result.exit_code == 2
    assert "invalid topic-partition" in result.output
    with pytest.raises(StreamGroupError, match="invalid topic-partition"):
        channel.ask(JVM, "r1", "pause", partitions=[name], paused=True)


def run_resume(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["resume", *arguments])


def paused(serve: Serve, *names: str, run: str = "r1") -> FakeCoordinator:
    """A coordinator that holds these partitions, all of them paused."""
    coordinator = serve(run, f"lineage of {run}")
    coordinator.positions = dict.fromkeys(names, 0)
    coordinator.paused = set(names)
    return coordinator


@pytest.mark.usefixtures("home")
def test_only_the_named_partitions_are_read_again_and_the_rest_is_shown_as_paused(serve: Serve) -> None:
    coordinator = paused(serve, "t-0", "t-1", "t-2")
    result = run_resume("--topic-partition", "t-0", "--topic-partition", "t-2", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["pid"], row["paused"]) == (JVM, "t-1")
    assert coordinator.paused == {"t-1"}


@pytest.mark.usefixtures("home")
def test_without_names_everything_that_the_query_has_paused_is_read_again(serve: Serve) -> None:
    coordinator = paused(serve, "t-0", "t-1")
    coordinator.is_whole = True
    result = run_resume()
    assert result.exit_code == 0, result.output
    assert (coordinator.paused, coordinator.is_whole) == (set(), False)
    assert result.stdout.splitlines()[-1].endswith(" -")


@pytest.mark.usefixtures("home")
def test_one_of_several_queries_is_chosen_by_its_group(serve: Serve) -> None:
    one, two = paused(serve, "t-0"), paused(serve, "u-0", run="r2")
    assert run_resume().exit_code == 1
    assert (one.paused, two.paused) == ({"t-0"}, {"u-0"})
    assert run_resume("--group", "group of r2").exit_code == 0
    assert (one.paused, two.paused) == ({"t-0"}, set())


@pytest.mark.usefixtures("home")
def test_a_list_shows_what_is_paused_and_resumes_nothing(serve: Serve) -> None:
    coordinator = paused(serve, "t-0")
    result = run_resume("--list")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].endswith(" t-0")
    assert coordinator.paused == {"t-0"}


T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def request(*partitions: TopicPartition, as_json: bool = False, **others: Any) -> PauseRequest:
    given: dict[str, Any] = {"groups": (), "member": None, "pid": None, "lists": False, **others}
    return PauseRequest(partitions=partitions, as_json=as_json, **given)


@pytest.fixture
def both(serve: Serve) -> tuple[FakeCoordinator, FakeCoordinator]:
    """Two sources of one query: the first holds t-0 and t-1, the second u-0."""
    one, two = serve("r1", "l1"), serve("r2", "l2")
    one.query = two.query = {"id": "q", "name": "orders"}
    one.positions, two.positions = {"t-0": 5, "t-1": 6}, {"u-0": 7}
    return one, two


def paused_coordinator(both: tuple[FakeCoordinator, FakeCoordinator]) -> list[set[str]]:
    return [coordinator.paused for coordinator in both]


@pytest.mark.usefixtures("home")
def test_each_source_gets_its_share_of_the_partitions(
    both: tuple[FakeCoordinator, FakeCoordinator], capsys: pytest.CaptureFixture[str]
) -> None:
    run_pausing(request(U0, T1, T1), is_paused=True)
    assert paused_coordinator(both) == [{"t-1"}, {"u-0"}]
    title, *rows = cells(capsys.readouterr().out)
    assert title.endswith(" RUN PAUSED")
    assert [row.split()[-2:] for row in rows] == [["r1", "t-1"], ["r2", "u-0"]]
    run_pausing(request(T1), is_paused=False)
    assert paused_coordinator(both) == [set(), {"u-0"}]


@pytest.mark.usefixtures("home")
def test_a_query_without_partitions_holds_nothing(serve: Serve) -> None:
    serve()
    with pytest.raises(NotHeldError, match=r"does not hold t-0 now\. It holds nothing\."):
        run_pausing(request(T0), is_paused=False)


@pytest.mark.usefixtures("home")
def test_without_partitions_all_sources_are_paused_and_resumed_as_a_whole(
    both: tuple[FakeCoordinator, FakeCoordinator], capsys: pytest.CaptureFixture[str]
) -> None:
    run_pausing(request(as_json=True), is_paused=True)
    assert [coordinator.is_whole for coordinator in both] == [True, True]
    assert [row["paused"] for row in json.loads(capsys.readouterr().out)] == ["t-0, t-1", "u-0"]
    run_pausing(request(as_json=True), is_paused=False)
    assert [coordinator.is_whole for coordinator in both] == [False, False]
    assert [row["paused"] for row in json.loads(capsys.readouterr().out)] == [None, None]


@pytest.mark.usefixtures("home")
def test_the_table_afterwards_has_the_chosen_query_only(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    serve("r1", "l1")
    other = serve("r2", "l2")
    run_pausing(request(groups=("group of r1",), as_json=True), is_paused=True)
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["r1"]
    assert not other.is_whole
