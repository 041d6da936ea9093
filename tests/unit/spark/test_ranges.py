"""`ranges()` with a driver that is an object of the test, and coordinators behind real control channels."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import streamgroup
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, Document
from streamgroup.planning.document import to_value
from tests.unit.driver.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

Serve = Callable[..., FakeCoordinator]
ROWS = [["t", 0, 10, 20], ["t", 1, 0, 5]]
RANGES = (
    streamgroup.OffsetRange(streamgroup.TopicPartition("t", 0), 10, 20),
    streamgroup.OffsetRange(streamgroup.TopicPartition("t", 1), 0, 5),
)


class Driver:
    """A SparkContext whose JVM is this process, in the thread of one query's foreachBatch."""

    def __init__(self) -> None:
        handle = SimpleNamespace(pid=lambda: JVM)
        lang = SimpleNamespace(ProcessHandle=SimpleNamespace(current=lambda: handle))
        uuid = SimpleNamespace(fromString=lambda text: text)
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=lang, util=SimpleNamespace(UUID=uuid)))
        self.query_id: str | None = "q-1"
        self.planned: dict[str, list[str]] | None = {}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  (Spark's name)
        return self.query_id if name == "sql.streaming.queryId" else None

    def sharedState(self) -> Any:  # noqa: N802
        if self.planned is None:
            raise AttributeError("a Spark that keeps it elsewhere")
        planned = self.planned
        return SimpleNamespace(activeStreamingQueries=lambda: SimpleNamespace(get=lambda key: execution(planned[key])))


def execution(offsets: list[str]) -> Any:
    values = SimpleNamespace(mkString=lambda separator: separator.join(offsets))
    return SimpleNamespace(availableOffsets=lambda: SimpleNamespace(values=lambda: values))


INITIAL = json.dumps(to_value(INITIAL_DOCUMENT))
"""The end of a source that has not planned a batch yet (R2)."""


def planned(lineage: str, sequence: int = 3) -> str:
    return json.dumps(to_value(Document("g", lineage, "any", sequence)))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, home: Any) -> Driver:
    made = Driver()
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", made)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", SimpleNamespace(_jsparkSession=made))
    return made


def in_batch(serve: Serve, run: str = "r1", lineage: str = "l1") -> FakeCoordinator:
    coordinator = serve(run, lineage)
    coordinator.batch = [list(row) for row in ROWS]
    return coordinator


def test_the_query_of_the_thread_is_asked_for(serve: Serve, driver: Driver) -> None:
    in_batch(serve)
    in_batch(serve, "r2", "l2").batch = [["another", 0, 0, 1]]
    driver.planned = {"q-1": [planned("l1")], "q-2": [planned("l2")]}
    assert streamgroup.ranges() == RANGES
    driver.query_id = "q-2"
    assert streamgroup.ranges()[0].partition.topic == "another"


def test_a_batch_of_another_sequence_is_not_the_one_in_flight(serve: Serve, driver: Driver) -> None:
    in_batch(serve)
    driver.planned = {"q-1": [planned("l1", sequence=4)]}
    with pytest.raises(ConfigError, match="no coordinator process has a part of this batch"):
        streamgroup.ranges()


def test_batch_0_of_a_query_without_new_records_reads_nothing(serve: Serve, driver: Driver) -> None:
    serve()
    driver.planned = {"q-1": [INITIAL]}
    assert streamgroup.ranges() == streamgroup.ranges("group of r1") == ()


def test_a_batch_that_spark_runs_for_state_reads_nothing(serve: Serve, driver: Driver) -> None:
    serve()
    driver.planned = {"q-1": [planned("l1")]}
    assert streamgroup.ranges() == streamgroup.ranges("group of r1") == ()
    with pytest.raises(ConfigError, match="it has no source of group 'g2', only those of group 'group of r1'"):
        streamgroup.ranges("g2")


@pytest.mark.parametrize("end", [INITIAL, planned("l2")], ids=["planned nothing yet", "read an earlier batch"])
def test_a_batch_that_spark_runs_for_another_source_reads_nothing_of_this_one(
    serve: Serve, driver: Driver, end: str
) -> None:
    in_batch(serve)
    serve("r2", "l2")
    driver.planned = {"q-1": [planned("l1"), end]}
    assert streamgroup.ranges() == streamgroup.ranges("group of r1") == RANGES
    assert streamgroup.ranges("group of r2") == ()


def test_a_batch_whose_tasks_spark_has_not_asked_for_is_not_taken_for_an_empty_one(
    serve: Serve, driver: Driver
) -> None:
    serve().flies = True
    driver.planned = {"q-1": [planned("l1")]}
    with pytest.raises(ConfigError, match="no coordinator process has a part of this batch"):
        streamgroup.ranges()


def test_a_source_whose_coordinator_does_not_answer_is_not_taken_for_an_empty_one(driver: Driver) -> None:
    driver.planned = {"q-1": [planned("l1")]}
    with pytest.raises(ConfigError, match="its control channel could not be opened"):
        streamgroup.ranges()


def test_of_several_sources_one_is_chosen_by_group_or_member(serve: Serve, driver: Driver) -> None:
    in_batch(serve).name = "a"
    in_batch(serve, "r2", "l2").name = "b"
    driver.planned = {"q-1": [planned("l1"), planned("l2")]}
    assert streamgroup.ranges("group of r1") == streamgroup.ranges(member="b") == RANGES
    with pytest.raises(
        ConfigError,
        match=r"more than one source reads in this batch, those of group 'group of r1' as 'a', group 'group of r2'",
    ):
        streamgroup.ranges()
    with pytest.raises(ConfigError, match=r"no source of group 'group of r1' as member 'b'"):
        streamgroup.ranges("group of r1", "b")


def test_a_source_without_a_batch_is_passed_over(serve: Serve, driver: Driver) -> None:
    in_batch(serve)
    serve("r2", "l2")
    driver.planned = {"q-1": [planned("l1"), planned("l2"), "17"]}
    assert streamgroup.ranges() == RANGES


def test_where_spark_does_not_tell_the_listener_does(serve: Serve, driver: Driver) -> None:
    in_batch(serve).query = {"id": "q-1"}
    in_batch(serve, "r2", "l2").query = {"id": "q-2"}
    driver.planned = None
    assert streamgroup.ranges() == RANGES


def test_unknown_coordinators_are_not_guessed(serve: Serve, driver: Driver) -> None:
    driver.planned = None
    in_batch(serve)
    with pytest.raises(ConfigError, match=r"does not show its coordinators. Call streamgroup\.listen"):
        streamgroup.ranges()


def test_outside_of_foreach_batch_the_error_says_where_to_call_it(driver: Driver) -> None:
    driver.query_id = None
    with pytest.raises(ConfigError, match=r"Call ranges\(\) inside a foreachBatch function, in the thread"):
        streamgroup.ranges()


def test_ranges_is_refused_through_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with pytest.raises(ConfigError, match="cannot call ranges in this process"):
        streamgroup.ranges()
