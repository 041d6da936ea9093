"""A pause reaches each coordinator of the chosen query with its own partitions, or none of them at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.cli._pause_options import PauseRequest
from streamgroup.cli._pausing import NotHeldError, run
from streamgroup.cli._running import NotChosen
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.model import TopicPartition
from tests.unit.cli.shown import cells
from tests.unit.driver.channels import FakeCoordinator, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]
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


def paused(both: tuple[FakeCoordinator, FakeCoordinator]) -> list[set[str]]:
    return [coordinator.paused for coordinator in both]


def test_each_source_gets_its_share_of_the_partitions(
    both: tuple[FakeCoordinator, FakeCoordinator], capsys: pytest.CaptureFixture[str]
) -> None:
    run(request(U0, T1, T1), is_paused=True)
    assert paused(both) == [{"t-1"}, {"u-0"}]
    title, *rows = cells(capsys.readouterr().out)
    assert title.endswith(" RUN PAUSED")
    assert [row.split()[-2:] for row in rows] == [["r1", "t-1"], ["r2", "u-0"]]
    run(request(T1), is_paused=False)
    assert paused(both) == [set(), {"u-0"}]


def test_without_partitions_all_sources_are_paused_and_resumed_as_a_whole(
    both: tuple[FakeCoordinator, FakeCoordinator], capsys: pytest.CaptureFixture[str]
) -> None:
    run(request(as_json=True), is_paused=True)
    assert [coordinator.is_whole for coordinator in both] == [True, True]
    assert [row["paused"] for row in json.loads(capsys.readouterr().out)] == ["t-0, t-1", "u-0"]
    run(request(as_json=True), is_paused=False)
    assert [coordinator.is_whole for coordinator in both] == [False, False]
    assert [row["paused"] for row in json.loads(capsys.readouterr().out)] == [None, None]


def test_a_source_that_holds_nothing_is_paused_as_a_whole_and_says_so(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    serve()
    run(request(as_json=True), is_paused=True)
    assert json.loads(capsys.readouterr().out)[0]["paused"] == "all"


def test_one_partition_that_no_source_holds_pauses_none(both: tuple[FakeCoordinator, FakeCoordinator]) -> None:
    with pytest.raises(NotHeldError) as refused:
        run(request(T0, TopicPartition("t", 9), TopicPartition("x", 0)), is_paused=True)
    assert "the query does not hold t-9, x-0 now. It holds t-0, t-1, u-0." in str(refused.value)
    assert "run the command on its machine" in str(refused.value)
    assert paused(both) == [set(), set()]


def test_a_query_without_partitions_holds_nothing(serve: Serve) -> None:
    serve()
    with pytest.raises(NotHeldError, match=r"does not hold t-0 now\. It holds nothing\."):
        run(request(T0), is_paused=False)


def test_a_list_has_the_queries_that_the_options_choose_and_asks_for_no_pause(
    both: tuple[FakeCoordinator, FakeCoordinator], capsys: pytest.CaptureFixture[str]
) -> None:
    run(request(T0, lists=True, groups=("group of r2",), as_json=True), is_paused=True)
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["r2"]
    run(request(lists=True, groups=("absent",), as_json=True), is_paused=True)
    assert json.loads(capsys.readouterr().out) == []
    assert paused(both) == [set(), set()]


def test_the_table_afterwards_has_the_chosen_query_only(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    serve("r1", "l1")
    other = serve("r2", "l2")
    run(request(groups=("group of r1",), as_json=True), is_paused=True)
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["r1"]
    assert not other.is_whole


def test_a_refusal_and_a_choice_of_several_queries_are_errors(serve: Serve) -> None:
    first = serve("r1", "l1")
    first.refusal = TransportError("the coordinator leaves the group")
    with pytest.raises(StreamGroupError, match="the coordinator leaves the group"):
        run(request(), is_paused=True)
    serve("r2", "l2")
    with pytest.raises(NotChosen, match="2 queries match the options"):
        run(request(), is_paused=True)
