"""The board of the page: one thread adds readings, and browsers that show the same view share its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.errors import TransportError
from streamgroup.ui.board import Board, BoardPoller
from streamgroup.ui.history import views
from streamgroup.ui.history.history import History
from tests.unit.ui.readings import Cluster, group, reading
from tests.waiting import wait_until


class View:
    """A view of the history, which counts how often it was computed."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, history: History) -> dict[str, Any]:
        self.made += 1
        return {"groups": list(history.groups), "failed": history.failed}


def test_two_browsers_share_one_answer_until_the_next_reading() -> None:
    board, view = Board(), View()
    first = board.answer("overview", view)
    assert (board.answer("overview", view), view.made) == (first, 1)
    board.add(reading(100, group("etl")))
    version, answer = board.answer("overview", view)
    assert (view.made, json.loads(answer or b"")) == (2, {"groups": ["etl"], "failed": ""})
    assert version != first[0]


def test_an_error_of_a_reading_is_in_the_next_answer() -> None:
    board, view = Board(), View()
    board.add(reading(100, group("etl")))
    before = board.answer("overview", view)
    board.fail(105.0, "no broker answers")
    after = board.answer("overview", view)
    assert json.loads(after[1] or b"") == {"groups": ["etl"], "failed": "no broker answers"}
    assert after[0] != before[0]


def test_each_view_has_an_answer_of_its_own() -> None:
    board = Board()
    board.add(reading(100, group("etl")))
    assert board.answer("names", lambda history: {"names": list(history.groups)})[1] == b'{"names":["etl"]}'
    assert board.answer("count", lambda history: {"count": len(history.groups)})[1] == b'{"count":1}'


def test_a_view_of_something_that_does_not_exist_has_no_answer_and_is_not_computed_again() -> None:
    board, made = Board(), []

    def gone(history: History) -> None:
        made.append(history)

    assert [board.answer("gone", gone)[1] for _ in range(2)] == [None, None]
    assert len(made) == 1


def test_64_answers_are_kept_and_the_oldest_one_goes_first() -> None:
    board, views = Board(), [View() for _ in range(65)]
    for number, view in enumerate(views):
        board.answer(number, view)
    board.answer(64, views[64])
    board.answer(1, views[1])
    assert {view.made for view in views} == {1}
    board.answer(0, views[0])
    assert views[0].made == 2


def test_two_starts_of_the_server_do_not_have_the_same_version() -> None:
    one, other = Board(), Board()
    assert one.version() != other.version(), "a browser would take the answer of the earlier start for the newest"
    before = one.version()
    assert one.version() == before
    one.add(reading(100))
    assert one.version() != before


def shown(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(board.answer("overview", views.overview)[1] or b"{}")
    return found


def test_readings_go_on_until_the_poller_is_stopped() -> None:
    board, cluster = Board(), Cluster()
    poller = BoardPoller(cluster.open, board, 0.01)
    poller.start()
    wait_until(lambda: shown(board)["sequence"] >= 3, "three readings")
    poller.stop(5)
    assert (cluster.opened, cluster.closed) == (1, 1)
    assert shown(board)["sequence"] == cluster.read


def test_after_an_error_of_any_kind_the_cluster_is_opened_again() -> None:
    board, cluster = Board(), Cluster(TransportError("no broker answers"), KeyError("x"))
    poller = BoardPoller(cluster.open, board, 0.01)
    poller.start()
    wait_until(lambda: shown(board)["at"], "a reading")
    poller.stop(5)
    assert (cluster.opened, cluster.closed) == (3, 3)
    errors = json.loads(board.answer("cluster", views.cluster_view)[1] or b"{}")["errors"]
    assert [error["text"] for error in errors] == [
        "unexpected error of streamgroup ui: KeyError('x')",
        "no broker answers",
    ]


def test_an_error_that_repeats_is_logged_once_until_a_reading_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    away = [TransportError("no broker answers") for _ in range(3)]
    board, cluster = Board(), Cluster(*away)
    poller = BoardPoller(cluster.open, board, 0.01)
    poller.start()
    wait_until(lambda: shown(board)["at"], "a reading")
    cluster.failures.append(TransportError("no broker answers"))
    wait_until(lambda: cluster.opened == 5, "opened again after another failure")
    poller.stop(5)
    assert [record.getMessage() for record in caplog.records] == ["cannot read the cluster: no broker answers"] * 2
