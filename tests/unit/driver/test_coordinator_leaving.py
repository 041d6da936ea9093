"""Stops and drains of a coordinator, at any moment of its life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from streamgroup.driver import leaving, watcher
from streamgroup.driver.coordinator import Coordinator
from streamgroup.driver.leaving import Leaving
from streamgroup.errors import (
    TransportError,
)
from streamgroup.model import (
    ClusterSnapshot,
    OffsetRange,
)
from streamgroup.planning.document import to_value
from streamgroup.wire.messages.group import JoinGroupRequest, LeaveGroupRequest
from streamgroup.wire.messages.offsets import OffsetCommitRequest
from tests.unit.driver.runs import INITIAL, P0, Start, document, start
from tests.unit.driver.shells import SOON, FakeCluster, running, until

__all__ = ["start"]


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_stop_commits_leaves_and_ends_the_threads(start: Start) -> None:
    run = start()
    first = run.batch()
    run.latest(first)
    run.coordinator.stop()
    assert run.poller.asked(LeaveGroupRequest) == 1
    assert run.group.members == {}
    until(lambda: run.poller.closed and run.logs.closed == 1, "the end of the threads")
    assert run.committed == {0: 10, 1: 10}


def test_stop_before_the_first_call_connects_to_nothing(start: Start) -> None:
    run = start()
    run.coordinator.stop()
    assert (run.poller.handles, run.logs.snapshots) == ([], 0)


def test_whoever_stops_while_another_thread_is_leaving_waits_for_the_leaving(start: Start) -> None:
    run = start()
    run.latest(run.batch())
    run.held.add(LeaveGroupRequest)
    with running(run.coordinator.stop):
        until(lambda: run.poller.asked(LeaveGroupRequest) == 1, "leaving")
        second = threading.Thread(target=run.coordinator.stop)
        second.start()
        second.join(0.1)
        assert second.is_alive(), "whoever calls may end the process next"
        assert run.group.members
        run.poller.release()
        second.join(SOON)
    assert run.group.members == {}


def test_leaving_takes_no_longer_than_it_may_when_nobody_answers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "FAREWELL_S", 0.2)
    run = start()
    run.latest(run.batch())
    run.held |= {LeaveGroupRequest, OffsetCommitRequest}
    began = time.monotonic()
    run.coordinator.stop()
    assert 0.2 <= time.monotonic() - began < 1.5
    began = time.monotonic()
    run.coordinator.stop()
    assert time.monotonic() - began < 0.1, "that is over: there is nothing to wait for"


# -- draining ---------------------------------------------------------------------------------------------------------


def test_a_drain_waits_until_the_last_batch_is_proven_sunk_commits_and_leaves(start: Start) -> None:
    run = start()
    first = run.batch()
    answers: list[dict[str, Any]] = []
    with running(lambda: answers.append(run.coordinator.drain(SOON))):
        until(lambda: run.coordinator.status()["draining"], "draining")
        assert not answers
        run.logs.ends[P0] = 99
        assert run.latest(first) == first, "nothing is planned any more"
    assert answers == [{"drained": True, "group": "g", "run": run.coordinator.run, "in_flight": False}]
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})
    assert run.latest(first) == first


def test_a_drain_whose_time_is_over_says_so_and_leaves_all_the_same(start: Start) -> None:
    run = start()
    run.batch()
    answer = run.coordinator.drain(0.01)
    assert (answer["drained"], answer["in_flight"]) == (False, True)
    assert run.committed == {0: 0, 1: 0}
    assert run.group.members == {}


def test_nothing_is_planned_after_a_drain_that_began_while_the_ends_were_asked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    first = run.batch()
    run.latest(first)
    run.logs.ends[P0] = 20
    time.sleep(watcher.FRESH_S)
    planned, leave = threading.Event(), Leaving._leave

    def leave_later(going: Leaving, deadline: float) -> bool:
        """The lock is free while the leaving waits for its commit: here Spark's thread gets it first."""
        going._state.wait_for(planned.is_set, SOON)
        return leave(going, deadline)

    monkeypatch.setattr(Leaving, "_leave", leave_later)
    draining = threading.Thread(target=run.coordinator.drain, args=(SOON,), daemon=True)

    def drain() -> None:
        run.logs.hook = None
        draining.start()
        until(lambda: run.coordinator.status()["stopped"], "leaving")

    run.logs.hook = drain
    assert run.latest(first) == first
    assert run.coordinator.status()["idle"]
    planned.set()
    run.poller.wake()  # the group's thread tells everybody to look again
    draining.join(SOON)
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})


@pytest.mark.parametrize("end", [Coordinator.stop, lambda coordinator: coordinator.drain(SOON)], ids=["stop", "drain"])
def test_who_is_stopped_or_drained_before_the_first_call_never_begins(
    start: Start, end: Callable[[Coordinator], Any]
) -> None:
    run = start()
    end(run.coordinator)
    assert run.latest() == INITIAL
    with pytest.raises(TransportError, match="stopping"):
        run.coordinator.partitions(INITIAL, to_value(document("other", "id", OffsetRange(P0, 0, 5))))
    with pytest.raises(TransportError, match="stopping"):
        run.coordinator.prepare_available_now()
    assert (run.poller.handles, run.logs.snapshots) == ([], 0)


@pytest.mark.parametrize("end", [Coordinator.stop, lambda coordinator: coordinator.drain(0.05)], ids=["stop", "drain"])
def test_who_is_stopped_or_drained_while_the_brokers_are_asked_for_the_topics_does_not_join(
    start: Start, end: Callable[[Coordinator], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    ending = threading.Thread(target=end, args=(run.coordinator,), daemon=True)
    snapshot = FakeCluster.snapshot

    def slow(cluster: FakeCluster, *asked: Any, **others: Any) -> ClusterSnapshot:
        if ending.ident is None:
            ending.start()
            until(lambda: run.coordinator.status()["stopped"], "stopping")
        return snapshot(cluster, *asked, **others)

    monkeypatch.setattr(FakeCluster, "snapshot", slow)
    with suppress(TransportError):  # where the watcher has ended before it could answer
        assert run.latest() == INITIAL
    ending.join(SOON)
    assert run.coordinator.status()["state"] == "left"
    assert run.poller.asked(JoinGroupRequest) == 0


def test_a_drain_of_what_has_not_begun_has_nothing_to_wait_for(start: Start) -> None:
    run = start()
    assert run.coordinator.drain(SOON) == {
        "drained": True,
        "group": "g",
        "run": run.coordinator.run,
        "in_flight": False,
    }
