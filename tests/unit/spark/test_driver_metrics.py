"""The driver's metrics: a reading joins the status of each coordinator with the totals of the queries."""

from __future__ import annotations

import time
from typing import Any

import pytest

from streamgroup.driver.application import control
from streamgroup.monitoring.family import Family
from streamgroup.spark.driver_metrics import READING_S, STATUS_TIMEOUT_S, DriverMetrics
from streamgroup.spark.query_counter import QueryCounter
from tests.unit.monitoring.test_families import figures, status
from tests.unit.spark.test_query_counter import ended, progress

JVM = 4711


@pytest.fixture
def counter() -> QueryCounter:
    return QueryCounter()


def test_a_reading_that_ends_after_a_later_one_does_not_take_its_times_back(
    counter: QueryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow coordinator holds the first reading up: its ends are older than those of the second."""
    metrics = DriverMetrics(JVM, counter, "prod")
    ends, later = iter([100, 200, 300]), iter([True])

    def statuses(*_: float) -> dict[str, Any]:
        end = next(ends)
        if end == 200:
            metrics.read()
            next(later)
        return {"r1": status(positions={"t-0": 150}, ends={"t-0": end})}

    def lags(families: list[Family]) -> list[float]:
        (found,) = (each for each in families if each.name == "kafka_consumergroup_group_lag_seconds")
        return [sample.value for sample in found.samples]

    monkeypatch.setattr(control, "statuses", statuses)
    metrics.read()
    assert len(lags(metrics.read())) == 1, "the log has grown from 100 to 300, so the time of 150 is known"
    assert next(later, None) is None, "the second reading began within the first"


def answers(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any]) -> list[tuple[float, ...]]:
    """Let each coordinator answer one of `found`; returns the arguments of each question."""
    asked: list[tuple[float, ...]] = []

    def statuses(*given: float) -> dict[str, Any]:
        asked.append(given)
        return {each["run"]: each for each in found}

    monkeypatch.setattr(control, "statuses", statuses)
    return asked


def test_a_reading_has_the_lag_of_each_coordinator_and_the_batches_of_each_query(
    counter: QueryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = status(positions={"t-0": 7}, ends={"t-0": 12})
    answers(monkeypatch, first, status("billing", run="r2", positions={"t-1": 4}, ends={"t-1": 4}))
    counter.add(progress("orders", rows=50), 1000.0)
    counter.onQueryTerminated(ended("Traceback:\nstreamgroup.errors.DataLossError: group g: gone"))
    made = DriverMetrics(JVM, counter, "prod").read()
    lags = figures(made, "kafka_consumergroup_group_lag")
    assert {labels[:4]: lag for labels, lag in lags.items()} == {
        ("prod", "orders", "t", "0"): 5,
        ("prod", "billing", "t", "1"): 0,
    }
    assert figures(made, "streamgroup_rows_total") == {("ingest", "orders"): 50}
    assert figures(made, "streamgroup_query_failures_total") == {("q-1", "DataLossError"): 1}


def test_a_reading_asks_the_coordinators_of_its_driver_within_the_limits_of_a_scrape(
    counter: QueryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch)
    before = time.monotonic()
    DriverMetrics(JVM, counter, "prod").read()
    ((pid, timeout, deadline),) = asked
    assert (pid, timeout) == (JVM, STATUS_TIMEOUT_S)
    assert before + READING_S <= deadline <= time.monotonic() + READING_S


def test_a_driver_without_coordinators_has_families_without_samples(
    counter: QueryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch)
    made = DriverMetrics(JVM, counter, "prod").read()
    assert "kafka_consumergroup_group_lag" in {family.name for family in made}
    assert [family.name for family in made if list(family.samples)] == []
