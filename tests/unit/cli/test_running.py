"""The options `--group`, `--member` and `--pid` choose exactly one query of this machine, or say why they do not.

`pause` and `resume` pass their request to it, through real control channels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._click import json_rows
from streamgroup.cli._running import COLUMNS, NOTHING_RUNS, NotChosen, Running, choose, find, print_list, select
from streamgroup.cli.main import main
from streamgroup.coordinator.control import channel
from streamgroup.errors import StreamGroupError, TransportError
from tests.unit.cli.shown import cells
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

Serve = Callable[..., FakeCoordinator]


def running(run: str, group: str, *, pid: int = 7, name: str = "", query: str = "", **others: Any) -> Running:
    status = {"group": group, "name": name, "state": "stable", "idle": True, "query": {"id": query}, **others}
    return Running(pid, run, status)


A, B = running("r1", "a", name="m1"), running("r2", "b", name="m2")
ELSEWHERE = running("r3", "c", pid=8)
JOINED = [running("r4", "a", query="q"), running("r5", "b", query="q"), running("r6", "c", query="q2")]
SILENT = Running(9, "r9", {})


def chosen(
    rows: Sequence[Running], groups: Sequence[str] = (), member: str | None = None, pid: int | None = None
) -> list[str]:
    return [one.run for one in choose(rows, groups, member, pid)]


@pytest.mark.parametrize(
    ("rows", "options", "runs"),
    [
        ([A], {}, ["r1"]),
        ([A, SILENT], {}, ["r1"]),
        ([A, B, ELSEWHERE], {"groups": ["b"]}, ["r2"]),
        ([A, B, ELSEWHERE], {"member": "m1"}, ["r1"]),
        ([A, B, ELSEWHERE], {"pid": 8}, ["r3"]),
        ([A, B, ELSEWHERE], {"groups": ["a", "b"]}, ["r1", "r2"]),
        (JOINED, {"groups": ["b"]}, ["r4", "r5"]),
        (JOINED, {"groups": ["c"]}, ["r6"]),
    ],
    ids=["the only one", "beside a silent one", "group", "member", "pid", "all groups", "listened", "another listened"],
)
def test_the_options_choose_all_coordinators_of_one_query(
    rows: list[Running], options: dict[str, Any], runs: list[str]
) -> None:
    assert chosen(rows, **options) == runs


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        ([A, B], {}, "2 queries match the options"),
        ([A, B, ELSEWHERE], {"pid": 7}, "2 queries match the options"),
        ([A, B, ELSEWHERE], {"groups": ["a", "c"]}, "2 queries match the options"),
        ([A, B], {"groups": ["a", "b", "absent"]}, "2 queries match the options"),
        (JOINED, {"pid": 7}, "2 queries match the options"),
        ([A, B], {"groups": ["absent"]}, "no query matches the options"),
        ([A, B], {"groups": ["a"], "member": "m2"}, "no query matches the options"),
    ],
)
def test_any_other_number_of_queries_is_an_error_that_lists_them(
    rows: list[Running], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotChosen, match=reason) as refused:
        chosen(rows, **options)
    table = cells(str(refused.value).partition("\n\n")[2])
    assert [line.split()[-1] for line in table] == ["RUN", *(one.run for one in rows)]


def test_where_nothing_runs_the_error_names_tmpdir() -> None:
    with pytest.raises(NotChosen, match="TMPDIR"):
        chosen([])


def test_coordinators_that_do_not_answer_are_named_with_their_processes_and_the_way_to_continue_them() -> None:
    with pytest.raises(NotChosen, match=r"run r9 of driver 9, run r8 of driver 9\..*kill -CONT"):
        chosen([SILENT, Running(9, "r8", {})], ["a"])


def test_a_selection_is_what_all_options_match_also_more_than_one_query() -> None:
    rows = [A, B, ELSEWHERE]
    assert select(rows, [], None, None) == rows
    assert select(rows, ["a", "c"], None, None) == [A, ELSEWHERE]
    assert select(rows, ["a", "c"], None, 7) == [A]
    assert select(rows, [], "", None) == [ELSEWHERE]


def test_the_columns_show_what_a_coordinator_says_and_nothing_of_a_silent_one() -> None:
    busy = running("r1", "a", name="m1", idle=False, member="m1-17", query="q")
    named = running("r2", "", pid=8, query="q")
    named.status["query"]["name"] = "orders to lake"
    shown = [tuple(row.values()) for row in json_rows(COLUMNS, [busy, named, SILENT])]
    assert shown == [
        (7, "a", "m1", "stable", True, "m1-17", "q", "r1"),
        (8, None, None, "stable", False, None, "orders to lake", "r2"),
        (9, None, None, "no answer", None, None, None, "r9"),
    ]


def test_a_list_is_a_table_or_json_and_an_empty_one_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    print_list([A], as_json=False)
    assert cells(capsys.readouterr().out)[1] == "7 a m1 stable no - - r1"
    print_list([], as_json=False)
    assert capsys.readouterr() == ("", NOTHING_RUNS + "\n")
    print_list([A, SILENT], as_json=True)
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["r1", "r9"]
    print_list([], as_json=True)
    assert capsys.readouterr() == ("[]\n", "")


def test_the_coordinators_of_all_drivers_of_this_machine_are_found(home: Path, serve: Serve) -> None:
    assert find() == []
    serve("r2")
    serve("r1")
    serve("r3", jvm=1)
    found = find()
    assert [(one.pid, one.run, one.group) for one in found] == [
        (1, "r3", "group of r3"),
        (JVM, "r1", "group of r1"),
        (JVM, "r2", "group of r2"),
    ]
    assert all(one.answers for one in found)


# -- pause and resume --------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def paused_in(result: Result) -> list[str | None]:
    """The paused partitions of each source of the query that the command shows as JSON."""
    assert result.exit_code == 0, result.output
    return [row["paused"] for row in json.loads(result.stdout)]


def holding(serve: Serve, *names: str, run: str = "r1") -> FakeCoordinator:
    coordinator = serve(run, f"lineage of {run}")
    coordinator.positions = dict.fromkeys(names, 0)
    return coordinator


@pytest.mark.usefixtures("home")
def test_named_partitions_are_paused_and_resumed_and_the_rest_stays_as_it_was(serve: Serve) -> None:
    coordinator = holding(serve, "big-orders-0", "big-orders-1", "big-orders-2")
    one, two = "--topic-partition=big-orders-1", "--topic-partition=big-orders-2"
    assert paused_in(run("pause", one, two, "--json")) == ["big-orders-1, big-orders-2"]
    assert coordinator.paused == {"big-orders-1", "big-orders-2"}
    assert paused_in(run("resume", two, "--json")) == ["big-orders-1"]
    assert coordinator.paused == {"big-orders-1"}
    assert paused_in(run("resume", "--json")) == [None]
    assert coordinator.paused == set()


@pytest.mark.usefixtures("home")
def test_a_list_pauses_and_resumes_nothing(serve: Serve) -> None:
    coordinator = holding(serve, "t-0")
    coordinator.paused = {"t-0"}
    for command in ("pause", "resume"):
        assert paused_in(run(command, "--list", "--json")) == ["t-0"]
        assert run(command, "--list").stdout.splitlines()[-1].endswith(" t-0")
    assert (coordinator.paused, coordinator.is_whole) == ({"t-0"}, False)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("held", "holds"), [(["t-0"], "Assigned are t-0. If"), ([], "Assigned are none. If")])
def test_a_partition_that_is_not_held_is_an_error_and_pauses_nothing(serve: Serve, held: list[str], holds: str) -> None:
    coordinator = holding(serve, *held)
    result = run("pause", *(f"--topic-partition={name}" for name in (*held, "t-5")))
    assert result.exit_code == 1
    assert f"cannot pause or resume t-5: not assigned to the query now. {holds}" in result.output
    assert coordinator.paused == set()


@pytest.mark.usefixtures("home")
def test_a_refusal_of_the_coordinator_is_shown(serve: Serve) -> None:
    holding(serve, "t-0").refusal = TransportError("no")
    result = run("pause")
    assert (result.exit_code, result.stderr) == (1, "Error: no\n")


@pytest.mark.usefixtures("home")
def test_of_several_queries_one_is_chosen_and_shown_or_none_is_paused(serve: Serve) -> None:
    one, two = holding(serve, "t-0"), holding(serve, run="r2")
    refused = run("pause")
    assert (refused.exit_code, one.is_whole, two.is_whole) == (1, False, False)
    assert "2 queries match the options" in refused.output
    chosen = run("pause", "--group", "group of r2")
    assert (one.is_whole, two.is_whole) == (False, True)
    assert [row.split()[-2:] for row in chosen.stdout.splitlines()] == [["RUN", "PAUSED"], ["r2", "all"]]
    assert (run("resume").exit_code, two.is_whole) == (1, True)
    assert run("resume", "--group", "group of r2").stdout.splitlines()[-1].endswith(" -")
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


@pytest.mark.usefixtures("home")
def test_each_source_of_a_query_gets_its_share_of_the_partitions_or_all_are_paused(serve: Serve) -> None:
    one, two = holding(serve, "t-0", "t-1"), holding(serve, "u-0", run="r2")
    one.query = two.query = {"id": "q", "name": "orders"}
    shares = ("--topic-partition=u-0", "--topic-partition=t-1", "--topic-partition=t-1")
    assert paused_in(run("pause", *shares, "--json")) == ["t-1", "u-0"]
    assert (one.paused, two.paused) == ({"t-1"}, {"u-0"})
    run("resume", "--topic-partition=t-1")
    assert (one.paused, two.paused) == (set(), {"u-0"})
    assert paused_in(run("pause", "--json")) == ["t-0, t-1", "u-0"]
    assert (one.is_whole, two.is_whole) == (True, True)
    assert paused_in(run("resume", "--json")) == [None, None]
    assert (one.is_whole, two.is_whole) == (False, False)
