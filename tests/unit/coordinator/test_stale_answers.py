"""Brokers whose answers are stale for a moment: no records are taken for lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import pytest

from streamgroup.coordinator.planning import loss
from streamgroup.errors import DataLossError
from streamgroup.model import TopicInfo
from streamgroup.options.types import GroupMode, GroupOptions, SourceOptions
from tests.fakes.cluster import logs_of
from tests.unit.coordinator.runs import P0, P1, Run, Start, ranges, start
from tests.unit.coordinator.shells import source
from tests.waiting import TIMEOUT_S

__all__ = ["start"]

ALONE = pytest.mark.parametrize("mode", [GroupMode.COMMIT, GroupMode.OFF], ids=lambda mode: mode.value)


@pytest.fixture(autouse=True)
def believe_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set after how many seconds a loss is believed. At first that is longer than any stale answer of these tests."""

    def after(seconds: float) -> None:
        monkeypatch.setattr(loss, "BELIEVED_AFTER_S", seconds)

    after(TIMEOUT_S)
    return after


def alone(mode: GroupMode) -> SourceOptions:
    return source(group=GroupOptions("g" if mode is GroupMode.COMMIT else "", mode=mode))


def polled(run: Run, last: dict[str, object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert run.latest(last) == last


@pytest.mark.slow
def test_a_new_leader_whose_high_watermark_lags_behind(start: Start) -> None:
    """Before Kafka 2.2, for up to 500 ms after a clean election (KIP-207). No leader epochs are known there."""
    logs = logs_of([10, 10])
    logs.epochs = dict.fromkeys(logs.ends, -1)
    run = start(logs=logs)
    first = run.batch()
    assert run.latest(first) == first
    run.logs.ends[P0] = 8
    threading.Timer(0.1, run.logs.ends.__setitem__, [P0, 10]).start()
    polled(run, first, 0.5)
    run.logs.ends[P0] = 12
    assert run.plan(first) != first


@pytest.mark.slow
@ALONE
def test_a_broker_that_does_not_know_the_topic_yet(start: Start, mode: GroupMode) -> None:
    run = start(alone(mode))
    first = run.batch()
    assert run.latest(first) == first
    ends = dict(run.logs.ends)
    run.logs.ends.clear()
    threading.Timer(0.1, run.logs.ends.update, [ends]).start()
    run.coordinator._watcher.refresh_metadata()
    polled(run, first, 0.5)


@ALONE
def test_a_topic_that_stays_away_is_lost(start: Start, mode: GroupMode, believe_after: Callable[[float], None]) -> None:
    believe_after(0.1)
    run = start(alone(mode))
    first = run.batch()
    assert run.latest(first) == first
    run.logs.ends.clear()
    run.coordinator._watcher.refresh_metadata()
    with pytest.raises(DataLossError, match="t-0: records from offset 10 on are gone"):
        polled(run, first, TIMEOUT_S)


@ALONE
@pytest.mark.parametrize("back", [True, False], ids=["comes back", "stays away"])
def test_a_partition_of_the_checkpoint_that_the_first_metadata_lacks(
    start: Start, mode: GroupMode, back: bool, believe_after: Callable[[float], None]
) -> None:
    """The first broker asked has just started, and lags behind the controller."""
    logs = logs_of([10, 10])
    run = start(alone(mode), logs=logs)
    gone = {tp: logs.ends.pop(tp) for tp in list(logs.ends) if tp != P0}
    if back:
        threading.Timer(0.1, logs.ends.update, [gone]).start()
        assert run.plan({"t": {"0": 5, "1": 5}})
    else:
        believe_after(0.1)
        with pytest.raises(DataLossError, match="t-1: records from offset 5 on are gone"):
            run.plan({"t": {"0": 5, "1": 5}})


@pytest.mark.slow
def test_metadata_that_is_slow_to_come_holds_up_neither_the_loss_nor_the_other_partitions(
    start: Start, monkeypatch: pytest.MonkeyPatch, believe_after: Callable[[float], None]
) -> None:
    """One look at the metadata takes longer than the time between two looks."""
    logs = logs_of([10, 10])
    logs.topic_ids, logs.epochs = {}, dict.fromkeys(logs.ends, -1)
    run = start(logs=logs)
    first = run.batch()
    assert run.latest(first) == first
    topics = logs.topics

    def slowly(wanted: Collection[str] | None) -> dict[str, TopicInfo]:
        time.sleep(0.3)
        return topics(wanted)

    monkeypatch.setattr(logs, "topics", slowly)
    run.logs.ends |= {P0: 8, P1: 12}
    second = run.plan(first)
    assert ranges(run.coordinator.partitions(first, second)) == [(1, 10, 12)], "the other goes on"
    believe_after(1.0)
    with pytest.raises(DataLossError, match="t-0"):
        polled(run, second, TIMEOUT_S)
