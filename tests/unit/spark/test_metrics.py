"""The endpoint of metrics, scraped over HTTP, with progress that is an object of the test."""

from __future__ import annotations

import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamgroup.coordinator.control import channel
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.monitoring.families import Family
from streamgroup.spark import metrics as module
from streamgroup.spark.metrics import READING_S, STATUS_TIMEOUT_S, DriverMetrics, MetricsServer
from streamgroup.spark.query_counter import QueryCounter
from tests.unit.monitoring.test_families import figures, status
from tests.unit.spark.test_query_counter import ended, progress

JVM = 4711


@pytest.fixture
def counter() -> QueryCounter:
    return QueryCounter()


@pytest.fixture
def server(counter: QueryCounter) -> Iterator[MetricsServer]:
    served = MetricsServer(DriverMetrics(JVM, counter, "prod"), port=0, host="127.0.0.1", on_close=lambda: None)
    yield served
    served.close()


def scrape(server: MetricsServer) -> dict[str, list[Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {family.name: family.samples for family in families}


@pytest.mark.slow
def test_a_scrape_has_the_coordinators_and_the_queries(
    server: MetricsServer, counter: QueryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def statuses(pid: int, *_: float) -> dict[str, Any]:
        asked.append(pid)
        return {"r1": status(positions={"t-0": 7}, ends={"t-0": 12})}

    monkeypatch.setattr(channel, "statuses", statuses)
    counter.add(progress("orders"), 1000.0)
    counter.add(progress("orders"), 1001.0)
    found = scrape(server)
    (lag,) = found["kafka_consumergroup_group_lag"]
    assert (lag.value, lag.labels["cluster_name"], lag.labels["topic"]) == (5, "prod", "t")
    (batches,) = found["streamgroup_batches"]
    assert (batches.name, batches.value) == ("streamgroup_batches_total", 2)
    assert batches.labels == {"query": "ingest", "group": "orders"}
    phases = {sample.name: sample.value for sample in found["streamgroup_batch_phase_seconds"]}
    assert phases == {"streamgroup_batch_phase_seconds_count": 2, "streamgroup_batch_phase_seconds_sum": 0.08}
    assert set(asked) == {JVM}


@pytest.mark.slow
def test_a_scrape_without_a_coordinator_has_names_and_no_samples(server: MetricsServer) -> None:
    found = scrape(server)
    assert "streamgroup_events" in found
    assert not any(samples for name, samples in found.items() if not name.startswith("process_"))


@pytest.mark.slow
def test_a_scrape_has_the_time_at_which_the_driver_started(server: MetricsServer) -> None:
    (first,) = scrape(server)["process_start_time_seconds"]
    (second,) = scrape(server)["process_start_time_seconds"]
    assert first.value == second.value, "the alert rule counts its changes"
    assert time.time() - 86_400 < first.value < time.time() + 1


@pytest.mark.slow
def test_a_query_that_an_error_ends_is_counted_by_the_error(server: MetricsServer, counter: QueryCounter) -> None:
    counter.onQueryStarted(SimpleNamespace(id="q-1", name="ingest"))  # type: ignore[arg-type]
    for error in ("DataLossError", "DrainedError"):
        counter.onQueryTerminated(ended(f"Traceback:\nstreamgroup.errors.{error}: group g: it is so"))
    counter.onQueryTerminated(ended())
    assert {(f["query"], f["error"]): n for f, n in labelled(scrape(server)["streamgroup_query_failures"])} == {
        ("ingest", "DataLossError"): 1.0
    }


def labelled(samples: list[Any]) -> list[tuple[dict[str, str], float]]:
    return [(sample.labels, sample.value) for sample in samples if sample.name.endswith("_total")]


def test_a_port_in_use_is_named(counter: QueryCounter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StreamGroupError, match=rf"cannot serve metrics at 127\.0\.0\.1:{port}: .*another port"):
            MetricsServer(DriverMetrics(JVM, counter, "c"), port=port, host="127.0.0.1", on_close=lambda: None)


def test_without_the_package_the_error_names_the_extra(counter: QueryCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamgroup\[metrics\]'"):
        MetricsServer(DriverMetrics(JVM, counter, "c"), port=0, host="127.0.0.1", on_close=lambda: None)


@pytest.mark.slow
def test_a_driver_has_one_endpoint_and_the_next_application_another(monkeypatch: pytest.MonkeyPatch) -> None:
    counting: list[object] = []
    streams = SimpleNamespace(addListener=counting.append, removeListener=counting.remove)
    spark: Any = SimpleNamespace(streams=streams)
    application, next_one = SimpleNamespace(_jsc="up"), SimpleNamespace(_jsc="up")
    monkeypatch.setattr(module, "jvm_pid", lambda _: JVM)
    monkeypatch.setattr(module, "driver_context", lambda _: application)
    first = module.metrics(spark, 0)
    try:
        with pytest.raises(StreamGroupError, match=f"serves metrics already, at port {first.port}"):
            module.metrics(spark, 0)
        application._jsc = None  # type: ignore[assignment]  (as Spark leaves it when it stops)
        monkeypatch.setattr(module, "driver_context", lambda _: next_one)
        second = module.metrics(spark, first.port)
        assert not first.is_open
        assert len(counting) == 2, "the listeners of an application end with it"
        second.close()
        second.close()
        module.metrics(spark, 0).close()
        assert len(counting) == 1, "a server that was closed counts no more"
    finally:
        first.close()


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

    monkeypatch.setattr(channel, "statuses", statuses)
    metrics.read()
    assert len(lags(metrics.read())) == 1, "the log has grown from 100 to 300, so the time of 150 is known"
    assert next(later, None) is None, "the second reading began within the first"


def answers(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any]) -> list[tuple[float, ...]]:
    """Let each coordinator answer one of `found`; returns the arguments of each question."""
    asked: list[tuple[float, ...]] = []

    def statuses(*given: float) -> dict[str, Any]:
        asked.append(given)
        return {each["run"]: each for each in found}

    monkeypatch.setattr(channel, "statuses", statuses)
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
