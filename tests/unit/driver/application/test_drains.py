"""A query with several sources is drained as one: all of its coordinators finish together, and each tells why not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from streamgroup.driver.application import drains
from streamgroup.driver.application.drains import drain_together
from streamgroup.errors import TransportError
from tests.unit.driver.channels import JVM, FakeCoordinator, home, serve
from tests.unit.driver.shells import SOON

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "POLL_S", 0.005)


def test_without_coordinators_there_is_nothing_to_wait_for() -> None:
    assert drain_together(JVM, [], 5.0, ends=True) == []


def test_all_coordinators_drain_at_once_and_answer_in_the_order_asked_for(serve: Serve) -> None:
    """One that planned while another waits for its last batch would be drained without that batch."""
    one, two = serve("r1", "l1"), serve("r2", "l2")
    together = threading.Barrier(2)
    for each in (one, two):
        each.while_draining = lambda: together.wait(SOON)
    answers = drain_together(JVM, ["r2", "r1"], 7.0)
    assert [(answer["run"], answer["drained"]) for answer in answers] == [("r2", True), ("r1", True)]
    assert (one.drains, two.drains) == ([7.0], [7.0])
    assert (one.ended, two.ended) == (0, 0)


def test_a_coordinator_that_refuses_or_has_ended_counts_as_not_drained_with_the_reason(serve: Serve) -> None:
    refusing, well = serve("r1", "l1"), serve("r2", "l2")
    refusing.refusal = TransportError("the group moves just now")
    first, gone, last = drain_together(JVM, ["r1", "gone", "r2"], 5.0)
    assert first == {"drained": False, "why": "the group moves just now"}
    assert gone["drained"] is False
    assert f"the coordinator of run gone (driver pid {JVM}) cannot be reached" in gone["why"]
    assert (last["drained"], well.drains) == (True, [5.0])


def test_a_batch_that_has_not_sunk_in_time_is_told_and_the_query_ends_all_the_same(serve: Serve) -> None:
    late, well = serve("r1", "l1"), serve("r2", "l2")
    late.drained, late.why = False, "the time was over"
    answers = drain_together(JVM, ["r1", "r2", "gone"], 5.0, ends=True)
    assert [answer["drained"] for answer in answers] == [False, True, False]
    assert answers[0]["why"] == "the time was over"
    assert (late.ended, well.ended) == (1, 1)
    assert (late.ends, well.ends) == (True, True), "the coordinator knows that no batch follows"


def test_the_caller_is_called_all_the_while(serve: Serve) -> None:
    """`streamgroup drain` and `drain(query)` look then whether the query has failed."""
    is_called = threading.Event()
    serve().while_draining = lambda: is_called.wait(SOON)
    (answer,) = drain_together(JVM, ["r1"], SOON, meanwhile=is_called.set)
    assert answer["drained"]
    assert is_called.is_set()


def test_an_error_of_the_caller_ends_the_wait(serve: Serve) -> None:
    is_over = threading.Event()
    serve().while_draining = lambda: is_over.wait(SOON)

    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain_together(JVM, ["r1"], SOON, meanwhile=fails)
    is_over.set()


def test_a_coordinator_that_hangs_is_left_after_the_timeout(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "ANSWER_GRACE_S", 0.05)
    is_over = threading.Event()
    serve().while_draining = lambda: is_over.wait(SOON)
    try:
        (answer,) = drain_together(JVM, ["r1"], 0.05)
    finally:
        is_over.set()
    assert answer["drained"] is False
    assert "has not answered" in answer["why"]
