from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.errors import TransportError
from streamgroup.ui.board import Board
from streamgroup.ui.history import views
from streamgroup.ui.poller import BoardPoller
from tests.unit.ui.readings import Cluster
from tests.waiting import wait_until


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
