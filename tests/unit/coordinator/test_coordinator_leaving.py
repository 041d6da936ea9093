"""Stops, drains and pauses of a coordinator, at any moment of its life."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from streamgroup.coordinator.control.parent import StoppedWatch
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.coordinator.run import lifecycle, spark_calls
from streamgroup.coordinator.run.lifecycle import Shutdown
from streamgroup.coordinator.run.steps import Steps, Until
from streamgroup.coordinator.threads import assemble
from streamgroup.errors import DrainedError, StreamGroupError, TransportError
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, LeaveGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import ClusterSnapshot, OffsetRange
from streamgroup.options.types import GroupOptions, LimitOptions
from tests.fakes.cluster import FakeCluster
from tests.unit.coordinator.runs import INITIAL, P0, Run, Start, document, start
from tests.unit.coordinator.shells import SOON, running, source, until

__all__ = ["start"]


@contextmanager
def draining(run: Run, timeout_s: float = SOON) -> Iterator[list[dict[str, Any]]]:
    """Drain in another thread, which has begun when the block begins and ended when the block has; yield its answer."""
    answers: list[dict[str, Any]] = []
    with running(lambda: answers.append(run.coordinator.drain(timeout_s))):
        until(lambda: run.coordinator.status()["draining"], "draining")
        yield answers


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_stop_commits_leaves_and_ends_the_threads(start: Start) -> None:
    run = start()
    run.proven()
    run.coordinator.stop()
    assert run.poller.asked(LeaveGroupRequest) == 1
    assert run.group.members == {}
    until(lambda: run.poller.closed and run.logs.closed == 1, "the end of the threads")
    assert run.committed == {0: 10, 1: 10}


def test_a_query_that_outlives_its_context_leaves_and_its_next_call_raises_the_reason(start: Start) -> None:
    run = start()
    first = run.proven()
    run.coordinator.end_query(StreamGroupError("the SparkContext has stopped"))
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})
    with pytest.raises(StreamGroupError, match="the SparkContext has stopped"):
        run.latest(first)
    run.coordinator.stop()


def test_a_query_that_outlives_its_context_ends_with_the_call_that_is_under_way(start: Start) -> None:
    run = start(hold=JoinGroupRequest)
    raised: list[Exception] = []

    def call() -> None:
        try:
            run.coordinator.latest_offset(INITIAL, limits=LimitOptions(), once=True)  # which waits for the member
        except StreamGroupError as error:
            raised.append(error)

    with running(call):
        until(lambda: run.poller.asked(JoinGroupRequest) == 1, "joining")
        run.coordinator.end_query(StreamGroupError("the SparkContext has stopped"))
    assert [str(error) for error in raised] == ["the SparkContext has stopped"]


# -- draining ---------------------------------------------------------------------------------------------------------


def test_a_drain_waits_until_the_last_batch_is_proven_sunk_commits_and_leaves(start: Start) -> None:
    run = start()
    first = run.batch()
    with draining(run) as answers:
        assert not answers
        run.logs.ends[P0] = 99
        assert run.latest(first) == first, "nothing is planned any more"
    assert answers == [{"drained": True, "group": "g", "run": run.coordinator.run, "in_flight": False, "why": ""}]
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})
    assert run.latest(first) == first


def test_a_drain_whose_time_is_over_says_so_and_leaves_all_the_same(start: Start) -> None:
    run = start()
    run.batch()
    answer = run.coordinator.drain(0.01)
    assert (answer["drained"], answer["in_flight"]) == (False, True)
    assert run.committed == {0: 0, 1: 0}
    assert run.group.members == {}


@pytest.mark.slow
def test_nothing_is_planned_after_a_drain_that_began_while_the_ends_were_asked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    first = run.proven()
    run.logs.ends[P0] = 20
    planned, leave = threading.Event(), Shutdown._leave

    def leave_later(going: Shutdown, now: float, deadline: float) -> Steps[None]:
        """The lock is free while the leaving waits for its commit: here Spark's thread gets it first."""
        now = yield Until(lambda _: planned.is_set(), SOON)
        yield from leave(going, now, deadline)

    monkeypatch.setattr(Shutdown, "_leave", leave_later)
    draining = threading.Thread(target=run.coordinator.drain, args=(SOON,), daemon=True)

    def drain() -> None:
        run.logs.hook = None
        draining.start()
        until(lambda: run.coordinator.status()["stopped"], "leaving")

    run.logs.hook = drain
    assert run.latest(first) == first
    assert run.coordinator.status()["idle"]
    planned.set()
    run.coordinator.status()  # any call has the run look again
    draining.join(SOON)
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})


@pytest.mark.parametrize("end", [Coordinator.stop, lambda coordinator: coordinator.drain(SOON)], ids=["stop", "drain"])
def test_a_run_ended_before_its_first_call_never_begins(start: Start, end: Callable[[Coordinator], Any]) -> None:
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


def test_a_drain_that_comes_while_a_replay_is_being_prepared_waits_for_its_batch(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    replayed = to_value(document("other", "id", OffsetRange(P0, 0, 5)))
    answers: list[dict[str, Any]] = []
    draining = threading.Thread(target=lambda: answers.append(run.coordinator.drain(SOON)), daemon=True)

    def asked(*_: Any, **__: Any) -> dict[Any, Any]:
        draining.start()
        until(lambda: run.coordinator.status()["draining"], "draining")
        draining.join(0.1)
        return {}

    monkeypatch.setattr(assemble, "committed", asked)
    assert run.coordinator.partitions(INITIAL, replayed)
    assert not answers, "its batch is still to sink"
    assert run.latest(replayed) == replayed
    draining.join(SOON)
    assert answers[0]["drained"]
    assert run.committed[0] == 5


# -- draining while the group rebalances ------------------------------------------------------------------------------


def test_a_drain_while_others_rejoin_does_not_wait_for_them_when_all_is_committed(start: Start) -> None:
    run = start(source(group=GroupOptions("g", heartbeat_interval_ms=20)))
    run.proven()
    run.held.add(JoinGroupRequest)
    with run.poller.changed:
        run.group.gather()
    until(lambda: run.coordinator.status()["state"] == "joining", "rejoining")
    assert run.coordinator.drain(SOON)["drained"]
    assert run.committed == {0: 10, 1: 10}


def test_a_drain_waits_for_the_rebalance_where_the_proof_of_a_batch_is_still_to_be_committed(start: Start) -> None:
    """The member lost its session in the batch: only by R5, once it holds the partitions again, it can commit."""
    run = start(source(group=GroupOptions("g", heartbeat_interval_ms=20)))
    first = run.batch()
    run.held.add(JoinGroupRequest)
    with run.poller.changed:
        run.group.expel(run.coordinator.status()["member"])
    until(lambda: run.coordinator.status()["state"] == "joining", "rejoining as a new member")
    with draining(run) as answers:
        assert run.latest(first) == first
        assert not answers
        run.poller.release()
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}


@pytest.mark.parametrize("code", [27, 22, 25], ids=["rebalance in progress", "illegal generation", "unknown member"])
def test_a_commit_refused_during_a_drain_is_made_again_by_a_member_that_has_rejoined(start: Start, code: int) -> None:
    run = start()
    first = run.batch()
    joined = run.poller.asked(JoinGroupRequest)
    if code == 25:
        run.group.expel(run.coordinator.status()["member"])  # else the group would wait for the old member
    else:
        run.group.refusals.append(code)
    with draining(run) as answers:
        run.latest(first)
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}
    assert run.poller.asked(JoinGroupRequest) > joined


@pytest.mark.slow
def test_a_batch_whose_partition_another_member_has_by_now_is_no_drained_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session was lost in the batch; the other starts at the group's commit, and reads that part again."""
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", 0.05)
    options = source(group=GroupOptions("g", heartbeat_interval_ms=20))
    run = start(options)
    first = run.batch()
    other = start(options, group=run.group, logs=run.logs)
    other.latest()
    with run.poller.changed:
        run.group.expel(run.coordinator.status()["member"])
    until(lambda: [len(r.coordinator.status()["positions"]) for r in (run, other)] == [1, 1], "they share")
    with draining(run) as answers:
        run.latest(first)
    assert sorted(run.committed.values()) == [0, 10]
    assert (answers[0]["drained"], answers[0]["in_flight"]) == (False, False)
    (lost,) = (number for number, offset in run.committed.items() if not offset)
    why = f"the member lost t-{lost} before it could commit the last batch, and another may own them"
    assert answers[0]["why"] == why
    assert [length for ranges in other.plan()["ranges"].values() for length in ranges.values()] == [[0, 10]]


@pytest.mark.slow
def test_a_commit_that_is_never_answered_is_no_drained_batch(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LEAVE_TIMEOUT_S", 0.2)
    run = start()
    first = run.batch()
    run.held.add(OffsetCommitRequest)
    with draining(run, 0.5) as answers:
        run.latest(first)
    assert (answers[0]["drained"], answers[0]["in_flight"]) == (False, False)
    assert answers[0]["why"] == "the commit of the last batch was not acknowledged"


# -- stops and drains at once -----------------------------------------------------------------------------------------


def test_a_query_that_spark_ends_while_it_is_drained_is_drained_all_the_same(start: Start) -> None:
    """AvailableNow ends when nothing is planned any more: the stop and the last commit come together."""
    run = start()
    first = run.batch()
    with draining(run) as answers:
        run.latest(first)
        run.coordinator.stop()
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}


@pytest.mark.slow
def test_a_query_that_spark_ends_in_a_batch_that_is_drained_is_not(start: Start) -> None:
    run = start()
    run.batch()
    with draining(run) as answers:
        run.coordinator.stop()
    assert (answers[0]["drained"], answers[0]["in_flight"]) == (False, True)
    assert answers[0]["why"] == "the query was stopped before the batch in flight was complete"


def test_who_drains_twice_hears_the_same_twice(start: Start) -> None:
    run = start()
    run.proven()
    assert [run.coordinator.drain(SOON)["drained"] for _ in range(2)] == [True, True]


# -- the last word ----------------------------------------------------------------------------------------------------


def test_a_stop_waits_shortly_for_the_listeners_word_of_the_batch_in_flight(start: Start) -> None:
    """Trigger.Once: Spark ends the query at the moment that its batch has sunk."""
    run = start()
    run.coordinator.listen(lambda: True)
    first = run.batch()
    with running(run.coordinator.stop):
        until(lambda: run.coordinator.status()["stopped"], "stopping")
        assert run.group.members, "it waits"
        assert run.coordinator.sunk(first, 0, {})["proven"]
    assert (run.committed, run.group.members) == ({0: 10, 1: 10}, {})


# -- drained from outside ---------------------------------------------------------------------------------------------


def test_a_query_that_was_drained_from_outside_is_ended_when_all_its_coordinators_are(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_calls, "END_TIMEOUT_S", 0.05)
    run = start()
    first = run.batch()
    with running(lambda: run.coordinator.drain(SOON, ends=True)):
        until(lambda: run.coordinator.status()["draining"], "draining")
        assert run.latest(first) == first, "another source of the query may still wait for its proof"
    assert run.latest(first) == first
    run.coordinator.end()
    said = r"group g: the query was drained, and no batch will be repeated\. Start the query again"
    with pytest.raises(DrainedError, match=said):
        run.latest(first)


def test_a_query_whose_drain_came_too_late_is_ended_with_that_reason(start: Start) -> None:
    run = start()
    first = run.batch()
    assert not run.coordinator.drain(0.01, ends=True)["drained"]
    run.coordinator.end()
    with pytest.raises(
        DrainedError,
        match=r"group g: a drain has stopped the query before .* may be repeated\. The drain's timeout expired, ",
    ):
        run.latest(first)


def test_a_query_drained_from_outside_before_its_first_call_ends_with_that(start: Start) -> None:
    run = start()
    assert run.coordinator.drain(SOON, ends=True)["drained"]
    run.coordinator.end()
    with pytest.raises(DrainedError):
        run.latest()
    assert run.poller.asked(JoinGroupRequest) == 0


# -- a drain and Spark's thread at once (R30) -------------------------------------------------------------------------


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
    with draining(run) as answers:
        assert run.latest(first) == first
        until(lambda: run.committed == {0: 10, 1: 10}, "the commit")
        for _ in range(3):
            assert run.latest(first) == first, "it could plan, and must not"
        looks.set()
        run.coordinator.status()  # any call has the run look again
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}


# -- pauses: it leaves the group while Spark is silent, and joins again (R27) -----------------------------------------


def pause(run: Run) -> None:
    """The driver is silent for longer than it may be: the member leaves."""
    time.sleep(0.01)
    left = run.poller.asked(LeaveGroupRequest)
    run.coordinator.look_at_silence(jvm_is_stopped=False)
    until(lambda: run.poller.asked(LeaveGroupRequest) > left, "left")
    until(lambda: run.coordinator.status()["state"] == "left", "the answer is there")


def leave_and_come_back(run: Run, leave: Any) -> dict[str, Any]:
    """Sunk batches are committed before; the batch that sank meanwhile repeats nothing afterwards."""
    first = run.batch()
    leave()
    until(lambda: run.poller.asked(LeaveGroupRequest) == 1, "left")
    assert run.group.members == {}
    joined = run.poller.asked(JoinGroupRequest)
    run.latest(first)
    until(lambda: run.poller.asked(JoinGroupRequest) > joined, "joined again")
    until(lambda: run.committed == {0: 10, 1: 10}, "what sank while nobody was a member is committed by R5")
    run.logs.ends = dict.fromkeys(run.logs.ends, 12)
    second = run.plan(first)
    assert second["ranges"] == {"t": {"0": [10, 12], "1": [10, 12]}}
    return second


def test_a_driver_silent_for_longer_than_it_may_leaves_and_joins_again_when_spark_calls(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=50)))

    def leave() -> None:
        time.sleep(0.06)
        run.coordinator.look_at_silence(jvm_is_stopped=False)

    with caplog.at_level(logging.INFO):
        leave_and_come_back(run, leave)
    assert (
        "longer than group.maxSilence: left the group, so other members read its partitions. It joins again"
        in caplog.text
    )
    assert "Spark calls the source again: joining the group again" in caplog.text


def test_a_driver_whose_jvm_is_stopped_leaves_after_a_session_and_joins_again(start: Start) -> None:
    """The JVM is a process of the test's own that is really stopped. The session that passes meanwhile is not real."""
    run = start(source(group=GroupOptions("g", session_timeout_ms=60_000)))
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    is_stopped = StoppedWatch(jvm.pid)

    def leave() -> None:
        jvm.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(time.monotonic()), "stopped")
        run.coordinator.look_at_silence(jvm_is_stopped=True)
        assert not run.poller.asked(LeaveGroupRequest)
        run.coordinator._inbox._clock = lambda: time.monotonic() + 61.0
        run.coordinator.look_at_silence(jvm_is_stopped=True)
        jvm.send_signal(signal.SIGCONT)
        until(lambda: not is_stopped(time.monotonic()), "going on")

    try:
        leave_and_come_back(run, leave)
    finally:
        jvm.kill()
        jvm.wait(SOON)


def test_a_batch_in_flight_that_a_silent_driver_leaves_is_a_possible_repeat_reported_once(start: Start) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    run.batch()
    pause(run)
    time.sleep(0.01)
    run.coordinator.look_at_silence(jvm_is_stopped=False)
    repeat = run.coordinator.status()["trouble"]["repeat"]
    assert (repeat["count"], repeat["reason"][:27]) == (1, "left while Spark was silent")


def test_who_has_not_joined_yet_has_nothing_to_leave_and_joins_with_its_first_batch(start: Start) -> None:
    """AvailableNow asks for the ends of all its sources first, and a broker of another source may be slow."""
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    run.coordinator.prepare_available_now()
    time.sleep(0.01)
    run.coordinator.look_at_silence(jvm_is_stopped=False)
    assert run.batch()["ranges"] == {"t": {"0": [0, 10], "1": [0, 10]}}


def test_another_member_that_read_on_meanwhile_is_followed(start: Start) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    first = run.batch()
    pause(run)
    run.group.offsets = {tp: type(offset)(15) for tp, offset in run.group.offsets.items()}
    run.logs.ends = dict.fromkeys(run.logs.ends, 20)
    assert run.plan(first)["ranges"] == {"t": {"0": [15, 20], "1": [15, 20]}}


def test_a_silent_driver_can_be_stopped_and_drained_while_it_is_out(start: Start) -> None:
    for end in ("stop", "drain"):
        run = start(source(group=GroupOptions("g", max_silence_ms=1)))
        first = run.batch()
        run.latest(first)
        pause(run)
        if end == "stop":
            run.coordinator.stop()
        else:
            assert run.coordinator.drain(SOON)["drained"]
        joined = run.poller.asked(JoinGroupRequest)
        assert run.latest(first) == first
        assert run.poller.asked(JoinGroupRequest) == joined, "it does not come back"


def test_a_drain_of_a_batch_that_sinks_while_the_member_is_out_waits_until_it_is_committed(start: Start) -> None:
    run = start(source(group=GroupOptions("g", max_silence_ms=1)))
    first = run.batch()
    pause(run)
    with draining(run) as answers:
        assert run.latest(first) == first
    assert answers[0]["drained"]
    assert run.committed == {0: 10, 1: 10}
