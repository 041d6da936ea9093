"""The endpoint of metrics, scraped over HTTP, with progress that is an object of the test."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from py4j.protocol import Py4JError

from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.model import Document, Position, TopicPartition
from streamgroup.monitoring.metric_families import Family, families
from streamgroup.monitoring.query_totals import QueryTotals
from streamgroup.spark import metrics as module
from streamgroup.spark import open_telemetry as otel
from streamgroup.spark import query_counter
from streamgroup.spark.dead_letters import DeadLetterCounts
from streamgroup.spark.metrics import READING_S, STATUS_TIMEOUT_S, DriverMetrics, MetricsServer
from streamgroup.spark.open_telemetry import OpenTelemetryMetrics
from streamgroup.spark.query_counter import DELIVERY_MS, QueryCounter, await_events, stop_counting
from tests.collector import collector, sums
from tests.unit.monitoring.test_metric_families import figures, status
from tests.waiting import wait_until

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
def test_a_scrape_has_the_time_at_which_the_driver_started(server: MetricsServer) -> None:
    (first,) = scrape(server)["process_start_time_seconds"]
    (second,) = scrape(server)["process_start_time_seconds"]
    assert first.value == second.value, "the alert rule counts its changes"
    assert time.time() - 86_400 < first.value < time.time() + 1


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
        said = f"cannot serve metrics: this driver already serves them at port {first.port}"
        with pytest.raises(StreamGroupError, match=said):
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
    found = {labels[:4]: lag for labels, lag in lags.items()}
    assert found == {("prod", "orders", "t", "0"): 5, ("prod", "billing", "t", "1"): 0}
    assert figures(made, "streamgroup_rows_total") == {("ingest", "orders"): 50}
    assert figures(made, "streamgroup_query_failures_total") == {("q-1", "DataLossError"): 1}


def test_a_reading_asks_the_coordinators_of_its_driver_and_has_families_without_samples_if_there_are_none(
    counter: QueryCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch)
    before = time.monotonic()
    made = DriverMetrics(JVM, counter, "prod").read()
    assert "kafka_consumergroup_group_lag" in {family.name for family in made}
    assert [family.name for family in made if list(family.samples)] == []
    ((pid, timeout, deadline),) = asked
    assert (pid, timeout) == (JVM, STATUS_TIMEOUT_S)
    assert before + READING_S <= deadline <= time.monotonic() + READING_S


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
    counter.add(progress("", query="q-2", name=None), 1.0)  # without a name, and of no group
    rows = {(each.query, each.group): each.rows for each in counter.totals()}
    assert rows == {("ingest", "a"): 3, ("ingest", "b"): 6, ("q-2", ""): 50}
    counter.add(progress("a", rows=4), 2.0)
    counter.onQueryTerminated(ended())
    assert [(each.group, each.rows) for each in counter.totals()] == [("a", 7), ("b", 6), ("", 50)], "its last batch"
    assert [each.group for each in counter.totals()] == [""]


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
    assert "one batch is missing from its metrics" in caplog.text
    assert counter.totals() == []


def test_the_sources_of_a_group_are_one_batch_of_all_their_rows_and_partitions(counter: QueryCounter) -> None:
    counter.add(progress("a", "a", rows=3), 9.0)
    (totals,) = counter.totals()
    assert (totals.batches, totals.rows, totals.most_behind, totals.last_batch_at) == (1, 6, 5, 9.0)


def test_an_error_counts_under_the_name_of_the_query_or_else_its_id(counter: QueryCounter) -> None:
    counter.onQueryStarted(SimpleNamespace(id="q-1", name="ingest"))  # type: ignore[arg-type]
    counter.onQueryStarted(SimpleNamespace(id="q-2", name=None))  # type: ignore[arg-type]
    text = "Traceback:\nstreamgroup.errors.DataLossError: group g: offsets are gone"
    for query in ("q-1", "q-2", "q-2", "q-3"):  # the counter has never heard of the start of q-3
        counter.onQueryTerminated(ended(text, query))
    error = "DataLossError"
    assert counter.failures() == {("ingest", error): 1, ("q-2", error): 2, ("q-3", error): 1}


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


def measured() -> list[Family]:
    member = status(positions={"t-0": 7}, ends={"t-0": 12}, commits={"count": 4, "seconds": 0.5})
    totals = QueryTotals("ingest", "orders")
    totals.add(10, {"addBatch": 500}, [4], 1000.0)
    return families([member], [totals], "prod")


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data = reader.get_metrics_data()
    scopes = data.resource_metrics[0].scope_metrics if data and data.resource_metrics else ()
    return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


def test_each_metric_is_an_instrument_with_its_labels_as_attributes() -> None:
    reader = InMemoryMetricReader()
    readings: list[int] = []

    def read() -> list[Family]:
        readings.append(1)
        return measured()

    made = OpenTelemetryMetrics(read, MeterProvider(metric_readers=[reader]).get_meter("test"), lambda: None)
    found = points(reader)
    (lag,) = found["kafka_consumergroup_group_lag"]
    assert (lag.value, lag.attributes["cluster_name"], lag.attributes["topic"]) == (5, "prod", "t")
    (batches,) = found["streamgroup_batches"]
    assert (batches.value, dict(batches.attributes)) == (1, {"query": "ingest", "group": "orders"})
    assert [point.value for point in found["streamgroup_commit_seconds_sum"]] == [0.5]
    assert [point.value for point in found["streamgroup_commit_seconds_count"]] == [4]
    assert len(readings) == 1, "one export asks the coordinators once"
    made.close()
    made.close()
    assert not any(points(reader).values())


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session, with the listeners that it has. `late` is what its events still bring."""
    monkeypatch.setattr(otel, "jvm_pid", lambda _: 4711)
    counting: list[Any] = []
    made = SimpleNamespace(counting=counting, late=lambda: None)
    made.streams = SimpleNamespace(addListener=counting.append, removeListener=counting.remove)
    bus = SimpleNamespace(waitUntilEmpty=lambda _: made.late())
    jsc = SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: bus))
    monkeypatch.setattr(otel, "driver_context", lambda _: SimpleNamespace(_jsc=jsc))
    return made


def test_a_collector_gets_the_batches_at_each_interval_and_the_last_ones_at_the_end(spark: Any) -> None:
    with collector() as (url, received):
        made = otel.open_telemetry(spark, url, interval_s=0.1)
        (counter,) = spark.counting

        counter._totals["q", "g"] = QueryTotals("q", "g", batches=3)
        wait_until(lambda: sums(received, "streamgroup_batches") == [3], "an export has the batches", 10)

        def late() -> None:
            counter._totals["q", "g"].batches += 1
            counter.onQueryTerminated(SimpleNamespace(id="q", exception=None))

        spark.late = late
        made.close()
        assert sums(received, "streamgroup_batches") == [4], "the batch whose event came as the export ended"
    assert spark.counting == []


def test_an_endpoint_that_is_none_is_refused_without_its_password(spark: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a URL such as .*got one of scheme 'ftp'"):
        otel.open_telemetry(spark, "ftp://collector")
    with pytest.raises(ConfigError, match="at collector: it holds a user or a password") as refused:
        otel.open_telemetry(spark, "https://me:canary@collector:4318/v1/metrics")
    assert "canary" not in str(refused.value)
    with pytest.raises(ConfigError, match="cannot use endpoint with meter_provider"):
        otel.open_telemetry(spark, "http://collector:4318", meter_provider=MeterProvider())
    assert spark.counting == []


def test_without_the_packages_the_error_names_the_extra(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamgroup\[otel\]'"):
        otel.open_telemetry(spark)
