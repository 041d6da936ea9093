"""A drain beside Spark's thread: whichever of the two is faster, nothing is planned and nothing left too early (R30).

The real coordinator and its real `Shutdown`, over a group in memory; only when the drain looks is up to the test.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamgroup.coordinator.run import spark_calls
from streamgroup.coordinator.run.lifecycle import Shutdown
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from tests.unit.coordinator.runs import P0, Start, start
from tests.unit.coordinator.shells import SOON, running, until

__all__ = ["start"]


def test_a_drained_query_plans_nothing_however_late_the_drain_sees_that_its_batch_has_sunk(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks for the next batch with the proof of the last one; its thread may well be the faster one."""
    run = start()
    monkeypatch.setattr(spark_calls, "END_TIMEOUT_S", 0.0)  # Spark asks before the drain ends
    first = run.batch()
    run.logs.ends[P0] = 99
    looks, is_settled = threading.Event(), Shutdown.is_settled
    monkeypatch.setattr(Shutdown, "is_settled", lambda shutdown: looks.is_set() and is_settled(shutdown))
    answers: list[dict[str, Any]] = []
    with running(lambda: answers.append(run.coordinator.drain(SOON))):
        until(lambda: run.coordinator.status()["draining"], "draining")
        assert run.latest(first) == first
        until(lambda: run.committed == {0: 10, 1: 10}, "the commit")
        for _ in range(3):
            assert run.latest(first) == first, "it could plan, and must not"
        looks.set()
        run.coordinator.status()  # any call has the run look again
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}


def test_a_drain_does_not_leave_while_the_commit_of_its_last_batch_is_unanswered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    first = run.batch()
    looks, is_settled = [], Shutdown.is_settled

    def looked(shutdown: Shutdown) -> bool:
        looks.append(shutdown._member.ledger.idle)
        return is_settled(shutdown)

    monkeypatch.setattr(Shutdown, "is_settled", looked)
    run.held.add(OffsetCommitRequest)
    answers: list[dict[str, Any]] = []
    with running(lambda: answers.append(run.coordinator.drain(SOON))):
        until(lambda: run.coordinator.status()["draining"], "draining")
        run.latest(first)
        run.coordinator.status()  # any call has the run look again
        until(lambda: True in looks, "a look of the drain after the proof")
        status = run.coordinator.status()
        assert (status["idle"], status["stopped"]) == (True, False), "it waits for the answer"
        run.poller.release()
    assert answers[0]["drained"]
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})
