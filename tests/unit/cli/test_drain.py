"""`streamgroup drain`, with coordinators behind real control channels."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import drain as module
from streamgroup.cli.main import main
from streamgroup.coordinator.control import channel, drains
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]
OTHER_JVM = 1
"""Pid 1: a process that is always there."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDED_S", 0.2)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(drains, "POLL_S", 0.01)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["drain", *arguments])


def ending(coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its query ends when it is told to: the channel is closed."""
    runs: Callable[[int], list[str]] = channel.runs
    monkeypatch.setattr(
        channel, "runs", lambda pid: [run for run in runs(pid) if run != coordinator.run or not coordinator.ended]
    )


def test_the_only_query_is_drained_without_options(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = serve()
    result = run()
    assert result.exit_code == 0, result.output
    assert "drained: nothing will be repeated; the query ends with its next trigger" in result.output
    coordinator.ended = 0
    ending(coordinator, monkeypatch)
    result = run("--timeout", "7")
    assert result.exit_code == 0, result.output
    assert (coordinator.drains, coordinator.ends, coordinator.ended) == ([60.0, 7.0], True, 1)
    assert f"draining group of r1 of driver {JVM}: waiting up to 7 s for the last batch" in result.output
    assert "drained: nothing will be repeated; the query has ended" in result.output


def test_a_list_drains_nothing_and_one_of_nothing_is_not_an_error(serve: Serve) -> None:
    result = run("--list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no streamgroup query of this user runs" in result.stderr
    assert json.loads(run("--list", "--json").stdout) == []
    one, two = serve("r1", "l1"), serve("r2", "l2", OTHER_JVM)
    result = run("--list")
    assert result.exit_code == 0, result.output
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["RUN", "r2", "r1"]
    (row,) = json.loads(run("--list", "--pid", "1", "--json").stdout)
    assert (row["run"], row["in_flight"]) == ("r2", False)
    assert (one.drains, two.drains, one.ended + two.ended) == ([], [], 0)


def test_the_result_of_a_drain_for_programs_has_no_other_lines(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = serve("r1", "l1"), serve("r2", "l2", OTHER_JVM)
    ending(one, monkeypatch)
    result = run("--pid", str(JVM), "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["drained"], told["ended"]) == (True, True)
    known = {"pid": JVM, "group": "group of r1", "state": "stable", "in_flight": False, "run": "r1"}
    assert told["chosen"] == [{**known, "member": None, "consumer_id": None, "query": None}]
    assert {row["run"] for row in told["running"]} == {"r1", "r2"}


@pytest.mark.parametrize("chosen", [(), ("--pid", "1")], ids=["several", "not in time"])
def test_a_query_that_is_not_drained_is_json_and_an_error(serve: Serve, chosen: tuple[str, ...]) -> None:
    serve("r1", "l1")
    other = serve("r2", "l2", OTHER_JVM)
    why = "the timeout expired before the batch in flight was complete"
    other.drained, other.why = False, why
    result = run("--json", "--timeout", "0.5", *chosen)
    assert result.exit_code == 1
    assert (f"group of r2: {why}. The query" in result.stderr) is bool(chosen)
    told = json.loads(result.stdout)
    assert (told["drained"], told["ended"], len(told["chosen"])) == (False, False, len(chosen) // 2)
    assert {row["run"] for row in told["running"]} == {"r1", "r2"}
    assert result.stderr.startswith("Error: ")


def test_several_queries_are_listed_and_none_is_drained(serve: Serve) -> None:
    one, two = serve("r1", "l1"), serve("r2", "l2", OTHER_JVM)
    two.name, two.query, two.idle = "b", {"id": "q-2", "name": "orders"}, False
    result = run()
    assert result.exit_code == 1
    assert "2 queries match the options. Choose one with --group, --member or --pid" in result.output
    table = [line.split() for line in result.output.splitlines()[-3:]]
    assert table == [
        ["PID", "GROUP", "MEMBER", "STATE", "IN-FLIGHT", "CONSUMER-ID", "QUERY", "RUN"],
        ["1", "group", "of", "r2", "b", "stable", "yes", "-", "orders", "r2"],
        [str(JVM), "group", "of", "r1", "-", "stable", "no", "-", "-", "r1"],
    ]
    assert (one.drains, two.drains) == ([], [])


@pytest.mark.parametrize(
    "chosen", [("--group", "group of r2"), ("--member", "b"), ("--pid", "1")], ids=["group", "member", "pid"]
)
def test_one_of_several_is_chosen(serve: Serve, chosen: tuple[str, str]) -> None:
    one, two = serve("r1", "l1"), serve("r2", "l2", OTHER_JVM)
    two.name = "b"
    assert run(*chosen).exit_code == 0
    assert (one.drains, two.drains) == ([], [60.0])


def test_the_other_coordinators_of_a_listened_query_are_drained_with_the_one_that_is_named(serve: Serve) -> None:
    both = serve("r1", "l1"), serve("r2", "l2")
    together = threading.Barrier(2)
    for one in both:
        one.query = {"id": "q-1", "name": ""}
        one.while_draining = lambda: together.wait(5)
    result = run("--group", "group of r2")
    assert result.exit_code == 0, result.output
    assert [one.ended for one in both] == [1, 1]


@pytest.mark.slow
def test_without_a_listener_all_groups_of_a_query_name_it(serve: Serve) -> None:
    both = serve("r1", "l1"), serve("r2", "l2")
    assert run("--group", "group of r1").exit_code == 0, "as far as anybody knows, that is a query"
    assert [one.ended for one in both] == [1, 0]
    assert run("--group", "group of r1", "--group", "group of r2").exit_code == 0
    assert [one.ended for one in both] == [2, 1]


def test_a_drain_after_its_timeout_ends_the_query_and_says_what_may_be_repeated(serve: Serve) -> None:
    coordinator = serve()
    coordinator.drained = False
    result = run("--timeout", "0.5")
    assert result.exit_code == 1
    assert "cannot drain group of r1: its last batch is not complete, or another member holds" in result.output
    assert "The query ends with its next trigger all the same" in result.output
    assert "its last batch may be repeated" in result.output
    assert coordinator.ended == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = channel.ask

    def shortly(pid: int, run: str, *arguments: Any, **others: Any) -> dict[str, Any]:
        return ask(pid, run, *arguments, **{**others, **({"answer_timeout": 0.2} if run == "r1" else {})})

    monkeypatch.setattr(channel, "ask", shortly)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_coordinator_that_does_not_answer_is_passed_over(serve: Serve) -> None:
    hung, well = serve("r1", "l1"), serve("r2", "l2")
    hung.may_answer.clear()
    assert run().exit_code == 0
    assert well.drains == [60.0]


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_coordinator_that_does_not_answer_is_listed_and_not_denied(serve: Serve) -> None:
    serve("r1", "l1").may_answer.clear()
    (row,) = json.loads(run("--list", "--json").stdout)
    assert (row["pid"], row["run"], row["state"], row["in_flight"]) == (JVM, "r1", "no answer", None)
    for chosen in ([], ["--group", "orders"]):
        refused = run(*chosen)
        assert refused.exit_code == 1
        assert f"its coordinator does not answer: run r1 of driver {JVM}." in refused.stderr
        assert "kill -CONT" in refused.stderr
