"""`streamgroup.metrics(spark, port)`: the metrics of this driver's queries, in the text format of Prometheus.

One endpoint serves all queries and coordinators of the driver.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.control import channel
from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.monitoring.metric_families import Family, LogKey, LogTimes, MetricKind, families, log_ends
from streamgroup.spark.queries import driver_context, jvm_pid
from streamgroup.spark.query_counter import QueryCounter, stop_counting
from streamgroup.text import host_port

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger("streamgroup")


class MetricsServer:
    """Serves the metrics of one driver at `http://host:port/metrics`, in a separate thread until `close`.

    `close` calls `on_close`.
    """

    def __init__(self, metrics: DriverMetrics, *, port: int, host: str, on_close: Callable[[], None]) -> None:
        client = _prometheus()
        self._metrics = metrics
        self._on_close = on_close
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(self)
        client.ProcessCollector(registry=registry)  # its start time shows that a driver restarts repeatedly
        try:
            self._server, self._thread = client.start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            raise StreamGroupError(
                f"cannot serve metrics at {host_port(host, port)}: {error}. Choose another port: each driver needs "
                "its own"
            ) from None
        self.port: int = self._server.server_port
        self.is_open = True
        log.info("metrics of this driver: http://%s/metrics", host_port(host, self.port))

    def collect(self) -> Iterator[Any]:
        """Yield the metrics for one scrape, as the Prometheus client requires."""
        return map(_as_prometheus, self._metrics.read())

    def close(self) -> None:
        """Stop serving and counting. A second call has no effect."""
        if self.is_open:
            self.is_open = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._on_close()


def _as_prometheus(family: Family) -> Any:
    core = _prometheus().core
    types = {
        MetricKind.GAUGE: core.GaugeMetricFamily,
        MetricKind.COUNTER: core.CounterMetricFamily,
        MetricKind.SUMMARY: core.SummaryMetricFamily,
    }
    metric = types[family.kind](family.name, family.doc, labels=family.labels)
    for sample in family.samples:
        if family.kind is MetricKind.SUMMARY:
            metric.add_metric(sample.labels, count_value=sample.count, sum_value=sample.value)
        else:
            metric.add_metric(sample.labels, sample.value)
    return metric


def _prometheus() -> Any:
    try:
        import prometheus_client  # noqa: PLC0415  (of the extra `metrics`)
        import prometheus_client.core  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "cannot serve metrics: the package prometheus-client is missing. Install it with: "
            "pip install 'streamgroup[metrics]'"
        ) from None
    return prometheus_client


_serving: list[tuple[SparkContext, MetricsServer]] = []
"""The endpoint of the application in this process; none or one."""


def metrics(
    spark: SparkSession, port: int = 9404, *, host: str = "127.0.0.1", cluster_name: str = "default"
) -> MetricsServer:
    """Serve the metrics of this driver's queries at `http://host:port/metrics`. Return the server, to `close` it.

    Call it before the queries start: earlier batches are not counted. With port 0 it takes any free port, which is the
    `port` of the result. Every client that reaches the port can read the names of topics, groups and queries, so the
    default is loopback. `cluster_name` is the label of that name in the metrics of kafka-lag-exporter.

    Raises ConfigError without the extra `metrics` or through Spark Connect, StreamGroupError if the port cannot be
    used or the driver serves metrics already.
    """
    log_warnings_to_stderr()
    context = driver_context("metrics")
    for owner, server in list(_serving):
        if owner is context and server.is_open:
            raise StreamGroupError(
                f"cannot serve metrics: this driver already serves them at port {server.port}. Close that server "
                f"before you open another"
            )
        server.close()  # of an application that has ended
    counter = QueryCounter()
    measured = DriverMetrics(jvm_pid(context), counter, cluster_name)
    server = MetricsServer(measured, port=port, host=host, on_close=lambda: stop_counting(spark, context, counter))
    spark.streams.addListener(counter)
    _serving[:] = [(context, server)]
    return server


STATUS_TIMEOUT_S = 1.0
"""Maximum seconds to wait for one coordinator when the metrics are collected."""
READING_S = 5.0
"""Maximum seconds to wait for all coordinators. By default Prometheus' scrapes time out after 10 s."""


class DriverMetrics:
    """Collects the metrics of all queries and coordinators of one driver.

    `pid` is the process id of the driver's JVM.
    """

    def __init__(self, pid: int, counter: QueryCounter, cluster_name: str) -> None:
        self.counter = counter
        self._pid = pid
        self._cluster_name = cluster_name
        self._times = LogTimes[LogKey]()
        self._lock = threading.Lock()

    def read(self) -> list[Family]:
        """Return all metrics with their current values. Waits at most READING_S."""
        now = time.monotonic()  # before the statuses: of two concurrent readings the later one has the newer ends
        statuses = channel.statuses(self._pid, STATUS_TIMEOUT_S, now + READING_S)
        with self._lock:  # scrapes may be concurrent
            self._times.add(now, log_ends(statuses.values()))
            return families(
                statuses.values(),
                self.counter.totals(),
                self._cluster_name,
                self.counter.failures(),
                lambda log, position: self._times.seconds_behind(log, position, now),
            )
