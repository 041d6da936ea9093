"""`streamgroup.open_telemetry(spark)`: exports the metrics of this driver's queries as OpenTelemetry instruments."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError
from streamgroup.monitoring.metric_families import Family, MetricKind, families
from streamgroup.spark.metrics import DriverMetrics
from streamgroup.spark.queries import driver_context, jvm_pid
from streamgroup.spark.query_counter import QueryCounter, await_events, stop_counting

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from pyspark.sql import SparkSession

log = logging.getLogger("streamgroup")

SAME_READING_S = 1.0
"""All instruments of one export use the same collected metrics, which are at most this old."""


class OpenTelemetryMetrics:
    """The OpenTelemetry instruments of one driver, until `close`.

    An instrument has the name of its metric in docs/metrics.md, a counter without `_total`. A summary is exported as
    two counters, one for the sum and one for the count.
    """

    def __init__(self, read: Callable[[], list[Family]], meter: Meter, on_close: Callable[[], None]) -> None:
        self._read = read
        self._on_close = on_close
        self._lock = threading.Lock()
        self._reading: dict[str, Family] = {}
        self._read_at = float("-inf")
        self.is_open = True
        for family in families((), (), ""):
            self._make(meter, family)

    def close(self) -> None:
        """Export the metrics a last time, then stop. A second call has no effect."""
        if self.is_open:
            self._read_at = float("-inf")
            self._on_close()
            self.is_open = False

    def _make(self, meter: Meter, family: Family) -> None:
        match family.kind:
            case MetricKind.GAUGE:
                meter.create_observable_gauge(family.name, [self._observed(family.name)], description=family.doc)
            case MetricKind.COUNTER:
                name = family.name.removesuffix("_total")
                meter.create_observable_counter(name, [self._observed(family.name)], description=family.doc)
            case MetricKind.SUMMARY:
                for part, of_sample in (("sum", "value"), ("count", "count")):
                    observed = self._observed(family.name, of_sample)
                    meter.create_observable_counter(f"{family.name}_{part}", [observed], description=family.doc)

    def _observed(self, name: str, of_sample: str = "value") -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415  (of the extra `otel`)

        def observe(_: Any) -> Iterable[Any]:
            family = self._families().get(name)
            for sample in () if family is None else family.samples:
                attributes = dict(zip(family.labels, sample.labels, strict=True)) if family else {}
                yield Observation(getattr(sample, of_sample), attributes)

        return observe

    def _families(self) -> dict[str, Family]:
        with self._lock:
            if not self.is_open:
                return {}
            now = time.monotonic()
            if now - self._read_at > SAME_READING_S:
                self._reading = {family.name: family for family in self._read()}
                self._read_at = time.monotonic()
            return self._reading


def open_telemetry(
    spark: SparkSession,
    endpoint: str | None = None,
    *,
    interval_s: float = 60.0,
    meter_provider: MeterProvider | None = None,
    cluster_name: str = "default",
) -> OpenTelemetryMetrics:
    """Export the metrics of this driver's queries by OpenTelemetry. Return the instruments, to `close` them.

    With `endpoint`, such as `http://collector:4318/v1/metrics`, it exports there by OTLP over HTTP, every `interval_s`
    seconds; OpenTelemetry's environment variables set headers, certificates and resource attributes. Without it the
    instruments belong to `meter_provider`, or to the application's global one.

    Call it before the queries start: earlier batches are not counted.

    Raises ConfigError without the extra `otel`, through Spark Connect, for an endpoint that is not an HTTP URL, or for
    an endpoint together with a provider.
    """
    log_warnings_to_stderr()
    context = driver_context("open_telemetry")
    if endpoint is not None and meter_provider is not None:
        raise ConfigError(
            "cannot use endpoint with meter_provider: the provider has its own exporters. Set only one of them"
        )
    api = _api()
    own = None if endpoint is None else exporting_provider(endpoint, interval_s)
    counter = QueryCounter()

    def on_close() -> None:
        await_events(context)
        if own is not None:
            own.shutdown()
        stop_counting(spark, context, counter)

    meter = (own or meter_provider or api.get_meter_provider()).get_meter("streamgroup")
    made = OpenTelemetryMetrics(DriverMetrics(jvm_pid(context), counter, cluster_name).read, meter, on_close)
    spark.streams.addListener(counter)
    return made


def exporting_provider(endpoint: str, interval_s: float) -> SdkMeterProvider:
    """Return a provider that exports by OTLP over HTTP. Raises ConfigError as `open_telemetry`."""
    url = urlsplit(endpoint)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError(
            "invalid endpoint of OpenTelemetry: expected a URL such as http://collector:4318/v1/metrics, "
            f"got one of scheme {url.scheme!r}"
        )
    if url.username is not None or url.password is not None:
        raise ConfigError(
            f"invalid endpoint of OpenTelemetry at {url.hostname}: it holds a user or a password. Set them in "
            "OTEL_EXPORTER_OTLP_HEADERS, which no log shows"
        )
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=endpoint), export_interval_millis=interval_s * 1000
    )
    log.info("metrics of this driver go to %s://%s every %g s", url.scheme, url.netloc, interval_s)
    return SdkMeterProvider(metric_readers=[reader])


def _api() -> Any:
    """Return OpenTelemetry's API of metrics. Raises ConfigError unless all of the extra `otel` is installed."""
    try:
        for package in ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http"):
            import_module(package)
        return import_module("opentelemetry.metrics")
    except ImportError:
        raise ConfigError(
            "cannot export metrics: OpenTelemetry's packages are missing. Install them with: "
            "pip install 'streamgroup[otel]'"
        ) from None
