"""Trigger.AvailableNow judges every position before it ends, and neither ends early nor runs for ever."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.document import from_value
from streamgroup.coordinator.run import spark_calls
from streamgroup.errors import DataLossError, TransportError
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions
from tests.fakes.cluster import logs_of
from tests.fakes.coordinator import ScriptedCoordinator
from tests.unit.coordinator.runs import INITIAL, P0, P1, Run, Start, ranges, start
from tests.unit.coordinator.shells import client, source, until

__all__ = ["start"]

MODES = pytest.mark.parametrize("mode", list(GroupMode), ids=lambda mode: mode.value)


def options(mode: GroupMode, **others: Any) -> Any:
    return source(group=GroupOptions("" if mode is GroupMode.OFF else "g", mode=mode), **others)


def committed(*offsets: int) -> ScriptedCoordinator:
    return ScriptedCoordinator(offsets={tp: CommittedOffset(n) for tp, n in zip((P0, P1), offsets, strict=True)})


def batches(run: Run, last: dict[str, Any], most: int = 20) -> list[list[tuple[int, int, int]]]:
    """Run AvailableNow as Spark does, from `last` to its end: what each batch read."""
    run.coordinator.prepare_available_now()
    done = []
    for _ in range(most):
        document = run.latest(last)
        if document == last:
            return done
        done.append(ranges(run.coordinator.partitions(last, document)))
        last = document
    raise AssertionError(f"AvailableNow has not ended after {most} batches: {done}")


@pytest.mark.slow
@MODES
def test_a_log_that_ends_below_the_position_is_a_loss(start: Start, mode: GroupMode) -> None:
    """The log was emptied and written anew while the query was down: its target is below the position."""
    logs = logs_of([10, 100])
    logs.topic_ids = {}  # as brokers before 2.8, where a topic made anew looks the same
    run = start(options(mode), logs=logs, group=committed(100, 100))
    with pytest.raises(DataLossError, match=r"t-0.*gone at position 100"):
        batches(run, {"t": {"0": 100, "1": 100}})


@pytest.mark.slow
@MODES
def test_a_log_that_ends_below_the_position_is_read_anew_without_fail_on_data_loss(
    start: Start, mode: GroupMode
) -> None:
    logs = logs_of([10, 100])
    logs.topic_ids = {}
    run = start(options(mode, fail_on_data_loss=False), logs=logs, group=committed(100, 100))
    assert [batch for batch in batches(run, {"t": {"0": 100, "1": 100}}) if batch] == [[(0, 0, 10)]]


@pytest.mark.slow
def test_a_leader_that_is_lost_after_the_snapshot_ends_the_query_with_its_name(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", 0.2)
    run = start(source(client=client(default_api_timeout_ms=500)), group=committed(0, 0))
    run.coordinator.prepare_available_now()
    run.logs.leaderless = {P1}
    run.coordinator._watcher.refresh_metadata()
    documents = [INITIAL]

    def poll() -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            documents.append(run.latest(documents[-1]))
            assert documents[-1] != documents[-2], "it must not end as if all were read"
            run.coordinator.partitions(*documents[-2:])

    with pytest.raises(
        TransportError, match=r"cannot plan t-1 under Trigger\.AvailableNow: for .* s no broker has returned"
    ):
        poll()
    batches_read = [from_value(document) for document in documents]
    assert sum(not document.ranges for document in batches_read) <= 6, "each empty batch takes its time"
    assert batches_read[-1].positions[P0].offset == 10, "what has a leader is read"


U0 = TopicPartition("u", 0)


def lagging(start: Start, mode: GroupMode, **others: Any) -> Run:
    """Two topics, of which the first metadata after the run's beginning lacks one. AvailableNow is prepared."""
    logs = logs_of([10])
    logs.ends[U0] = 10
    group = ScriptedCoordinator(offsets={P0: CommittedOffset(0), U0: CommittedOffset(7)})
    run = start(options(mode, topics=("t", "u"), **others), logs=logs, group=group)
    run.coordinator.prepare_available_now()
    del logs.ends[U0]
    run.coordinator._watcher.refresh_metadata()
    until(lambda: "u" not in run.coordinator._watcher.snapshot.topics, "metadata without the topic")
    return run


def read_all(run: Run, last: dict[str, Any]) -> list[tuple[str, int, int]]:
    read: list[tuple[str, int, int]] = []
    while (document := run.latest(last)) != last:
        tasks = run.coordinator.partitions(last, document)
        read += [(str(r.range.partition), r.range.start, r.range.until) for task in tasks for r in task.ranges]
        last = document
    return sorted(read)


CHECKPOINT = {"t": {"0": 0}, "u": {"0": 7}}


@pytest.mark.slow
@MODES
def test_a_topic_that_a_lagging_broker_leaves_out_for_a_moment_is_read(
    start: Start, mode: GroupMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "BELIEVED_AFTER_S", 5.0)
    run = lagging(start, mode)
    threading.Timer(0.3, run.logs.ends.__setitem__, [U0, 10]).start()
    assert read_all(run, CHECKPOINT) == [("t-0", 0, 10), ("u-0", 7, 10)]


@pytest.mark.slow
@MODES
def test_a_topic_that_stays_away_is_deleted_and_the_run_ends(
    start: Start, mode: GroupMode, caplog: pytest.LogCaptureFixture
) -> None:
    run = lagging(start, mode, fail_on_data_loss=False)
    assert read_all(run, CHECKPOINT) == [("t-0", 0, 10)]
    assert "u-0 existed when the run began and are deleted" in caplog.text


def test_the_position_of_a_topic_that_a_lagging_broker_leaves_out_is_carried_where_no_group_keeps_it(
    start: Start,
) -> None:
    run = lagging(start, GroupMode.OFF)
    first = run.latest(CHECKPOINT)
    assert from_value(first).positions[U0].offset == 7
