"""Spark's calls as the readers hand them on, without a Spark."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from streamgroup.driver import log_output
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import LimitOptions
from streamgroup.planning.document import from_value
from streamgroup.spark.source import StreamGroupDataSource, row_schema
from streamgroup.spark.stream import UNLIMITED, GroupStreamReader
from streamgroup.spark.tasks import TaskPartition

GIVEN = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


class FakeCoordinator:
    """The query's coordinator as the reader calls it: a list of the calls is all that its tests look at."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def prepare_available_now(self) -> None:
        self.calls.append("prepare")

    def latest_offset(self, start: dict[str, Any], *, limits: LimitOptions, once: bool = False) -> dict[str, Any]:
        self.calls.append((limits, once))
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FetchTask]:
        return [FetchTask((FetchRange(OffsetRange(TopicPartition("t", 0), 1, 5), None),))]

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    made = FakeCoordinator()
    monkeypatch.setattr("streamgroup.driver.process.start_coordinator", lambda options: made)
    return made


def stream(**options: str) -> GroupStreamReader:
    reader = StreamGroupDataSource({**GIVEN, "kafka.group.id": "g", **options}).streamReader(row_schema(False))
    assert isinstance(reader, GroupStreamReader)
    return reader


def test_each_trigger_has_its_own_limits(coordinator: FakeCoordinator) -> None:
    assert stream(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    reader = stream()
    assert reader.getDefaultReadLimit() == ReadMaxRows(UNLIMITED)
    reader.prepareForTriggerAvailableNow()
    for limit in (ReadMaxRows(7), ReadMaxRows(UNLIMITED), ReadAllAvailable()):
        assert reader.latestOffset({"a": 1}, limit) == {"a": 1}
    assert coordinator.calls == ["prepare", (LimitOptions(7), False), (LimitOptions(), False), (LimitOptions(), True)]
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger"):
        reader.latestOffset({}, ReadMinRows(5))


def test_the_first_offset_is_a_constant_that_needs_no_coordinator(coordinator: FakeCoordinator) -> None:
    reader = stream()
    assert from_value(reader.initialOffset()) == INITIAL_DOCUMENT
    assert reader.initialOffset() == stream().initialOffset()
    reader.commit({})
    reader.stop()
    assert coordinator.calls == []


def test_the_coordinator_is_stopped_once_and_only_where_it_lives(coordinator: FakeCoordinator) -> None:
    reader = stream()
    reader.latestOffset({}, ReadMaxRows(1))
    pickle.loads(pickle.dumps(reader)).stop()
    assert coordinator.calls == [(LimitOptions(1), False)]
    reader.stop()
    reader.stop()
    assert coordinator.calls == [(LimitOptions(1), False), "stop"]


def test_tasks_travel_as_partitions_that_name_their_ranges(coordinator: FakeCoordinator) -> None:
    (partition,) = stream().partitions({}, {})
    again = pickle.loads(pickle.dumps(partition))
    assert isinstance(again, TaskPartition)
    assert repr(again) == "TaskPartition(t-0[1, 5))"
    assert len(again.task) == 4


def test_a_partition_of_another_source_is_refused() -> None:
    reader = StreamGroupDataSource(GIVEN).reader(row_schema(False))
    with pytest.raises(ConfigError, match="not a partition of streamgroup"):
        reader.read(object())  # type: ignore[arg-type]


def test_a_batch_read_of_nothing_is_one_task_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgroup.driver.batch_read.plan_batch", lambda options: [])
    (partition,) = StreamGroupDataSource(GIVEN).reader(row_schema(False)).partitions()
    assert isinstance(partition, TaskPartition)
    assert partition.task == FetchTask(())


def test_the_plan_of_a_batch_read_is_logged_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has set up logging in the process where Spark plans a batch read."""
    with monkeypatch.context() as patched:  # pytest's own handlers are back before it takes them away
        logger = logging.Logger("streamgroup")
        patched.setattr(log_output, "log", logger)
        patched.setattr(logging.getLogger(), "handlers", [])
        patched.setattr("streamgroup.driver.batch_read.plan_batch", lambda options: [])
        StreamGroupDataSource(GIVEN).reader(row_schema(False)).partitions()
    assert [type(handler) for handler in logger.handlers] == [log_output.StderrHandler]
