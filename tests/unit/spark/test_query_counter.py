"""The query counter adds up a driver's batches by query and group, and counts the errors that end queries."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from streamgroup.coordinator.planning.document import to_value
from streamgroup.model import Document, Position, TopicPartition
from streamgroup.spark import query_counter
from streamgroup.spark.dead_letters import DeadLetterCounts
from streamgroup.spark.query_counter import DELIVERY_MS, QueryCounter, await_events, stop_counting


@pytest.fixture
def counter() -> QueryCounter:
    return QueryCounter()


def progress(*groups: str, query: str = "q-1", name: str | None = "ingest", rows: int = 50) -> Any:
    at = {TopicPartition("t", 0): Position(7, None)}
    sources = [
        SimpleNamespace(
            endOffset=json.dumps(to_value(Document(group, "l", "r", 3, positions=at))),
            latestOffset={"t": {"0": 12}},
            numInputRows=rows,
        )
        for group in groups
    ]
    other = SimpleNamespace(endOffset=json.dumps({"t": {"0": 7}}), latestOffset=None, numInputRows=1)
    return SimpleNamespace(id=query, name=name, sources=[*sources, other], durationMs={"addBatch": 40})


def ended(exception: str | None = None, query: str = "q-1") -> Any:
    return SimpleNamespace(id=query, exception=exception, errorClassOnException=None)


def test_dead_letters_are_counted_by_their_query(counter: QueryCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = DeadLetterCounts()
    monkeypatch.setattr(query_counter, "COUNTS", counts)
    for query in ("q-1", "q-2"):
        counter.add(progress("orders", query=query, name=query), time.time())
    counts.add("q-1", 3)
    counts.add("q-1", 2)
    assert {each.query: each.dead_letters for each in counter.totals()} == {"q-1": 5, "q-2": None}


def test_a_query_that_reads_for_two_groups_is_counted_for_each_until_it_ends(counter: QueryCounter) -> None:
    counter.add(progress("a", "b", "b", rows=3), 1.0)
    counter.add(progress("c", query="q-2", name=None), 1.0)
    assert {(each.query, each.group): each.rows for each in counter.totals()} == {
        ("ingest", "a"): 3,
        ("ingest", "b"): 6,
        ("q-2", "c"): 50,
    }
    counter.add(progress("a", rows=4), 2.0)
    counter.onQueryTerminated(ended())
    assert [(each.group, each.rows) for each in counter.totals()] == [("a", 7), ("b", 6), ("c", 50)], "its last batch"
    assert [each.group for each in counter.totals()] == ["c"]


def test_a_query_that_starts_again_between_two_readings_is_not_forgotten(counter: QueryCounter) -> None:
    counter.add(progress("a", rows=3), 1.0)
    counter.onQueryTerminated(ended())
    counter.onQueryStarted(SimpleNamespace(id="q-1", name=None))  # type: ignore[arg-type]
    for _ in range(2):
        assert [each.rows for each in counter.totals()] == [3]


def test_a_progress_that_cannot_be_read_fails_no_listener_bus(
    counter: QueryCounter, caplog: pytest.LogCaptureFixture
) -> None:
    counter.onQueryProgress(SimpleNamespace(progress=None))  # type: ignore[arg-type]
    assert "its metrics lack a batch" in caplog.text
    assert counter.totals() == []


def test_the_sources_of_a_group_are_one_batch_of_all_their_rows_and_partitions(counter: QueryCounter) -> None:
    counter.add(progress("a", "a", rows=3), 9.0)
    (totals,) = counter.totals()
    assert (totals.batches, totals.rows, totals.most_behind, totals.last_batch_at) == (1, 6, 5, 9.0)


def test_a_query_in_mode_off_is_counted_without_a_group(counter: QueryCounter) -> None:
    counter.add(progress(""), 1.0)
    assert [(each.query, each.group) for each in counter.totals()] == [("ingest", "")]


def test_a_query_of_other_sources_alone_has_no_totals(counter: QueryCounter) -> None:
    counter.add(progress(), 1.0)
    assert counter.totals() == []


def test_an_error_counts_under_the_name_of_the_query_or_else_its_id(counter: QueryCounter) -> None:
    counter.onQueryStarted(SimpleNamespace(id="q-1", name="ingest"))  # type: ignore[arg-type]
    counter.onQueryStarted(SimpleNamespace(id="q-2", name=None))  # type: ignore[arg-type]
    text = "Traceback:\nstreamgroup.errors.DataLossError: group g: offsets are gone"
    for query in ("q-1", "q-2", "q-2", "q-3"):  # the counter has never heard of the start of q-3
        counter.onQueryTerminated(ended(text, query))
    assert counter.failures() == {
        ("ingest", "DataLossError"): 1,
        ("q-2", "DataLossError"): 2,
        ("q-3", "DataLossError"): 1,
    }


def test_a_query_that_was_stopped_or_drained_has_not_failed(counter: QueryCounter) -> None:
    counter.onQueryTerminated(ended())
    counter.onQueryTerminated(ended("Traceback:\nstreamgroup.errors.DrainedError: group g: drained"))
    assert counter.failures() == {}


# -- the end of an application ----------------------------------------------------------------------------------------


class Context:
    """A SparkContext: `waits` has the milliseconds that its listener bus was waited for."""

    def __init__(self, *, has_ended: bool = False, error: Exception | None = None) -> None:
        self.waits: list[int] = []
        self._error = error
        bus = SimpleNamespace(waitUntilEmpty=self._wait)
        self._jsc = None if has_ended else SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: bus))

    def _wait(self, milliseconds: int) -> None:
        self.waits.append(milliseconds)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("context", "waits"),
    [
        (Context(), [DELIVERY_MS]),
        (Context(has_ended=True), []),
        (Context(error=Py4JError("TimeoutException")), [DELIVERY_MS]),
    ],
    ids=["delivered", "the application has ended", "not in time"],
)
def test_the_end_of_an_export_waits_for_events_and_raises_nothing(context: Context, waits: list[int]) -> None:
    await_events(context)  # type: ignore[arg-type]
    assert context.waits == waits


@pytest.mark.parametrize("has_ended", [False, True])
def test_the_counter_is_taken_from_an_application_unless_that_has_ended(counter: QueryCounter, has_ended: bool) -> None:
    removed: list[object] = []
    spark: Any = SimpleNamespace(streams=SimpleNamespace(removeListener=removed.append))
    stop_counting(spark, Context(has_ended=has_ended), counter)  # type: ignore[arg-type]
    assert removed == ([] if has_ended else [counter])
