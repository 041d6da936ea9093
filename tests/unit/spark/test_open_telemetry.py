"""The instruments of OpenTelemetry, read by its own SDK, and its exports as a collector gets them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from streamgroup.errors import ConfigError
from streamgroup.monitoring.families import Family, families
from streamgroup.monitoring.query_totals import QueryTotals
from streamgroup.spark import open_telemetry as module
from streamgroup.spark.open_telemetry import OpenTelemetryMetrics
from tests.collector import collector, sums
from tests.unit.monitoring.test_families import status
from tests.waiting import wait_until


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
    monkeypatch.setattr(module, "jvm_pid", lambda _: 4711)
    counting: list[Any] = []
    made = SimpleNamespace(counting=counting, late=lambda: None)
    made.streams = SimpleNamespace(addListener=counting.append, removeListener=counting.remove)
    bus = SimpleNamespace(waitUntilEmpty=lambda _: made.late())
    jsc = SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: bus))
    monkeypatch.setattr(module, "driver_context", lambda _: SimpleNamespace(_jsc=jsc))
    return made


def test_a_collector_gets_the_batches_at_each_interval_and_the_last_ones_at_the_end(spark: Any) -> None:
    with collector() as (url, received):
        made = module.open_telemetry(spark, url, interval_s=0.1)
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
        module.open_telemetry(spark, "ftp://collector")
    with pytest.raises(ConfigError, match="at collector: it holds a user or a password") as refused:
        module.open_telemetry(spark, "https://me:canary@collector:4318/v1/metrics")
    assert "canary" not in str(refused.value)
    with pytest.raises(ConfigError, match="cannot use endpoint with meter_provider"):
        module.open_telemetry(spark, "http://collector:4318", meter_provider=MeterProvider())
    assert spark.counting == []


def test_without_the_packages_the_error_names_the_extra(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamgroup\[otel\]'"):
        module.open_telemetry(spark)
